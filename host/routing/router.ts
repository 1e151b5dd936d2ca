// The router: acquire -> commit -> release. It owns the workers, the bindings and the counts, and asks the policy.
// It knows no network, no file and no clock: time and random bits are handed in, so that a decision can be replayed.

import { randomBytes } from "node:crypto";
import { COLUMNS } from "../abi/frame.js";
import type { Failure } from "../abi/reasons.js";
import { type Decider, type Rehearsal, Turn } from "../policy/decider.js";
import { FILLED } from "../policy/filled.js";
import { SeedGenerator } from "../policy/random.js";
import type { LeaseAudit } from "./audit.js";
import { ALIAS, BindingTable, type BindingView } from "./bindings.js";
import { NONE } from "./chains.js";
import { type Contenders, chooseContenders, inOrder } from "./contenders.js";
import { hashSession, parseSessionId, sessionId } from "./hash.js";
import { Lease } from "./lease.js";
import type { DecisionObserver } from "./observer.js";
import type { Pool } from "./pool.js";
import { Preparation } from "./preparation.js";
import { Prospect } from "./prospect.js";
import { checkOptions, checkRequest, checkSession, noneEligible, unserved } from "./refusals.js";
import type {
  AcquireRequest,
  ColumnValues,
  Explanation,
  PolicyStatus,
  RouterChange,
  RouterOptions,
  RouterStatus,
  SessionOptions,
} from "./requests.js";
import { Roster } from "./roster.js";
import { Scope, withoutSuffix } from "./scope.js";
import { sipHash } from "./siphash.js";
import { NO_MODEL, type Worker, type WorkerOptions } from "./worker.js";

const DEFAULT_TTL_MS = 30 * 60_000;
const DEFAULT_MAX_BINDINGS = 65_536;
/** Stale bindings that are cleared away before they are counted for an operator. */
const STATUS_STEPS = 4_096;
const NONE_EXCLUDED: readonly Worker[] = [];

export class Router {
  /** For `Lease.release`. */
  readonly audit: LeaseAudit | undefined;
  /** Hears of every decision, from the next one on. */
  observer: DecisionObserver | undefined;
  #contenders: Contenders;
  #session: SessionOptions;
  readonly #roster: Roster;
  readonly #clock: () => number;
  readonly #random: SeedGenerator;
  readonly #bindings: BindingTable;
  readonly #turn = new Turn();
  readonly #prospect: Prospect;
  readonly #nameHash = new Int32Array(4);
  readonly #secret: Int32Array;
  #time = Number.NEGATIVE_INFINITY;
  #kept = 0;
  #broken = 0;
  #placed = 0;
  #lost = 0;

