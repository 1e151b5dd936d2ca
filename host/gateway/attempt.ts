// One dispatch of a request to one worker.

import type { Lease } from "../routing/lease.js";
import type { AnswerHead } from "../transport/answer.js";
import type { Call, CallListener } from "../transport/call.js";
import type { Upstream } from "./upstream.js";

/** Hears what becomes of an attempt; nothing any more once it has been abandoned. */
export interface AttemptListener {
  onHead(attempt: Attempt, head: AnswerHead): void;
  onData(attempt: Attempt, chunk: Buffer): void;
  onEnd(attempt: Attempt): void;
  onFailure(attempt: Attempt, error: Error): void;
}

/** An attempt, and the lease it runs under. */
export class Attempt implements CallListener {
  readonly lease: Lease;
  readonly #listener: AttemptListener;
  #call: Call | null = null;

  constructor(lease: Lease, listener: AttemptListener) {
    this.lease = lease;
    this.#listener = listener;
  }

  /** Whether the worker was reached: until then nothing of the request was sent. */
  get isConnected(): boolean {
    return this.#call?.isSent === true;
  }

  /** Whether any byte of an answer came. */
  get isAnswered(): boolean {
    return this.#call?.isAnswered === true;
  }

  /** Begins it. `headers` are names and values in turn, and are the transport's from now on. */
  start(upstream: Upstream, path: string, headers: string[], body: Buffer): void {
    this.#call = upstream.dispatch(path, headers, body, this);
  }

  /** Ends it from this side: the worker's request is aborted at once. */
  abandon(): void {
    this.#call?.abort();
  }

  onHead(head: AnswerHead): void {
    this.#listener.onHead(this, head);
  }

  onData(chunk: Buffer): void {
    this.#listener.onData(this, chunk);
  }

  onEnd(): void {
    this.#listener.onEnd(this);
  }

  onFailure(error: Error): void {
    this.#listener.onFailure(this, error);
  }
}
