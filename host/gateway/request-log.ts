// One line of log for a request, at its end. No prompt, no key, no secret: the session is told by its hash.

import type { Logger } from "pino";
import type { RequestLogOptions } from "./options.js";

/** What a line tells. Times are in milliseconds since the request came. */
export interface RequestEntry {
  readonly path: string;
  /** `complete`, `client_gone`, or the code of the error that ended it. */
  readonly outcome: string;
  /** The status that the client was sent, or 0 for none. */
  readonly status: number;
  readonly model: string | undefined;
  readonly worker: string | undefined;
  readonly policy: string | undefined;
  readonly decision: string | undefined;
  readonly session: string | null | undefined;
  /** Workers that failed the request, each with how, in the order in which they were tried. */
  readonly failed: readonly string[];
  /** When its body was whole; when the first byte of the answer came; when it ended. */
  readonly bodyMs: number | undefined;
  readonly firstByteMs: number | undefined;
  readonly totalMs: number;
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

  /** Whether the request that ends now is to be written; to be asked once for each. */
  wants(isError: boolean): boolean {
    if (isError || this.#requests === "all") return true;
    if (this.#requests === "errors") return false;
    this.#due += this.#sample;
    if (this.#due < 1) return false;
    this.#due--;
    return true;
  }

  write(entry: RequestEntry, isError: boolean): void {
    this.#log[isError ? "warn" : "info"](rounded(entry), "request");
  }
}

function rounded(entry: RequestEntry): object {
  const { bodyMs, firstByteMs, totalMs, failed, ...rest } = entry;
  const ms = { body: tenths(bodyMs), first_byte: tenths(firstByteMs), total: tenths(totalMs) };
  return { ...rest, ...(failed.length > 0 && { failed }), ms };
}

function tenths(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 10) / 10;
}
