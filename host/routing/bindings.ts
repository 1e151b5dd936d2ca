// The binding table: which session is bound to which worker, for how long, and who is using the binding now. Flat memory,
// a cache line a binding, so that a million of them cost neither the garbage collector nor a pause to grow.

import { AliasTable } from "./aliases.js";
import { Chains, NONE } from "./chains.js";
import { sessionId } from "./hash.js";
import type { Lease } from "./lease.js";
import type { Worker } from "./worker.js";

/** What a binding is of: one session, or all children of one parent. */
export const SESSION = 0;
export const GROUP = 1;
/** The kind of hash under which aliases are found. */
export const ALIAS = 2;

/** What to do where one binding more is needed than there may be: see `SessionOptions.whenFull`. */
export type WhenFull = "evict-idle" | "refuse-new";

/** A binding as an operator sees it. */
export interface BindingView {
  /** The session hash in 16 hex digits, see `sessionId`. */
  readonly id: string;
  readonly kind: "session" | "parent-group";
  readonly worker: string;
  /** Seconds since it was made. */
  readonly age_s: number;
  /** Milliseconds without a request, 0 while one is in flight. */
  readonly idle_ms: number;
  /** Requests in flight. */
  readonly leases: number;
  /** Requests that a worker accepted. */
  readonly turns: number;
  /** Times it was moved, or placed anew. */
  readonly moves: number;
  /** The decision that brought it to its worker. */
  readonly why: string;
  /** Whether it is to go when its last request ends. */
  readonly ending: boolean;
}

// A record's words. The first four are the hash under which it is found.
const STRIDE = 16;
/** The session hash of the ABI, low word first: the public name. */
const ID_LOW = 4;
const ID_HIGH = 5;
const WORKER = 6;
/** Changes with the worker, so that a lease can tell whether its view is still current. */
const VERSION = 7;
/** The idle list; OLDER also links free records. */
const OLDER = 8;
const NEWER = 9;
/** Monotonic milliseconds of the last commit or release that was current, as a double: index USED_AT / 2. */
const USED_AT = 10;
const FLAGS = 12;
const TURNS = 13;
/** Moves in the low half, the number of the reason in the high one. */
const MOVES_AND_WHY = 14;
/** Monotonic seconds. */
const MADE_AT = 15;

// Flags.
const IN_USE = 1;
/** A commit made it stand; before that it is tentative. */
const BOUND = 2;
const ENDING = 4;
const OF_GROUP = 8;
/** In the idle list: it stands and has no lease. */
const IDLE = 16;

const MOST_MOVES = 0xffff;
const MOST_REASONS = 0xffff;
/** Stale bindings that one request clears away at the most: more than it can make, so that the work is never put off for long. */
const STEPS = 8;
/** How far from the end of the idle list a binding's place is looked for. */
const NEAR = 64;
/** Records that are looked at for one page of bindings. */
const PAGE_STEPS = 65_536;

/** Bindings by number, at most `maxBindings`; 0 is none. Nothing is ever swept: what is stale goes a few at a time. */
export class BindingTable {
  /** Bindings that gave way to a new one before their time. */
  evicted = 0;
  /** Requests served without a binding because the table was full. */
  refused = 0;
  readonly #ttlMs: number;
  readonly #maxBindings: number;
  readonly #evicts: boolean;
  readonly #words: Int32Array;
  readonly #times: Float64Array;
  readonly #byHash: Chains;
  readonly #byId: Chains;
  readonly #aliases: AliasTable;
  /** Leases in flight by binding: a doubly linked list through the leases, newest first. */
  readonly #leases: (Lease | null)[] = [null];
  /** The bindings of each worker, through `#before` and `#after`; the first stands in the worker. */
  readonly #before: Int32Array;
  readonly #after: Int32Array;
  /** Workers by number, those included that were removed and still have bindings to clear away. */
  readonly #workers: (Worker | null)[] = [null];
  readonly #freeNumbers: number[] = [];
  readonly #gone: Worker[] = [];
  readonly #reasons: string[] = [""];
  #size = 0;
  #used = 0;
  #free = NONE;
  #oldest = NONE;
  #newest = NONE;

