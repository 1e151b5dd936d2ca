// A lease: one request's hold on a worker, from acquire to release.

import type { Failure } from "../abi/reasons.js";
import { NONE } from "./chains.js";
import type { Router } from "./router.js";
import type { Worker } from "./worker.js";

/** Handed out by `Router.acquire`. Commit it when the worker accepted the request; release it whatever happened. */
export class Lease {
  /** The worker to dispatch to: the object, so that a worker re-added under the same id is another one. */
  readonly worker: Worker;
  /** Why it was chosen: a reason of the policy or a decision of the host. */
  readonly reason: string;
  /** Name of the policy instance that decided. */
  readonly policy: string;
  /** Why the policy's own answer was not used, if so. */
  readonly failure: Failure | undefined;
  /** The rest is the router's own. The worker the session was bound to at acquire, where it could have been chosen. */
  readonly keepable: Worker | null;
  /** The key of its scope's hashes, where it binds or may begin a session. */
  scope: Int32Array | null = null;
  /** The number of the binding it holds. */
  binding = NONE;
  version = 0;
  /** Written by the router's observer alone: under which number it knows of this decision. */
  trace = 0;
  next: Lease | null = null;
  previous: Lease | null = null;
  readonly #router: Router;
  #committed = false;
  #released = false;

  constructor(
    router: Router,
    worker: Worker,
    reason: string,
    policy: string,
    failure: Failure | undefined,
    keepable: Worker | null,
  ) {
    this.#router = router;
    this.worker = worker;
    this.reason = reason;
    this.policy = policy;
    this.failure = failure;
    this.keepable = keepable;
  }

  /** The id of its session's binding, for logs: a hash. Null where it holds none, and after the release. */
  get session(): string | null {
    return this.#released ? null : this.#router.sessionOf(this);
  }

  /**
   * Says that the worker accepted the request: binds the session, or moves its binding if nobody else moved it
   * meanwhile. Further calls, and calls after `release`, do nothing.
   */
  commit(): void {
    if (this.#committed || this.#released) return;
    this.#committed = true;
    this.#router.settle(this);
  }

  /**
   * Makes the id of the answer another name of the session, for `AcquireRequest.previousResponse`; a request that named no
   * session starts one. Does nothing before the commit, or where nothing is bound.
   */
  alias(responseId: string): void {
    if (this.#committed && !this.#released) this.#router.name(this, responseId);
  }

  /**
   * Says that the worker failed the request: takes the session off it, where it is bound there and nobody moved it meanwhile.
   * The next request is placed anew. To be released as any other.
   */
  invalidate(): void {
    if (!this.#released) this.#router.invalidate(this);
  }

  /**
   * Ends the request, whatever became of it: `failed` where that was the worker's fault, so that requests to come do not
   * join it there. Only the first call counts; answers whether this was it.
   */
  release(outcome: "ended" | "failed" = "ended"): boolean {
    this.#router.audit?.released(this);
    if (this.#released) return false;
    this.#released = true;
    this.#router.end(this, outcome === "failed");
    return true;
  }
}
