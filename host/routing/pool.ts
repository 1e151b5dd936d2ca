// A pool: the workers that serve one model, and the policy instance that chooses among them.

import { capacityFor, MAX_CAPACITY } from "../abi/frame.js";
import { Candidates } from "../policy/candidates.js";
import type { PolicyFile } from "../policy/catalog.js";
import { type FailureCounts, LivePolicy } from "../policy/live.js";
import type { Worker } from "./worker.js";

/** The policy of a router: which module, under which name, with which parameters. */
export interface PolicyInstance {
  /** The instance's name, as it is shown in headers and status. */
  readonly name: string;
  readonly policy: Pick<PolicyFile, "manifest" | "admitted">;
  /** Parameter values in manifest order. */
  readonly parameters: Float64Array;
}

/** Rows ordered by worker id, their columns, and one live instance of the policy. */
export class Pool {
  readonly model: string;
  readonly #instance: PolicyInstance;
  readonly #failures: FailureCounts;
  #workers: readonly Worker[] = [];
  #candidates: Candidates;
  #live: LivePolicy;

  /** `failures` counts for the instance, over all its pools. Throws a PolicyStartError where the policy does not start. */
  constructor(model: string, instance: PolicyInstance, failures: FailureCounts) {
    this.model = model;
    this.#instance = instance;
    this.#failures = failures;
    this.#candidates = new Candidates(capacityFor(0));
    this.#live = this.#start(this.#candidates);
  }

  /** Workers by row. */
  get workers(): readonly Worker[] {
    return this.#workers;
  }

  get candidates(): Candidates {
    return this.#candidates;
  }

  get live(): LivePolicy {
    return this.#live;
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
      this.#live = this.#start(candidates);
      this.#candidates = candidates;
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

  #start(candidates: Candidates): LivePolicy {
    return new LivePolicy(this.#instance.policy, this.#instance.parameters, candidates, this.#failures);
  }
}
