// Whether a worker is left alone because requests to it fail, and how it is tried again: a circuit breaker.

import type { BreakerOptions } from "./options.js";

/** Closed: it gets requests. Open: it gets none. Half-open: it gets a few, by which it is judged. */
export type BreakerState = "closed" | "open" | "half_open";

/** What an operator sees of a breaker. Moments are on the clock of its caller, in milliseconds. */
export interface BreakerView {
  readonly state: BreakerState;
  /** When the state began. */
  readonly since: number;
  /** The text of the last failure that counted; null where there was none since it closed. */
  readonly why: string | null;
  /** When it will be half-open; null unless it is open. */
  readonly opensUntil: number | null;
  /** Results within the window. */
  readonly successes: number;
  readonly failures: number;
  /** Failures since the last success, or since it closed; they may be older than the window. */
  readonly inARow: number;
}

/** Parts of a window: a result is forgotten after a whole window, or up to one part earlier. */
const BUCKETS = 10;
/** Characters kept of a failure's text. */
const MAX_WHY = 200;

/** Counts of the results of late, in a ring of buckets: nothing is allocated for a result. */
class Recent {
  successes = 0;
  failures = 0;
  readonly #bucketMs: number;
  readonly #successes = new Uint32Array(BUCKETS);
  readonly #failures = new Uint32Array(BUCKETS);
  /** Number of the newest bucket, counted from the clock's zero. */
  #newest = 0;

  constructor(ms: number) {
    this.#bucketMs = ms / BUCKETS;
  }

  succeed(now: number): void {
    this.slide(now);
    this.#successes[this.#newest % BUCKETS]!++;
    this.successes++;
  }

  fail(now: number): void {
    this.slide(now);
    this.#failures[this.#newest % BUCKETS]!++;
    this.failures++;
  }

