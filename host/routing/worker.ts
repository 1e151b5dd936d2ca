// A worker as the router sees it: what it serves, what it carries, and its rows in the pools.

import type { Pool } from "./pool.js";
import { mixWorker, type Ranked } from "./rendezvous.js";

/** What a worker is made of. */
export interface WorkerOptions {
  /** Name, unique in the router. */
  readonly id: string;
  /** Where it listens: for whoever dispatches, the router does not look at it. */
  readonly url?: string;
  /** Models it serves; left out, it serves the requests that name no model. */
  readonly models?: readonly string[];
  /** Capacity weight, 100 = normal. */
  readonly weight?: number;
  /** Requests its engine runs at once, 0 unknown. */
  readonly slots?: number;
  /** Whether it may be chosen from the start; default true. */
  readonly eligible?: boolean;
}

/** The pool of requests that name no model. */
export const NO_MODEL = "";

/** One worker. Its counts live as long as the object: whoever incremented one decrements this same object. */
export class Worker implements Ranked {
  readonly id: string;
  readonly url: string | undefined;
  readonly weight: number;
  readonly slots: number;
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
  #eligible: boolean;
  #activeRequests = 0;
  #boundSessions = 0;

  /** Throws a RangeError for a weight or slots out of range. */
  constructor(options: WorkerOptions, hash: number) {
    if (typeof options.id !== "string" || options.id === "")
      throw new RangeError("a worker's id must be a name");
    checkCount("weight", options.weight ?? 100, 1);
    checkCount("slots", options.slots ?? 0, 0);
    this.id = options.id;
    this.url = options.url;
    this.weight = options.weight ?? 100;
    this.slots = options.slots ?? 0;
    this.models = options.models ?? [NO_MODEL];
    this.hash = hash;
    const { mixedLow, mixedHigh } = mixWorker(hash);
    this.mixedLow = mixedLow;
    this.mixedHigh = mixedHigh;
    this.#eligible = options.eligible ?? true;
  }

  /** Whether it may be chosen. */
  get eligible(): boolean {
    return this.#eligible;
  }

  set eligible(eligible: boolean) {
    this.#eligible = eligible;
    for (const { pool, row } of this.#seats) pool.candidates.setEligible(row, eligible);
  }

  /** Requests in flight, over all models. */
  get activeRequests(): number {
    return this.#activeRequests;
  }

  /** Live bindings that point here, over all models. */
  get boundSessions(): number {
    return this.#boundSessions;
  }

  /** Adds to the requests in flight. */
  addRequests(count: number): void {
    const requests = this.#activeRequests + count;
    this.#activeRequests = requests;
    const seats = this.#seats;
    for (let i = 0; i < seats.length; i++)
      seats[i]!.pool.candidates.setActiveRequests(seats[i]!.row, requests);
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
}

function checkCount(name: string, value: number, least: number): void {
  if (Number.isInteger(value) && value >= least && value < 2 ** 31) return;
  throw new RangeError(`a worker's ${name} must be an integer of at least ${least}, found ${value}`);
}
