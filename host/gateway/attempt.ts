// One dispatch of a request to one worker: undici's handler for it, so that nothing stands between the two sockets.

import type { Dispatcher } from "undici";
import type { Lease } from "../routing/lease.js";

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
  #over = false;
  #reason: Error | null = null;

  constructor(lease: Lease, listener: AttemptListener) {
    this.lease = lease;
    this.#listener = listener;
  }

  /** Whether the worker was reached: until then nothing of the request was sent. */
  get isConnected(): boolean {
    return this.#controller !== null;
  }

  /** Ends the attempt from this side: the worker's request is aborted at once, or as soon as it starts. */
  abandon(reason: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#reason = new Error(reason);
    this.#controller?.abort(this.#reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#reason) controller.abort(this.#reason);
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
    if (this.#over) return;
    this.#over = true;
    this.#listener.onEnd(this);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.#listener.onFailure(this, error);
  }
}
