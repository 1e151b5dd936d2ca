// A pool: the workers that serve one model, and the policy instance that chooses among them.

import { capacityFor, MAX_CAPACITY } from "../abi/frame.js";
import { Candidates } from "../policy/candidates.js";
import { BuiltInRule, type Decider } from "../policy/decider.js";
import { LivePolicy, PolicyStartError } from "../policy/live.js";
import type { Contender, PolicyInstance } from "./contenders.js";
import type { Scope } from "./scope.js";
import type { Worker } from "./worker.js";

/** A contender's live instance in one pool; null where it does not start over as many rows. */
interface Seated {
  readonly contender: Contender;
  readonly live: LivePolicy | null;
}

/** The live instances of a pool, over the rows that they are shown. */
export interface Seats {
  readonly candidates: Candidates;
  readonly seated: readonly Seated[];
}

/** Rows ordered by worker id, their columns, and the policies in the order in which they take over from each other. */
export class Pool {
  readonly model: string;
  /** Written by the router alone. */
  scope: Scope;
  #contenders: readonly Contender[];
  #workers: readonly Worker[] = [];
  #candidates: Candidates;
  #seated: readonly Seated[];
  #builtIn: BuiltInRule;
  /** What is not settled yet. */
  readonly #coming = new Set<Worker>();
  readonly #going = new Set<Worker>();
  #firstChanged = Number.POSITIVE_INFINITY;
  /** Index into `#seated` of the policy that decides; beyond its end the built-in rule does. */
  #deciding = 0;

  /**
   * The first of `contenders` decides; each next takes over when the one before is quarantined, and after the last the
   * built-in rule. `scope` is that of its sessions. Throws a PolicyStartError where the first does not start.
   */
  constructor(model: string, scope: Scope, contenders: readonly Contender[]) {
    this.model = model;
    this.scope = scope;
    this.#contenders = contenders;
    this.#candidates = new Candidates(capacityFor(0));
    this.#builtIn = new BuiltInRule(this.#candidates);
    this.#seated = this.#start(this.#candidates);
  }

  /** Workers by row. */
  get workers(): readonly Worker[] {
    return this.#workers;
  }

  get candidates(): Candidates {
    return this.#candidates;
  }

