// Time as the gateway and its fleet see it: handed in, so that half an hour can pass in a test.

/** Monotonic milliseconds, and a call at intervals. */
export interface Clock {
  now(): number;
  /** Calls `beat` every `ms` milliseconds until the returned function is called. */
  every(ms: number, beat: () => void): () => void;
}

/** That of the process. */
export const PROCESS_CLOCK: Clock = {
  now: () => performance.now(),
  every(ms, beat) {
    const timer = setInterval(beat, ms).unref();
    return () => clearInterval(timer);
  },
};
