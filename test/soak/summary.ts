// What a soak did, on one line.
import type { Health } from "./gateway.js";
import type { Measure } from "./gateway-child.js";
import type { Load } from "./load.js";
import type { Trouble } from "./trouble.js";

export interface Done {
  readonly load: Load;
  readonly trouble: Trouble;
  readonly dataPlane: Health["data_plane"];
  /** Most requests at once. */
  readonly most: number;
  /** The gateway at rest, one after the other. */
  readonly measures: readonly Measure[];
}

/** How many requests ended in which way, what befell them, and what the gateway holds. */
export function summaryOf({ load, trouble, dataPlane, most, measures }: Done): string {
  const { retries, retries_refused: refused } = dataPlane;
  return [
    `${load.requests} requests, at most ${most} at once`,
    list(load.ends),
    `${trouble.kills} kills, ${trouble.removals} removals, ${retries} retries, ${refused} refused`,
    `the gateway counts: ${list(new Map(Object.entries(dataPlane.outcomes)))}`,
    memoryText(measures),
  ].join("; ");
}

/** What the gateway held at one rest after the other. */
export function memoryText(measures: readonly Measure[]): string {
  const memory = measures.map(({ heapBytes, externalBytes, rssBytes }) =>
    [heapBytes, externalBytes, rssBytes].map((bytes) => (bytes / 1e6).toFixed(2)).join("/"),
  );
  return `MB of heap/external/RSS: ${memory.join(" -> ")}`;
}

/** Counts, the most frequent first. */
export function list(counts: ReadonlyMap<string, number>): string {
  const sorted = [...counts].sort(([, a], [, b]) => b - a);
  return sorted.map(([name, count]) => `${name} ${count}`).join(", ");
}
