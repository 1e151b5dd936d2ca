// One worker of the fleet: what checks, requests, its engine and operators say of it, and what follows for the router.

import type { Worker } from "../routing/worker.js";
import { Breaker, type BreakerState, type BreakerView } from "./breaker.js";
import { Health } from "./health.js";
import type { EngineSignals, FleetOptions } from "./options.js";
import { SlowStart } from "./slow-start.js";
import { type SignalView, WorkerSignals } from "./worker-signals.js";

/** Whether a worker is in service. `gone`: removed, with requests under way. */
export type WorkerState = "starting" | "ready" | "draining" | "unhealthy" | "gone";

/** What a member is told at its beginning. */
export interface MemberOptions {
  readonly fleet: FleetOptions;
  /** Who named it: `config`, `admin`, or a source of discovery. */
  readonly source: string;
  /** Whether it joins workers that are at work already, and so begins slowly. */
  readonly isLate: boolean;
  /** Most requests that the operator lets it have; Infinity for no limit. */
  readonly maxInFlight: number;
  /** Whether its breaker may open: see `Breaker`. */
  readonly mayOpen: () => boolean;
}

/** What an operator sees of a member. */
export interface MemberView {
  readonly state: WorkerState;
  /** Monotonic milliseconds. */
  readonly since: number;
  readonly reason: string;
  /** Null where there is none. */
  readonly breaker: BreakerView | null;
  /** Milliseconds for which it asked to be left alone, 0 for not at all. */
  readonly heldOffMs: number;
  /** Most requests that it gets while it begins slowly; null otherwise. */
  readonly easing: number | null;
  /** Milliseconds until a drain's deadline; null where it is not draining, or has none. */
  readonly drainMs: number | null;
  readonly signals: SignalView;
  /** When its engine was last seen to be another process than before, in monotonic milliseconds; null for never. */
  readonly restartedAt: number | null;
}

/** Every `now` is monotonic milliseconds. */
export class Member {
  readonly worker: Worker;
  source: string;
  maxInFlight: number;
  /** Whether it joined workers that were at work already. */
  readonly isLate: boolean;
  readonly #health: Health;
  #breaker: Breaker | null;
  readonly #mayOpen: () => boolean;
  readonly #slowStart: SlowStart;
  readonly #signals: WorkerSignals;
  #state: WorkerState = "starting";
  #since: number;
  #startsSlowly: boolean;
  /** Whether it has not been in service since it came, or was well again. */
  #comes = true;
  #breakerState: BreakerState = "closed";
  /** Requests that it had already when its breaker became half-open: they are no probes. */
  #carried = 0;
  #heldOffUntil = 0;
  #busyInARow = 0;
  /** When its drain ends; null where it is not draining. */
  #drainUntil: number | null = null;
  #isGone = false;
  #restartedAt: number | null = null;

  constructor(worker: Worker, { fleet, source, isLate, maxInFlight, mayOpen }: MemberOptions, now: number) {
    this.worker = worker;
    this.source = source;
    this.maxInFlight = maxInFlight;
    this.#health = new Health(fleet.health, now);
    this.#mayOpen = mayOpen;
    this.#breaker = fleet.breaker && new Breaker(fleet.breaker, mayOpen, now);
    this.#slowStart = new SlowStart(fleet.health.slowStartMs);
    this.#signals = new WorkerSignals(fleet.signals.staleAfterMs);
    this.#since = now;
    this.isLate = isLate;
    this.#startsSlowly = isLate;
  }

