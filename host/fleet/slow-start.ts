// How much a worker that has just come, or come back, is given at first: its cache is empty, and least load would send it all.

/** The slow start of one worker. Every `now` is monotonic milliseconds. */
export class SlowStart {
  /** How long it takes, 0 for none at all; also where one is under way. */
  slowStartMs: number;
  #begunAt = Number.NEGATIVE_INFINITY;

  /** Before `begin` there is none. */
  constructor(slowStartMs: number) {
    this.slowStartMs = slowStartMs;
  }

  /** Begins it, or begins it anew. */
  begin(now: number): void {
    this.#begunAt = now;
  }

  /** Whether it is under way. */
  isUnderWay(now: number): boolean {
    return now - this.#begunAt < this.slowStartMs;
  }

  /**
   * How many requests the worker should have in flight at most: from 1 in a straight line to `meanOfOthers`, the mean of what
   * its peers that are not starting slowly have in flight, rounded down. Infinity where it is over, and where there are no
   * such peers (undefined), because nobody else could take what it is spared.
   */
  limit(now: number, meanOfOthers: number | undefined): number {
    if (meanOfOthers === undefined || !this.isUnderWay(now)) return Number.POSITIVE_INFINITY;
    const above = Math.max(0, meanOfOthers - 1);
    return Math.floor(1 + (above * (now - this.#begunAt)) / this.slowStartMs);
  }
}
