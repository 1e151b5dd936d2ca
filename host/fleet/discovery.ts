// What finds workers while the gateway runs: the shape that all sources of workers have in common, and what each of
// them remembers.

/** A worker as a source describes it. What it leaves out has the defaults of a worker in the config. */
export interface FoundWorker {
  /** Printable ASCII characters without spaces, at most 128; unique in its source. */
  readonly id: string;
  /** Without a slash at its end. */
  readonly url: string;
  /** Left out where the worker itself is asked. */
  readonly models?: readonly string[];
  /** Capacity weight, 1..10000, 100 = normal. */
  readonly weight?: number;
  /** Requests the engine runs at once, at least 1; left out where that is unknown. */
  readonly slots?: number;
  /** Most requests it is given at once, at least 1. */
  readonly maxInFlight?: number;
}

/** Hears of a source. It must not throw. */
export interface DiscoveryListener {
  /** The whole current set, by id, whenever it is another one than before, and when it is known for the first time. */
  found(workers: readonly FoundWorker[]): void;
  /** Why a source cannot tell its set. The last one stays in force. The same message comes once until that is mended. */
  failed(message: string): void;
}

/** A source as operators see it. */
export interface SourceView {
  readonly kind: "file" | "dns";
  /** The path of the file, or which records of which name. */
  readonly watches: string;
  /** Workers in the set that is in force. */
  readonly workers: number;
  /** Milliseconds since that set was last known to be right; null where none ever was. */
  readonly ageMs: number | null;
  /** Why it is not known to be right any more; null where it is. */
  readonly error: string | null;
}

/** What finds workers. It is started and stopped once. */
export interface DiscoverySource {
  /** Looks once, and goes on until `stop`. Resolves, whatever was found, when the first look is over. */
  start(listener: DiscoveryListener): Promise<void>;
  /** Ends it: the listener hears nothing more. */
  stop(): void;
  /** `now` is monotonic milliseconds, by the same clock as the source's own. */
  view(now: number): SourceView;
}

/** Messages remembered as told: a file that is wrong in ever new ways must not fill the memory. */
const MAX_TOLD = 64;

/** What a source last found, and what it has told of that. */
export class Finding {
  #listener: DiscoveryListener | undefined;
  #workers: readonly FoundWorker[] = [];
  /** The set as text, to be compared by; undefined until there is one. */
  #text: string | undefined;
  #rightAt: number | undefined;
  #error: string | null = null;
  readonly #told = new Set<string>();

  /** Who hears of it from now on; undefined for nobody. */
  listen(listener: DiscoveryListener | undefined): void {
    this.#listener = listener;
  }

  /** The source knows its whole set, in any order; ids are unique. */
  succeeded(found: readonly FoundWorker[], now: number): void {
    const workers = found.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const text = JSON.stringify(workers.map(valuesOf));
    this.confirmed(now);
    if (text === this.#text) return;
    this.#text = text;
    this.#workers = workers;
    this.#listener?.found(workers);
  }

  /** The set that is in force is known to be right still. */
  confirmed(now: number): void {
    this.#rightAt = now;
    this.#error = null;
    this.#told.clear();
  }

  /** The source cannot tell its set. */
  failed(message: string): void {
    this.#error = message;
    if (this.#told.has(message)) return;
    if (this.#told.size === MAX_TOLD) this.#told.clear();
    this.#told.add(message);
    this.#listener?.failed(message);
  }

  /** Whether the last look failed. */
  get isBroken(): boolean {
    return this.#error !== null;
  }

  view(now: number): Omit<SourceView, "kind" | "watches"> {
    const ageMs = this.#rightAt === undefined ? null : now - this.#rightAt;
    return { workers: this.#workers.length, ageMs, error: this.#error };
  }
}

/** What makes a worker the same as another, in one order. */
function valuesOf({ id, url, models, weight, slots, maxInFlight }: FoundWorker): unknown[] {
  return [id, url, models, weight, slots, maxInFlight];
}