  /** Goes by other options from now on, in the state that it is in. To be judged behind that. */
  configure({ health, breaker, signals }: FleetOptions, now: number): void {
    this.#health.thresholds = health;
    this.#slowStart.slowStartMs = health.slowStartMs;
    this.#signals.staleAfterMs = signals.staleAfterMs;
    if (breaker && this.#breaker) this.#breaker.configure(breaker);
    else this.#breaker = breaker && new Breaker(breaker, this.#mayOpen, now);
  }

  get state(): WorkerState {
    return this.#state;
  }

  /** Whether it is in service and has come through its beginning. */
  isWarm(now: number): boolean {
    return this.#state === "ready" && !this.#slowStart.isUnderWay(now);
  }

  /** Whether its checks have it in service, and nobody drains it. */
  get isUp(): boolean {
    return this.#health.state === "up" && this.#drainUntil === null && !this.#isGone;
  }

  /** What its breaker was at the last look. */
  get breaker(): BreakerState {
    return this.#breakerState;
  }

  /** It comes while others are at work, from now on: whenever it is in service it begins slowly. */
  comesLate(): void {
    this.#startsSlowly = true;
  }

  /** When its drain is to end; Infinity where it is not draining, or waits for ever. */
  get drainUntil(): number {
    return this.#drainUntil ?? Number.POSITIVE_INFINITY;
  }

  /** A check was passed. */
  passed(now: number): void {
    this.#health.passed(now);
  }

  /** A check failed. */
  checkFailed(now: number, reason: string): void {
    this.#health.failed(now, reason);
  }

  /** A request that began at `begunAt` had a good answer; returns whether that closed its breaker. */
  succeeded(begunAt: number, now: number): boolean {
    this.#busyInARow = 0;
    this.#breaker?.succeeded(begunAt, now);
    return this.#breakerState === "half_open" && this.#breaker!.state(now) === "closed";
  }

  /** A request that began at `begunAt` failed, and that was the worker's fault. */
  failed(begunAt: number, now: number, why: string): void {
    this.#breaker?.failed(begunAt, now, why);
  }

  /** The same for one that had a good answer, which broke off. */
  brokeOff(begunAt: number, now: number, why: string): void {
    this.#breaker?.brokeOff(begunAt, now, why);
  }

  /** A good answer has come to its end. */
  completed(): void {
    this.#breaker?.completed();
  }

  /** Has an open breaker be half-open before its time. */
  relent(now: number): void {
    this.#breaker?.relent(now);
  }

  /** A request that began at `begunAt` is over, whatever came of it; returns whether it was one that no probe follows. */
  ended(begunAt: number): boolean {
    if (this.#breakerState !== "half_open" || begunAt >= this.#breaker!.since) return false;
    this.#carried--;
    return true;
  }

  /** A request found no connection. */
  disconnected(begunAt: number, now: number, why: string): void {
    this.#health.disconnected(now, why);
    this.#breaker?.failed(begunAt, now, why);
  }

  /** It said that it is busy, and not for how long; returns how often it has since its last good answer. */
  busy(): number {
    return ++this.#busyInARow;
  }

  /** It asked to be left alone; of several moments the latest counts. */
  holdOff(until: number): void {
    this.#heldOffUntil = Math.max(this.#heldOffUntil, until);
  }

  /** How long it asked to be left alone for still. */
  heldOffMs(now: number): number {
    return Math.max(0, this.#heldOffUntil - now);
  }

  /** Takes what its engine says; `mostLocal` as in `WorkerSignals.take`. Returns whether it was restarted. */
  take(signals: EngineSignals, now: number, mostLocal: number): boolean {
    const isRestarted = this.#signals.take(signals, now, mostLocal);
    if (!isRestarted) return false;
    this.#restartedAt = now;
    this.#slowStart.begin(now);
    return true;
  }

  /** Its engine did not say anything. */
  scrapeFailed(now: number, reason: string): void {
    this.#signals.failed(now, reason);
  }

  /** Takes it out of service for new requests; what it has is to be over at `until`. */
  drain(until: number): void {
    this.#drainUntil = until;
  }

  /** Puts it back into service, also where it asked to be left alone. */
  resume(): void {
    this.#drainUntil = null;
    this.#heldOffUntil = 0;
    this.#busyInARow = 0;
  }

  /** It was removed. */
  leave(): void {
    this.#isGone = true;
    this.worker.ready = false;
  }

  /**
   * Brings the router's view of the worker up to date; returns whether its state changed. `meanOfOthers` tells that of
   * `SlowStart.limit`, and is asked only where the worker begins slowly.
   */
  judge(now: number, meanOfOthers: () => number | undefined): boolean {
    const breakerState = this.#breaker?.state(now) ?? "closed";
    const state = this.#stateNow(breakerState);
    // Also while it is draining, when no state tells.
    if (this.#health.state !== "up" || breakerState === "open") this.#comes = true;
    if (state === "ready" && this.#comes && this.#startsSlowly) this.#slowStart.begin(now);
    if (this.#breakerState === "half_open" && breakerState === "closed") this.#slowStart.begin(now);
    if (this.#breakerState !== "half_open") this.#carried = this.worker.activeRequests;
    this.#breakerState = breakerState;
    const changed = state !== this.#state;
    if (changed) this.#since = now;
    if (state === "ready") [this.#comes, this.#startsSlowly] = [false, true];
    this.#state = state;
    this.#apply(now, meanOfOthers);
    return changed;
  }

  #stateNow(breaker: BreakerState): WorkerState {
    if (this.#isGone) return "gone";
    if (this.#drainUntil !== null) return "draining";
    const { state } = this.#health;
    if (state !== "up") return state === "starting" ? "starting" : "unhealthy";
    return breaker === "open" ? "unhealthy" : "ready";
  }

  /** Why it is in its state, or gets nothing though it is ready. */
  reason(now: number): string {
    const { worker } = this;
    switch (this.#state) {
      case "gone":
        return "it was removed";
      case "draining":
        return worker.activeRequests > 0 ? "an operator drains it" : "an operator drained it";
      case "starting":
        return this.#health.reason;
      case "unhealthy":
        return this.#health.state === "down" ? this.#health.reason : `its breaker is open: ${this.#why(now)}`;
      case "ready":
        return this.#reasonWhileReady(now);
    }
  }

  #reasonWhileReady(now: number): string {
    const { worker } = this;
    if (this.#heldOffUntil > now) return "it asked to be left alone for a while";
    if (this.#breakerState === "half_open") return `its breaker is half-open: ${this.#why(now)}`;
    if (!worker.hasRoom) return "it has as many requests in flight as it may";
    return worker.eligible
      ? this.#health.reason
      : "it has as many requests in flight as it may while it begins slowly";
  }

  #why(now: number): string {
    return this.#breaker!.view(now).why ?? "";
  }

  #apply(now: number, meanOfOthers: () => number | undefined): void {
    const { worker } = this;
    if (this.#isGone) return;
    worker.ready = this.#state === "ready";
    worker.maxInFlight = this.#heldOffUntil > now ? 0 : Math.min(this.maxInFlight, this.#probeLimit(now));
    const isSlow = this.#slowStart.isUnderWay(now);
    worker.easing = isSlow ? this.#slowStart.limit(now, meanOfOthers()) : Number.POSITIVE_INFINITY;
    const { elsewhere, waiting, kvUsed, blocks, blockSize } = this.#signals.values(now);
    const { report } = worker;
    const isNew =
      elsewhere !== report.elsewhere ||
      waiting !== report.queueDepth ||
      kvUsed !== report.kvUsed ||
      blocks !== report.kvBlocks ||
      blockSize !== report.blockTokens;
    if (isNew)
      worker.report = { elsewhere, queueDepth: waiting, kvUsed, kvBlocks: blocks, blockTokens: blockSize };
  }

  #probeLimit(now: number): number {
    return this.#carried + (this.#breaker?.limit(now) ?? Number.POSITIVE_INFINITY);
  }

  /** All that an operator may want to know. */
  view(now: number): MemberView {
    const { easing } = this.worker;
    return {
      state: this.#state,
      since: this.#since,
      reason: this.reason(now),
      breaker: this.#breaker?.view(now) ?? null,
      heldOffMs: Math.round(this.heldOffMs(now)),
      easing: easing === Number.POSITIVE_INFINITY ? null : easing,
      drainMs:
        this.#drainUntil === null || this.#drainUntil === Number.POSITIVE_INFINITY
          ? null
          : Math.max(0, Math.round(this.#drainUntil - now)),
      signals: this.#signals.view(now),
      restartedAt: this.#restartedAt,
    };
  }
}
