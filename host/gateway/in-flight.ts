// What is under way on the data plane, so that a gateway can watch it, and end without breaking it off.

import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Worker } from "../routing/worker.js";
import { type Buffering, Buffers } from "./buffers.js";

/** A request under way. */
export interface UnderWay extends Buffering {
  /** Its index among all, -1 where it is not there. Written by `InFlight` alone. */
  place: number;
  /** Time has passed: a beat, of which one comes every `ms` milliseconds. */
  beat(ms: number): void;
  /** Ends it before its time. */
  cut(): void;
  /** It is over for its client as well, who has got all that there was, or has not. */
  left(isWhole: boolean): void;
  /** The worker that it is with, null for none. */
  readonly worker: Worker | null;
  /** Ends it before its worker is gone. */
  cutDrained(): void;
}

/** All that are under way, from request to the last byte of the answer. */
export class InFlight {
  /** Whether nothing new is to be begun. */
  isClosing = false;
  readonly buffers: Buffers;
  /**
   * In no order. No Set: V8 gives a Set that changes a new table time and again, and the old one keeps it; what was in one of
   * them that the collector takes for old then outlives its request, and with it the next ones.
   */
  readonly #all: UnderWay[] = [];
  #onEmpty: () => void = () => {};

  /** `bufferedLimit`: most bytes that wait for the readers of all answers. */
  constructor(bufferedLimit: number) {
    this.buffers = new Buffers(bufferedLimit, this.#all);
  }

  get size(): number {
    return this.#all.length;
  }

  /** Takes one in, until its answer has gone out or its connection is closed. */
  add(one: UnderWay, socket: Socket, response: ServerResponse): void {
    const leave = (): void => {
      // Both may come, in either order; a response that waits behind another in a pipeline has no end of its own.
      socket.off("close", leave);
      response.off("close", leave);
      if (one.place < 0) return;
      this.#remove(one);
      this.buffers.forget(one);
      one.left(response.writableFinished);
      if (this.#all.length === 0) this.#onEmpty();
    };
    one.place = this.#all.push(one) - 1;
    socket.once("close", leave);
    response.once("close", leave);
  }

  /** Resolves when nothing is under way. */
  async empty(): Promise<void> {
    if (this.#all.length > 0)
      await new Promise<void>((resolve) => {
        this.#onEmpty = resolve;
      });
  }

  /** Lets each of them know that time has passed. */
  beat(ms: number): void {
    for (const one of [...this.#all]) one.beat(ms);
    this.buffers.recount();
  }

  /** Ends now what is with a worker. */
  cutDrained(worker: Worker): void {
    for (const one of [...this.#all]) if (one.worker === worker) one.cutDrained();
  }

  /** Ends all of it now. */
  cut(): void {
    for (const one of [...this.#all]) one.cut();
  }

  /** Takes one out; the last one takes its place. */
  #remove(one: UnderWay): void {
    const last = this.#all.pop()!;
    if (last !== one) {
      this.#all[one.place] = last;
      last.place = one.place;
    }
    one.place = -1;
  }
}
