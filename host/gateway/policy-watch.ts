// Tells the log of policies that fail: clients do not notice, so somebody must.

import type { Logger } from "pino";
import type { Lease } from "../routing/lease.js";
import type { Router } from "../routing/router.js";

/** Hears of every lease that a policy's failure decided; tells of each kind of failure once, and of each quarantine. */
export class PolicyWatch {
  readonly #router: Router;
  readonly #log: Logger;
  readonly #told = new Set<string>();

  constructor(router: Router, log: Logger) {
    this.#router = router;
    this.#log = log;
  }

  /** A lease with a `failure`. */
  failed({ policy, failure }: Lease): void {
    if (this.#isNew(`${policy} ${failure}`)) {
      this.#log.warn({ policy, failure }, "a policy failed; the built-in rule answered");
    }
    for (const { name, state, reason } of this.#router.status().policies) {
      if (state !== "quarantined" || !this.#isNew(`${name} quarantined`)) continue;
      this.#log.error({ policy: name, reason }, "a policy is quarantined: it is not asked any more");
    }
  }

  /** Tells of everything anew: policies may be others under the same names. */
  begin(): void {
    this.#told.clear();
  }

  #isNew(event: string): boolean {
    const isNew = !this.#told.has(event);
    this.#told.add(event);
    return isNew;
  }
}
