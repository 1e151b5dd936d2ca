// A lease: one request's hold on a worker, from acquire to release.

import type { Failure } from "../abi/reasons.js";
import type { Binding } from "./bindings.js";
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
  /** The rest is the router's own. */
  readonly binding: Binding | null;
  /** The worker the session was bound to at acquire, where it could have been chosen. */
  readonly keepable: Worker | null;
  version = 0;
  next: Lease | null = null;
  previous: Lease | null = null;
  #router: Router;
  #committed = false;
  #released = false;

  constructor(
    router: Router,
    worker: Worker,
    reason: string,
    policy: string,
    failure: Failure | undefined,
    binding: Binding | null,
    keepable: Worker | null,
  ) {
    this.#router = router;
    this.worker = worker;
    this.reason = reason;
    this.policy = policy;
    this.failure = failure;
    this.binding = binding;
    this.keepable = keepable;
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

  /** Ends the request, whatever became of it. Only the first call counts; answers whether this was it. */
  release(): boolean {
    if (this.#released) return false;
    this.#released = true;
    this.#router.end(this);
    return true;
  }
}
