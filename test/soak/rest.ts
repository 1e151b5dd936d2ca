// A soak at rest: what must have come to nothing, and what the gateway may have grown by.
import { setTimeout as sleep } from "node:timers/promises";
import { metric } from "../e2e/fleet.js";
import type { Health } from "./gateway.js";
import type { Measure } from "./gateway-child.js";

/**
 * Most bytes by which the gateway may grow after the first third: what code that runs for the first time adds to the heap, about
 * a megabyte, and not half a kilobyte of each of the thousands of requests. A request holds some 30 KB while it is under way, so
 * that one in thirty that is not let go shows, too.
 */
export const MOST_GROWTH_BYTES = 2_000_000;
/** A guard against hangs: what is under way has a minute to end. */
export const GRACE_MS = 60_000;

/** What must be nothing when nothing is under way. */
export function countsOf({ workers, data_plane }: Health): Record<string, number> {
  const { requests_in_flight, requests_waiting, body_bytes, buffered_bytes } = data_plane;
  const active = workers.map(({ id, active_requests }) => [`active at ${id}`, active_requests]);
  return {
    ...{ requests_in_flight, requests_waiting, body_bytes, buffered_bytes },
    ...Object.fromEntries(active),
  };
}

/** What a simulated worker has. */
export async function underWayAt(url: string): Promise<Record<string, number>> {
  return {
    running: await metric(url, "vllm:num_requests_running"),
    waiting: await metric(url, "vllm:num_requests_waiting"),
  };
}

/** Resolves when all counts are zero; rejects where they do not become so. */
export async function settles(what: string, read: () => Promise<Record<string, number>>): Promise<void> {
  const end = performance.now() + GRACE_MS;
  for (;;) {
    const counts = await read();
    if (Object.values(counts).every((count) => count === 0)) return;
    if (performance.now() > end) throw new Error(`${what} does not come to rest: ${JSON.stringify(counts)}`);
    await sleep(50);
  }
}

/** What a process holds of its own making. */
export function heldBytes({ heapBytes, externalBytes }: Measure): number {
  return heapBytes + externalBytes;
}
