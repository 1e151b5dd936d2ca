// The binding table: which session is bound to which worker, for how long, and who is using the binding now. Flat memory,
// a cache line a binding, so that a million of them cost neither the garbage collector nor a pause to grow.

import { AliasTable } from "./aliases.js";
import { Chains, NONE } from "./chains.js";
import { sessionId } from "./hash.js";
import { IdleList } from "./idle-list.js";
import type { Lease } from "./lease.js";
import type { Worker } from "./worker.js";

/** What a binding is of: one session, or all children of one parent. */
export const SESSION = 0;
export const GROUP = 1;
/** The kind of hash under which aliases are found, and sessions that have no other name. */
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

// A record's words: what every request touches, one line of the cache. The first four are the hash under which it is found.
const STRIDE = 16;
/** The session hash of the ABI, low word first: the public name. */
const ID_LOW = 4;
const ID_HIGH = 5;
const WORKER = 6;
/** Changes with the worker, so that a lease can tell whether its view is still current. */
const VERSION = 7;
/** Monotonic milliseconds of the last release that was current, as a double: index USED_AT / 2. */
const USED_AT = 8;
const FLAGS = 10;
const TURNS = 11;
/** The next record of the same bucket. */
const LINK = 12;
/** Where in `#leases` its leases stand, 0 for none. */
const LEASES = 13;

// A record's other words.
const MORE = 8;
/** The next record of the same bucket, by public name; of a free record, the next free one. */
const ID_LINK = 0;
/** The list of its worker's bindings; the first one stands in the worker. */
const BEFORE = 1;
const AFTER = 2;
/** Monotonic seconds. */
const MADE_AT = 3;
const MOVES = 4;
/** Number of a reason. */
const WHY = 5;
/** The public name, mixed with the secret: clients can choose keys whose public names are alike. */
const ID_HASH = 6;

// Flags.
const IN_USE = 1;
/** A commit made it stand; before that it is tentative. */
const BOUND = 2;
const ENDING = 4;
const OF_GROUP = 8;
/** In the idle list: it stands and has no lease. */
const IDLE = 16;
/** Named by the id of an answer alone. */
const UNNAMED = 32;

/** Reasons that are told apart: more than any policy has. */
const MOST_REASONS = 0xffff;
/** Stale bindings that one request clears away at the most: more than it can make, so that the work is never put off for long. */
const STEPS = 8;
/** Aliases that there is room for in any case: all that the sessions of a default table can have. */
const ALIASES = 2 ** 20;
/** Records that are looked at for one page of bindings. */
const PAGE_STEPS = 65_536;

/** What a worker was before it lost what it held: a removed worker, as far as bindings are concerned. */
class Past {
  readonly removed = true;
  readonly number: number;
  firstBinding: number;

  constructor({ number, firstBinding }: Worker) {
    this.number = number;
    this.firstBinding = firstBinding;
  }

  /** They have been taken off the worker all at once. */
  addSessions(): void {}
}

/** Bindings by number, at most `maxBindings`; 0 is none. Nothing is ever swept: what is stale goes a few at a time. */
export class BindingTable {
  /** Bindings that gave way to a new one before their time. */
  evicted = 0;
  /** Requests served without a binding because the table was full. */
  refused = 0;
  #ttlMs: number;
  readonly #maxBindings: number;
  #evicts: boolean;
  readonly #words: Int32Array;
  readonly #more: Int32Array;
  readonly #idle: IdleList;
  readonly #times: Float64Array;
  readonly #byHash: Chains;
  readonly #byId: Chains;
  readonly #aliases: AliasTable;
  /** The leases in flight of each binding that has any: a doubly linked list through the leases, newest first. */
  readonly #leases: (Lease | null)[] = [null];
  readonly #freeLeases: number[] = [];
  /** Workers by number, those included that were removed and still have bindings to clear away. */
  readonly #workers: (Worker | Past | null)[] = [null];
  readonly #freeNumbers: number[] = [];
  readonly #gone: (Worker | Past)[] = [];
  readonly #reasons: string[] = [""];
  readonly #secretLow: number;
  readonly #secretHigh: number;
  #size = 0;
  #unnamed = 0;
  #used = 0;
  #free = NONE;

