// How long this thread has waited for a processor that others had: no part of what its work costs.

import { existsSync, openSync, readSync } from "node:fs";

const SCHEDSTAT = "/proc/thread-self/schedstat";

/** Reads the thread's waiting time at two moments, of which the first costs little. */
export class Waiting {
  readonly #file = existsSync(SCHEDSTAT) ? openSync(SCHEDSTAT, "r") : undefined;
  readonly #before = Buffer.alloc(80);
  readonly #after = Buffer.alloc(80);

  begin(): void {
    this.#read(this.#before);
  }

  /** Milliseconds since `begin`; 0 where the system does not tell. */
  end(): number {
    this.#read(this.#after);
    return (waited(this.#after) - waited(this.#before)) / 1e6;
  }

  #read(into: Buffer): void {
    if (this.#file !== undefined) readSync(this.#file, into, 0, into.length, 0);
  }
}

/** The second of three numbers: nanoseconds spent runnable without running. */
function waited(line: Buffer): number {
  return Number(line.toString("latin1").split(" ")[1] ?? 0);
}
