// A worker's answer that came after the client had been sent a head in its place: the answer may not fit behind it.

import { Gathered } from "./blocks.js";
import type { GatewayError } from "./errors.js";

/** Most bytes of an error that are read. */
const MAX_BYTES = 65_536;
const MAX_MESSAGE = 1_000;

interface LateError {
  readonly error?: { readonly message?: unknown };
  readonly message?: unknown;
}

/** The error that a worker answered with, to be told as an event. */
export class LateAnswer {
  readonly #worker: string;
  readonly #status: number;
  readonly #gathered = new Gathered();
  #isTooLong = false;

  constructor(worker: string, status: number) {
    this.#worker = worker;
    this.#status = status;
  }

  /** Bytes that it holds. */
  get size(): number {
    return this.#gathered.size;
  }

  /** Takes the next bytes; false from where they are too many: the rest will not be looked at. */
  push(chunk: Buffer): boolean {
    if (this.#isTooLong || this.#gathered.size + chunk.length > MAX_BYTES) {
      this.#isTooLong = true;
      this.#gathered.clear();
    } else this.#gathered.push(chunk);
    return !this.#isTooLong;
  }

  /** What the client is told: the worker's own message where it can be read. */
  error(): GatewayError {
    const what = this.#status < 400 ? "with no stream of events" : `with status ${this.#status}`;
    const message = this.#message() ?? `worker "${this.#worker}" answered ${what}`;
    return { status: this.#status < 400 ? 502 : this.#status, code: "worker_error", message };
  }

  #message(): string | undefined {
    if (this.#status < 400 || this.#isTooLong) return undefined;
    try {
      const answer = JSON.parse(this.#gathered.bytes.toString()) as LateError | null;
      // Some engines leave out the level of `error`.
      const message = answer?.error?.message ?? answer?.message;
      return typeof message === "string" ? message.slice(0, MAX_MESSAGE) : undefined;
    } catch {
      return undefined;
    }
  }
}
