// Time as the engine sees it; tests hand in a clock of their own.
import { setImmediate, setTimeout } from "node:timers/promises";

/** Milliseconds that only go forward, and a way to wait for them. */
export interface Clock {
  now(): number;
  /** Resolves after `ms` (0 or less: on the next turn of the event loop); rejects as soon as `signal` aborts. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
}

/** The process's own clock. Timers have whole milliseconds, so a wait is rounded up. */
export const systemClock: Clock = {
  now: () => performance.now(),
  // Never resolving synchronously is what lets an abort through while a late request catches up.
  sleep: (ms, signal) =>
    ms > 0 ? setTimeout(Math.ceil(ms), undefined, { signal }) : setImmediate(undefined, { signal }),
};
