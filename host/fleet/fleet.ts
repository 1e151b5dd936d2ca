// The workers as the gateway knows them: the way to each, how each is, who comes and who goes.

import type { Router } from "../routing/router.js";
import type { Worker, WorkerOptions } from "../routing/worker.js";
import { Checks, type ModelEntry } from "./checks.js";
import type { Clock } from "./clock.js";
import type { Line } from "./line.js";
import { Member, type MemberView } from "./member.js";
import type { FleetOptions } from "./options.js";
import { WarmLoads } from "./warm-loads.js";

/** Milliseconds between two looks at what time alone changes. */
const TICK_MS = 250;
/** Workers that are looked at in one turn of the loop: requests get through between two turns. */
const AT_ONCE = 64;
/** A worker that asks to be left alone for longer is asked again all the same. */
const LONGEST_HOLD_OFF_MS = 3_600_000;

/** How often in a row a worker may say that it is busy without saying for how long, and how long it is left alone then. */
const MANY_BUSY = 5;
const BUSY_MS = 1_000;

/** A worker as it is named by an operator or found by a source of discovery. */
export interface NamedWorker extends Omit<WorkerOptions, "ready"> {
  readonly url: string;
  /** What is shown to it, in place of whatever its clients send. */
  readonly apiKey?: string | undefined;
}

/** Hears of the fleet. */
export interface FleetListener {
  /** A worker's state changed. */
  onState(worker: Worker, view: MemberView): void;
  /** It is another process than before: its sessions start anew. */
  onRestart(worker: Worker): void;
  /**
   * What requests for these models wait for may have come: a worker that is ready, or has room, or will never have any. Null where it may
   * be any model.
   */
  onChange(models: readonly string[] | null): void;
  /** The time of a drained worker's requests is over. */
  onDeadline(worker: Worker): void;
}

/** What a fleet is made of. */
export interface FleetParts<L extends Line> {
  readonly router: Router;
  readonly options: FleetOptions;
  readonly clock: Clock;
  /** Makes the way to a worker. Throws a TypeError for a url that cannot be read. */
  readonly reach: (url: string, apiKey: string | undefined) => L;
  readonly listener: FleetListener;
}

interface Enlisted<L> {
  readonly member: Member;
  readonly line: L;
  readonly checks: Checks;
  named: NamedWorker;
  /** What it last listed. */
  listed: readonly ModelEntry[];
  /** Whether it ever listed its models, or they are fixed. */
  known: boolean;
}

/** Asks every worker how it is, at the start and at intervals, and keeps the router's view of each up to date. */
export class Fleet<L extends Line> {
  readonly #parts: FleetParts<L>;
  #options: FleetOptions;
  readonly #all = new Map<Worker, Enlisted<L>>();
  readonly #byId = new Map<string, Worker>();
  /** The models of which there is news, the workers that came, and what the others carry, while several changes are made. */
  #changed: { models: Set<string>; come: Enlisted<L>[]; loads: WarmLoads; isAny: boolean } | null = null;
  /** Removed, with requests still under way. */
  readonly #leaving = new Set<Enlisted<L>>();
  #stopTicking: () => void = () => {};
  #isRunning = false;
  #isLooking = false;
  #isSettled = false;

  constructor(parts: FleetParts<L>) {
    this.#parts = parts;
    this.#options = parts.options;
  }

  /** Goes by other options from now on. Workers stay in the states that they are in. */
  configure(options: FleetOptions): void {
    this.#options = options;
    const now = this.#parts.clock.now();
    const loads = this.#warmLoads(now);
    for (const enlisted of this.#all.values()) {
      enlisted.member.configure(options, now);
      enlisted.checks.configure(options);
      this.#judge(enlisted, loads);
    }
  }

