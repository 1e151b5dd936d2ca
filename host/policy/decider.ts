// What a router asks: a policy, or the host's own rule in its place.

import type { Failure } from "../abi/reasons.js";
import type { Candidates } from "./candidates.js";

/** What changes with every decision: the header fields that a router fills. One object, used again and again. */
export class Turn {
  /** Monotonic milliseconds. */
  now = 0;
  /** 64 random bits as two signed words. */
  seedLow = 0;
  seedHigh = 0;
  /** 64-bit hash of the scoped session key as two signed words; both 0 without a key. */
  sessionLow = 0;
  sessionHigh = 0;
  /** Requests of the binding in flight on the bound worker. */
  sessionRequests = 0;
}

/** What a decision would be, had it been asked for. */
export interface Rehearsal {
  /** -1 where no row is eligible. */
  readonly row: number;
  /** Name of the reason, or `fallback`, or `none`. */
  readonly reason: string;
  /** Why it would be a fallback, where a policy was asked. */
  readonly failure: Failure | undefined;
  /** Units of fuel that the policy used; 0 where none was asked. */
  readonly fuelUsed: number;
  /**
   * Whether a fresh instance answered, which remembers nothing, because a call of the policy's own could not be undone.
   * What the policy remembers may make it decide otherwise.
   */
  readonly fresh: boolean;
}

/** What is rehearsed where no row is eligible. */
export const NO_ROW: Rehearsal = { row: -1, reason: "none", failure: undefined, fuelUsed: 0, fresh: false };

/** Chooses rows. A decision is left in its fields rather than returned, so that deciding allocates nothing. */
export interface Decider {
  /** The chosen row of the last decision, -1 where none was eligible. */
  readonly row: number;
  /** Name of the last decision's reason, or `fallback`, or `none`. */
  readonly reason: string;
  /** Why the last decision was a fallback, where the policy was asked. */
  readonly failure: Failure | undefined;
  /** What the policy answered in the last decision, as it did: `row | reason << 16`; null where it was not asked, or trapped. */
  readonly answer: number | null;
  /** Units of fuel that the last decision used, and those that it might have; 0 where no policy was asked. */
  readonly fuelUsed: number;
  readonly fuelBudget: number;
  /**
   * Which instance answered in the last decision, counted over the process, and how many decisions it had made before: what a
   * policy remembers follows from these. Both 0 where none was asked.
   */
  readonly instance: number;
  readonly call: number;
  readonly readsSeed: boolean;
  readonly readsSessionRequests: boolean;
  /** Chooses a row for one request. `bound` is the row its session is bound to, -1 for none. Never throws. */
  decide(turn: Turn, bound: number): void;
  /**
   * What `decide` would answer now; everything stays as it was, whatever a policy does. Throws a PolicyStartError where it
   * takes a fresh instance and none can be made.
   */
  rehearse(turn: Turn, bound: number): Rehearsal;
}

/** The built-in least-loaded rule, in the place of a policy that is not asked any more. */
export class BuiltInRule implements Decider {
  row = -1;
  readonly failure = undefined;
  readonly answer = null;
  readonly fuelUsed = 0;
  readonly fuelBudget = 0;
  readonly instance = 0;
  readonly call = 0;
  readonly readsSeed = false;
  readonly readsSessionRequests = false;
  readonly #candidates: Candidates;

  constructor(candidates: Candidates) {
    this.#candidates = candidates;
  }

  get reason(): string {
    return this.row < 0 ? "none" : "fallback";
  }

  decide(): void {
    this.row = this.#candidates.leastLoaded();
  }

  rehearse(): Rehearsal {
    const row = this.#candidates.leastLoaded();
    return row < 0 ? NO_ROW : { ...NO_ROW, row, reason: "fallback" };
  }
}
