// What is under way on the data plane, so that a gateway can end without breaking it off.

import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Something that can be ended before its time. */
export interface Cuttable {
  cut(): void;
}

/** All that is under way, from its request to the last byte of its answer. */
export class InFlight {
  /** Whether nothing new is to be begun. */
  isClosing = false;
  readonly #all = new Set<Cuttable>();
  #onEmpty: () => void = () => {};

  get size(): number {
    return this.#all.size;
  }

  /** Takes one in, until its answer has gone out or its connection is closed. */
  add(one: Cuttable, socket: Socket, response: ServerResponse): void {
    const leave = (): void => {
      // Both may come, in either order; a response that waits behind another in a pipeline has no end of its own.
      socket.off("close", leave);
      response.off("close", leave);
      if (this.#all.delete(one) && this.#all.size === 0) this.#onEmpty();
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

  /** Ends all of it now. */
  cut(): void {
    for (const one of [...this.#all]) one.cut();
  }
}
