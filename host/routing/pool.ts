// A pool: the workers that serve one model, and the policy instance that chooses among them.

import { capacityFor, MAX_CAPACITY } from "../abi/frame.js";
import { Candidates } from "../policy/candidates.js";
import { BuiltInRule, type Decider } from "../policy/decider.js";
import { LivePolicy } from "../policy/live.js";
import type { Contender, PolicyInstance } from "./contenders.js";
import type { Scope } from "./scope.js";
import type { Worker } from "./worker.js";

/** A contender's live instance in one pool. */
interface Seated {
  readonly contender: Contender;
  readonly live: LivePolicy;
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
  /** Index into `#seated` of the policy that decides; beyond its end the built-in rule does. */
  #deciding = 0;

  /**
   * The first of `contenders` decides; each next takes over when the one before is quarantined, and after the last the
   * built-in rule. `scope` is that of its sessions. Throws a PolicyStartError where one does not start.
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
    while (this.#seated[this.#deciding]?.contender.health.quarantine) this.#passOn();
    return this.#seated[this.#deciding]?.live ?? this.#builtIn;
  }

  /** The live instances of policies here, each with its name. */
  get seats(): readonly { readonly name: string; readonly live: LivePolicy }[] {
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

  /**
   * Takes a worker in; rows behind its own are renumbered. A pool that outgrows its capacity gets a fresh instance. Throws a
   * RangeError for more workers than rows can be numbered and a PolicyStartError where the fresh instance does not start; the
   * pool is then as it was.
   */
  add(worker: Worker): void {
    const row = placeOf(worker.id, this.#workers);
    const isFresh = this.#makeRoom(this.#workers.length + 1);
    this.#workers = this.#workers.toSpliced(row, 0, worker);
    this.#seatFrom(isFresh ? 0 : row);
    this.showBlocks(0, worker.report.blockTokens);
  }

  /** Lets a worker go; rows behind its own are renumbered. */
  remove(worker: Worker): void {
    const row = worker.rowIn(this);
    worker.leave(this);
    this.#workers = this.#workers.toSpliced(row, 1);
    this.#candidates.setEligible(this.#workers.length, false);
    this.#seatFrom(row);
    this.showBlocks(worker.report.blockTokens, 0);
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

  /** Whether that took a fresh instance, which has been shown nothing yet. */
  #makeRoom(count: number): boolean {
    if (count > MAX_CAPACITY)
      throw new RangeError(`model "${this.model}" has ${count} workers, at most ${MAX_CAPACITY} are allowed`);
    if (count <= this.#candidates.capacity) return false;
    const candidates = new Candidates(capacityFor(count));
    candidates.setBlockTokens(this.#candidates.blockTokens);
    this.#seated = this.#start(candidates);
    this.#candidates = candidates;
    this.#builtIn = new BuiltInRule(candidates);
    return true;
  }

  #seatFrom(row: number): void {
    const workers = this.#workers;
    for (let at = row; at < workers.length; at++) this.#seat(workers[at]!, at);
    this.#candidates.n = workers.length;
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
   * Starts what is new among other contenders, for `replace`; what decides now decides on. Throws a PolicyStartError where one does not
   * start.
   */
  prepare(contenders: readonly Contender[]): Seats {
    const candidates = this.#candidates;
    try {
      const seated = contenders.map((contender) => {
        const existing = this.#seated.find((seat) => seat.contender === contender);
        return existing ?? seat(contender, candidates);
      });
      return { candidates, seated };
    } finally {
      // Whoever starts is shown the rows, and they are shown to one at a time.
      this.#seated[this.#deciding]?.live.takeOver();
    }
  }

  /** Has others decide, which `prepare` has started over the rows as they are. */
  replace({ seated }: Seats): void {
    this.#contenders = seated.map(({ contender }) => contender);
    this.#seated = seated;
    this.#deciding = 0;
    seated[0]?.live.takeOver();
  }

  #passOn(): void {
    this.#deciding++;
    this.#seated[this.#deciding]?.live.takeOver();
  }

  #start(candidates: Candidates): readonly Seated[] {
    const seated = this.#contenders.map((contender) => seat(contender, candidates));
    seated[this.#deciding]?.live.takeOver();
    return seated;
  }
}

function seat(contender: Contender, candidates: Candidates): Seated {
  const { policy, parameters } = contender.instance;
  return { contender, live: new LivePolicy(policy, parameters, candidates, contender.health) };
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