  constructor(ttlMs: number, maxBindings: number, whenFull: WhenFull) {
    this.#ttlMs = ttlMs;
    this.#maxBindings = maxBindings;
    this.#evicts = whenFull === "evict-idle";
    this.#words = new Int32Array((maxBindings + 1) * STRIDE);
    this.#times = new Float64Array(this.#words.buffer);
    this.#byHash = new Chains(this.#words, STRIDE, 0, maxBindings);
    this.#byId = new Chains(this.#words, STRIDE, ID_LOW, maxBindings);
    this.#aliases = new AliasTable(maxBindings);
    this.#before = new Int32Array(maxBindings + 1);
    this.#after = new Int32Array(maxBindings + 1);
  }

  /** Bindings held, tentative ones included. */
  get size(): number {
    return this.#size;
  }

  /** The binding of a hash, or NONE. One whose idle time is over is none. */
  find(hash: Int32Array, now: number): number {
    const binding = this.#lookUp(hash);
    return binding !== NONE && this.#isExpired(binding, now) ? NONE : binding;
  }

  /** The binding that an alias stands for, or NONE. */
  findAlias(hash: Int32Array, now: number): number {
    const binding = this.#aliases.find(hash);
    return binding !== NONE && this.#isExpired(binding, now) ? NONE : binding;
  }

