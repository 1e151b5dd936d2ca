// The workers that the config names: at the start, and whenever it is another one.

import { isDeepStrictEqual } from "node:util";
import type { Fleet, NamedWorker } from "../fleet/fleet.js";
import type { Line } from "../fleet/line.js";

/** Under which they are shown. */
const SOURCE = "config";

/** What the config last said of its workers, by id. */
export class ConfiguredWorkers {
  readonly #fleet: Fleet<Line>;
  #workers: Map<string, NamedWorker>;
  /** Those of them that could not be had. */
  readonly #missed = new Set<string>();

  /** Adds workers to a fleet that has none. Throws what `Fleet.add` throws. */
  constructor(fleet: Fleet<Line>, workers: readonly NamedWorker[]) {
    this.#fleet = fleet;
    this.#workers = byId(workers);
    fleet.change(() => {
      for (const worker of workers) fleet.add(worker, SOURCE);
    });
  }

  /**
   * Has the fleet be as the config says, where that says other than before: what an operator has changed since stays until the config
   * changes that worker, or names it no more. `inherit` has somebody else have a worker who names it, too, and tells whether there is
   * one. Answers which workers could not be had, and why; they are tried again with the next config.
   */
  apply(workers: readonly NamedWorker[], inherit: (id: string) => boolean): string[] {
    const before = this.#workers;
    const missed = new Set(this.#missed);
    this.#workers = byId(workers);
    this.#missed.clear();
    const failures: string[] = [];
    this.#fleet.change(() => {
      for (const id of before.keys())
        if (!this.#workers.has(id) && this.#has(id) && !inherit(id)) this.#remove(id);
      for (const worker of workers) {
        if (!missed.has(worker.id) && isDeepStrictEqual(before.get(worker.id), worker)) continue;
        const failure = this.#put(worker);
        if (failure !== undefined) failures.push(failure);
      }
    });
    return failures;
  }

  /** What the config's worker of this id and url is shown: a call by which it comes again cannot tell it. */
  keyOf(id: string, url: string): string | undefined {
    const worker = this.#workers.get(id);
    return worker?.url === url ? worker.apiKey : undefined;
  }

  /** Whether the worker of this id is the config's, or was before an operator changed it. */
  #has(id: string): boolean {
    const source = this.#fleet.sourceOf(id);
    return source === SOURCE || source === "admin";
  }

  #remove(id: string): void {
    this.#fleet.remove(this.#fleet.find(id)!);
  }

  #put(worker: NamedWorker): string | undefined {
    try {
      this.#fleet.put(worker, SOURCE);
      return undefined;
    } catch (error) {
      this.#missed.add(worker.id);
      const what = this.#fleet.find(worker.id) ? "changed" : "added";
      return `worker "${worker.id}" was not ${what}: ${(error as Error).message}`;
    }
  }
}

function byId(workers: readonly NamedWorker[]): Map<string, NamedWorker> {
  return new Map(workers.map((worker) => [worker.id, worker]));
}
