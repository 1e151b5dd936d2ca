// The workers that one request has been to, and whether it may go to one more.

import type { Lease } from "../routing/lease.js";
import type { Worker } from "../routing/worker.js";
import type { Cause, Retries } from "./retries.js";

/** Why a session that is kept on its worker is chosen another one, once, whatever is configured. */
const TURNED_AWAY: ReadonlySet<Cause> = new Set<Cause>([
  "connect",
  "reset",
  "event",
  "drained",
  429,
  502,
  503,
  504,
]);

/** What costs the budget nothing: the worker has had no load of it yet, or an operator would have it move. */
const FREE: ReadonlySet<Cause> = new Set<Cause>(["connect", "drained"]);

/** The way of one request. */
export class Trail {
  /** How workers failed it, in the order in which they did: `w0: status 503`. */
  readonly failures: string[] = [];
  readonly #retries: Retries;
  readonly #tried: Worker[] = [];
  /** Whether it is counted as a retry under way. */
  #isRetry = false;
  #isReselected = false;

  constructor(retries: Retries) {
    this.#retries = retries;
  }

  /** Remembers that a worker failed the request, and how. */
  note(lease: Lease, reason: string): void {
    this.failures.push(`${lease.worker.id}: ${reason}`);
  }

  /** Whether another worker may be tried after the one that failed. `isStateful`: to run it twice would leave two traces. */
  mayGoOn({ reason }: Lease, cause: Cause, isStateful: boolean): boolean {
    return this.#isReselection(reason, cause, isStateful) || this.#mayRetry(cause, isStateful);
  }

  /** The workers that are not to be tried after the one that failed. */
  closedTo({ worker }: Lease): Worker[] {
    return [...this.#tried, worker];
  }

  /** Another worker is tried. */
  goOn({ worker, reason }: Lease, cause: Cause, isStateful: boolean): void {
    this.#retries.begun++;
    if (this.#isReselection(reason, cause, isStateful)) this.#isReselected = true;
    else if (!FREE.has(cause) && !this.#isRetry) {
      this.#isRetry = true;
      this.#retries.begin();
    }
    this.#tried.push(worker);
  }

  /** It was answered, or is over: it is no retry any more. */
  arrive(): void {
    if (this.#isRetry) this.#retries.end();
    this.#isRetry = false;
  }

  #isReselection(reason: string, cause: Cause, isStateful: boolean): boolean {
    const isMeant = reason === "hard" && !this.#isReselected && TURNED_AWAY.has(cause);
    return isMeant && this.#retries.isSafe(cause, isStateful);
  }

  #mayRetry(cause: Cause, isStateful: boolean): boolean {
    const retries = this.#retries;
    if (!retries.allows(cause, isStateful) || this.#tried.length + 1 >= retries.attempts) return false;
    return this.#isRetry || FREE.has(cause) || retries.hasRoom();
  }
}
