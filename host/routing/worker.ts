// A worker as the router sees it: what it serves, what it carries, and its rows in the pools.

import type { Pool } from "./pool.js";
import { mixWorker, type Ranked } from "./rendezvous.js";

/** What a worker is made of. */
export interface WorkerOptions {
  /** Name, unique in the router. */
  readonly id: string;
  /** Where it listens: for whoever dispatches, the router does not look at it. */
  readonly url?: string | undefined;
  /** Models it serves; left out, it serves the requests that name no model. */
  readonly models?: readonly string[] | undefined;
  /** Capacity weight, 100 = normal. */
  readonly weight?: number | undefined;
  /** Requests its engine runs at once, 0 unknown. */
  readonly slots?: number | undefined;
  /** Most requests in flight, 1 or more; left out, there is no limit. */
  readonly maxInFlight?: number | undefined;
  /** Whether it is in service from the start; default true. */
  readonly ready?: boolean;
}

/** What an engine says of itself. */
export interface EngineReport {
  /** Requests in it that are not this router's. */
  readonly elsewhere: number;
  /** Requests waiting inside it, -1 unknown. */
  readonly queueDepth: number;
  /** Use of its KV cache in 1/1000, -1 unknown. */
  readonly kvUsed: number;
  /** Capacity of its KV cache in blocks, 0 unknown. */
  readonly kvBlocks: number;
  /** Tokens in a block, 0 unknown. */
  readonly blockTokens: number;
}

/** That of an engine of which nothing is known. */
export const NO_REPORT: EngineReport = {
  elsewhere: 0,
  queueDepth: -1,
  kvUsed: -1,
  kvBlocks: 0,
  blockTokens: 0,
};

/** What a column can hold. */
const MAX_COUNT = 2 ** 31 - 1;

/** The pool of requests that name no model. */
export const NO_MODEL = "";

/** One worker. Its counts live as long as the object: whoever incremented one decrements this same object. */
export class Worker implements Ranked {
  readonly id: string;
  readonly url: string | undefined;
  /** Capacity weight and requests its engine runs at once, as in `WorkerOptions`. Written by `refit` alone. */
  weight = 100;
  slots = 0;
  /** The most requests that were in flight at once since somebody wrote `activeRequests` here. */
  peakRequests = 0;
  /** Stable 32-bit hash of the id, signed. */
  readonly hash: number;
  readonly mixedLow: number;
  readonly mixedHigh: number;
  /** Written by the router alone. */
  models: readonly string[];
  /** Whether it was removed from the router. Written by the router alone. */
  removed = false;
  /** Its number in the binding table, and the first of the bindings that point here. Written by that table alone. */
  number = 0;
  firstBinding = 0;
  readonly #seats: { pool: Pool; row: number }[] = [];
  #ready: boolean;
  #maxInFlight: number;
  #easing = Number.POSITIVE_INFINITY;
  #eligible = false;
  #report = NO_REPORT;
  #activeRequests = 0;
  #boundSessions = 0;

  /** Throws a RangeError for a weight, slots or a limit out of range. */
  constructor(options: WorkerOptions, hash: number) {
    if (typeof options.id !== "string" || options.id === "")
      throw new RangeError("a worker's id must be a name");
    checkCount("maxInFlight", options.maxInFlight ?? 1, 1);
    this.id = options.id;
    this.url = options.url;
    this.refit(options);
    this.models = options.models ?? [NO_MODEL];
    this.hash = hash;
    const { mixedLow, mixedHigh } = mixWorker(hash);
    this.mixedLow = mixedLow;
    this.mixedHigh = mixedHigh;
    this.#maxInFlight = options.maxInFlight ?? Number.POSITIVE_INFINITY;
    this.#ready = options.ready ?? true;
    this.#judge();
  }

  /** Whether it may be chosen: it is ready, and has room within both limits. */
  get eligible(): boolean {
    return this.#eligible;
  }

  /** Whether it is in service, as whoever looks after it says. */
  get ready(): boolean {
    return this.#ready;
  }

