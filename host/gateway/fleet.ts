// The workers as the gateway knows them: their transport, and whether and with which models they answer.

import { MAX_MODEL_LENGTH } from "../routing/refusals.js";
import type { Router } from "../routing/router.js";
import type { Worker, WorkerOptions } from "../routing/worker.js";
import { Upstream } from "./upstream.js";

/** An entry of `GET /v1/models`. */
export interface ModelEntry {
  readonly id: string;
  readonly [key: string]: unknown;
}

/** Milliseconds within which a worker must list its models. */
const ANSWER_TIMEOUT_MS = 5_000;
/** Most models that one worker may list. */
const MAX_MODELS_LISTED = 256;
/** Most levels of a member of a model's entry that is shown; what is nested deeper no reader of the list could be sure to parse. */
const MAX_DEPTH = 8;

/** How workers are talked to. */
export interface FleetOptions {
  /** Milliseconds between two questions to a worker. */
  readonly pollIntervalMs: number;
  /** Milliseconds within which a connection must be open. */
  readonly connectMs: number;
  /** What is shown to workers, by their ids. */
  readonly apiKeys: ReadonlyMap<string, string>;
}

/** Hears of a worker that begins or ceases to answer. */
export type FleetListener = (worker: Worker, eligible: boolean, reason: string) => void;

const NOT_ASKED = "not asked yet";

class Member {
  /** Whether its models are in the config; if not they are what it answers. */
  readonly fixedModels: boolean;
  /** What it last listed. */
  listed: readonly ModelEntry[] = [];
  /** Whether it answered ever. */
  known = false;
  asking: Promise<void> | null = null;
  /** What came of the last question: why it is eligible, or not. */
  reason = NOT_ASKED;

  constructor(
    readonly worker: Worker,
    readonly upstream: Upstream,
  ) {
    this.fixedModels = worker.models.length > 0;
  }
}

/** Asks every worker for its models, at the start and at intervals; one that does not answer is not eligible. */
export class Fleet {
  readonly #router: Router;
  readonly #options: FleetOptions;
  readonly #listener: FleetListener;
  readonly #members = new Map<Worker, Member>();
  /** Removed, with requests still under way. */
  readonly #leaving = new Set<Member>();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /** Takes the router's workers; each must have a `url`, and models only where they are fixed. */
  constructor(router: Router, options: FleetOptions, listener: FleetListener) {
    this.#router = router;
    this.#options = options;
    this.#listener = listener;
    for (const worker of router.workers)
      this.#enlist(worker, this.#reach(worker, options.apiKeys.get(worker.id)));
  }

  /**
   * Adds a worker to the router, and asks it for its models where none are named. Throws what `Router.addWorker` throws, and a
   * TypeError for one without a url that can be read.
   */
  add(options: WorkerOptions, apiKey?: string): Worker {
    const upstream = this.#reach(options, apiKey);
    const worker = this.#router.addWorker({ models: [], ...options, eligible: false });
    void this.#ask(this.#enlist(worker, upstream));
    return worker;
  }

  /** Removes a worker from the router; its requests under way go on to their end. */
  remove(worker: Worker): void {
    const member = this.#members.get(worker);
    if (!member) return;
    this.#router.removeWorker(worker);
    this.#members.delete(worker);
    this.#leaving.add(member);
    void member.upstream.close().finally(() => this.#leaving.delete(member));
  }

  /** Asks all workers once, then goes on at intervals until `stop`. Resolves when all have answered or failed to. */
  async start(): Promise<void> {
    this.#timer = setInterval(() => void this.#askAll(), this.#options.pollIntervalMs);
    await this.#askAll();
  }

  /** Stops asking and cuts all connections. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    const all = [...this.#members.values(), ...this.#leaving];
    await Promise.all(all.map(({ upstream }) => upstream.destroy()));
  }

  /** The transport to a worker. */
  upstream(worker: Worker): Upstream {
    return this.#members.get(worker)!.upstream;
  }

  /** Why a worker is eligible, or not. */
  reason(worker: Worker): string {
    return this.#members.get(worker)!.reason;
  }

  /** Whether a worker's first answer, or the lack of it, is known. */
  isAsked(worker: Worker): boolean {
    return this.#members.get(worker)!.reason !== NOT_ASKED;
  }

  /** Asks a worker now, because a request to it failed. */
  suspect(worker: Worker): void {
    const member = this.#members.get(worker);
    if (member) void this.#ask(member);
  }

  /** Whether some worker's models are not known yet. */
  get incomplete(): boolean {
    return [...this.#members.values()].some(({ known, fixedModels }) => !known && !fixedModels);
  }

  /** All models, each once, as the first worker that lists it describes it. */
  models(): ModelEntry[] {
    const models = new Map<string, ModelEntry>();
    for (const { worker, listed } of this.#members.values()) {
      for (const id of worker.models) {
        const entry = listed.find((candidate) => candidate.id === id);
        if (!models.has(id)) models.set(id, entry ?? { id, object: "model", created: 0, owned_by: "hawser" });
      }
    }
    return [...models.values()];
  }

  #reach(
    { id, url }: { readonly id: string; readonly url?: string | undefined },
    apiKey: string | undefined,
  ): Upstream {
    if (url === undefined) throw new TypeError(`worker "${id}" has no url`);
    return new Upstream(url, this.#options.connectMs, apiKey);
  }

  #enlist(worker: Worker, upstream: Upstream): Member {
    const member = new Member(worker, upstream);
    this.#members.set(worker, member);
    return member;
  }

  async #askAll(): Promise<void> {
    await Promise.all([...this.#members.values()].map((member) => this.#ask(member)));
  }

  #ask(member: Member): Promise<void> {
    member.asking ??= this.#refresh(member).finally(() => {
      member.asking = null;
    });
    return member.asking;
  }

  async #refresh(member: Member): Promise<void> {
    const { worker, upstream } = member;
    try {
      const listed = (await upstream.listModels(ANSWER_TIMEOUT_MS)).filter(isModelEntry).map(shownOf);
      if (!member.fixedModels) this.#adopt(worker, listed);
      member.listed = listed;
      member.known = true;
      this.#mark(member, true, "it answers");
    } catch (error) {
      this.#mark(member, false, (error as Error).message);
    }
  }

  #adopt(worker: Worker, listed: readonly ModelEntry[]): void {
    if (listed.length > MAX_MODELS_LISTED) {
      throw new Error(`it lists ${listed.length} models, at most ${MAX_MODELS_LISTED} are allowed`);
    }
    this.#router.setModels(worker, [...new Set(listed.map(({ id }) => id))]);
  }

  #mark(member: Member, eligible: boolean, reason: string): void {
    const { worker } = member;
    if (this.#stopped || worker.removed) return;
    // What fails from the start is told once, too: a wrong address would otherwise never be heard of.
    const news = worker.eligible !== eligible || member.reason === NOT_ASKED;
    member.reason = reason;
    worker.eligible = eligible;
    if (news) this.#listener(worker, eligible, reason);
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
