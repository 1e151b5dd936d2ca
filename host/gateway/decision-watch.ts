// Watches the decisions of the gateway's router: each is timed and counted, and those of sampled sessions are logged.

import type { DecisionLog } from "../decisions/log.js";
import type { Lease } from "../routing/lease.js";
import type { Decider, DecisionObserver, Turn } from "../routing/observer.js";
import type { Pool } from "../routing/pool.js";
import type { GatewayMetrics } from "./metrics.js";

export class DecisionWatch implements DecisionObserver {
  /** Null where decisions are not logged. */
  log: DecisionLog | null = null;
  readonly #metrics: GatewayMetrics;
  #askedAt = 0;

  constructor(metrics: GatewayMetrics) {
    this.#metrics = metrics;
  }

  asking(): void {
    this.#askedAt = performance.now();
  }

  decided(lease: Lease, pool: Pool, turn: Turn, bound: number, decider: Decider | null): void {
    const { policy, reason, failure } = lease;
    if (decider) {
      const microseconds = (performance.now() - this.#askedAt) * 1_000;
      this.#metrics.decided(policy, reason, failure, microseconds, decider.fuelUsed, decider.fuelBudget);
      this.log?.decided(lease, pool, turn, bound, decider, microseconds);
    } else {
      this.#metrics.decided(policy, reason, failure, 0, 0, 0);
      this.log?.decided(lease, pool, turn, bound, null, 0);
    }
  }
}
