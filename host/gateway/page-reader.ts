// A worker's answer to a GET, read whole.

import type { Page } from "../fleet/line.js";
import type { AnswerHead } from "../transport/answer.js";
import type { Call, CallListener } from "../transport/call.js";
import { Gathered } from "./blocks.js";

/** Collects the answer, and settles a promise by it. */
export class PageReader implements CallListener {
  readonly #path: string;
  readonly #maxBytes: number;
  readonly #resolve: (page: Page) => void;
  readonly #reject: (error: Error) => void;
  readonly #body = new Gathered();
  #call: Call | null = null;
  #timer: NodeJS.Timeout | undefined;
  #status = 0;

  constructor(path: string, maxBytes: number, resolve: (page: Page) => void, reject: (error: Error) => void) {
    this.#path = path;
    this.#maxBytes = maxBytes;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** Ends the call where its answer is not whole within `ms` milliseconds. */
  waitFor(call: Call, ms: number): void {
    this.#call = call;
    this.#timer = setTimeout(
      () => this.#giveUp(`it did not answer GET ${this.#path} within ${ms} ms`),
      ms,
    ).unref();
  }

  onHead({ status }: AnswerHead): void {
    this.#status = status;
  }

  onData(chunk: Buffer): void {
    this.#body.push(chunk);
    if (this.#body.size > this.#maxBytes)
      this.#giveUp(`its answer to GET ${this.#path} has more than ${this.#maxBytes} bytes`);
  }

  onEnd(): void {
    clearTimeout(this.#timer);
    this.#resolve({ status: this.#status, text: this.#body.bytes.toString() });
  }

  onFailure(error: Error): void {
    clearTimeout(this.#timer);
    this.#reject(error);
  }

  #giveUp(why: string): void {
    clearTimeout(this.#timer);
    this.#call?.abort();
    this.#reject(new Error(why));
  }
}
