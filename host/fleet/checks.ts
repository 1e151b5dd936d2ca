// What a worker is asked at intervals: whether it is well, which models it serves, what its engine carries.

import { MAX_MODEL_LENGTH } from "../routing/refusals.js";
import type { Clock } from "./clock.js";
import type { Line } from "./line.js";
import type { Member } from "./member.js";
import type { FleetOptions } from "./options.js";
import { readSignals } from "./signals.js";

/** An entry of `GET /v1/models`. */
export interface ModelEntry {
  readonly id: string;
  readonly [key: string]: unknown;
}

/** Largest answers that are read, in bytes. */
const MAX_PAGE_BYTES = 1_048_576;
const MAX_METRICS_BYTES = 2 * 1_048_576;
/** Most levels of a member of a model's entry that is shown; what is nested deeper no reader of the list could be sure to parse. */
const MAX_DEPTH = 8;
/** Most models that one worker may list. */
const MAX_MODELS_LISTED = 256;

/** Hears what a worker answers. */
export interface ChecksListener {
  /** Whether it is not well while it does not list its models. */
  needsModels(): boolean;
  /** The models it lists. May throw: then the check failed. */
  onModels(models: readonly ModelEntry[]): void;
  /** It is another process than it was. */
  onRestart(): void;
  /** Something is known of it that was not. */
  onNews(): void;
}

/** The questions to one worker. Each is asked once at a time. */
export class Checks {
  readonly #member: Member;
  readonly #line: Line;
  #options: FleetOptions;
  readonly #clock: Clock;
  readonly #listener: ChecksListener;
  #checking: Promise<void> | null = null;
  #scraping: Promise<void> | null = null;
  #checkAt = 0;
  #scrapeAt = 0;
  #stopped = false;

  constructor(member: Member, line: Line, options: FleetOptions, clock: Clock, listener: ChecksListener) {
    this.#member = member;
    this.#line = line;
    this.#options = options;
    this.#clock = clock;
    this.#listener = listener;
  }

  /** Asks otherwise from now on; what was due later than it would be by now is due sooner. */
  configure(options: FleetOptions): void {
    const now = this.#clock.now();
    this.#options = options;
    this.#checkAt = Math.min(this.#checkAt, now + options.health.intervalMs);
    this.#scrapeAt = Math.min(this.#scrapeAt, now + options.signals.intervalMs);
  }

  /** Asks what is due. */
  tick(now: number): void {
    if (now >= this.#checkAt) void this.check();
    if (now >= this.#scrapeAt && this.#options.signals.path !== null) void this.scrape();
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Asks whether it is well, and for its models; the promise is fulfilled when its answer, or the lack of it, is known. */
  check(): Promise<void> {
    this.#checkAt = this.#clock.now() + this.#options.health.intervalMs;
    this.#checking ??= this.#check().finally(() => {
      this.#checking = null;
    });
    return this.#checking;
  }

  /** Fulfilled when the check under way is over, at once where there is none. */
  get settled(): Promise<void> {
    return this.#checking ?? Promise.resolve();
  }

  /** Asks what its engine carries. */
  scrape(): Promise<void> {
    this.#scrapeAt = this.#clock.now() + this.#options.signals.intervalMs;
    this.#scraping ??= this.#scrape().finally(() => {
      this.#scraping = null;
    });
    return this.#scraping;
  }

  async #check(): Promise<void> {
    const { path, timeoutMs } = this.#options.health;
    try {
      if (path !== null) await this.#get(path, timeoutMs, MAX_PAGE_BYTES);
      const models = this.#models();
      if (path === null || this.#listener.needsModels()) await models;
      else await models.catch(() => {});
      if (!this.#stopped) this.#member.passed(this.#clock.now());
    } catch (error) {
      if (!this.#stopped) this.#member.checkFailed(this.#clock.now(), (error as Error).message);
    }
    if (!this.#stopped) this.#listener.onNews();
  }

  async #models(): Promise<void> {
    const { text } = await this.#get("/v1/models", this.#options.health.timeoutMs, MAX_PAGE_BYTES);
    if (!this.#stopped) this.#listener.onModels(listed(text));
  }

  async #scrape(): Promise<void> {
    const { path, intervalMs } = this.#options.signals;
    const { worker } = this.#member;
    try {
      const { text } = await this.#get(path!, intervalMs, MAX_METRICS_BYTES);
      const signals = readSignals(text);
      if (Object.values(signals).every((value) => value === undefined))
        throw new Error(`its answer to GET ${path} has none of the metrics that are known`);
      // Since the last time, not only since it was asked: engines write down what they carry now and then.
      const isRestarted = this.#member.take(signals, this.#clock.now(), worker.peakRequests);
      worker.peakRequests = worker.activeRequests;
      if (isRestarted && !this.#stopped) this.#listener.onRestart();
    } catch (error) {
      this.#member.scrapeFailed(this.#clock.now(), (error as Error).message);
    }
    if (!this.#stopped) this.#listener.onNews();
  }

  async #get(path: string, timeoutMs: number, maxBytes: number) {
    const page = await this.#line.get(path, timeoutMs, maxBytes);
    if (page.status < 200 || page.status > 299)
      throw new Error(`it answered GET ${path} with status ${page.status}`);
    return page;
  }
}

/** The entries of a list of models. */
function listed(text: string): ModelEntry[] {
  const data = (parsed(text) as { data?: unknown } | null)?.data;
  if (!Array.isArray(data)) throw new Error("its answer to GET /v1/models has no list `data`");
  const models = data.filter(isModelEntry).map(shownOf);
  if (models.length > MAX_MODELS_LISTED)
    throw new Error(`it lists ${models.length} models, at most ${MAX_MODELS_LISTED} are allowed`);
  return models;
}

/** The value of a JSON text, null for anything else: the parser's own message would quote the text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isModelEntry(entry: unknown): entry is ModelEntry {
  const id = (entry as { id?: unknown } | null)?.id;
  return typeof id === "string" && id.length > 0 && id.length <= MAX_MODEL_LENGTH && !id.includes("\0");
}

/** An entry without what is nested too deep: written into the list it would take the whole answer with it. */
function shownOf(entry: ModelEntry): ModelEntry {
  if (isShallow(entry, MAX_DEPTH + 1)) return entry;
  const members = Object.entries(entry).filter(([, value]) => isShallow(value, MAX_DEPTH));
  return { ...Object.fromEntries(members), id: entry.id };
}

/** Whether a value has at most `levels` of objects and arrays in each other. */
function isShallow(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.values(value).every((member) => isShallow(member, levels - 1));
}
