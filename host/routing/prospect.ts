// What the host knows of a request before a policy is asked: whose session it is, where that is bound, and whether that, or
// the request itself, leaves the policy any choice.

import { ALIAS, type BindingTable, GROUP, SESSION } from "./bindings.js";
import { NONE } from "./chains.js";
import { hashSession } from "./hash.js";
import type { Pool } from "./pool.js";
import { noneEligible, pinElsewhere, pinNotEligible, pinUnknown } from "./refusals.js";
import { rendezvous } from "./rendezvous.js";
import type { AcquireRequest, Explanation, SessionOptions } from "./requests.js";
import { sipHash } from "./siphash.js";
import type { Worker } from "./worker.js";

/** One object for all requests of a router, one after the other, so that looking at one allocates nothing. */
export class Prospect {
  pool!: Pool;
  /** The key of its scope's hashes; null where it binds nothing. */
  scope: Int32Array | null = null;
  /** The number of its session's binding. */
  binding = NONE;
  /** Whether it makes a binding where there is none, and under which hash. */
  opens = false;
  readonly hash = new Int32Array(4);
  /** Kind and public name of that binding, and so of its session; both words are 0 without one. */
  kind = SESSION;
  idLow = 0;
  idHigh = 0;
  /** What named its session, for `explain`. */
  by: Explanation["session_by"] = null;
  /** The worker its session is bound to, tentatively or for good, and that worker's row, -1 for none. */
  bound: Worker | null = null;
  boundRow = -1;
  boundEligible = false;
  /** The row that the policy is shown as the session's. */
  shownRow = -1;
  /** The row that the host chooses without asking the policy, and why. */
  forcedRow = -1;
  forcedReason = "";
  readonly #bindings: BindingTable;
  readonly #workers: ReadonlyMap<string, Worker>;
  #affinity: "off" | "session" | "parent-group" = "session";
  #isHard = false;
  #isDeterministic = false;
  #startsAtParent = false;
  readonly #parentHash = new Int32Array(4);

  constructor(bindings: BindingTable, workers: ReadonlyMap<string, Worker>, session: SessionOptions) {
    this.#bindings = bindings;
    this.#workers = workers;
    this.configure(session);
  }

  /** How sessions are bound, from now on. */
  configure({
    mode = "soft",
    binding = "session",
    fullDeterminism = false,
    firstPlacement,
  }: SessionOptions): void {
    this.#affinity = mode === "off" ? "off" : binding;
    this.#isHard = mode === "hard";
    this.#isDeterministic = fullDeterminism;
    this.#startsAtParent = firstPlacement === "parent";
  }

