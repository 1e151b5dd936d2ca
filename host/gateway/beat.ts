// The beat by which what is under way is looked at.

const SHORTEST_BEAT_MS = 10;
const LONGEST_BEAT_MS = 1_000;
/** Beats in the shortest of the durations, unless that takes shorter or longer ones; a deadline is kept at most two late. */
const PARTS = 8;

/**
 * The beat by which requests are looked at. Deadlines are counted in beats, not kept in timers: a byte that arrives then
 * costs nothing, and while the process stands still nobody's time runs out.
 */
export class Beat {
  readonly ms: number;

  /** `durations` are those that will be counted, in milliseconds. */
  constructor(durations: readonly number[]) {
    const shortest = Math.min(...durations) / PARTS;
    this.ms = Math.min(LONGEST_BEAT_MS, Math.max(SHORTEST_BEAT_MS, Math.floor(shortest)));
  }

  /** After how many beats a duration is over for certain, wherever between two of them it began. */
  after(ms: number): number {
    return Math.ceil(ms / this.ms) + 1;
  }

  /** After how many beats a duration, wherever it began, is not over yet. */
  before(ms: number): number {
    return Math.max(1, Math.floor(ms / this.ms));
  }
}
