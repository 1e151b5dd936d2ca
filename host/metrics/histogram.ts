// Observations counted by size. One is added in place: nothing is allocated, so that it may be done for every chunk of a stream.

/** Counts observations in buckets, and adds them up. */
export class Histogram {
  readonly #bounds: Float64Array;
  /** By bucket, each without the smaller ones; the last but one is above every bound, the last holds the sum. */
  readonly #counts: Float64Array;
  readonly #exposed: readonly number[];
  readonly #unit: number;

  /**
   * `bounds` ascend; an observation at a bound counts as below it. `unit` is how many of the unit in which is observed make one of
   * that in which is exposed: 1,000 for milliseconds that are shown as seconds.
   */
  constructor(bounds: readonly number[], unit = 1) {
    this.#bounds = Float64Array.from(bounds);
    this.#counts = new Float64Array(bounds.length + 2);
    // Divided, not multiplied by a thousandth: 70 ms are 0.07 s.
    this.#exposed = bounds.map((bound) => bound / unit);
    this.#unit = unit;
  }

  /** Adds one. What is no number, or less than 0, is no observation. */
  observe(value: number): void {
    if (!(value >= 0)) return;
    const bounds = this.#bounds;
    const counts = this.#counts;
    let [low, high] = [0, bounds.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (bounds[middle]! < value) low = middle + 1;
      else high = middle;
    }
    counts[low]!++;
    counts[bounds.length + 1]! += value;
  }

  /** The bounds in the unit that is exposed. */
  get bounds(): readonly number[] {
    return this.#exposed;
  }

  /** How many were at most as large as each bound, and behind those how many there were at all. */
  cumulated(): number[] {
    let count = 0;
    return Array.from(this.#counts.subarray(0, -1), (inBucket) => (count += inBucket));
  }

  /** All of them together, in the unit that is exposed. */
  get sum(): number {
    return this.#counts.at(-1)! / this.#unit;
  }
}