  /** Takes up a request. Throws a PinError or a NoWorkerError where its explicit target cannot be had. */
  consider(request: AcquireRequest, pool: Pool, now: number): void {
    this.find(request, pool, now);
    const { pin, affinity, parent } = request;
    if (pin !== undefined) this.#pin(pin, request.exclude ?? []);
    else if (this.#isDeterministic) this.#derive(request.exclude);
    else {
      this.#leaveOutsider();
      if (this.#isHard || (affinity !== undefined && affinity !== "off")) this.#keep();
    }
    if (this.#startsAtParent && this.opens && parent !== undefined) this.#startAtParent(parent, now);
  }

  /** Takes up only whose session a request is of, and where that is bound. */
  find(request: AcquireRequest, pool: Pool, now: number): void {
    const { key, parent, tenant = "", previousResponse, affinity = this.#affinity } = request;
    const named = request.affinity === "off" ? undefined : key;
    const isGroup = affinity === "parent-group" && parent !== undefined;
    this.pool = pool;
    this.scope = affinity === "off" || this.#isDeterministic ? null : pool.scope.keyOf(tenant);
    this.binding = NONE;
    this.forcedRow = -1;
    this.kind = isGroup ? GROUP : SESSION;
    this.by = named === undefined ? null : isGroup ? "parent" : "key";
    if (this.scope) this.#lookUp(this.scope, isGroup ? parent : named, named, previousResponse, now);
    this.opens = this.binding === NONE && this.scope !== null && named !== undefined;
    this.#identify(tenant, isGroup ? `\0${parent}` : named);
    this.#locate();
  }

  #lookUp(
    scope: Int32Array,
    text: string | undefined,
    named: string | undefined,
    previousResponse: string | undefined,
    now: number,
  ): void {
    if (previousResponse !== undefined) {
      sipHash(scope, ALIAS, previousResponse, this.hash);
      this.binding = this.#bindings.findAlias(this.hash, now);
    }
    if (this.binding !== NONE) {
      this.by = "previous_response";
      this.kind = this.#bindings.isGroup(this.binding) ? GROUP : SESSION;
    } else if (named !== undefined) {
      sipHash(scope, this.kind, text!, this.hash);
      this.binding = this.#bindings.find(this.hash, now);
    }
  }

  /** The public name, of a binding that is not there yet too: policies may read it, and operators ask for it. */
  #identify(tenant: string, text: string | undefined): void {
    const { binding } = this;
    this.idLow = binding === NONE ? 0 : this.#bindings.idLow(binding);
    this.idHigh = binding === NONE ? 0 : this.#bindings.idHigh(binding);
    if (binding !== NONE || this.by === null) return;
    const { low, high } = hashSession(this.pool.scope.model, tenant, text!);
    this.idLow = low;
    this.idHigh = high;
  }

  #locate(): void {
    const { binding, pool } = this;
    const bound = binding === NONE ? null : this.#bindings.workerOf(binding);
    const row = bound ? bound.rowIn(pool) : -1;
    this.bound = bound;
    this.boundRow = row;
    this.boundEligible = row >= 0 && isEligible(pool, row);
    // A session that no worker has accepted has not lost the one that was tried first: it is new still.
    this.shownRow = this.boundEligible || (row >= 0 && this.#bindings.isBound(binding)) ? row : -1;
  }

  /** An explicit target: the policy is not asked, and a session that lives elsewhere is not moved by it. */
  #pin(id: string, exclude: readonly Worker[]): void {
    const { pool, bound, boundEligible, kind } = this;
    const worker = this.#workers.get(id);
    const row = worker ? worker.rowIn(pool) : -1;
    if (row < 0) throw pinUnknown(id);
    // Whoever names a worker has it also where it begins slowly.
    if (!worker!.hasRoom || exclude.includes(worker!)) throw pinNotEligible(worker!);
    // One child that must be elsewhere does not decide for its group.
    if (kind === GROUP && bound !== worker) this.#unbind();
    else if (boundEligible && bound !== worker) throw pinElsewhere(id, bound!.id);
    this.forcedRow = row;
    this.forcedReason = "explicit";
  }

  /** The choice under full determinism: no policy, no binding. */
  #derive(exclude: readonly Worker[] | undefined): void {
    const { pool, idLow, idHigh } = this;
    const { candidates, workers } = pool;
    const row =
      this.by === null
        ? candidates.leastLoaded()
        : rendezvous(workers, candidates.truth.eligible, idLow, idHigh);
    if (row < 0) throw noneEligible(pool, exclude);
    this.forcedRow = row;
    this.forcedReason = "deterministic";
  }

  /**
   * A session that is not to move stays while its worker is eligible; else it is placed as if it were new, and requests that come
   * before that is accepted join it there.
   */
  #keep(): void {
    const { bound, boundEligible, boundRow } = this;
    this.shownRow = -1;
    this.forcedReason = "hard";
    this.forcedRow = boundEligible || !bound ? boundRow : this.#rowInFlight();
  }

  /** The row on which another request of the session is in flight, of those that may be chosen; -1 for none. */
  #rowInFlight(): number {
    for (let lease = this.#bindings.leasesOf(this.binding); lease; lease = lease.next) {
      const row = lease.worker.rowIn(this.pool);
      if (row >= 0 && isEligible(this.pool, row)) return row;
    }
    return -1;
  }

  /** A child whose model its group's worker does not serve goes its own way, and does not move the group. */
  #leaveOutsider(): void {
    if (this.kind === GROUP && this.bound && this.boundRow < 0) this.#unbind();
  }

  #unbind(): void {
    this.scope = null;
    this.binding = NONE;
    this.opens = false;
    this.#locate();
  }

  /** Shows the policy a new child as if it were bound where its parent is. */
  #startAtParent(parent: string, now: number): void {
    sipHash(this.scope!, SESSION, parent, this.#parentHash);
    const binding = this.#bindings.find(this.#parentHash, now);
    const worker = binding === NONE ? null : this.#bindings.workerOf(binding);
    const row = worker ? worker.rowIn(this.pool) : -1;
    if (row >= 0 && isEligible(this.pool, row)) this.shownRow = row;
  }
}

function isEligible({ candidates }: Pool, row: number): boolean {
  return candidates.truth.eligible[row] === 1;
}
