// Random histories of a router whose decisions are logged, and what its observer saw of each of them.
import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { DecisionLog } from "../../host/decisions/log.js";
import type { DecisionLogOptions } from "../../host/decisions/options.js";
import {
  type AcquireRequest,
  type Lease,
  NoWorkerError,
  PinError,
  type SessionOptions,
} from "../../host/index.js";
import type { Decider, Turn } from "../../host/policy/decider.js";
import type { PolicyInstance } from "../../host/routing/contenders.js";
import type { Pool } from "../../host/routing/pool.js";
import { Router } from "../../host/routing/router.js";
import type { Worker } from "../../host/routing/worker.js";
import { Dice } from "../fixtures/dice.js";

/** A decision as it was when it was made. */
export interface Seen {
  /** 0 where it was not logged. */
  readonly trace: number;
  readonly asked: boolean;
  readonly model: string;
  readonly key: string | undefined;
  readonly bound: number;
  readonly eligible: readonly number[];
  readonly loads: readonly number[];
  readonly workers: readonly string[];
  readonly row: number;
  readonly worker: string;
  readonly reason: string;
  readonly failure: string | undefined;
  readonly answer: number | null;
  readonly turn: Readonly<Turn>;
}

export interface History {
  readonly file: string;
  readonly instance: PolicyInstance;
  readonly fallback?: PolicyInstance;
  readonly session?: SessionOptions;
  readonly seed: number;
  readonly steps: number;
  readonly options?: Partial<DecisionLogOptions>;
  /** Workers at first, of two models. */
  readonly workers?: number;
}

/** Keys and tenants, which no log may show. */
export const SECRET = "sekret";
const MODELS = ["m-one", "m-two"];
const KEYS = 12;
const MOST_LIVE = 40;

/** The options of a log, all but the file as they are by default. */
export function optionsOf(file: string, options: Partial<DecisionLogOptions> = {}): DecisionLogOptions {
  return { file, sample: 1, columns: "read", maxBytes: 2 ** 26, maxFiles: 8, ...options };
}

/** Lives through a history; resolves, when the log is closed, to all decisions in their order. */
export async function record(history: History): Promise<Seen[]> {
  const log = new DecisionLog(optionsOf(history.file, history.options), {
    onError: (error) => {
      throw error;
    },
  });
  const life = new Life(history, log);
  for (let step = 0; step < history.steps; step++) life.step();
  await log.close();
  return life.seen;
}

/** A router's workers and requests, driven by dice. */
class Life {
  readonly seen: Seen[] = [];
  readonly #dice: Dice;
  readonly #router: Router;
  readonly #log: DecisionLog;
  readonly #live: Lease[] = [];
  #time = 1_000.123_456_789;
  #named = 0;
  #request: AcquireRequest = {};

  constructor({ seed, instance, fallback, session, workers = 4 }: History, log: DecisionLog) {
    this.#dice = new Dice(seed);
    this.#log = log;
    this.#router = new Router({
      ...{ instance, fallback, seed, clock: () => this.#time, ...(session && { session }) },
      observer: {
        asking: () => {},
        decided: (lease, pool, turn, bound, decider) => this.#observe(lease, pool, turn, bound, decider),
      },
    });
    for (let i = 0; i < workers; i++) this.#join();
  }

  step(): void {
    const dice = this.#dice;
    this.#time += dice.upTo(1_000) / 7;
    switch (dice.upTo(19)) {
      case 0:
        this.#join();
        break;
      case 1:
        this.#leave();
        break;
      case 2:
        this.#worker().ready = dice.upTo(2) > 0;
        break;
      case 3:
        this.#report();
        break;
      case 4:
      case 5:
      case 6:
        this.#release();
        break;
      default:
        this.#acquire();
    }
  }

  #join(): void {
    const id = `w${(this.#named++ * 7) % 101}-${this.#named}`;
    const models = this.#dice.upTo(2) === 0 ? MODELS.slice(0, 1) : MODELS;
    this.#router.addWorker({ id, models, weight: 1 + this.#dice.upTo(200), slots: this.#dice.upTo(9) });
  }

  #leave(): void {
    const workers = [...this.#router.workers];
    if (workers.length > 3) this.#router.removeWorker(this.#worker());
  }

  #worker(): Worker {
    const workers = [...this.#router.workers];
    return workers[this.#dice.upTo(workers.length - 1)]!;
  }

  #report(): void {
    const dice = this.#dice;
    this.#worker().report = {
      ...{ elsewhere: dice.upTo(5), queueDepth: dice.upTo(5) - 1, kvUsed: dice.upTo(1_000) },
      ...{ kvBlocks: dice.upTo(9_999), blockTokens: 16 * dice.upTo(4) },
    };
  }

  #acquire(): void {
    const dice = this.#dice;
    const key = dice.upTo(6) === 0 ? undefined : `${SECRET}-${dice.upTo(KEYS)}`;
    this.#request = {
      ...{ key, tenant: SECRET, model: MODELS[dice.upTo(1)]! },
      ...(dice.upTo(9) === 0 && { exclude: [this.#worker()] }),
      ...(dice.upTo(19) === 0 && { pin: this.#worker().id }),
    };
    let lease: Lease;
    try {
      lease = this.#router.acquire(this.#request);
    } catch (error) {
      if (error instanceof NoWorkerError || error instanceof PinError) return;
      throw error;
    }
    if (dice.upTo(4) > 0) lease.commit();
    this.#live.push(lease);
    if (this.#live.length > MOST_LIVE) this.#release();
  }

  #release(): void {
    if (this.#live.length === 0) return;
    const [lease] = this.#live.splice(this.#dice.upTo(this.#live.length - 1), 1);
    lease!.release(this.#dice.upTo(9) === 0 ? "failed" : "ended");
    // Numbers from which a test can tell what the figures must be.
    const { trace } = lease!;
    const usage = { promptTokens: 100, completionTokens: trace, cachedTokens: trace % 2 === 0 ? 80 : 20 };
    this.#log.ended(trace, { outcome: "complete", status: 200, accepted: true, firstByteMs: trace, usage });
  }

  #observe(lease: Lease, pool: Pool, turn: Turn, bound: number, decider: Decider | null): void {
    const { key, model = "" } = this.#request;
    this.#log.decided(lease, pool, turn, bound, decider, 1.25);
    const { n, truth } = pool.candidates;
    this.seen.push({
      ...{ trace: lease.trace, asked: decider !== null && pool.instance !== null, model, key, bound },
      eligible: [...truth.eligible.subarray(0, n)],
      loads: [...truth.active_requests.subarray(0, n)],
      workers: pool.workers.map(({ id }) => id),
      ...{ row: lease.worker.rowIn(pool), worker: lease.worker.id, reason: lease.reason },
      ...{ failure: lease.failure, answer: decider?.answer ?? null, turn: { ...turn } },
    });
  }
}

/** The files of a log, the one that is written first. */
export function filesOf(file: string): string[] {
  const directory = dirname(file);
  const names = readdirSync(directory).filter((name) => name.startsWith(basename(file)));
  return names.sort().map((name) => join(directory, name));
}

/** The lines of a log that was never rotated. */
export function entriesOf(file: string): Record<string, unknown>[] {
  const lines = readFileSync(file, "utf8").trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line));
}