  /** The ways to all workers. */
  *lines(): Iterable<L> {
    for (const { line } of this.#all.values()) yield line;
  }

  /**
   * Adds a worker, named by `source`, to the router. It is eligible when it has answered. Throws what `Router.addWorker` throws,
   * and a TypeError for a url that cannot be read; nothing is changed then. `expected` are the models that it serves until it tells, where
   * none are named.
   */
  add(named: NamedWorker, source: string, expected: readonly string[] = []): Worker {
    const { router, reach, clock } = this.#parts;
    const options = this.#options;
    const { id, url, apiKey, models, weight, slots, maxInFlight = Number.POSITIVE_INFINITY } = named;
    const line = reach(url, apiKey);
    const worker = router.addWorker({ id, url, models: models ?? expected, weight, slots, ready: false });
    const memberOptions = {
      ...{ fleet: options, source, maxInFlight, isLate: this.#isSettled },
      mayOpen: () => this.#mayOpen(worker),
    };
    const member = new Member(worker, memberOptions, clock.now());
    const enlisted: Enlisted<L> = {
      ...{ member, line, named, listed: [], known: models !== undefined },
      checks: new Checks(member, line, options, clock, {
        needsModels: () => enlisted.named.models === undefined,
        onModels: (listed) => {
          if (enlisted.named.models === undefined)
            this.#setModels(worker, [...new Set(listed.map(({ id }) => id))]);
          enlisted.listed = listed;
          enlisted.known = true;
        },
        onRestart: () => {
          router.chill(worker);
          this.#parts.listener.onRestart(worker);
        },
        onNews: () => this.#judge(enlisted),
      }),
    };
    this.#all.set(worker, enlisted);
    this.#byId.set(id, worker);
    if (this.#isRunning) this.#meet(enlisted);
    return worker;
  }

  /**
   * Has a worker be as it is named, under its id: adds it, or changes what is there. One that is to be reached elsewhere is
   * another worker. Throws what `add` throws.
   */
  put(named: NamedWorker, source: string): Worker {
    const existing = this.find(named.id);
    if (!existing) return this.add(named, source);
    const enlisted = this.#all.get(existing)!;
    if (enlisted.named.url !== named.url) return this.#replace(existing, named, source);
    if (named.models) this.#setModels(existing, named.models);
    existing.refit(named);
    if (enlisted.named.apiKey !== named.apiKey) enlisted.line.show(named.apiKey);
    enlisted.known ||= named.models !== undefined;
    enlisted.named = named;
    enlisted.member.source = source;
    enlisted.member.maxInFlight = named.maxInFlight ?? Number.POSITIVE_INFINITY;
    this.#judge(enlisted);
    return existing;
  }

  /** Makes several changes: what waits for a worker hears of them when all are made. Throws what `make` throws. */
  change<T>(make: () => T): T {
    if (this.#changed) return make();
    const loads = this.#warmLoads(this.#parts.clock.now());
    const changed = { models: new Set<string>(), come: [], loads, isAny: false };
    this.#changed = changed;
    try {
      return this.#parts.router.change(make);
    } finally {
      this.#changed = null;
      this.#relent();
      this.#parts.listener.onChange(changed.isAny ? null : [...changed.models]);
      this.#look(changed.come);
    }
  }

  /**
   * Removes a worker from the router; its requests under way go on to their end, for `ms` milliseconds at most. Does nothing for one
   * that is not here.
   */
  remove(worker: Worker, ms = Number.POSITIVE_INFINITY): void {
    const enlisted = this.#all.get(worker);
    if (!enlisted) return;
    const { member, line, checks } = enlisted;
    const { models } = worker;
    if (ms < Number.POSITIVE_INFINITY) member.drain(this.#parts.clock.now() + ms);
    checks.stop();
    this.#all.delete(worker);
    this.#byId.delete(worker.id);
    this.#leaving.add(enlisted);
    this.#parts.router.removeWorker(worker);
    member.leave();
    // Of many that go, only those that are left matter.
    if (!this.#changed) this.#relent();
    this.#judge(enlisted);
    void line.close().finally(() => this.#leaving.delete(enlisted));
    this.#announce(models);
  }

  /**
   * Takes a worker out of service: no new sessions, bound ones move at their next turn, and what it runs is to be over within `ms`
   * milliseconds, Infinity for however long it takes.
   */
  drain(worker: Worker, ms: number): void {
    const enlisted = this.#all.get(worker);
    if (!enlisted) return;
    enlisted.member.drain(this.#parts.clock.now() + ms);
    this.#relent();
    this.#judge(enlisted);
  }

  /** Puts a worker back into service that is draining, or asked to be left alone. */
  resume(worker: Worker): void {
    const enlisted = this.#all.get(worker);
    if (!enlisted) return;
    enlisted.member.resume();
    this.#judge(enlisted);
  }

  /**
   * Gives those that are gone, and had this id, `ms` milliseconds for their last requests, Infinity for what they have; returns
   * these workers.
   */
  hurry(id: string, ms: number): Worker[] {
    const gone = [...this.#leaving].filter(({ member: { worker } }) => {
      return worker.id === id && worker.activeRequests > 0;
    });
    if (ms < Number.POSITIVE_INFINITY)
      for (const { member } of gone) member.drain(this.#parts.clock.now() + ms);
    return gone.map(({ member }) => member.worker);
  }

  /** Asks all workers once, then goes on at intervals until `stop`. Resolves when all have answered or failed to. */
  async start(): Promise<void> {
    this.#isRunning = true;
    this.#stopTicking = this.#parts.clock.every(TICK_MS, () => this.#tick());
    const all = [...this.#all.values()];
    await new Promise<void>((resolve) => this.#look(all, resolve));
    await Promise.all(all.map(({ checks }) => checks.settled));
  }

  /** Resolves when the checks that are under way now are over: who is in service only after that comes late. */
  async settled(): Promise<void> {
    await Promise.all([...this.#all.values()].map(({ checks }) => checks.settled));
    this.#isSettled = true;
    for (const { member } of this.#all.values()) member.comesLate();
  }

  /** Stops asking and cuts all connections. */
  async stop(): Promise<void> {
    this.#stopTicking();
    this.#isRunning = false;
    const all = [...this.#all.values(), ...this.#leaving];
    for (const { checks } of all) checks.stop();
    await Promise.all(all.map(({ line }) => line.destroy()));
  }

  /** The way to a worker. */
  line(worker: Worker): L {
    return this.#all.get(worker)!.line;
  }

  /** The worker of an id. */
  find(id: string): Worker | undefined {
    return this.#byId.get(id);
  }

  /** Who named the worker of an id; undefined where there is none. */
  sourceOf(id: string): string | undefined {
    const worker = this.find(id);
    return worker && this.#all.get(worker)!.member.source;
  }

  /** The workers that one source has named. */
  namedBy(source: string): Worker[] {
    return [...this.#all].filter(([, { member }]) => member.source === source).map(([worker]) => worker);
  }

  /** All workers, and those that are gone with requests under way. */
  views(): { worker: Worker; source: string; maxInFlight: number; view: MemberView }[] {
    const now = this.#parts.clock.now();
    const leaving = [...this.#leaving].filter(({ member }) => member.worker.activeRequests > 0);
    return [...this.#all.values(), ...leaving].map(({ member }) => ({
      ...{ worker: member.worker, source: member.source, maxInFlight: member.maxInFlight },
      view: member.view(now),
    }));
  }

  /** Why a worker is ready, or not. */
  reason(worker: Worker): string {
    return this.#all.get(worker)!.member.reason(this.#parts.clock.now());
  }

  /** A request that began at `begunAt` had a good answer. */
  succeeded(worker: Worker, begunAt: number): void {
    const enlisted = this.#all.get(worker);
    if (enlisted?.member.succeeded(begunAt, this.#parts.clock.now())) this.#judge(enlisted);
  }

  /** A request that began at `begunAt` failed, and that was the worker's fault: it is asked how it is. */
  failed(worker: Worker, begunAt: number, why: string): void {
    this.#blame(worker, (member, now) => member.failed(begunAt, now, why));
  }

  /** The same for one that had a good answer, which broke off. */
  brokeOff(worker: Worker, begunAt: number, why: string): void {
    this.#blame(worker, (member, now) => member.brokeOff(begunAt, now, why));
  }

  /** A good answer has come to its end. */
  completed(worker: Worker): void {
    this.#all.get(worker)?.member.completed();
  }

  /** A request that began at `begunAt` found no connection. */
  disconnected(worker: Worker, begunAt: number, why: string): void {
    this.#blame(worker, (member, now) => member.disconnected(begunAt, now, why));
  }

  /** A request that began at `begunAt` is over, whatever came of it, and counts no more. */
  ended(worker: Worker, begunAt: number): void {
    const enlisted = this.#all.get(worker);
    if (enlisted?.member.ended(begunAt)) this.#judge(enlisted);
  }

  /**
   * A worker says that it is busy, and asks to be left alone for so many milliseconds, NaN where it does not say. Where it says so
   * again and again, and others have room, it is left alone for a moment all the same: whoever refuses fast would draw all that
   * goes by load.
   */
  busy(worker: Worker, ms: number): void {
    const enlisted = this.#all.get(worker);
    if (!enlisted) return;
    const wait = ms > 0 ? Math.min(ms, LONGEST_HOLD_OFF_MS) : this.#pauseOf(enlisted);
    if (wait === 0) return;
    enlisted.member.holdOff(this.#parts.clock.now() + wait);
    this.#judge(enlisted);
  }

  /**
   * Milliseconds until a worker of the model may have room, the one of this id where one is given: 0 where that can be at any moment,
   * more where all that are ready asked to be left alone.
   */
  roomAfterMs(model: string, id?: string): number {
    const now = this.#parts.clock.now();
    const ready = [...this.#all.values()].filter(({ member: { worker } }) => {
      return worker.ready && worker.models.includes(model) && (id === undefined || worker.id === id);
    });
    return ready.length === 0 ? 0 : Math.min(...ready.map(({ member }) => member.heldOffMs(now)));
  }

  /** Whether a worker that has joined is being looked at for the first time, and serves the model, or may. */
  isAwaited(model: string): boolean {
    for (const { member, known } of this.#all.values()) {
      if (!member.isLate || member.state !== "starting") continue;
      if (!known || member.worker.models.includes(model)) return true;
    }
    return false;
  }

  /** Whether there is no worker, or one whose models are not known yet. */
  get incomplete(): boolean {
    if (this.#all.size === 0) return true;
    for (const { known } of this.#all.values()) if (!known) return true;
    return false;
  }

  /** All models, each once, as the first worker that lists it describes it. */
  models(): ModelEntry[] {
    const models = new Map<string, ModelEntry>();
    for (const [worker, { listed }] of this.#all) {
      for (const id of worker.models) {
        const entry = listed.find((candidate) => candidate.id === id);
        if (!models.has(id)) models.set(id, entry ?? { id, object: "model", created: 0, owned_by: "hawser" });
      }
    }
    return [...models.values()];
  }

  #replace(existing: Worker, named: NamedWorker, source: string): Worker {
    // Whether it can be had is known before the old one is given up.
    void this.#parts.reach(named.url, named.apiKey).destroy();
    return this.change(() => {
      if (named.models) this.#setModels(existing, named.models);
      const { models } = existing;
      this.remove(existing);
      // A pool that loses its last worker would be none, and what waits there have nothing to wait for.
      return this.add(named, source, models);
    });
  }

  #announce(models: readonly string[] | null): void {
    if (!this.#changed) this.#parts.listener.onChange(models);
    else if (models === null) this.#changed.isAny = true;
    else for (const model of models) this.#changed.models.add(model);
  }

  /** Requests may wait for a model that it serves only now, or in vain for one that it serves no more. */
  #setModels(worker: Worker, models: readonly string[]): void {
    const before = worker.models;
    this.#parts.router.setModels(worker, models);
    if (worker.models !== before) this.#announce([...before, ...models]);
  }

  #blame(worker: Worker, report: (member: Member, now: number) => void): void {
    const enlisted = this.#all.get(worker);
    if (!enlisted) return;
    report(enlisted.member, this.#parts.clock.now());
    this.#judge(enlisted);
    void enlisted.checks.check();
  }

  #tick(): void {
    const now = this.#parts.clock.now();
    // Of very many the last look may not be over yet.
    if (!this.#isLooking) {
      this.#isLooking = true;
      this.#look([...this.#all.values()], () => {
        this.#isLooking = false;
      });
    }
    for (const { member } of [...this.#all.values(), ...this.#leaving])
      if (now >= member.drainUntil && member.worker.activeRequests > 0)
        this.#parts.listener.onDeadline(member.worker);
  }

  /** A worker has come: it is asked at once, or with the others that come. */
  #meet(enlisted: Enlisted<L>): void {
    if (this.#changed) this.#changed.come.push(enlisted);
    else this.#look([enlisted]);
  }

  /** Looks at workers, some now, and some more in each turn of the loop; `onEnd` is called when all were looked at. */
  #look(all: readonly Enlisted<L>[], onEnd = () => {}): void {
    const now = this.#parts.clock.now();
    const loads = this.#warmLoads(now);
    for (const enlisted of all.slice(0, AT_ONCE)) this.#lookAt(enlisted, now, loads);
    const rest = all.slice(AT_ONCE);
    if (rest.length === 0) onEnd();
    else setImmediate(() => this.#look(rest, onEnd));
  }

  /** Asks a worker what is due, and sees what time has changed of it. */
  #lookAt(enlisted: Enlisted<L>, now: number, loads: WarmLoads): void {
    const { member, checks } = enlisted;
    if (!this.#isRunning || !this.#all.has(member.worker)) return;
    checks.tick(now);
    this.#relent([enlisted]);
    this.#judge(enlisted, loads);
  }

  /** Has those be half-open that their breakers have taken out, where by now that is more than half of a model's workers. */
  #relent(some: Iterable<Enlisted<L>> = this.#all.values()): void {
    for (const enlisted of some) {
      const { member } = enlisted;
      if (member.breaker !== "open" || this.#mayOpen(member.worker)) continue;
      member.relent(this.#parts.clock.now());
      this.#judge(enlisted);
    }
  }

  #judge(
    { member, known }: Enlisted<L>,
    loads = this.#changed?.loads ?? this.#warmLoads(this.#parts.clock.now()),
  ): void {
    const { clock, listener } = this.#parts;
    const { worker } = member;
    const now = clock.now();
    const had = worker.hasRoom;
    // It is not warm itself, where that is asked.
    const changed = member.judge(now, () => loads.meanOver(worker.models));
    if (changed) listener.onState(worker, member.view(now));
    if (changed || (worker.hasRoom && !had)) this.#announce(known ? worker.models : null);
  }

  #pauseOf({ member }: Enlisted<L>): number {
    const isMuch = member.busy() >= MANY_BUSY;
    return isMuch && this.#hasRoomBeside(member.worker) ? BUSY_MS : 0;
  }

  /** Whether another worker has room that serves all of a worker's models. */
  #hasRoomBeside(worker: Worker): boolean {
    for (const peer of this.#all.keys())
      if (peer !== worker && peer.hasRoom && worker.models.every((model) => peer.models.includes(model)))
        return true;
    return false;
  }

  /** What the workers that have come through their beginning carry. */
  #warmLoads(now: number): WarmLoads {
    return new WarmLoads(() =>
      [...this.#all.values()].map(({ member }) => member).filter((it) => it.isWarm(now)),
    );
  }

  /** Whether at least half of every model's workers would be in service still, were this one taken out by its breaker. */
  #mayOpen(worker: Worker): boolean {
    return worker.models.every((model) => {
      const peers = [...this.#all.values()].filter(({ member }) => {
        return member.isUp && member.worker.models.includes(model);
      });
      const out = peers.filter(
        ({ member }) => member.worker !== worker && member.breaker !== "closed",
      ).length;
      return 2 * (out + 1) <= peers.length;
    });
  }
}
