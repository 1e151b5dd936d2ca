// Workers that sources of discovery find, as the fleet has them: who is found anew comes, who is found no more goes.

import type { Logger } from "pino";
import type { Clock } from "../fleet/clock.js";
import type { DiscoverySource, FoundWorker, SourceView } from "../fleet/discovery.js";
import { DnsSource } from "../fleet/dns-source.js";
import { FileSource } from "../fleet/file-source.js";
import type { Fleet, NamedWorker } from "../fleet/fleet.js";
import type { Line } from "../fleet/line.js";
import type { DiscoveryOptions } from "../fleet/options.js";

/** What a gateway's discovery works with. */
export interface DiscoveryParts {
  readonly fleet: Fleet<Line>;
  readonly sources: readonly DiscoveryOptions[];
  readonly clock: Clock;
  readonly log: Logger;
}

/** All sources of a gateway. */
export class Discovery {
  readonly #fleet: Fleet<Line>;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Each by the name under which its workers are shown. */
  readonly #sources: ReadonlyMap<string, DiscoverySource>;
  /** What the workers of each source are shown. */
  readonly #apiKeys: ReadonlyMap<string, string | undefined>;
  /** What each source names. */
  readonly #sets = new Map<string, readonly NamedWorker[]>();

  constructor({ fleet, sources, clock, log }: DiscoveryParts) {
    this.#fleet = fleet;
    this.#clock = clock;
    this.#log = log;
    this.#sources = new Map(sources.map((options) => [nameOf(options), sourceOf(options, clock)]));
    this.#apiKeys = new Map(sources.map((options) => [nameOf(options), options.apiKey]));
  }

  /** Looks at all sources; resolves when each has been looked at once. */
  async start(): Promise<void> {
    await Promise.all(
      [...this.#sources].map(([name, source]) =>
        source.start({
          found: (workers) => this.#found(name, workers),
          failed: (message) => this.#log.error({ source: name, error: message }, "discovery failed"),
        }),
      ),
    );
  }

  stop(): void {
    for (const source of this.#sources.values()) source.stop();
  }

  /** Whether the workers of some source were never known. */
  get incomplete(): boolean {
    return this.#sets.size < this.#sources.size;
  }

  /** What each source watches, and how that goes. */
  views(): SourceView[] {
    const now = this.#clock.now();
    return [...this.#sources.values()].map((source) => source.view(now));
  }

  /** A worker was given up by who named it: a source that names it still, and does not tell again, has it now. */
  givenUp(): void {
    for (const [source, workers] of this.#sets) this.#putMissing(source, workers);
  }

  /** A worker belongs to who named it first, until that one names it no more; nobody else changes or removes it. */
  #found(source: string, found: readonly FoundWorker[]): void {
    const apiKey = this.#apiKeys.get(source);
    const workers = found.map((worker) => ({ ...worker, apiKey }));
    this.#sets.set(source, workers);
    this.#fleet.change(() => this.#apply(source, workers));
  }

  #apply(source: string, workers: readonly NamedWorker[]): void {
    const fleet = this.#fleet;
    const ids = new Set(workers.map(({ id }) => id));
    for (const worker of fleet.namedBy(source)) if (!ids.has(worker.id)) fleet.remove(worker);
    for (const worker of workers) {
      const owner = fleet.sourceOf(worker.id);
      if (owner === undefined || owner === source) this.#put(source, worker);
      else this.#log.warn({ source, worker: worker.id, owner }, "a worker of that id is there already");
    }
    for (const [other, set] of this.#sets) if (other !== source) this.#putMissing(other, set);
  }

  #putMissing(source: string, workers: readonly NamedWorker[]): void {
    for (const worker of workers)
      if (this.#fleet.sourceOf(worker.id) === undefined) this.#put(source, worker);
  }

  #put(source: string, worker: NamedWorker): void {
    try {
      this.#fleet.put(worker, source);
    } catch (error) {
      this.#log.error({ source, worker: worker.id, error: (error as Error).message }, "worker not added");
    }
  }
}

/** Under which the workers of a source are shown. */
function nameOf(options: DiscoveryOptions): string {
  return options.kind === "file"
    ? `file ${options.file}`
    : `dns ${options.type} ${options.name}${options.port === 0 ? "" : ` ${options.port}`}`;
}

function sourceOf(options: DiscoveryOptions, clock: Clock): DiscoverySource {
  return options.kind === "file" ? new FileSource(options, clock) : new DnsSource(options, clock);
}
