// Workers that sources of discovery find, as the fleet has them: who is found anew comes, who is found no more goes.

import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import type { Clock } from "../fleet/clock.js";
import type { DiscoverySource, FoundWorker, SourceView } from "../fleet/discovery.js";
import { DnsSource } from "../fleet/dns-source.js";
import { FileSource } from "../fleet/file-source.js";
import type { Fleet, NamedWorker } from "../fleet/fleet.js";
import type { Line } from "../fleet/line.js";
import type { DiscoveryOptions } from "../fleet/options.js";
import type { Worker } from "../routing/worker.js";

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
  readonly #sources = new Map<
    string,
    { readonly options: DiscoveryOptions; readonly source: DiscoverySource }
  >();
  #isStarted = false;
  /** What each source names. */
  readonly #sets = new Map<string, readonly NamedWorker[]>();
  /** Sources that are none any more, whose workers stay until those that come have been looked at once. */
  readonly #gone = new Set<string>();

  constructor({ fleet, sources, clock, log }: DiscoveryParts) {
    this.#fleet = fleet;
    this.#clock = clock;
    this.#log = log;
    for (const options of sources) this.#add(options);
  }

  /** Looks at all sources; resolves when each has been looked at once. */
  async start(): Promise<void> {
    this.#isStarted = true;
    await Promise.all([...this.#sources.keys()].map((name) => this.#start(name)));
  }

  stop(): void {
    this.#isStarted = false;
    for (const { source } of this.#sources.values()) source.stop();
  }

  /**
   * Has these be the sources from now on. One that is what it was goes on; of one that is looked at otherwise the workers stay until it is
   * heard anew; those of one that is gone go when whoever comes has been looked at, unless another names them.
   */
  configure(sources: readonly DiscoveryOptions[]): void {
    const wanted = new Map(sources.map((options) => [nameOf(options), options]));
    for (const [name, { options, source }] of [...this.#sources]) {
      if (isDeepStrictEqual(options, wanted.get(name))) continue;
      source.stop();
      this.#sources.delete(name);
      if (wanted.has(name)) continue;
      this.#sets.delete(name);
      this.#gone.add(name);
    }
    const come = [...wanted.keys()].filter((name) => !this.#sources.has(name));
    for (const name of come) this.#add(wanted.get(name)!);
    const looks = this.#isStarted ? come.map((name) => this.#start(name)) : [];
    if (looks.length === 0) this.#dropGone();
    else void Promise.all(looks).then(() => this.#isStarted && this.#fleet.change(() => this.#dropGone()));
  }

  #add(options: DiscoveryOptions): void {
    this.#gone.delete(nameOf(options));
    this.#sources.set(nameOf(options), { options, source: sourceOf(options, this.#clock) });
  }

  #start(name: string): Promise<void> {
    return this.#sources.get(name)!.source.start({
      found: (workers) => this.#found(name, workers),
      failed: (message) => this.#log.error({ source: name, error: message }, "discovery failed"),
    });
  }

  #dropGone(): void {
    for (const name of this.#gone) for (const worker of this.#fleet.namedBy(name)) this.#letGo(worker);
    this.#gone.clear();
  }

  #letGo(worker: Worker): void {
    if (!this.inherit(worker.id)) this.#fleet.remove(worker);
  }

  /** Has a source that names a worker have it, as it is, from whoever names it no more; false where there is none. */
  inherit(id: string): boolean {
    for (const [source, workers] of this.#sets) {
      const named = workers.find((worker) => worker.id === id);
      if (named) return this.#put(source, named);
    }
    return false;
  }

  /** Whether the workers of some source were never known. */
  get incomplete(): boolean {
    for (const name of this.#sources.keys()) if (!this.#sets.has(name)) return true;
    return false;
  }

  /** What each source watches, and how that goes. */
  views(): SourceView[] {
    const now = this.#clock.now();
    return [...this.#sources.values()].map(({ source }) => source.view(now));
  }

  /** A worker was given up by who named it: a source that names it still, and does not tell again, has it now. */
  givenUp(): void {
    for (const [source, workers] of this.#sets) this.#putMissing(source, workers);
  }

  /** A worker belongs to who named it first, until that one names it no more; nobody else changes or removes it. */
  #found(source: string, found: readonly FoundWorker[]): void {
    const { apiKey } = this.#sources.get(source)!.options;
    const workers = found.map((worker) => ({ ...worker, apiKey }));
    this.#sets.set(source, workers);
    this.#fleet.change(() => this.#apply(source, workers));
  }

  #apply(source: string, workers: readonly NamedWorker[]): void {
    const fleet = this.#fleet;
    const ids = new Set(workers.map(({ id }) => id));
    for (const worker of fleet.namedBy(source)) if (!ids.has(worker.id)) this.#letGo(worker);
    for (const worker of workers) {
      const owner = fleet.sourceOf(worker.id);
      if (owner === undefined || owner === source || this.#gone.has(owner)) this.#put(source, worker);
      else this.#log.warn({ source, worker: worker.id, owner }, "a worker of that id is there already");
    }
    for (const [other, set] of this.#sets) if (other !== source) this.#putMissing(other, set);
  }

  #putMissing(source: string, workers: readonly NamedWorker[]): void {
    for (const worker of workers)
      if (this.#fleet.sourceOf(worker.id) === undefined) this.#put(source, worker);
  }

  /** Whether it could be had. */
  #put(source: string, worker: NamedWorker): boolean {
    try {
      this.#fleet.put(worker, source);
      return true;
    } catch (error) {
      this.#log.error({ source, worker: worker.id, error: (error as Error).message }, "worker not added");
      return false;
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
