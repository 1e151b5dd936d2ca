// One line of log for a request, at its end.

import type { Logger } from "pino";
import type { RequestLogOptions } from "./options.js";
import type { RequestRecord } from "./request-record.js";

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

  /** A request has ended. See `RequestRecord.ended`. */
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
