// One line of log for a request, at its end. No prompt, no key, no secret: the session is told by its hash.

import type { Logger } from "pino";
import type { Clock } from "../fleet/clock.js";
import type { Lease } from "../routing/lease.js";
import type { RequestLogOptions } from "./options.js";

/** What is known of a request under way, for its line. */
export class RequestRecord {
  readonly path: string;
  /** The status that the client was sent, 0 for none. */
  status = 0;
  /** The name of the client's access key, where it showed one that is known. */
  client: string | undefined;
  /** Set where some worker serves it: any other name is the client's invention. */
  model: string | undefined;
  /** Who served it and why; undefined where no worker did. */
  decision: object | undefined;
  readonly #clock: Clock;
  readonly #cameAt: number;
  #bodyAt = Number.NaN;
  #firstByteAt = Number.NaN;

  constructor(path: string, clock: Clock) {
    this.path = path;
    this.#clock = clock;
    this.#cameAt = clock.now();
  }

  /** Its last lease, while that is held. */
  decided({ worker, policy, reason, session }: Lease): void {
    this.decision = { worker: worker.id, policy, decision: reason, session };
  }

  /** Its body is whole. */
  bodyCame(): void {
    this.#bodyAt = this.#clock.now();
  }

  /** The first byte of its answer is there. */
  firstByteCame(): void {
    this.#firstByteAt = this.#clock.now();
  }

  /** Milliseconds since it came, in tenths; undefined for what has not been. */
  times(): Readonly<Record<"body" | "first_byte" | "total", number | undefined>> {
    const since = (at: number) => (Number.isNaN(at) ? undefined : Math.round((at - this.#cameAt) * 10) / 10);
    return {
      body: since(this.#bodyAt),
      first_byte: since(this.#firstByteAt),
      total: since(this.#clock.now()),
    };
  }
}

/** Writes the lines that the options ask for. */
export class RequestLog {
  readonly #log: Logger;
  readonly #requests: RequestLogOptions["requests"];
  readonly #sample: number;
  #due = 0;

  constructor(log: Logger, { requests, sample }: RequestLogOptions) {
    this.#log = log;
    this.#requests = requests;
    this.#sample = sample;
  }

  /**
   * A request has ended. `outcome` is `complete`, `client_gone` or the code of an
   * error; `failures` how workers failed it; `isError` whether the gateway or a worker did.
   */
  ended(record: RequestRecord, outcome: string, failures: readonly string[], isError: boolean): void {
    if (!this.#wants(isError)) return;
    const { path, status, client, model, decision } = record;
    const failed = failures.length > 0 ? failures : undefined;
    const line = { path, outcome, status, client, model, ...decision, failed, ms: record.times() };
    this.#log[isError ? "warn" : "info"](line, "request");
  }

  #wants(isError: boolean): boolean {
    if (isError || this.#requests === "all") return true;
    if (this.#requests === "errors") return false;
    this.#due += this.#sample;
    // Ten tenths add up to a bit less than 1.
    if (this.#due < 1 - 1e-9) return false;
    this.#due--;
    return true;
  }
}