  /** Forgets what has become too old. */
  slide(now: number): void {
    const newest = Math.floor(now / this.#bucketMs);
    const passed = Math.min(newest - this.#newest, BUCKETS);
    for (let i = 1; i <= passed; i++) this.#drop((this.#newest + i) % BUCKETS);
    this.#newest = Math.max(newest, this.#newest);
  }

  /** What was taken for a success was none. */
  takeBack(now: number): void {
    this.slide(now);
    for (let age = 0; age < BUCKETS && age <= this.#newest; age++) {
      const bucket = (this.#newest - age) % BUCKETS;
      if (this.#successes[bucket] === 0) continue;
      this.#successes[bucket]!--;
      this.successes--;
      return;
    }
  }

  /** Forgets all. */
  empty(): void {
    for (let bucket = 0; bucket < BUCKETS; bucket++) this.#drop(bucket);
  }

  #drop(bucket: number): void {
    this.successes -= this.#successes[bucket]!;
    this.failures -= this.#failures[bucket]!;
    this.#successes[bucket] = 0;
    this.#failures[bucket] = 0;
  }
}

/**
 * The breaker of one worker. It sees successes and failures alone: whatever says nothing about the worker (a 4xx, a worker that
 * is busy, a client that left) is never reported. It does not count the requests under way either, its caller holds them
 * against `limit`; so a probe of a half-open breaker that ends without a result leaves no trace, and its place is free again.
 *
 * A result counts only where its request began in the present state: what began before a change says nothing about the
 * time after it. While it is open nothing counts.
 *
 * Every `now` is monotonic milliseconds from 0 on, never less than the one before.
 */
export class Breaker {
  #options: BreakerOptions;
  readonly #mayOpen: (now: number) => boolean;
  #recent: Recent;
  #state: BreakerState = "closed";
  #since: number;
  #why: string | null = null;
  /** How long it is open, or was the last time. */
  #openMs = 0;
  #closedAt = Number.NEGATIVE_INFINITY;
  #inARow = 0;
  /** Answers in a row that began well and broke off. */
  #brokenInARow = 0;
  /** Good answers since it is half-open. */
  #good = 0;
  #halfOpenAt = Number.POSITIVE_INFINITY;

  /**
   * A closed one. `mayOpen` is asked at every failure that would open it, and may say no, as where too many of a pool are open
   * already: a closed one stays closed then, and a half-open one half-open.
   */
  constructor(options: BreakerOptions, mayOpen: (now: number) => boolean, now: number) {
    this.#options = options;
    this.#mayOpen = mayOpen;
    this.#recent = new Recent(options.windowMs);
    this.#since = now;
  }

  /** Goes by other options from now on, in the state that it is in; with another window the results of late are forgotten. */
  configure(options: BreakerOptions): void {
    if (options.windowMs !== this.#options.windowMs) this.#recent = new Recent(options.windowMs);
    this.#options = options;
  }

  /** The state at this time; an open one becomes half-open by time alone. */
  state(now: number): BreakerState {
    if (this.#state === "open" && now >= this.#since + this.#openMs) this.#probe(this.#since + this.#openMs);
    return this.#state;
  }

  /** When the state began. */
  get since(): number {
    return this.#since;
  }

  /** How many requests may be under way at once; 0 while it is open, Infinity while it is closed. */
  limit(now: number): number {
    const state = this.state(now);
    if (state === "closed") return Number.POSITIVE_INFINITY;
    return state === "open" ? 0 : this.#options.halfOpen;
  }

  /** Reports a good answer to a request that began at `begunAt`. */
  succeeded(begunAt: number, now: number): void {
    if (!this.#counts(begunAt, now)) return;
    this.#recent.succeed(now);
    this.#inARow = 0;
    if (this.#state === "half_open" && ++this.#good >= this.#options.halfOpen) this.#close(now);
  }

  /** Reports that a good answer has come to its end. */
  completed(): void {
    this.#brokenInARow = 0;
  }

  /** Reports a failure of a request that began at `begunAt`; `why` is for an operator, and cut where it is long. */
  failed(begunAt: number, now: number, why: string): void {
    if (!this.#counts(begunAt, now)) return;
    this.#inARow++;
    this.#fail(now, why);
  }

  /** The same for one whose answer was reported as good, and broke off. */
  brokeOff(begunAt: number, now: number, why: string): void {
    const hasClosedIt = this.#hasClosedIt(begunAt, now);
    if (!this.#counts(begunAt, now) && !hasClosedIt) return;
    // Its success was forgotten when it closed.
    if (!hasClosedIt) this.#recent.takeBack(now);
    this.#brokenInARow++;
    this.#fail(now, why, hasClosedIt);
  }

  /** Has an open one be half-open before its time. */
  relent(now: number): void {
    if (this.state(now) === "open") this.#probe(now);
  }

  /** All that an operator may want to know. */
  view(now: number): BreakerView {
    const state = this.state(now);
    this.#recent.slide(now);
    return {
      state,
      since: this.#since,
      why: this.#why,
      opensUntil: state === "open" ? this.#since + this.#openMs : null,
      successes: this.#recent.successes,
      failures: this.#recent.failures,
      inARow: Math.max(this.#inARow, this.#brokenInARow),
    };
  }

  #counts(begunAt: number, now: number): boolean {
    return this.state(now) !== "open" && begunAt >= this.#since;
  }

  /** Whether a request was a probe by whose answer it may have closed, not long ago. */
  #hasClosedIt(begunAt: number, now: number): boolean {
    const isNew = this.#state === "closed" && now - this.#closedAt < this.#options.windowMs;
    return isNew && begunAt >= this.#halfOpenAt && begunAt < this.#since;
  }

  #fail(now: number, why: string, hasClosedIt = false): void {
    this.#recent.fail(now);
    this.#why = why.slice(0, MAX_WHY);
    this.#good = 0;
    const isProbe = hasClosedIt || this.#state === "half_open";
    if ((isProbe || this.#isTooMuch()) && this.#mayOpen(now)) this.#open(now);
  }

  #isTooMuch(): boolean {
    const { minRequests, failureRatio, consecutive } = this.#options;
    const { successes, failures } = this.#recent;
    const all = successes + failures;
    // A quotient, because 0.55 * 100 is more than 55.
    const inARow = Math.max(this.#inARow, this.#brokenInARow);
    return inARow >= consecutive || (all >= minRequests && failures / all >= failureRatio);
  }

  #open(now: number): void {
    const { windowMs, openMs, openMaxMs } = this.#options;
    // It was closed for long if that was a whole window at least, and no less than the time that it had been open for.
    const wasLong = this.#state === "closed" && now - this.#closedAt >= Math.max(windowMs, this.#openMs);
    this.#openMs = Math.min(wasLong ? openMs : 2 * this.#openMs, openMaxMs);
    this.#enter("open", now);
  }

  #probe(now: number): void {
    this.#enter("half_open", now);
    this.#halfOpenAt = now;
    this.#good = 0;
  }

  #close(now: number): void {
    this.#enter("closed", now);
    this.#closedAt = now;
    this.#why = null;
    this.#brokenInARow = 0;
    this.#recent.empty();
  }

  #enter(state: BreakerState, now: number): void {
    this.#state = state;
    this.#since = now;
  }
}
