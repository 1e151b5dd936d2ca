// What a worker that begins slowly is measured by.

import type { Member } from "./member.js";

/** What the warm workers of each model carry at one moment: counted once for all that begin slowly, where any does. */
export class WarmLoads {
  readonly #members: () => Iterable<Member>;
  #byModel: Map<string, { requests: number; workers: number }> | null = null;

  constructor(members: () => Iterable<Member>) {
    this.#members = members;
  }

  /** The mean over the workers of these models; undefined where there are none. */
  meanOver(models: readonly string[]): number | undefined {
    this.#byModel ??= this.#count();
    let [requests, workers] = [0, 0];
    for (const model of models) {
      requests += this.#byModel.get(model)?.requests ?? 0;
      workers += this.#byModel.get(model)?.workers ?? 0;
    }
    return workers === 0 ? undefined : requests / workers;
  }

  #count(): Map<string, { requests: number; workers: number }> {
    const byModel = new Map<string, { requests: number; workers: number }>();
    for (const { worker } of this.#members())
      for (const model of worker.models) {
        const { requests, workers } = byModel.get(model) ?? { requests: 0, workers: 0 };
        byModel.set(model, { requests: requests + worker.activeRequests, workers: workers + 1 });
      }
    return byModel;
  }
}