  /** The binding with a public name that stands, or NONE. */
  findId(low: number, high: number, now: number): number {
    let binding = this.#byId.first(low);
    while (binding !== NONE) {
      const at = binding * STRIDE;
      const same = this.#words[at + ID_LOW] === low && this.#words[at + ID_HIGH] === high;
      if (same && this.#stands(binding, now)) return binding;
      binding = this.#byId.next(binding);
    }
    return NONE;
  }

  /**
   * Makes a binding, tentative and without a worker, for a hash for which `find` has none; to be held at once. NONE, and counted, where
   * the table is full and nothing may or can give way.
   */
  add(hash: Int32Array, idLow: number, idHigh: number, kind: number, now: number): number {
    const expired = this.#lookUp(hash);
    if (expired !== NONE) this.#remove(expired);
    if (this.#size >= this.#maxBindings && !this.#makeRoom(now)) {
      this.refused++;
      return NONE;
    }
    const binding = this.#take();
    const at = binding * STRIDE;
    const words = this.#words;
    words.fill(0, at, at + STRIDE);
    words.set(hash, at);
    words[at + ID_LOW] = idLow;
    words[at + ID_HIGH] = idHigh;
    words[at + FLAGS] = kind === GROUP ? IN_USE | OF_GROUP : IN_USE;
    words[at + MADE_AT] = Math.floor(now / 1_000);
    this.#size++;
    this.#byHash.add(binding);
    this.#byId.add(binding);
    return binding;
  }

  /** The worker that a binding points at, tentatively or for good; null where it points at none or that is removed. */
  workerOf(binding: number): Worker | null {
    const worker = this.#workers[this.#words[binding * STRIDE + WORKER]!]!;
    return worker === null || worker.removed ? null : worker;
  }

  /** Whether a commit made it stand. */
  isBound(binding: number): boolean {
    return (this.#words[binding * STRIDE + FLAGS]! & BOUND) !== 0;
  }

  isGroup(binding: number): boolean {
    return (this.#words[binding * STRIDE + FLAGS]! & OF_GROUP) !== 0;
  }

  version(binding: number): number {
    return this.#words[binding * STRIDE + VERSION]!;
  }

  idLow(binding: number): number {
    return this.#words[binding * STRIDE + ID_LOW]!;
  }

  idHigh(binding: number): number {
    return this.#words[binding * STRIDE + ID_HIGH]!;
  }

  /** Requests in flight of a binding on one worker. */
  requestsOn(binding: number, worker: Worker): number {
    let count = 0;
    for (let lease = this.#firstLease(binding); lease; lease = lease.next)
      if (lease.worker === worker) count++;
    return count;
  }

  /** Counts a lease on a binding; it cannot expire until the lease ends. */
  hold(binding: number, lease: Lease): void {
    const first = this.#leases[binding]!;
    if (!first) this.#unlinkIdle(binding);
    lease.next = first;
    if (first) first.previous = lease;
    this.#leases[binding] = lease;
  }

  /** Ends a lease's hold. `current` leases, whose view of the binding still holds, restart the idle time. */
  drop(binding: number, lease: Lease, now: number, current: boolean): void {
    if (lease.next) lease.next.previous = lease.previous;
    if (lease.previous) lease.previous.next = lease.next;
    else this.#leases[binding] = lease.next;
    lease.next = null;
    lease.previous = null;
    if (current) this.#times[(binding * STRIDE + USED_AT) >> 1] = now;
    if (this.#leases[binding]) return;
    const flags = this.#words[binding * STRIDE + FLAGS]!;
    if ((flags & (BOUND | ENDING)) === BOUND) this.#linkIdle(binding);
    else this.#remove(binding);
  }

  /** Makes a binding point at a worker tentatively. */
  propose(binding: number, worker: Worker): void {
    this.#point(binding, worker);
  }

  /** Makes a binding stand, at a worker that accepted a request of it for `reason`. */
  accept(binding: number, worker: Worker, reason: string, now: number): void {
    const at = binding * STRIDE;
    const words = this.#words;
    const wasBound = this.isBound(binding);
    const moves = this.workerOf(binding) !== worker;
    if (moves) this.#point(binding, worker);
    if (!wasBound || moves) {
      if (wasBound || words[at + TURNS] !== 0) this.#countMove(at);
      words[at + FLAGS]! |= BOUND;
      words[at + MOVES_AND_WHY] =
        (words[at + MOVES_AND_WHY]! & MOST_MOVES) | (this.#reasonNumber(reason) << 16);
      worker.addSessions(1);
    }
    words[at + TURNS]!++;
    this.#times[(at + USED_AT) >> 1] = now;
  }

  /** Takes a binding off its worker: the next request is placed anew. Only for one that has leases. */
  vacate(binding: number): void {
    this.#unlinkWorker(binding);
    this.#words[binding * STRIDE + VERSION]!++;
  }

  /** Has a binding go when its last lease ends. */
  end(binding: number): void {
    if (this.#leases[binding]) this.#words[binding * STRIDE + FLAGS]! |= ENDING;
    else this.#remove(binding);
  }

  /** Makes an alias stand for a binding, as long as that lives. */
  addAlias(hash: Int32Array, binding: number): void {
    this.#aliases.add(hash, binding);
  }

  /** Gives a worker its number; to be called before any binding points at it. */
  enlist(worker: Worker): void {
    worker.number = this.#freeNumbers.pop() ?? this.#workers.length;
    this.#workers[worker.number] = worker;
  }

  /** Has the bindings of a removed worker go. */
  dismiss(worker: Worker): void {
    this.#gone.push(worker);
  }

  /** Clears away some of what is stale: bindings whose idle time is over, at the very millisecond, and those of removed workers. */
  tidy(now: number, steps = STEPS): void {
    for (let step = 0; step < steps; step++) if (!this.#expireOldest(now) && !this.#buryOne()) return;
  }

  /** What an operator sees of a binding that stands. */
  view(binding: number, now: number): BindingView {
    const at = binding * STRIDE;
    const words = this.#words;
    let leases = 0;
    for (let lease = this.#firstLease(binding); lease; lease = lease.next) leases++;
    return {
      id: sessionId(words[at + ID_LOW]!, words[at + ID_HIGH]!),
      kind: this.isGroup(binding) ? "parent-group" : "session",
      worker: this.workerOf(binding)!.id,
      age_s: Math.max(0, Math.floor(now / 1_000) - words[at + MADE_AT]!),
      idle_ms: leases > 0 ? 0 : Math.round(now - this.#usedAt(binding)),
      leases,
      turns: words[at + TURNS]!,
      moves: words[at + MOVES_AND_WHY]! & MOST_MOVES,
      why: this.#reasons[words[at + MOVES_AND_WHY]! >>> 16]!,
      ending: (words[at + FLAGS]! & ENDING) !== 0,
    };
  }

  /**
   * Bindings that stand, from number `after` + 1 on: at most `limit`, of one worker where it is given. `next` is to be
   * handed in as `after` for what follows; it is NONE at the end. A page may be short, or empty, before the end.
   */
  page(
    after: number,
    limit: number,
    worker: Worker | null,
    now: number,
  ): { views: BindingView[]; next: number } {
    const views: BindingView[] = [];
    const last = Math.min(this.#used, after + PAGE_STEPS);
    let binding = after;
    while (binding < last && views.length < limit) {
      binding++;
      if (!this.#stands(binding, now)) continue;
      if (worker === null || this.workerOf(binding) === worker) views.push(this.view(binding, now));
    }
    return { views, next: binding < this.#used ? binding : NONE };
  }

  /** Whether a binding is there to be seen: committed, on a worker that is there, and not expired. */
  #stands(binding: number, now: number): boolean {
    const flags = this.#words[binding * STRIDE + FLAGS]!;
    const isBound = (flags & (IN_USE | BOUND)) === (IN_USE | BOUND);
    return isBound && this.workerOf(binding) !== null && !this.#isExpired(binding, now);
  }

  #firstLease(binding: number): Lease | null {
    return this.#leases[binding]!;
  }

  #isExpired(binding: number, now: number): boolean {
    return !this.#leases[binding] && this.#usedAt(binding) + this.#ttlMs <= now;
  }

  #usedAt(binding: number): number {
    return this.#times[(binding * STRIDE + USED_AT) >> 1]!;
  }

  #lookUp(hash: Int32Array): number {
    const words = this.#words;
    let binding = this.#byHash.first(hash[0]!);
    while (binding !== NONE) {
      const at = binding * STRIDE;
      const same =
        words[at] === hash[0] &&
        words[at + 1] === hash[1] &&
        words[at + 2] === hash[2] &&
        words[at + 3] === hash[3];
      if (same) return binding;
      binding = this.#byHash.next(binding);
    }
    return NONE;
  }

  /** Whether `add` would make a binding. */
  hasRoom(now: number): boolean {
    if (this.#size < this.#maxBindings) return true;
    if (this.#oldest !== NONE && (this.#evicts || this.#isExpired(this.#oldest, now))) return true;
    return this.#gone.some((worker) => this.#hasIdle(worker));
  }

  #hasIdle(worker: Worker): boolean {
    let binding = worker.firstBinding;
    while (binding !== NONE && this.#leases[binding]) binding = this.#after[binding]!;
    return binding !== NONE;
  }

  #makeRoom(now: number): boolean {
    if (this.#expireOldest(now)) return true;
    while (this.#gone.length > 0 && this.#size >= this.#maxBindings) this.#buryOne();
    if (this.#size < this.#maxBindings) return true;
    if (!this.#evicts || this.#oldest === NONE) return false;
    this.evicted++;
    this.#remove(this.#oldest);
    return true;
  }

  #expireOldest(now: number): boolean {
    if (this.#oldest === NONE || !this.#isExpired(this.#oldest, now)) return false;
    this.#remove(this.#oldest);
    return true;
  }

  /** Clears away one binding of a worker that is gone; false where there is none. */
  #buryOne(): boolean {
    const worker = this.#gone.at(-1);
    if (!worker) return false;
    const binding = worker.firstBinding;
    if (binding === NONE) {
      this.#gone.pop();
      this.#workers[worker.number] = null;
      this.#freeNumbers.push(worker.number);
    } else if (this.#leases[binding]) this.vacate(binding);
    else this.#remove(binding);
    return true;
  }

  /** A record that is free, its leases null. */
  #take(): number {
    const binding = this.#free;
    if (binding !== NONE) {
      this.#free = this.#words[binding * STRIDE + OLDER]!;
      return binding;
    }
    this.#used++;
    this.#leases[this.#used] = null;
    return this.#used;
  }

  /** Forgets a binding that has no leases. */
  #remove(binding: number): void {
    const at = binding * STRIDE;
    this.#unlinkIdle(binding);
    this.#unlinkWorker(binding);
    this.#aliases.forget(binding);
    this.#byHash.remove(binding);
    this.#byId.remove(binding);
    this.#words[at + FLAGS] = 0;
    this.#words[at + OLDER] = this.#free;
    this.#free = binding;
    this.#size--;
  }

  #point(binding: number, worker: Worker): void {
    this.#unlinkWorker(binding);
    const at = binding * STRIDE;
    const first = worker.firstBinding;
    this.#words[at + VERSION]!++;
    this.#words[at + WORKER] = worker.number;
    this.#before[binding] = NONE;
    this.#after[binding] = first;
    if (first !== NONE) this.#before[first] = binding;
    worker.firstBinding = binding;
  }

  /** Leaves the binding tentative, without a worker. */
  #unlinkWorker(binding: number): void {
    const at = binding * STRIDE;
    const worker = this.#workers[this.#words[at + WORKER]!]!;
    if (!worker) return;
    const before = this.#before[binding]!;
    const after = this.#after[binding]!;
    if (before === NONE) worker.firstBinding = after;
    else this.#after[before] = after;
    if (after !== NONE) this.#before[after] = before;
    if (this.isBound(binding)) worker.addSessions(-1);
    this.#words[at + WORKER] = NONE;
    this.#words[at + FLAGS]! &= ~BOUND;
  }

  #countMove(at: number): void {
    if ((this.#words[at + MOVES_AND_WHY]! & MOST_MOVES) < MOST_MOVES) this.#words[at + MOVES_AND_WHY]!++;
  }

  #reasonNumber(reason: string): number {
    const known = this.#reasons.indexOf(reason);
    if (known >= 0) return known;
    if (this.#reasons.length > MOST_REASONS) return 0;
    return this.#reasons.push(reason) - 1;
  }

  /**
   * Puts a binding into the idle list by its last use: at the end, but for a lease that was not current and left an older time.
   * Where its place is not near either end it stands behind it, and is cleared away late, though none to whoever looks for it.
   */
  #linkIdle(binding: number): void {
    const words = this.#words;
    const used = this.#usedAt(binding);
    let older = this.#newest;
    if (this.#oldest !== NONE && used < this.#usedAt(this.#oldest)) older = NONE;
    for (let step = 0; step < NEAR && older !== NONE && this.#usedAt(older) > used; step++)
      older = words[older * STRIDE + OLDER]!;
    const newer = older === NONE ? this.#oldest : words[older * STRIDE + NEWER]!;
    words[binding * STRIDE + FLAGS]! |= IDLE;
    words[binding * STRIDE + OLDER] = older;
    words[binding * STRIDE + NEWER] = newer;
    if (older === NONE) this.#oldest = binding;
    else words[older * STRIDE + NEWER] = binding;
    if (newer === NONE) this.#newest = binding;
    else words[newer * STRIDE + OLDER] = binding;
  }

  /** Takes a binding out of the idle list, if it is in there. */
  #unlinkIdle(binding: number): void {
    const words = this.#words;
    if ((words[binding * STRIDE + FLAGS]! & IDLE) === 0) return;
    words[binding * STRIDE + FLAGS]! &= ~IDLE;
    const older = words[binding * STRIDE + OLDER]!;
    const newer = words[binding * STRIDE + NEWER]!;
    if (older === NONE) this.#oldest = newer;
    else words[older * STRIDE + NEWER] = newer;
    if (newer === NONE) this.#newest = older;
    else words[newer * STRIDE + OLDER] = older;
  }
}
