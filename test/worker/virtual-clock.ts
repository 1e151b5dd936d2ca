// A clock whose time passes only when a test says so.
import type { Clock } from "../../host/worker/clock.js";

interface Sleeper {
  readonly due: number;
  readonly wake: () => void;
}

export class VirtualClock implements Clock {
  #now = 0;
  #sleepers: Sleeper[] = [];

  now(): number {
    return this.#now;
  }

  /** Sleeps nobody has waited out or aborted. */
  get pending(): number {
    return this.#sleepers.length;
  }

  sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const remove = () => {
        this.#sleepers = this.#sleepers.filter((other) => other !== sleeper);
      };
      const aborted = () => {
        remove();
        reject(signal.reason);
      };
      const wake = () => {
        remove();
        signal.removeEventListener("abort", aborted);
        resolve();
      };
      const sleeper = { due: this.#now + Math.max(0, ms), wake };
      this.#sleepers.push(sleeper);
      signal.addEventListener("abort", aborted, { once: true });
    });
  }

  /** Wakes sleepers in the order they are due until none is due at `time`, then sets the clock to it. */
  async advanceTo(time: number): Promise<void> {
    await settle();
    for (let next = this.#next(time); next; next = this.#next(time)) {
      this.#now = Math.max(this.#now, next.due);
      next.wake();
      await settle();
    }
    this.#now = time;
  }

  #next(time: number): Sleeper | undefined {
    const due = this.#sleepers.filter((sleeper) => sleeper.due <= time);
    return due.sort((a, b) => a.due - b.due)[0];
  }
}

/** Lets every promise that can go on go on. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
