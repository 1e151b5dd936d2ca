// A pool: the workers that serve one model, and the policy instance that chooses among them.

import { capacityFor, MAX_CAPACITY } from "../abi/frame.js";
import { Candidates } from "../policy/candidates.js";
import { BuiltInRule, type Decider } from "../policy/decider.js";
import { PolicyHealth } from "../policy/health.js";
import { LivePolicy, type Program } from "../policy/live.js";
import type { Scope } from "./scope.js";
import type { Worker } from "./worker.js";

/** A policy under a name: which module, with which parameters. */
export interface PolicyInstance {
  /** The instance's name, as it is shown in headers and status. */
  readonly name: string;
  readonly policy: Program;
  /** Parameter values in manifest order. */
  readonly parameters: Float64Array;
}

/** A policy instance of a router, and how it does over all pools. */
export class Contender {
  readonly health = new PolicyHealth();

  constructor(readonly instance: PolicyInstance) {}
}

/** A contender's live instance in one pool. */
interface Seated {
  readonly contender: Contender;
  readonly live: LivePolicy;
}

/** Rows ordered by worker id, their columns, and the policies in the order in which they take over from each other. */
export class Pool {
  readonly model: string;
  readonly scope: Scope;
  readonly #contenders: readonly Contender[];
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

  /** Name of the policy instance that decides now; under the built-in rule that of the one whose place it took. */
  get policy(): string {
    const { contender } = this.#seated[this.#deciding] ?? this.#seated.at(-1)!;
    return contender.instance.name;
  }

  /**
   * Replaces the workers and renumbers the rows. A pool that outgrows its capacity gets a fresh instance.
   * Throws a RangeError for more workers than rows can be numbered and a PolicyStartError where the fresh instance does
   * not start; the pool is then as it was.
   */
  setWorkers(workers: readonly Worker[]): void {
    if (workers.length > MAX_CAPACITY) {
      throw new RangeError(
        `model "${this.model}" has ${workers.length} workers, at most ${MAX_CAPACITY} are allowed`,
      );
    }
    if (workers.length > this.#candidates.capacity) {
      const candidates = new Candidates(capacityFor(workers.length));
      this.#seated = this.#start(candidates);
      this.#candidates = candidates;
      this.#builtIn = new BuiltInRule(candidates);
    }
    const sorted = [...workers].sort((a, b) => (a.id < b.id ? -1 : 1));
    for (const worker of this.#workers) worker.leave(this);
    const before = this.#candidates.n;
    this.#workers = sorted;
    for (const [row, worker] of sorted.entries()) this.#seat(worker, row);
    for (let row = sorted.length; row < before; row++) this.#candidates.setEligible(row, false);
    this.#candidates.n = sorted.length;
  }

  #seat(worker: Worker, row: number): void {
    const candidates = this.#candidates;
    worker.sit(this, row);
    candidates.setEligible(row, worker.eligible);
    candidates.setActiveRequests(row, worker.activeRequests);
    candidates.set("bound_sessions", row, worker.boundSessions);
    candidates.set("weight", row, worker.weight);
    candidates.set("worker_hash", row, worker.hash);
    candidates.set("slots", row, worker.slots);
  }

  #passOn(): void {
    this.#deciding++;
    this.#seated[this.#deciding]?.live.takeOver();
  }

  #start(candidates: Candidates): readonly Seated[] {
    const seated = this.#contenders.map((contender) => {
      const { policy, parameters } = contender.instance;
      return { contender, live: new LivePolicy(policy, parameters, candidates, contender.health) };
    });
    seated[this.#deciding]?.live.takeOver();
    return seated;
  }
}
