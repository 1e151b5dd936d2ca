// How a policy instance does: its failures by kind, and when it has failed too often to go on.

import { FAILURES, type Failure } from "../abi/reasons.js";

/** Failures in a row that quarantine a policy. */
const IN_A_ROW = 3;
/** Failures among so many last decisions that do the same. */
const RECENT_FAILURES = 20;
const RECENT_DECISIONS = 1_000;

/** One instance's record, over all its pools. */
export class PolicyHealth {
  /** Why the policy is not asked any more; null while it is. Nothing but a fresh instance lifts it. */
  quarantine: string | null = null;
  readonly #counts = new Uint32Array(FAILURES.length);
  /** Numbers of the decisions that failed last, in a ring. */
  readonly #failedAt = new Float64Array(RECENT_FAILURES).fill(Number.NEGATIVE_INFINITY);
  #decisions = 0;
  #failures = 0;
  #inARow = 0;

  /** Records a decision whose answer was used. */
  succeed(): void {
    this.#decisions++;
    this.#inARow = 0;
  }

  /** Records a decision whose answer was not; `kind` is an index into `FAILURES`. */
  fail(kind: number): void {
    this.#counts[kind]!++;
    this.#decisions++;
    this.#inARow++;
    this.#failedAt[this.#failures++ % RECENT_FAILURES] = this.#decisions;
    // The slot that is overwritten next holds the oldest of the last failures.
    const span = this.#decisions - this.#failedAt[this.#failures % RECENT_FAILURES]!;
    if (this.quarantine !== null) return;
    if (this.#inARow >= IN_A_ROW)
      this.quarantine = `${IN_A_ROW} failures in a row, the last a ${FAILURES[kind]}`;
    else if (span < RECENT_DECISIONS) {
      this.quarantine = `${RECENT_FAILURES} failures within ${RECENT_DECISIONS} decisions, the last a ${FAILURES[kind]}`;
    }
  }

  /** Failures by kind; kinds that never happened are left out. */
  failures(): Partial<Record<Failure, number>> {
    const counted = FAILURES.map((kind, index) => [kind, this.#counts[index]!] as const);
    return Object.fromEntries(counted.filter(([, count]) => count > 0));
  }
}
