// Watches that every lease ends exactly once: for the tests of whoever dispatches.

import type { Lease } from "./lease.js";

/** Hears of every lease of a router, see `RouterOptions.audit`. */
export class LeaseAudit {
  readonly #open = new Map<Lease, Error>();
  readonly #twice: Error[] = [];

  /** A lease was handed out. Called by the router. */
  taken(lease: Lease): void {
    this.#open.set(lease, new Error(`a lease on worker "${lease.worker.id}" was never released`));
  }

  /** A lease was released, for the first time or again. Called by the lease. */
  released(lease: Lease): void {
    if (this.#open.delete(lease)) return;
    this.#twice.push(new Error(`a lease on worker "${lease.worker.id}" was released twice`));
  }

  /** Leases that are out. */
  get open(): number {
    return this.#open.size;
  }

  /**
   * Throws an AggregateError where a lease was released twice or is out still: to be called when all requests have ended.
   * Its errors show where a lease was taken, or released once too often.
   */
  check(): void {
    const errors = [...this.#twice, ...this.#open.values()];
    if (errors.length === 0) return;
    throw new AggregateError(
      errors,
      `leases: ${this.#twice.length} released twice, ${this.#open.size} not released`,
    );
  }
}
