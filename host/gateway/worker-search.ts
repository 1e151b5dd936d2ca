// A request in search of a worker: it asks the router, and where all are full it stands in line and asks again.

import type { Clock } from "../fleet/clock.js";
import type { Fleet } from "../fleet/fleet.js";
import type { Line } from "../fleet/line.js";
import type { Lease } from "../routing/lease.js";
import { NoWorkerError } from "../routing/refusals.js";
import type { Router } from "../routing/router.js";
import type { Worker } from "../routing/worker.js";
import type { Admission, Try, Waiting } from "./admission.js";
import { type Ask, refusalOf } from "./ask.js";
import type { GatewayError } from "./errors.js";

/** What a search works with. */
export interface SearchContext {
  readonly router: Router;
  readonly fleet: Fleet<Line>;
  readonly admission: Admission;
  readonly clock: Clock;
  /** Whether workers may be there, or serve models, that are not known yet. */
  readonly isIncomplete: () => boolean;
}

/** Hears what comes of a search. */
export interface SearchListener {
  /** There is a worker, and the search is over. */
  onLease(lease: Lease): void;
  /** Every worker of its model is full: it stands in line. */
  onLine(): void;
  /** There is no worker, and nothing to wait for. `isServed`: some worker serves its model. */
  onRefusal(error: GatewayError, isServed: boolean): void;
}

/** The search of one request. */
export class WorkerSearch {
  readonly #context: SearchContext;
  readonly #ask: Ask;
  readonly #listener: SearchListener;
  /** Its place in line. */
  #waiting: Waiting | null = null;

  constructor(context: SearchContext, ask: Ask, listener: SearchListener) {
    this.#context = context;
    this.#ask = ask;
    this.#listener = listener;
  }

  /** Asks for a worker, behind those that wait already. */
  start(): void {
    const { model, pin } = this.#ask.request;
    const isBehind = pin === undefined && this.#context.admission.hasLine(model!);
    if (isBehind || this.#seek([]) === "full") this.#wait();
  }

  /** Asks for another worker than those; `full` where it may wait for one, `none` where that is in vain. */
  another(exclude: readonly Worker[]): Lease | "full" | "none" {
    const { router, admission } = this.#context;
    const { request } = this.#ask;
    try {
      return router.acquire({ ...request, exclude });
    } catch (error) {
      if (!(error instanceof NoWorkerError)) throw error;
      return isFull(error) && admission.hasRoom(request.model!) ? "full" : "none";
    }
  }

  /** Stands in line once more, for any worker but those, of which there is at least one. */
  standInLine(exclude: readonly Worker[]): void {
    this.#join(exclude, false);
  }

  /** Its time in line is over: why it is refused. */
  expire(): GatewayError {
    const { admission, clock } = this.#context;
    admission.expired++;
    const retryAfter = admission.retryAfter(this.#ask.request.model!, clock.now());
    const message = "no worker had room for as long as a request may wait";
    return { status: 429, code: "queue_timeout", message, retryAfter };
  }

  /** No worker is wanted any more. */
  stop(): void {
    if (this.#waiting) this.#context.admission.leave(this.#waiting);
    this.#waiting = null;
  }

  #join(exclude: readonly Worker[], isBound: boolean): void {
    const { admission, clock } = this.#context;
    this.#listener.onLine();
    this.#waiting = {
      ...{ model: this.#ask.request.model!, since: clock.now(), exclude, isBound },
      tryAgain: () => this.#seek(exclude, true),
    };
    admission.join(this.#waiting);
  }

  #seek(exclude: readonly Worker[], isInLine = false): Try {
    const { request } = this.#ask;
    let lease: Lease;
    try {
      lease = this.#context.router.acquire(exclude.length === 0 ? request : { ...request, exclude });
    } catch (error) {
      // A pinned request would hold up those behind it that other workers have room for.
      if (this.#isWorthWaiting(error, isInLine) && request.pin === undefined) return "full";
      this.#refuseBy(error);
      return "gone";
    }
    this.#listener.onLease(lease);
    return "gone";
  }

  /**
   * Whether a worker may be had in a moment: because one that is full will have room, or one that has joined is being looked at. Nobody
   * begins to wait for a model that no worker is known to serve: it may be a client's invention.
   */
  #isWorthWaiting(error: unknown, isInLine: boolean): boolean {
    if (!(error instanceof NoWorkerError)) return false;
    if (error.code === "full") return true;
    const mayCome = error.code === "no_worker" || isInLine;
    return mayCome && this.#context.fleet.isAwaited(this.#ask.request.model!);
  }

  #refuseBy(error: unknown): void {
    const { fleet, isIncomplete } = this.#context;
    const { request, source } = this.#ask;
    const isServed = error instanceof NoWorkerError && error.code !== "unknown_model";
    const refusal = refusalOf(error, source, isIncomplete());
    const roomAfterMs = isFull(error) ? fleet.roomAfterMs(request.model!, request.pin) : 0;
    const retryAfter = roomAfterMs > 0 ? Math.ceil(roomAfterMs / 1_000) : refusal.retryAfter;
    this.#listener.onRefusal({ ...refusal, retryAfter }, isServed);
  }

  /** Waits for a worker with room, unless that is in vain. */
  #wait(): void {
    const { router, admission, fleet, clock } = this.#context;
    const { request } = this.#ask;
    const model = request.model!;
    let isBound: boolean;
    try {
      // Whoever is behind others has not been looked at by the router yet.
      isBound = router.query(request) !== null;
    } catch (error) {
      this.#refuseBy(error);
      return;
    }
    const roomAfterMs = fleet.roomAfterMs(model);
    if (roomAfterMs > admission.deadlineMs) {
      const message = "every worker of the model asked to be left alone for longer than a request may wait";
      this.#refuse("workers_full", message, Math.ceil(roomAfterMs / 1_000));
    } else if (!admission.hasRoom(model)) {
      const message = "every worker of the model is full, and no more requests may wait";
      this.#refuse("queue_full", message, admission.retryAfter(model, clock.now()));
    } else this.#join([], isBound);
  }

  #refuse(code: string, message: string, retryAfter: number): void {
    this.#listener.onRefusal({ status: 429, code, message, retryAfter }, true);
  }
}

function isFull(error: unknown): boolean {
  return error instanceof NoWorkerError && error.code === "full";
}
