// One request, from its dispatch to the end of its answer.

import type { AnswerHead } from "./answer.js";

/** Hears what becomes of a call: a head, its body, and at last one of the ends, unless it is aborted. */
export interface CallListener {
  onHead(head: AnswerHead): void;
  /** The chunk is the listener's own. */
  onData(chunk: Buffer): void;
  onEnd(): void;
  /** It did not come to its end: no connection, one that broke, or an answer that cannot be read. */
  onFailure(error: Error): void;
}

/** What carries a call. */
export interface Carrier {
  /** Gives up the connection, and the call with it. */
  drop(): void;
}

/** A request that was handed to the transport. */
export class Call {
  /** Whether a connection was open, and the request was written to it. Until then the other side knows nothing of it. */
  isSent = false;
  /** Whether any byte of an answer came. */
  isAnswered = false;
  /** The connection that it runs on, as long as it does. */
  carrier: Carrier | null = null;
  /** The request's head, whole; its characters are bytes. */
  head = "";
  readonly listener: CallListener;
  #body: Buffer | null;
  #isOver = false;

  constructor(body: Buffer | null, listener: CallListener) {
    this.#body = body;
    this.listener = listener;
  }

  /** Whether it has ended: it is told nothing more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  get body(): Buffer | null {
    return this.#body;
  }

  /** Ends it from this side: its connection is closed at once. Does nothing to one that has ended. */
  abort(): void {
    if (this.#isOver) return;
    const { carrier } = this;
    this.#close();
    carrier?.drop();
  }

  /** The answer is whole. */
  end(): void {
    if (this.#isOver) return;
    this.#close();
    this.listener.onEnd();
  }

  fail(error: Error): void {
    if (this.#isOver) return;
    this.#close();
    this.listener.onFailure(error);
  }

  #close(): void {
    this.#isOver = true;
    this.carrier = null;
    this.#body = null;
  }
}
