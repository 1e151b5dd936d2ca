// What a worker's engine last said of itself, how old that is, and what of it other clients must have sent.

import type { EngineSignals } from "./options.js";

/** Seconds by which a process's start may be told differently: it is computed from a clock that is set now and then. */
const START_TOLERANCE = 1;

/** A worker's signals at one moment, as the columns of a policy's frame want them. */
export interface SignalValues {
  /** Requests that the engine runs, -1 unknown. */
  readonly running: number;
  /** Requests that wait in it, -1 unknown. */
  readonly waiting: number;
  /** KV-cache use in 1/1000, -1 unknown. */
  readonly kvUsed: number;
  /** Requests in the engine that are not ours: to be added to those in flight, never to be put in their place. */
  readonly elsewhere: number;
  /** Tokens per KV block, 0 unknown. */
  readonly blockSize: number;
  /** KV-cache capacity in blocks, 0 unknown. */
  readonly blocks: number;
}

/** What an operator sees of a worker's signals. */
export interface SignalView extends SignalValues {
  /** Milliseconds since they were taken, also where they are unknown by now; null where none ever were. */
  readonly ageMs: number | null;
  /** What the last scrape failed with, and how many milliseconds ago; null where it did not fail. */
  readonly lastError: { readonly reason: string; readonly ageMs: number } | null;
}

/** Counts as they were at one moment. */
type Counts = Pick<SignalValues, "running" | "waiting" | "kvUsed" | "elsewhere">;

const UNKNOWN: Counts = { running: -1, waiting: -1, kvUsed: -1, elsewhere: 0 };

/**
 * The signals of one worker. Counts count for a while; what is fixed with the engine's process (its blocks and their size) lasts
 * until the process is another one, or says otherwise. `now` is monotonic, in milliseconds.
 */
export class WorkerSignals {
  /** Counts are unknown so many milliseconds after they were taken. */
  staleAfterMs: number;
  #counts = UNKNOWN;
  #takenAt: number | null = null;
  #blockSize = 0;
  #blocks = 0;
  #startSeconds = Number.NaN;
  #promptTokens = Number.NaN;
  #error: { readonly reason: string; readonly at: number } | null = null;

  constructor(staleAfterMs: number) {
    this.staleAfterMs = staleAfterMs;
  }

  /**
   * Takes what a scrape brought. `mostLocal` is the largest number of our own requests in flight on this worker at any moment
   * between sending the scrape and its answer: whichever of these moments the engine counted at, nothing of ours is counted
   * twice. Returns whether the engine's process is another one than that of the last scrape which told.
   */
  take(signals: EngineSignals, now: number, mostLocal: number): boolean {
    const restarted = this.#meet(signals);
    this.#takenAt = now;
    this.#error = null;
    // Of a page that tells one of them alone, the sum is at least that one.
    const { running = -1, waiting = -1, kvUsed = -1 } = signals;
    const inside = Math.max(0, running) + Math.max(0, waiting);
    this.#counts = { running, waiting, kvUsed, elsewhere: Math.max(0, inside - mostLocal) };
    this.#blockSize = signals.blockSize ?? this.#blockSize;
    this.#blocks = signals.blocks ?? this.#blocks;
    return restarted;
  }

  /** A scrape failed: what is known grows old. */
  failed(now: number, reason: string): void {
    this.#error = { reason, at: now };
  }

  /** What is known. */
  values(now: number): SignalValues {
    const isFresh = this.#takenAt !== null && now - this.#takenAt < this.staleAfterMs;
    const { running, waiting, kvUsed, elsewhere } = isFresh ? this.#counts : UNKNOWN;
    return { running, waiting, kvUsed, elsewhere, blockSize: this.#blockSize, blocks: this.#blocks };
  }

  /** What is known, and how. */
  view(now: number): SignalView {
    const error = this.#error;
    return {
      ...this.values(now),
      ageMs: this.#takenAt === null ? null : now - this.#takenAt,
      lastError: error && { reason: error.reason, ageMs: now - error.at },
    };
  }

  /** Notes which process it is; returns whether it is another one, of which nothing is known yet. */
  #meet({ startSeconds = Number.NaN, promptTokens = Number.NaN }: EngineSignals): boolean {
    // NaN, what is not known, is neither apart from anything nor less.
    const isOther = Math.abs(startSeconds - this.#startSeconds) > START_TOLERANCE;
    // SGLang does not tell its start; what only ever grows begins anew with the process.
    const beginsAnew = Number.isNaN(startSeconds) && promptTokens < this.#promptTokens;
    const isRestarted = isOther || beginsAnew;
    if (!Number.isNaN(startSeconds)) this.#startSeconds = startSeconds;
    if (isRestarted || !Number.isNaN(promptTokens)) this.#promptTokens = promptTokens;
    if (!isRestarted) return false;
    this.#blockSize = 0;
    this.#blocks = 0;
    return true;
  }
}
