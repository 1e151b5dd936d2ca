// The binding table: which session is bound to which worker, for how long, and who is using the binding now.

import type { Lease } from "./lease.js";
import type { Worker } from "./worker.js";

/**
 * A session's place. It is tentative from the moment its worker is chosen and stands from the first commit; `worker`
 * is null between a tentative choice that came to nothing and the next one.
 */
export class Binding {
  worker: Worker | null = null;
  /** Whether a commit made it stand. */
  bound = false;
  /** Changes with the worker, so that a lease can tell whether its view is still current. */
  version = 0;
  /** The lease whose choice a tentative binding is. */
  chooser: Lease | null = null;
  /** Leases in flight: a doubly linked list through the leases, newest first. */
  leases: Lease | null = null;
  /** Monotonic milliseconds of the last commit or release that was current. */
  usedAt = 0;
  previous: Binding | null = null;
  next: Binding | null = null;

  constructor(
    /** Model, tenant and key. */
    readonly id: string,
    /** The session hash as two signed words. */
    readonly sessionLow: number,
    readonly sessionHigh: number,
  ) {}

  /** Requests in flight of this binding on one worker. */
  requestsOn(worker: Worker): number {
    let count = 0;
    for (let lease = this.leases; lease; lease = lease.next) if (lease.worker === worker) count++;
    return count;
  }
}

/**
 * Bindings by id, at most `maxBindings`. Those without a lease stand in a list, the longest unused first, from which
 * they expire after `ttlMs` or are evicted when room is needed: no sweep, no timer.
 */
export class BindingTable {
  /** Bindings that gave way to a new one before their time. */
  evicted = 0;
  /** Requests served without a binding because every binding was in use. */
  refused = 0;
  readonly #byId = new Map<string, Binding>();
  readonly #ttlMs: number;
  readonly #maxBindings: number;
  #oldest: Binding | null = null;
  #newest: Binding | null = null;

  constructor(ttlMs: number, maxBindings: number) {
    this.#ttlMs = ttlMs;
    this.#maxBindings = maxBindings;
  }

  /** Bindings held, tentative ones included. */
  get size(): number {
    return this.#byId.size;
  }

  /** The binding of an id. */
  find(id: string): Binding | undefined {
    return this.#byId.get(id);
  }

  /** Adds a binding for an id that has none; false, and counted, where the table is full of bindings in use. */
  add(binding: Binding): boolean {
    if (this.#byId.size >= this.#maxBindings) {
      if (!this.#oldest) {
        this.refused++;
        return false;
      }
      this.evicted++;
      this.#remove(this.#oldest);
    }
    this.#byId.set(binding.id, binding);
    return true;
  }

  /** Counts a lease on a binding; it cannot expire until the lease ends. */
  hold(binding: Binding, lease: Lease): void {
    if (!binding.leases) this.#unlink(binding);
    lease.next = binding.leases;
    if (binding.leases) binding.leases.previous = lease;
    binding.leases = lease;
  }

  /** Ends a lease's hold. `current` leases, whose view of the binding still holds, restart the idle time. */
  drop(binding: Binding, lease: Lease, now: number, current: boolean): void {
    if (lease.next) lease.next.previous = lease.previous;
    if (lease.previous) lease.previous.next = lease.next;
    else binding.leases = lease.next;
    lease.next = null;
    lease.previous = null;
    if (current) binding.usedAt = now;
    if (binding.leases) return;
    if (binding.bound) this.#append(binding);
    else this.#byId.delete(binding.id);
  }

  /** Makes a binding point at a worker, tentatively or for good. */
  point(binding: Binding, worker: Worker, bound: boolean): void {
    if (binding.worker !== worker) {
      if (binding.bound) binding.worker!.addSessions(-1);
      binding.version++;
      binding.worker = worker;
      if (bound) worker.addSessions(1);
    } else if (bound && !binding.bound) {
      worker.addSessions(1);
    }
    binding.bound = bound;
    if (bound) binding.chooser = null;
  }

  /** Takes back a tentative choice that came to nothing; the next acquire chooses anew. */
  retract(binding: Binding): void {
    binding.worker = null;
    binding.chooser = null;
    binding.version++;
  }

  /** Forgets the bindings that have been idle for the TTL, at the very millisecond. */
  expire(now: number): void {
    while (this.#oldest && this.#oldest.usedAt + this.#ttlMs <= now) this.#remove(this.#oldest);
  }

  #remove(idle: Binding): void {
    this.#unlink(idle);
    idle.worker!.addSessions(-1);
    this.#byId.delete(idle.id);
  }

  /** Into the idle list at its place by last use: at the end but for the rare lease that was not current. */
  #append(binding: Binding): void {
    let before = this.#newest;
    while (before && before.usedAt > binding.usedAt) before = before.previous;
    binding.previous = before;
    binding.next = before ? before.next : this.#oldest;
    if (binding.next) binding.next.previous = binding;
    else this.#newest = binding;
    if (before) before.next = binding;
    else this.#oldest = binding;
  }

  #unlink(binding: Binding): void {
    if (binding.previous) binding.previous.next = binding.next;
    else if (this.#oldest === binding) this.#oldest = binding.next;
    if (binding.next) binding.next.previous = binding.previous;
    else if (this.#newest === binding) this.#newest = binding.previous;
    binding.previous = null;
    binding.next = null;
  }
}
