// A worker's answer to `GET /v1/models`, read whole.

import type { AnswerHead } from "../transport/answer.js";
import type { Call, CallListener } from "../transport/call.js";
import { Gathered } from "./blocks.js";

/** Largest answer that is read, in bytes. */
const MAX_BYTES = 1_048_576;

/** Collects the answer, and settles a promise by it. */
export class ModelList implements CallListener {
  readonly #resolve: (entries: readonly unknown[]) => void;
  readonly #reject: (error: Error) => void;
  readonly #gathered = new Gathered();
  #call: Call | null = null;
  #timer: NodeJS.Timeout | undefined;
  #status = 0;

  constructor(resolve: (entries: readonly unknown[]) => void, reject: (error: Error) => void) {
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** Ends the call where its answer is not whole within `ms` milliseconds. */
  waitFor(call: Call, ms: number): void {
    this.#call = call;
    const late = `it did not answer GET /v1/models within ${ms} ms`;
    this.#timer = setTimeout(() => this.#giveUp(late), ms).unref();
  }

  onHead({ status }: AnswerHead): void {
    this.#status = status;
  }

  onData(chunk: Buffer): void {
    this.#gathered.push(chunk);
    if (this.#gathered.size > MAX_BYTES) this.#giveUp(`its list of models has more than ${MAX_BYTES} bytes`);
  }

  onEnd(): void {
    clearTimeout(this.#timer);
    const entries = this.#status === 200 ? entriesOf(this.#gathered.bytes) : undefined;
    if (entries) this.#resolve(entries);
    else if (this.#status === 200) this.#reject(new Error("its answer to GET /v1/models has no list `data`"));
    else this.#reject(new Error(`it answered GET /v1/models with status ${this.#status}`));
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

/** The list in a JSON text, undefined where there is none: the parser's own message would quote the text. */
function entriesOf(text: Buffer): readonly unknown[] | undefined {
  try {
    const data = (JSON.parse(text.toString()) as { data?: unknown } | null)?.data;
    return Array.isArray(data) ? data : undefined;
  } catch {
    return undefined;
  }
}