  /** `secret` are the words under which the hashes of bindings are made. */
  constructor(ttlMs: number, maxBindings: number, whenFull: WhenFull, secret: Int32Array) {
    this.#secretLow = secret[0]! ^ secret[2]!;
    this.#secretHigh = secret[1]! ^ secret[3]!;
    this.#ttlMs = ttlMs;
    this.#maxBindings = maxBindings;
    this.#evicts = whenFull === "evict-idle";
    this.#words = new Int32Array((maxBindings + 1) * STRIDE);
    this.#more = new Int32Array((maxBindings + 1) * MORE);
    this.#times = new Float64Array(this.#words.buffer);
    this.#idle = new IdleList(maxBindings, { times: this.#times, stride: STRIDE / 2, index: USED_AT / 2 });
    const field = (word: number) => ({ words: this.#words, stride: STRIDE, word });
    const more = (word: number) => ({ words: this.#more, stride: MORE, word });
    this.#byHash = new Chains(field(0), field(LINK), maxBindings);
    this.#byId = new Chains(more(ID_HASH), more(ID_LINK), maxBindings);
    this.#aliases = new AliasTable(maxBindings, Math.max(maxBindings, Math.min(16 * maxBindings, ALIASES)));
  }

  /** How long bindings last, and what gives way, from now on. */
  configure(ttlMs: number, whenFull: WhenFull): void {
    this.#ttlMs = ttlMs;
    this.#evicts = whenFull === "evict-idle";
  }

  /** Bindings held, tentative ones included. */
  get size(): number {
    return this.#size;
  }

  /** The binding of a hash, or NONE. A stale one is none. */
  find(hash: Int32Array, now: number): number {
    const binding = this.#lookUp(hash);
    return binding !== NONE && this.#isStale(binding, now) ? NONE : binding;
  }

  /** The binding that an alias stands for, or NONE. */
  findAlias(hash: Int32Array, now: number): number {
    const binding = this.#aliases.find(hash);
    return binding !== NONE && this.#isStale(binding, now) ? NONE : binding;
  }

  /** The binding with a public name that stands, or NONE. */
  findId(low: number, high: number, now: number): number {
    let binding = this.#byId.first(this.#idHash(low, high));
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
    const stale = this.#lookUp(hash);
    if (stale !== NONE) this.#remove(stale);
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
    words[at + FLAGS] = IN_USE | (kind === GROUP ? OF_GROUP : 0) | (kind === ALIAS ? UNNAMED : 0);
    if (kind === ALIAS) this.#unnamed++;
    this.#more.fill(0, binding * MORE, (binding + 1) * MORE);
    this.#more[binding * MORE + ID_HASH] = this.#idHash(idLow, idHigh);
    this.#more[binding * MORE + MADE_AT] = Math.floor(now / 1_000);
    this.#size++;
    this.#byHash.add(binding);
    this.#byId.add(binding);
    return binding;
  }

  /** The worker that a binding points at, tentatively or for good; null where it points at none or that is removed. */
  workerOf(binding: number): Worker | null {
    const worker = this.#workers[this.#words[binding * STRIDE + WORKER]!]!;
    return worker === null || worker.removed ? null : (worker as Worker);
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
    for (let lease = this.leasesOf(binding); lease; lease = lease.next) if (lease.worker === worker) count++;
    return count;
  }

  /** The newest of a binding's leases; the others follow it through `next`. */
  leasesOf(binding: number): Lease | null {
    return this.#leases[this.#words[binding * STRIDE + LEASES]!]!;
  }

  /** Whether another lease of a binding is on the same worker. */
  hasOther(binding: number, lease: Lease): boolean {
    let other = this.leasesOf(binding);
    while (other && (other === lease || other.worker !== lease.worker)) other = other.next;
    return other !== null;
  }

  /** Counts a lease on a binding; it cannot expire until the lease ends. */
  hold(binding: number, lease: Lease): void {
    const at = binding * STRIDE + LEASES;
    const place = this.#words[at]!;
    if (place === NONE) {
      this.#unlinkIdle(binding);
      const free = this.#freeLeases.pop() ?? this.#leases.length;
      this.#words[at] = free;
      this.#leases[free] = lease;
      return;
    }
    const first = this.#leases[place]!;
    lease.next = first;
    first.previous = lease;
    this.#leases[place] = lease;
  }

  /** Ends a lease's hold. `current` leases, whose view of the binding still holds, restart the idle time. */
  drop(binding: number, lease: Lease, now: number, current: boolean): void {
    const { next, previous } = lease;
    if (current) this.#times[(binding * STRIDE + USED_AT) >> 1] = now;
    lease.next = null;
    lease.previous = null;
    if (next) next.previous = previous;
    if (previous) previous.next = next;
    else if (next) this.#leases[this.#words[binding * STRIDE + LEASES]!] = next;
    else this.#letGo(binding);
  }

  /** The last lease of a binding has ended. */
  #letGo(binding: number): void {
    const at = binding * STRIDE;
    const place = this.#words[at + LEASES]!;
    this.#leases[place] = null;
    this.#freeLeases.push(place);
    this.#words[at + LEASES] = NONE;
    if ((this.#words[at + FLAGS]! & (BOUND | ENDING)) === BOUND) this.#linkIdle(binding);
    else this.#remove(binding);
  }

  /** Makes a binding point at a worker, for `reason`: tentatively, until `accept`. */
  propose(binding: number, worker: Worker, reason: string): void {
    this.#point(binding, worker);
    this.#more[binding * MORE + WHY] = this.#reasonNumber(reason);
  }

  /**
   * Makes a binding stand, at a worker that accepted a request of it for `reason`. Its idle time begins when the lease of
   * that request ends: what was accepted last is always current then.
   */
  accept(binding: number, worker: Worker, reason: string): void {
    const at = binding * STRIDE;
    const words = this.#words;
    const wasBound = this.isBound(binding);
    if (this.workerOf(binding) !== worker) this.propose(binding, worker, reason);
    if (!this.isBound(binding)) {
      if (wasBound || words[at + TURNS] !== 0) this.#more[binding * MORE + MOVES]!++;
      words[at + FLAGS]! |= BOUND;
      worker.addSessions(1);
    }
    words[at + TURNS]!++;
  }

  /** Takes a binding off its worker: the next request is placed anew. Only for one that has leases. */
  vacate(binding: number): void {
    this.#unlinkWorker(binding);
    this.#words[binding * STRIDE + VERSION]!++;
  }

  /** Has a binding go when its last lease ends. */
  end(binding: number): void {
    if (this.#isHeld(binding)) this.#words[binding * STRIDE + FLAGS]! |= ENDING;
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

  /** Has the bindings of a worker go that stays: a stand-in takes them with it, and the worker begins anew. */
  chill(worker: Worker): void {
    const past = new Past(worker);
    this.#gone.push(past);
    this.#workers[past.number] = past;
    worker.addSessions(-worker.boundSessions);
    worker.firstBinding = NONE;
    this.enlist(worker);
  }

  /** Clears away some of what is stale: bindings whose idle time is over, at the very millisecond, and those of removed workers. */
  tidy(now: number, steps = STEPS): void {
    for (let step = 0; step < steps; step++) if (!this.#expireOldest(now) && !this.#buryOne()) return;
  }

  /** What an operator sees of a binding that stands. */
  view(binding: number, now: number): BindingView {
    const at = binding * STRIDE;
    const words = this.#words;
    const more = binding * MORE;
    let leases = 0;
    for (let lease = this.leasesOf(binding); lease; lease = lease.next) leases++;
    return {
      id: sessionId(words[at + ID_LOW]!, words[at + ID_HIGH]!),
      kind: this.isGroup(binding) ? "parent-group" : "session",
      worker: this.workerOf(binding)!.id,
      age_s: Math.max(0, Math.floor(now / 1_000) - this.#more[more + MADE_AT]!),
      idle_ms: leases > 0 ? 0 : Math.round(now - this.#usedAt(binding)),
      leases,
      turns: words[at + TURNS]!,
      moves: this.#more[more + MOVES]!,
      why: this.#reasons[this.#more[more + WHY]!]!,
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
    return isBound && this.workerOf(binding) !== null && !this.#isStale(binding, now);
  }

  #isHeld(binding: number): boolean {
    return this.#words[binding * STRIDE + LEASES] !== NONE;
  }

  /** Whether a binding that nobody uses is none any more: its idle time is over, or its worker was removed. */
  #isStale(binding: number, now: number): boolean {
    if (this.#isHeld(binding)) return false;
    return this.#usedAt(binding) + this.#ttlMs <= now || this.workerOf(binding) === null;
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

  /** Whether a session that nobody has named may be bound: they displace no other, and have half of the table at most. */
  get hasRoomForUnnamed(): boolean {
    return this.#size < this.#maxBindings && this.#unnamed < Math.ceil(this.#maxBindings / 2);
  }

  /** Whether `add` would make a binding. */
  hasRoom(now: number): boolean {
    if (this.#size < this.#maxBindings) return true;
    const { oldest } = this.#idle;
    if (oldest !== NONE && (this.#evicts || this.#isStale(oldest, now))) return true;
    return this.#gone.some((worker) => this.#hasIdle(worker));
  }

  #hasIdle(worker: Worker | Past): boolean {
    let binding = worker.firstBinding;
    while (binding !== NONE && this.#isHeld(binding)) binding = this.#more[binding * MORE + AFTER]!;
    return binding !== NONE;
  }

  #makeRoom(now: number): boolean {
    if (this.#expireOldest(now)) return true;
    while (this.#gone.length > 0 && this.#size >= this.#maxBindings) this.#buryOne();
    if (this.#size < this.#maxBindings) return true;
    const { oldest } = this.#idle;
    if (!this.#evicts || oldest === NONE) return false;
    this.evicted++;
    this.#remove(oldest);
    return true;
  }

  #expireOldest(now: number): boolean {
    const { oldest } = this.#idle;
    if (oldest === NONE || !this.#isStale(oldest, now)) return false;
    this.#remove(oldest);
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
    } else if (this.#isHeld(binding)) this.vacate(binding);
    else this.#remove(binding);
    return true;
  }

  /** A record that is free. */
  #take(): number {
    const binding = this.#free;
    if (binding !== NONE) {
      this.#free = this.#more[binding * MORE + ID_LINK]!;
      return binding;
    }
    return ++this.#used;
  }

  /** Forgets a binding that has no leases. */
  #remove(binding: number): void {
    const at = binding * STRIDE;
    this.#unlinkIdle(binding);
    this.#unlinkWorker(binding);
    if (this.#words[at + FLAGS]! & UNNAMED) this.#unnamed--;
    this.#aliases.forget(binding);
    this.#byHash.remove(binding);
    this.#byId.remove(binding);
    this.#words[at + FLAGS] = 0;
    this.#more[binding * MORE + ID_LINK] = this.#free;
    this.#free = binding;
    this.#size--;
  }

  #point(binding: number, worker: Worker): void {
    this.#unlinkWorker(binding);
    const at = binding * STRIDE;
    const first = worker.firstBinding;
    this.#words[at + VERSION]!++;
    this.#words[at + WORKER] = worker.number;
    this.#more[binding * MORE + BEFORE] = NONE;
    this.#more[binding * MORE + AFTER] = first;
    if (first !== NONE) this.#more[first * MORE + BEFORE] = binding;
    worker.firstBinding = binding;
  }

  /** Leaves the binding tentative, without a worker. */
  #unlinkWorker(binding: number): void {
    const at = binding * STRIDE;
    const worker = this.#workers[this.#words[at + WORKER]!]!;
    if (!worker) return;
    const more = this.#more;
    const before = more[binding * MORE + BEFORE]!;
    const after = more[binding * MORE + AFTER]!;
    if (before === NONE) worker.firstBinding = after;
    else more[before * MORE + AFTER] = after;
    if (after !== NONE) more[after * MORE + BEFORE] = before;
    if (this.isBound(binding)) worker.addSessions(-1);
    this.#words[at + WORKER] = NONE;
    this.#words[at + FLAGS]! &= ~BOUND;
  }

  #idHash(low: number, high: number): number {
    let hash = Math.imul(low ^ this.#secretLow, 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13) ^ high ^ this.#secretHigh, 0xc2b2ae35);
    return hash ^ (hash >>> 16);
  }

  #reasonNumber(reason: string): number {
    const known = this.#reasons.indexOf(reason);
    if (known >= 0) return known;
    if (this.#reasons.length > MOST_REASONS) return 0;
    return this.#reasons.push(reason) - 1;
  }

  #linkIdle(binding: number): void {
    this.#words[binding * STRIDE + FLAGS]! |= IDLE;
    this.#idle.add(binding);
  }

  /** Takes a binding out of the idle list, if it is in there. */
  #unlinkIdle(binding: number): void {
    const flags = this.#words[binding * STRIDE + FLAGS]!;
    if ((flags & IDLE) === 0) return;
    this.#words[binding * STRIDE + FLAGS] = flags & ~IDLE;
    this.#idle.remove(binding);
  }
}