  set ready(ready: boolean) {
    this.#ready = ready;
    this.#judge();
  }

  /** Most requests in flight that it is given; `Infinity` for no limit. */
  get maxInFlight(): number {
    return this.#maxInFlight;
  }

  set maxInFlight(most: number) {
    this.#maxInFlight = most;
    this.#judge();
  }

  /** A lower limit, for a worker that is to begin slowly: passed over where no other worker is eligible. */
  get easing(): number {
    return this.#easing;
  }

  set easing(most: number) {
    this.#easing = most;
    this.#judge();
  }

  /** Whether it is ready and within `maxInFlight`, whatever `easing` says. */
  get hasRoom(): boolean {
    return this.#ready && this.#activeRequests < this.#maxInFlight;
  }

  /** Requests in flight that are this router's, over all models. */
  get activeRequests(): number {
    return this.#activeRequests;
  }

  /** Requests in flight as policies see them: this router's, and those that its engine has from elsewhere. */
  get shownRequests(): number {
    return Math.min(MAX_COUNT, this.#activeRequests + this.#report.elsewhere);
  }

  /** What its engine said last. */
  get report(): EngineReport {
    return this.#report;
  }

  set report(report: EngineReport) {
    const { blockTokens } = this.#report;
    this.#report = report;
    for (const { pool, row } of this.#seats) {
      pool.show(this, row);
      if (report.blockTokens !== blockTokens) pool.showBlocks(blockTokens, report.blockTokens);
    }
  }

  /** Live bindings that point here, over all models. */
  get boundSessions(): number {
    return this.#boundSessions;
  }

  /** Says what it can carry, from now on; as new where that is left out. Throws a RangeError for a number out of range. */
  refit({ weight = 100, slots = 0 }: Pick<WorkerOptions, "weight" | "slots">): void {
    checkCount("weight", weight, 1);
    checkCount("slots", slots, 0);
    this.weight = weight;
    this.slots = slots;
    for (const { pool, row } of this.#seats) pool.show(this, row);
  }

  /** Adds to the requests in flight. */
  addRequests(count: number): void {
    this.#activeRequests += count;
    if (this.#activeRequests > this.peakRequests) this.peakRequests = this.#activeRequests;
    const requests = this.shownRequests;
    const seats = this.#seats;
    for (let i = 0; i < seats.length; i++)
      seats[i]!.pool.candidates.setActiveRequests(seats[i]!.row, requests);
    this.#judge();
  }

  /** Adds to the bindings that point here. */
  addSessions(count: number): void {
    const sessions = this.#boundSessions + count;
    this.#boundSessions = sessions;
    const seats = this.#seats;
    for (let i = 0; i < seats.length; i++)
      seats[i]!.pool.candidates.set("bound_sessions", seats[i]!.row, sessions);
  }

  /** Its row in a pool, -1 where it has none. */
  rowIn(pool: Pool): number {
    const seats = this.#seats;
    for (let i = 0; i < seats.length; i++) if (seats[i]!.pool === pool) return seats[i]!.row;
    return -1;
  }

  /** Takes a row of a pool, or another one after a renumbering. */
  sit(pool: Pool, row: number): void {
    const seat = this.#seats.find((taken) => taken.pool === pool);
    if (seat) seat.row = row;
    else this.#seats.push({ pool, row });
  }

  /** Leaves a pool. */
  leave(pool: Pool): void {
    const index = this.#seats.findIndex((seat) => seat.pool === pool);
    if (index >= 0) this.#seats.splice(index, 1);
  }

  #judge(): void {
    const eligible = this.hasRoom && this.#activeRequests < this.#easing;
    if (eligible === this.#eligible) return;
    this.#eligible = eligible;
    for (const { pool, row } of this.#seats) pool.candidates.setEligible(row, eligible);
  }
}

function checkCount(name: string, value: number, least: number): void {
  if (Number.isInteger(value) && value >= least && value < 2 ** 31) return;
  throw new RangeError(`a worker's ${name} must be an integer of at least ${least}, found ${value}`);
}
