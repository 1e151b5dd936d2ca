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

  /** Adds workers to a fleet that has none. Throws what `Fleet.add` throws. */
  constructor(fleet: Fleet<Line>, workers: readonly NamedWorker[]) {
    this.#fleet = fleet;
    this.#workers = byId(workers);
    for (const worker of workers) fleet.add(worker, SOURCE);
  }

  /**
   * Has the fleet be as the config says, where that says other than before: what an operator has changed since stays until the config
   * changes that worker. Answers which workers could not be added, and why; they are tried again with the next config.
   */
  apply(workers: readonly NamedWorker[]): string[] {
    const before = this.#workers;
    this.#workers = byId(workers);
    const failures: string[] = [];
    this.#fleet.change(() => {
      for (const id of before.keys()) if (!this.#workers.has(id)) this.#remove(id);
      for (const worker of workers) {
        if (isDeepStrictEqual(before.get(worker.id), worker)) continue;
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

  #remove(id: string): void {
    if (this.#fleet.sourceOf(id) === SOURCE) this.#fleet.remove(this.#fleet.find(id)!);
  }

  #put(worker: NamedWorker): string | undefined {
    try {
      this.#fleet.put(worker, SOURCE);
      return undefined;
    } catch (error) {
      this.#workers.delete(worker.id);
      return `worker "${worker.id}" was not added: ${(error as Error).message}`;
    }
  }
}

function byId(workers: readonly NamedWorker[]): Map<string, NamedWorker> {
  return new Map(workers.map((worker) => [worker.id, worker]));
}