  /** Throws a RangeError for options out of range, and what `addWorker` throws. */
  constructor(options: RouterOptions) {
    checkOptions(options);
    const { session = {}, fallback, instance, workers = [] } = options;
    this.#contenders = chooseContenders({ instance, fallback });
    this.#session = session;
    this.#clock = options.clock;
    this.audit = options.audit;
    this.observer = options.observer;
    this.#random = new SeedGenerator(options.seed);
    const { ttlMs = DEFAULT_TTL_MS, maxBindings = DEFAULT_MAX_BINDINGS, whenFull = "evict-idle" } = session;
    const secret = new Int32Array(new Uint8Array(randomBytes(16)).buffer);
    this.#secret = secret;
    this.#bindings = new BindingTable(ttlMs, maxBindings, whenFull, secret);
    this.#roster = new Roster(
      inOrder(this.#contenders),
      (model) => new Scope(this.#scopeName(model), secret),
    );
    this.#roster.fill(workers);
    for (const worker of this.workers) this.#bindings.enlist(worker);
    this.#prospect = new Prospect(this.#bindings, this.#roster.workers, session);
  }

  /** Workers in the order they were added. */
  get workers(): Iterable<Worker> {
    return this.#roster.workers.values();
  }

  /** Whether any worker serves the model, eligible or not. */
  serves(model: string): boolean {
    return this.#roster.pools.has(model);
  }

  /**
   * Adds a worker. Throws a RangeError where its id is taken or its pool is full, and a PolicyStartError where a pool
   * needs a larger instance that does not start; nothing is changed then.
   */
  addWorker(options: WorkerOptions): Worker {
    const worker = this.#roster.add(options);
    this.#bindings.enlist(worker);
    return worker;
  }

  /**
   * Makes several changes of workers, such as adding many: nothing decides before all are made, and they take a small part of the time.
   * Throws what `make` throws; what was changed by then stays.
   */
  change<T>(make: () => T): T {
    return this.#roster.change(make);
  }

  /** Removes a worker; its requests in flight keep counting on their own object. Does nothing for one that is not here. */
  removeWorker(worker: Worker): void {
    if (this.#roster.remove(worker)) this.#bindings.dismiss(worker);
  }

  /**
   * Says that a worker has lost what it held, as by a restart: the sessions bound there are not bound any more, and are placed
   * anew at their next turn.
   */
  chill(worker: Worker): void {
    if (!worker.removed) this.#bindings.chill(worker);
  }

  /** Says which models a worker serves, from now on. Throws what `addWorker` throws. */
  setModels(worker: Worker, models: readonly string[]): void {
    this.#roster.setModels(worker, models);
  }

  /**
   * Chooses a worker for a request and counts it there. Never waits. Throws a NoWorkerError where there is none, a
   * SessionKeyError where a key or the tenant is malformed, a PinError where the explicit target cannot be had.
   */
  acquire(request: AcquireRequest): Lease {
    const pool = this.#poolFor(request);
    const now = this.#now();
    this.#bindings.tidy(now);
    const { exclude = NONE_EXCLUDED } = request;
    if (exclude.length === 0 && pool.candidates.eligibleCount > 0) return this.#acquire(request, pool, now);
    return amid(pool, exclude, () => this.#acquire(request, pool, now));
  }

  /**
   * The worker that a request's session is bound to; null where it is bound to none, or only tentatively. Holds and changes
   * nothing, the idle time included. Throws what `acquire` throws for the names in a request.
   */
  query(request: AcquireRequest): Worker | null {
    const pool = this.#poolFor(request);
    this.#prospect.find(request, pool, this.#now());
    const { binding, bound } = this.#prospect;
    return binding !== NONE && this.#bindings.isBound(binding) ? bound : null;
  }

  /** What `acquire` would do with a request now, and why. Changes nothing; throws what `acquire` throws. */
  explain(request: AcquireRequest): Explanation {
    const pool = this.#poolFor(request);
    const now = this.#now();
    return amid(pool, request.exclude ?? NONE_EXCLUDED, () => this.#explain(request, pool, now));
  }

  /** The state to show an operator. */
  status(): RouterStatus {
    this.#bindings.tidy(this.#now(), STATUS_STEPS);
    return {
      policies: this.#policies(),
      bindings: this.#bindings.size,
      bindings_evicted: this.#bindings.evicted,
      bindings_refused: this.#bindings.refused,
      affinity_kept: this.#kept,
      affinity_broken: this.#broken,
      affinity_placed: this.#placed,
      rebinds_lost: this.#lost,
      workers: [...this.workers].map((worker) => ({
        id: worker.id,
        models: worker.models,
        eligible: worker.eligible,
        active_requests: worker.activeRequests,
        bound_sessions: worker.boundSessions,
      })),
    };
  }

  /** What the policies of all pools hold: live instances, and bytes of their memories, by the instance's name. */
  policyMemory(): ReadonlyMap<string, { instances: number; bytes: number }> {
    const held = new Map<string, { instances: number; bytes: number }>();
    for (const pool of this.#roster.pools.values()) {
      for (const { name, live } of pool.seats) {
        if (!live) continue;
        const { instances, bytes } = held.get(name) ?? { instances: 0, bytes: 0 };
        held.set(name, { instances: instances + 1, bytes: bytes + live.memoryBytes });
      }
    }
    return held;
  }

  /**
   * Begins a change of the policies, and of how sessions are bound. Nothing is changed yet: `step` of what is returned starts instances, as
   * often as it answers true, and `apply` has them decide. Bindings and counts stay, and so do policies that are what they were, with
   * their memory. Throws a RangeError for options out of range.
   */
  prepare(change: RouterChange): Preparation {
    const { session = this.#session } = change;
    checkSession(session);
    const { maxBindings = DEFAULT_MAX_BINDINGS } = this.#session;
    const { maxBindings: wanted = DEFAULT_MAX_BINDINGS } = session;
    if (wanted !== maxBindings)
      throw new RangeError(`session.maxBindings cannot change from ${maxBindings} to ${wanted}`);
    const contenders = chooseContenders(change, this.#contenders);
    return new Preparation(contenders, this.#contenders, session, () => this.#roster.pools.values());
  }

  /**
   * Has a change take effect, between two decisions, whole or not at all. What `step` has left to do is done first: throws what
   * that throws, and an Error for a change that another one has overtaken.
   */
  apply(preparation: Preparation): void {
    if (preparation.before !== this.#contenders)
      throw new Error("another change has taken effect since this one was prepared");
    while (preparation.step());
    const { contenders, session } = preparation;
    const { ttlMs = DEFAULT_TTL_MS, whenFull = "evict-idle" } = session;
    this.#contenders = contenders;
    this.#roster.contenders = inOrder(contenders);
    this.#session = session;
    this.#bindings.configure(ttlMs, whenFull);
    this.#prospect.configure(session);
    for (const pool of this.#roster.pools.values()) {
      pool.replace(preparation.seatsOf(pool));
      const name = this.#scopeName(pool.model);
      if (pool.scope.model !== name) pool.scope = new Scope(name, this.#secret);
    }
  }

  /** The columns that policies are shown of a worker; null where it serves no model yet. */
  columnsOf(worker: Worker): ColumnValues | null {
    const pool = this.#roster.pools.get(worker.models[0]!);
    return pool ? columnsOf(pool, worker.rowIn(pool)) : null;
  }

  /**
   * Bindings that stand, at most `limit` (1 or more), of one worker where it is given; `after` is the `next` of the page before.
   * `next` is 0 at the end; a page may be short, or empty, before it.
   */
  sessions(
    limit: number,
    after = NONE,
    worker: Worker | null = null,
  ): { views: readonly BindingView[]; next: number } {
    return this.#bindings.page(after, limit, worker, this.#now());
  }

  /** The binding with an id that stands. */
  session(id: string): BindingView | undefined {
    const now = this.#now();
    const binding = this.#byId(id, now);
    return binding === NONE ? undefined : this.#bindings.view(binding, now);
  }

  /** Has the binding with an id go when its last lease ends; false where none stands. */
  endSession(id: string): boolean {
    const binding = this.#byId(id, this.#now());
    if (binding === NONE) return false;
    this.#bindings.end(binding);
    return true;
  }

  /** The id that the binding of a key has or would have; with `isParent` that of the children of the session of that key. */
  sessionIdOf(key: string, model: string, tenant = "", isParent = false): string {
    const pool = this.#poolFor({ key, model, tenant });
    const { low, high } = hashSession(pool.scope.model, tenant, isParent ? `\0${key}` : key);
    return sessionId(low, high);
  }

  /** The id of a lease's binding. For `Lease.session`. */
  sessionOf({ binding }: Lease): string | null {
    if (binding === NONE) return null;
    return sessionId(this.#bindings.idLow(binding), this.#bindings.idHigh(binding));
  }

  /** Counts the answer to a lease's request and settles the binding. For `Lease.commit`. */
  settle(lease: Lease): void {
    const { worker, keepable, binding } = lease;
    if (keepable === worker) this.#kept++;
    else if (keepable) this.#broken++;
    else this.#placed++;
    if (binding === NONE || worker.removed) return;
    const bindings = this.#bindings;
    const holder = bindings.isBound(binding) ? bindings.workerOf(binding) : null;
    // Compare-and-set: a binding that somebody else moved since this lease was taken stays with the winner.
    if (holder && holder !== worker && bindings.version(binding) !== lease.version) {
      this.#lost++;
      return;
    }
    bindings.accept(binding, worker, lease.reason);
    lease.version = bindings.version(binding);
  }

  /** For `Lease.alias`. */
  name(lease: Lease, responseId: string): void {
    const { scope, worker } = lease;
    if (!scope || responseId === "" || worker.removed) return;
    const hash = this.#nameHash;
    sipHash(scope, ALIAS, responseId, hash);
    // A worker that gives an id twice: the session that has the name keeps it.
    const known = this.#bindings.findAlias(hash, this.#now());
    if (known !== NONE) return;
    if (lease.binding === NONE) this.#openUnnamed(lease);
    if (lease.binding !== NONE) this.#bindings.addAlias(hash, lease.binding);
  }

  /** For `Lease.invalidate`. */
  invalidate({ binding, version, worker }: Lease): void {
    const bindings = this.#bindings;
    const isCurrent = binding !== NONE && bindings.version(binding) === version;
    if (isCurrent && bindings.workerOf(binding) === worker) bindings.vacate(binding);
  }

  /** Takes a lease's request off its worker and its binding. For `Lease.release`. */
  end(lease: Lease, isFailed: boolean): void {
    const { worker, binding } = lease;
    worker.addRequests(-1);
    if (binding === NONE) return;
    const bindings = this.#bindings;
    const isCurrent = lease.version === bindings.version(binding);
    // A tentative choice lives as long as some request of it is with the worker, and the worker fails none.
    const isTentative = !bindings.isBound(binding) && bindings.workerOf(binding) === worker;
    if (isTentative && (isFailed || !bindings.hasOther(binding, lease))) this.#passOn(lease);
    bindings.drop(binding, lease, this.#now(), isCurrent);
  }

  /**
   * Takes a session that nobody has accepted off the worker of a lease that ends. It goes to where another request of it is on
   * its way, such as one that was tried again elsewhere: later ones join that.
   */
  #passOn({ binding, worker }: Lease): void {
    const bindings = this.#bindings;
    bindings.vacate(binding);
    for (let heir = bindings.leasesOf(binding); heir; heir = heir.next) {
      if (heir.worker === worker || heir.worker.removed) continue;
      bindings.propose(binding, heir.worker, heir.reason);
      heir.version = bindings.version(binding);
      return;
    }
  }

  /** The name under which a model's sessions are told apart. */
  #scopeName(model: string): string {
    return withoutSuffix(model, this.#session.modelSuffixes ?? []);
  }

  #poolFor(request: AcquireRequest): Pool {
    checkRequest(request);
    const { model = NO_MODEL } = request;
    const pool = this.#roster.pools.get(model);
    if (!pool) throw unserved(model);
    return pool;
  }

  /** Monotonic, whatever the clock does. */
  #now(): number {
    const time = this.#clock();
    if (time > this.#time) this.#time = time;
    return this.#time;
  }

  #acquire(request: AcquireRequest, pool: Pool, now: number): Lease {
    const prospect = this.#prospect;
    prospect.consider(request, pool, now);
    const { forcedRow, bound } = prospect;
    let row = forcedRow;
    let reason = prospect.forcedReason;
    let failure: Failure | undefined;
    const decider = row < 0 ? pool.decider : null;
    this.#describe(prospect, now, decider, this.#random);
    if (decider) {
      this.observer?.asking();
      decider.decide(this.#turn, prospect.shownRow);
      ({ row, reason, failure } = decider);
      if (row < 0) throw noneEligible(pool, request.exclude);
    }
    const worker = pool.workers[row]!;
    const keepable = prospect.boundEligible ? bound : null;
    const lease = new Lease(this, worker, reason, pool.policy, failure, keepable);
    this.observer?.decided(lease, pool, this.#turn, prospect.shownRow, decider);
    this.#hold(prospect, lease, request.final === true, now);
    worker.addRequests(1);
    this.audit?.taken(lease);
    return lease;
  }

  #explain(request: AcquireRequest, pool: Pool, now: number): Explanation {
    const prospect = this.#prospect;
    prospect.consider(request, pool, now);
    const { forcedRow, forcedReason, binding, opens, bound, shownRow, idLow, idHigh } = prospect;
    let answer: Rehearsal = {
      row: forcedRow,
      reason: forcedReason,
      failure: undefined,
      fuelUsed: 0,
      fresh: false,
    };
    if (forcedRow < 0) {
      const { decider } = pool;
      this.#describe(prospect, now, decider, this.#random.copy());
      answer = decider.rehearse(this.#turn, prospect.shownRow);
      if (answer.row < 0) throw noneEligible(pool, request.exclude);
    }
    return {
      worker: pool.workers[answer.row]!.id,
      decision: answer.reason,
      policy: pool.policy,
      ...(answer.failure && { failure: answer.failure }),
      ...(answer.fresh && { fresh: true }),
      session: prospect.by === null ? null : sessionId(idLow, idHigh),
      session_by: prospect.by,
      bound_to: bound ? bound.id : null,
      shown_bound_to: shownRow < 0 ? null : pool.workers[shownRow]!.id,
      binding: bound && this.#bindings.isBound(binding) ? this.#bindings.view(binding, now) : null,
      binds: binding !== NONE || (opens && this.#bindings.hasRoom(now)),
      candidates: pool.workers.map(({ id }, row) => ({ worker: id, columns: columnsOf(pool, row) })),
    };
  }

  /** Fills in what the policy reads of this request, where one is asked. */
  #describe(
    { binding, bound, idLow, idHigh }: Prospect,
    now: number,
    decider: Decider | null,
    random: SeedGenerator,
  ): void {
    const turn = this.#turn;
    turn.now = now;
    turn.sessionLow = idLow;
    turn.sessionHigh = idHigh;
    if (!decider) return;
    if (decider.readsSeed) {
      random.next();
      turn.seedLow = random.low;
      turn.seedHigh = random.high;
    }
    if (decider.readsSessionRequests)
      turn.sessionRequests = bound ? this.#bindings.requestsOn(binding, bound) : 0;
  }

  /** Takes the lease's hold on its session's binding, which is made where there is none yet. */
  #hold(prospect: Prospect, lease: Lease, isFinal: boolean, now: number): void {
    const bindings = this.#bindings;
    let { binding } = prospect;
    if (prospect.opens) {
      binding = bindings.add(prospect.hash, prospect.idLow, prospect.idHigh, prospect.kind, now);
    }
    // One that named its session and found no room does not begin another by the id of its answer.
    if (binding !== NONE || !prospect.opens) lease.scope = prospect.scope;
    if (binding === NONE) return;
    lease.binding = binding;
    bindings.hold(binding, lease);
    if (!bindings.workerOf(binding)) bindings.propose(binding, lease.worker, lease.reason);
    lease.version = bindings.version(binding);
    if (isFinal && !bindings.isGroup(binding)) bindings.end(binding);
  }

  /** A session that no request has named but by the id of its first answer, whose hash has just been made. */
  #openUnnamed(lease: Lease): void {
    const now = this.#now();
    const hash = this.#nameHash;
    const bindings = this.#bindings;
    bindings.tidy(now);
    if (!bindings.hasRoomForUnnamed || bindings.find(hash, now) !== NONE) return;
    lease.binding = bindings.add(hash, hash[0]!, hash[1]!, ALIAS, now);
    bindings.hold(lease.binding, lease);
    bindings.accept(lease.binding, lease.worker, lease.reason);
    lease.version = bindings.version(lease.binding);
  }

  #byId(id: string, now: number): number {
    const hash = parseSessionId(id);
    return hash ? this.#bindings.findId(hash.low, hash.high, now) : NONE;
  }

  #policies(): PolicyStatus[] {
    const contenders = inOrder(this.#contenders);
    const deciding = contenders.find(({ health }) => health.quarantine === null);
    return contenders.map((contender) => {
      const { instance, health } = contender;
      const { quarantine } = health;
      return {
        name: instance.name,
        type: instance.policy.manifest.type,
        state: quarantine !== null ? "quarantined" : contender === deciding ? "deciding" : "standby",
        ...(quarantine !== null && { reason: quarantine }),
        ...(contender === this.#contenders.previous && { previous: true }),
        ...(contender.refusal !== null && { not_started: contender.refusal }),
        failures: health.failures(),
      };
    });
  }
}

/** Decides where workers are not to be chosen, and, where that leaves none, those may be that are to begin slowly. */
function amid<T>(pool: Pool, exclude: readonly Worker[], decide: () => T): T {
  const { candidates } = pool;
  let changed = exclude;
  setEligible(pool, exclude, () => false);
  if (candidates.eligibleCount === 0) {
    const eased = pool.workers.filter((worker) => worker.hasRoom && !exclude.includes(worker));
    setEligible(pool, eased, () => true);
    changed = [...exclude, ...eased];
  }
  try {
    return decide();
  } finally {
    setEligible(pool, changed, ({ eligible }) => eligible);
  }
}

function setEligible(pool: Pool, workers: readonly Worker[], isEligible: (worker: Worker) => boolean): void {
  for (const worker of workers) {
    const row = worker.rowIn(pool);
    if (row >= 0) pool.candidates.setEligible(row, isEligible(worker));
  }
}

/** What the host fills of a row. */
function columnsOf({ candidates }: Pool, row: number): ColumnValues {
  const filled = COLUMNS.filter(({ name }) => FILLED.has(name));
  return Object.fromEntries(filled.map(({ name }) => [name, candidates.truth[name][row]!]));
}