  /** What decides now. */
  get decider(): Decider {
    while (this.#mustPassOn()) this.#passOn();
    return this.#seated[this.#deciding]?.live ?? this.#builtIn;
  }

  /** The live instances of policies here, each with its name. */
  get seats(): readonly { readonly name: string; readonly live: LivePolicy | null }[] {
    return this.#seated.map(({ contender, live }) => ({ name: contender.instance.name, live }));
  }

  /** The policy instance that decides now; null under the built-in rule. */
  get instance(): PolicyInstance | null {
    return this.#seated[this.#deciding]?.contender.instance ?? null;
  }

  /** Name of the policy instance that decides now; under the built-in rule that of the one whose place it took. */
  get policy(): string {
    const { contender } = this.#seated[this.#deciding] ?? this.#seated.at(-1)!;
    return contender.instance.name;
  }

  /** Workers, once what has changed is settled. */
  get size(): number {
    return this.#workers.length + this.#coming.size - this.#going.size;
  }

  /** Whether it has a worker, or will once that is settled. */
  has(worker: Worker): boolean {
    return worker.rowIn(this) >= 0 || this.#coming.has(worker);
  }

  /**
   * Takes a worker in, which has a row when that is settled. A pool that outgrows its capacity gets a fresh instance. Throws a RangeError for
   * more workers than rows can be numbered and a PolicyStartError where the instance that decides does not start; nothing is changed then.
   */
  add(worker: Worker): void {
    this.#makeRoom(this.size + 1);
    this.#coming.add(worker);
    this.#firstChanged = Math.min(this.#firstChanged, placeOf(worker.id, this.#workers));
  }

  /** Lets a worker go, whose row goes when that is settled. */
  remove(worker: Worker): void {
    if (this.#coming.delete(worker)) return;
    const row = worker.rowIn(this);
    this.#candidates.setEligible(row, false);
    this.#firstChanged = Math.min(this.#firstChanged, row);
    this.#going.add(worker);
    worker.leave(this);
  }

  /** Numbers the rows anew, from the first that has changed on, after workers have come or gone. Nothing decides before. */
  settle(): void {
    const first = this.#firstChanged;
    const before = this.#workers;
    const stay = before.slice(first).filter((worker) => !this.#going.has(worker));
    const changed = [...stay, ...this.#coming].sort((a, b) => (a.id < b.id ? -1 : 1));
    const workers = before.slice(0, first).concat(changed);
    this.#workers = workers;
    for (let row = workers.length; row < before.length; row++) this.#candidates.setEligible(row, false);
    for (let row = first; row < workers.length; row++) this.#seat(workers[row]!, row);
    this.#candidates.n = workers.length;
    this.#settleBlocks();
    this.#coming.clear();
    this.#going.clear();
    this.#firstChanged = Number.POSITIVE_INFINITY;
  }

  #settleBlocks(): void {
    const least = this.#candidates.blockTokens;
    const hasLost = [...this.#going].some(({ report }) => report.blockTokens === least);
    if (hasLost) this.#candidates.setBlockTokens(this.#leastBlock());
    else for (const { report } of this.#coming) this.showBlocks(0, report.blockTokens);
  }

  /** Shows policies what a worker can carry, and what its engine says. For `Worker`. */
  show({ weight, slots, shownRequests, report }: Worker, row: number): void {
    const candidates = this.#candidates;
    candidates.set("weight", row, weight);
    candidates.set("slots", row, slots);
    candidates.setActiveRequests(row, shownRequests);
    candidates.set("queue_depth", row, report.queueDepth);
    candidates.set("kv_used", row, report.kvUsed);
    candidates.set("kv_blocks", row, report.kvBlocks);
  }

  /**
   * Shows policies the smallest block of its engines, for counting a prompt's blocks rather too many than too few, when that of
   * one of them has changed; 0 unknown. For `Worker`.
   */
  showBlocks(before: number, now: number): void {
    const candidates = this.#candidates;
    const least = candidates.blockTokens;
    if (now > 0 && (least === 0 || now <= least)) candidates.setBlockTokens(now);
    else if (before === least) candidates.setBlockTokens(this.#leastBlock());
  }

  /** A fresh instance is shown nothing before `settle`. */
  #makeRoom(count: number): void {
    if (count > MAX_CAPACITY)
      throw new RangeError(`model "${this.model}" has ${count} workers, at most ${MAX_CAPACITY} are allowed`);
    if (count <= this.#candidates.capacity) return;
    const candidates = new Candidates(capacityFor(count));
    candidates.setBlockTokens(this.#candidates.blockTokens);
    this.#seated = this.#start(candidates);
    this.#candidates = candidates;
    this.#builtIn = new BuiltInRule(candidates);
    this.#firstChanged = 0;
  }

  #seat(worker: Worker, row: number): void {
    const candidates = this.#candidates;
    worker.sit(this, row);
    candidates.setEligible(row, worker.eligible);
    candidates.set("bound_sessions", row, worker.boundSessions);
    candidates.set("worker_hash", row, worker.hash);
    this.show(worker, row);
  }

  #leastBlock(): number {
    const known = this.#workers.map(({ report }) => report.blockTokens).filter((tokens) => tokens > 0);
    return known.length === 0 ? 0 : Math.min(...known);
  }

  /**
   * Starts what is new among other contenders, for `replace`; what decides now decides on. Throws a PolicyStartError where the one that is
   * to decide does not start.
   */
  prepare(contenders: readonly Contender[]): Seats {
    const candidates = this.#candidates;
    try {
      const existing = this.#seated.filter(({ live }) => live !== null);
      return { candidates, seated: seatAll(contenders, candidates, existing) };
    } finally {
      // Whoever starts is shown the rows, and they are shown to one at a time.
      this.#seated[this.#deciding]?.live?.takeOver();
    }
  }

  /** Has others decide, which `prepare` has started over the rows as they are. */
  replace({ seated }: Seats): void {
    this.#contenders = seated.map(({ contender }) => contender);
    this.#seated = seated;
    this.#deciding = 0;
    seated[0]?.live?.takeOver();
  }

  #mustPassOn(): boolean {
    const seat = this.#seated[this.#deciding];
    return seat !== undefined && (seat.live === null || seat.contender.health.quarantine !== null);
  }

  #passOn(): void {
    this.#deciding++;
    this.#seated[this.#deciding]?.live?.takeOver();
  }

  #start(candidates: Candidates): readonly Seated[] {
    const seated = seatAll(this.#contenders, candidates, []);
    seated[this.#deciding]?.live?.takeOver();
    return seated;
  }
}

/** Starts those that are not there yet. Who does not start is passed over, but for the one that is to decide. */
function seatAll(
  contenders: readonly Contender[],
  candidates: Candidates,
  existing: readonly Seated[],
): readonly Seated[] {
  const deciding = contenders.find(({ health }) => health.quarantine === null);
  return contenders.map((contender) => {
    return existing.find((seat) => seat.contender === contender) ?? seat(contender, candidates, deciding);
  });
}

function seat(contender: Contender, candidates: Candidates, deciding: Contender | undefined): Seated {
  const { policy, parameters } = contender.instance;
  try {
    return { contender, live: new LivePolicy(policy, parameters, candidates, contender.health) };
  } catch (error) {
    if (contender === deciding || !(error instanceof PolicyStartError)) throw error;
    contender.refusal = error.message;
    return { contender, live: null };
  }
}

/** The row of a worker of this id among workers in the order of their ids. */
function placeOf(id: string, workers: readonly Worker[]): number {
  let [low, high] = [0, workers.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (workers[middle]!.id < id) low = middle + 1;
    else high = middle;
  }
  return low;
}
