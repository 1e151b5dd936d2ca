// One dispatch of a request to one worker: undici's handler for it, so that nothing stands between the two sockets.

import type { Dispatcher } from "undici";
import type { Lease } from "../routing/lease.js";
import { closeUnlessSent, wasReset } from "./connection.js";

/** A worker's head, in the form in which it is passed on. */
export interface Head {
  readonly status: number;
  readonly message: string | undefined;
  readonly headers: Record<string, string | string[] | undefined>;
  /** Names and values as they came. */
  readonly raw: Buffer[];
}

/** Hears what becomes of an attempt; nothing any more once it has been abandoned. */
export interface AttemptListener {
  onHead(attempt: Attempt, head: Head): void;
  onData(attempt: Attempt, chunk: Buffer): void;
  onEnd(attempt: Attempt): void;
  onFailure(attempt: Attempt, error: Error): void;
}

/** An attempt, and the lease it runs under. */
export class Attempt implements Dispatcher.DispatchHandler {
  readonly lease: Lease;
  readonly #listener: AttemptListener;
  #controller: Dispatcher.DispatchController | null = null;
  #isConnected = false;
  #isAnswered = false;
  #over = false;
  /** Whether the transport holds nothing of it any more, its body above all, and who waits for that. */
  #isReleased = false;
  #onReleased: () => void = () => {};
  #reason: Error | null = null;

  constructor(lease: Lease, listener: AttemptListener) {
    this.lease = lease;
    this.#listener = listener;
  }

  /** Whether the worker was reached: until then nothing of the request was sent. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  /** Whether any byte of an answer came. */
  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Ends the attempt from this side: the worker's request is aborted at once, or as soon as it starts. */
  abandon(reason: string): void {
    if (this.#over) return;
    this.#reason = new Error(reason);
    const controller = this.#controller;
    this.#close();
    controller?.abort(this.#reason);
  }

  /** Calls `done` once the transport holds nothing of the request any more: where no connection is open yet it lets go of an abandoned one only then. */
  whenReleased(done: () => void): void {
    if (this.#isReleased) done();
    else this.#onReleased = done;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#isConnected = true;
    if (this.#reason) controller.abort(this.#reason);
  }

  /** The first byte; not in undici's types. */
  onResponseStarted(): void {
    this.#isAnswered = true;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    message?: string,
  ): void {
    if (status < 200 || this.#over) return;
    this.#listener.onHead(this, { status, message, headers, raw: controller.rawHeaders as Buffer[] });
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#over) this.#listener.onData(this, chunk);
  }

  onResponseEnd(): void {
    this.#release();
    if (this.#over) return;
    this.#close();
    if (wasReset()) {
      this.#listener.onFailure(this, new Error("the connection was reset"));
      return;
    }
    closeUnlessSent();
    this.#listener.onEnd(this);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#release();
    if (this.#over) return;
    this.#close();
    this.#listener.onFailure(this, error);
  }

  #release(): void {
    this.#isReleased = true;
    this.#onReleased();
    this.#onReleased = () => {};
  }

  #close(): void {
    this.#over = true;
    // It holds the request's body.
    this.#controller = null;
  }
}
