// What is under way on the data plane, so that a gateway can watch it, and end without breaking it off.

import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Buffering, Buffers } from "./buffers.js";

/** A request under way. */
export interface UnderWay extends Buffering {
  /** Time has passed. */
  beat(): void;
  /** Ends it before its time. */
  cut(): void;
}

/** All that are under way, from request to the last byte of the answer. */
export class InFlight {
  /** Whether nothing new is to be begun. */
  isClosing = false;
  readonly buffers: Buffers;
  readonly #all = new Set<UnderWay>();
  #onEmpty: () => void = () => {};

  /** `bufferedLimit`: most bytes that wait for the readers of all answers. */
  constructor(bufferedLimit: number) {
    this.buffers = new Buffers(bufferedLimit, this.#all);
  }

  get size(): number {
    return this.#all.size;
  }

  /** Takes one in, until its answer has gone out or its connection is closed. */
  add(one: UnderWay, socket: Socket, response: ServerResponse): void {
    const leave = (): void => {
      // Both may come, in either order; a response that waits behind another in a pipeline has no end of its own.
      socket.off("close", leave);
      response.off("close", leave);
      if (!this.#all.delete(one)) return;
      this.buffers.forget(one);
      if (this.#all.size === 0) this.#onEmpty();
    };
    this.#all.add(one);
    socket.once("close", leave);
    response.once("close", leave);
  }

  /** Resolves when nothing is under way. */
  async empty(): Promise<void> {
    if (this.#all.size > 0)
      await new Promise<void>((resolve) => {
        this.#onEmpty = resolve;
      });
  }

  /** Lets each of them know that time has passed. */
  beat(): void {
    for (const one of this.#all) one.beat();
    this.buffers.recount();
  }

  /** Ends all of it now. */
  cut(): void {
    for (const one of [...this.#all]) one.cut();
  }
}
