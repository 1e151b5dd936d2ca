// A listener that remembers what a source of workers told, and how tests wait for it.
import { setTimeout as pause } from "node:timers/promises";
import type { DiscoveryListener, FoundWorker } from "../../host/fleet/discovery.js";

export class Heard implements DiscoveryListener {
  /** Each set that was told, in order. */
  readonly sets: (readonly FoundWorker[])[] = [];
  readonly failures: string[] = [];

  found(workers: readonly FoundWorker[]): void {
    this.sets.push(workers);
  }

  failed(message: string): void {
    this.failures.push(message);
  }

  /** The ids of each set. */
  get ids(): string[][] {
    return this.sets.map((workers) => workers.map(({ id }) => id));
  }
}

/** Waits until a condition holds; the test's own timeout ends the wait for one that never does. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await pause(2);
}
