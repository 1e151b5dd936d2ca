// Watches the decisions of the gateway's router: each is timed and counted, and those of sampled sessions are logged.

import type { DecisionLog } from "../decisions/log.js";
import type { Lease } from "../routing/lease.js";
import type { Decider, DecisionObserver, Turn } from "../routing/observer.js";
import type { Pool } from "../routing/pool.js";
import type { GatewayMetrics } from "./metrics.js";

export class DecisionWatch implements DecisionObserver {
  readonly #metrics: GatewayMetrics;
  #log: DecisionLog | null = null;
  /** What became of the lines of logs that are closed. */
  #past = { written: 0, dropped: 0 };
  #askedAt = 0;

  constructor(metrics: GatewayMetrics) {
    this.#metrics = metrics;
  }

  /** Null where decisions are not logged. */
  get log(): DecisionLog | null {
    return this.#log;
  }

  /** Lines of all logs so far. */
  get lines(): { readonly written: number; readonly dropped: number } {
    const { written = 0, dropped = 0 } = this.#log ?? {};
    return { written: this.#past.written + written, dropped: this.#past.dropped + dropped };
  }

  /** Has another log take over, or none. Resolves when the one before is closed. */
  async replaceLog(log: DecisionLog | null): Promise<void> {
    const before = this.#log;
    this.#log = log;
    if (!before) return;
    await before.close();
    const { written, dropped } = this.#past;
    this.#past = { written: written + before.written, dropped: dropped + before.dropped };
  }

  asking(): void {
    this.#askedAt = performance.now();
  }

  decided(lease: Lease, pool: Pool, turn: Turn, bound: number, decider: Decider | null): void {
    const { policy, reason, failure } = lease;
    if (decider) {
      const microseconds = (performance.now() - this.#askedAt) * 1_000;
      this.#metrics.decided(policy, reason, failure, microseconds, decider.fuelUsed, decider.fuelBudget);
      this.#log?.decided(lease, pool, turn, bound, decider, microseconds);
    } else {
      this.#metrics.decided(policy, reason, failure, 0, 0, 0);
      this.#log?.decided(lease, pool, turn, bound, null, 0);
    }
  }
}
