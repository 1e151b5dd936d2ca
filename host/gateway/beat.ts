// The beat by which what is under way is looked at. Deadlines are counted in beats, not kept in timers: a byte that arrives then
// costs nothing, and while the process stands still nobody's time runs out.

const SHORTEST_BEAT_MS = 10;
const LONGEST_BEAT_MS = 1_000;
/** Beats in the shortest of the durations, unless that takes shorter or longer ones; a deadline is kept at most two late. */
const PARTS = 8;

/** Milliseconds from beat to beat, a whole number, where `durations` are those that are counted, in milliseconds. */
export function beatFor(durations: readonly number[]): number {
  const shortest = Math.min(...durations) / PARTS;
  return Math.min(LONGEST_BEAT_MS, Math.max(SHORTEST_BEAT_MS, Math.floor(shortest)));
}
