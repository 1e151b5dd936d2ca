// Who watches the decisions of a router: for metrics, and for a log from which they can be decided anew.

import type { Decider, Turn } from "../policy/decider.js";
import type { Lease } from "./lease.js";
import type { Pool } from "./pool.js";

export type { Decider, Turn } from "../policy/decider.js";

/** Hears of every decision of a router, in the same turn. It must not throw, nor change anything but `lease.trace`. */
export interface DecisionObserver {
  /** A policy is asked next. */
  asking(): void;
  /**
   * A worker was chosen, by `decider`; null where the host chose without asking. The rows of `pool` are still as they were shown:
   * the lease counts nowhere yet. `turn` and `bound`, the row shown as the session's or -1, are those of the decision; where the host
   * chose, only the time and the session of `turn` are.
   */
  decided(lease: Lease, pool: Pool, turn: Turn, bound: number, decider: Decider | null): void;
}
