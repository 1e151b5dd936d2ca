// The router: acquire -> commit -> release. It owns the workers, the bindings and the counts, and asks the policy.
// It knows no network, no file and no clock: time and random bits are handed in, so that a decision can be replayed.

import type { Failure } from "../abi/reasons.js";
import { Turn } from "../policy/decider.js";
import { SeedGenerator } from "../policy/random.js";
import { Binding, BindingTable } from "./bindings.js";
import { hashSession, hashWorker } from "./hash.js";
import { Lease } from "./lease.js";
import { Contender, type PolicyInstance, Pool } from "./pool.js";
import { checkKey, checkModels, checkOptions, MAX_MODELS, noneEligible, unserved } from "./refusals.js";
import { rendezvous } from "./rendezvous.js";
import { NO_MODEL, Worker, type WorkerOptions } from "./worker.js";

/** How sessions are bound. */
export interface SessionOptions {
  /** `soft`: bound, and the policy may move it. `off`: every request is placed anew. Default `soft`. */
  readonly mode?: "soft" | "off";
  /** Ask no policy and bind nothing: a session's worker follows from its key alone. Default false. */
  readonly fullDeterminism?: boolean;
  /** Idle milliseconds after which a binding is forgotten; leases hold it off. Default 30 minutes. */
  readonly ttlMs?: number;
  /** Most bindings held; where one more is needed the longest unused gives way. Default 65,536. */
  readonly maxBindings?: number;
}

export interface RouterOptions {
  readonly instance: PolicyInstance;
  /** Takes over when the instance is quarantined; left out, the built-in least-loaded rule does. */
  readonly fallback?: PolicyInstance | undefined;
  readonly workers?: readonly WorkerOptions[];
  readonly session?: SessionOptions;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Starts the generator of random bits; any safe integer. */
  readonly seed: number;
}

/** One request, as far as routing is concerned. */
export interface AcquireRequest {
  /** The session's key; requests without one are placed anew each time. */
  readonly key?: string | undefined;
  /** Bindings of different models are apart. */
  readonly model?: string | undefined;
  /** Bindings of different tenants are apart. */
  readonly tenant?: string | undefined;
}

/** One policy instance in `Router.status()`. */
export interface PolicyStatus {
  readonly name: string;
  readonly type: string;
  readonly state: "deciding" | "standby" | "quarantined";
  /** Why it is quarantined. */
  readonly reason?: string;
  /** Answers that were not used, by kind. */
  readonly failures: Partial<Record<Failure, number>>;
}

/** What `Router.status()` and `GET /health` show. */
export interface RouterStatus {
  /** The selected instance, then what takes over from it. */
  readonly policies: readonly PolicyStatus[];
  /** Bindings held, tentative ones included. */
  readonly bindings: number;
  /** Bindings that gave way to a new one before their time. */
  readonly bindings_evicted: number;
  /** Requests with a key served unbound because the table was full of bindings in use. */
  readonly bindings_refused: number;
  /** Accepted requests that stayed on their session's worker. */
  readonly affinity_kept: number;
  /** Accepted requests that went elsewhere although their session's worker was eligible. */
  readonly affinity_broken: number;
  readonly workers: readonly {
    readonly id: string;
    readonly models: readonly string[];
    readonly eligible: boolean;
    readonly active_requests: number;
    readonly bound_sessions: number;
  }[];
}

const DEFAULT_TTL_MS = 30 * 60_000;
const DEFAULT_MAX_BINDINGS = 65_536;

export class Router {
  readonly #contenders: readonly Contender[];
  readonly #clock: () => number;
  readonly #random: SeedGenerator;
  readonly #binds: boolean;
  readonly #deterministic: boolean;
  readonly #bindings: BindingTable;
  readonly #workers = new Map<string, Worker>();
  readonly #pools = new Map<string, Pool>();
  readonly #turn = new Turn();
  readonly #hashes = new Set<number>();
  #kept = 0;
  #broken = 0;

  /** Throws a RangeError for options out of range, and what `addWorker` throws. */
  constructor(options: RouterOptions) {
    const { mode, fullDeterminism, ttlMs, maxBindings } = options.session ?? {};
    checkOptions(options);
    const instances = options.fallback ? [options.instance, options.fallback] : [options.instance];
    this.#contenders = instances.map((instance) => new Contender(instance));
    this.#clock = options.clock;
    this.#random = new SeedGenerator(options.seed);
    this.#deterministic = fullDeterminism ?? false;
    this.#binds = mode !== "off" && !this.#deterministic;
    this.#bindings = new BindingTable(ttlMs ?? DEFAULT_TTL_MS, maxBindings ?? DEFAULT_MAX_BINDINGS);
    const workers = options.workers ?? [];
    for (const worker of workers) this.#create(worker).models = [...new Set(worker.models ?? [NO_MODEL])];
    this.#refill(workers.flatMap((worker) => worker.models ?? [NO_MODEL]));
  }

  /** Workers in the order they were added. */
  get workers(): Iterable<Worker> {
    return this.#workers.values();
  }

  /** Whether any worker serves the model, eligible or not. */
  serves(model: string): boolean {
    return this.#pools.has(model);
  }

  /**
   * Adds a worker. Throws a RangeError where its id is taken or its pool is full, and a PolicyStartError where a pool
   * needs a larger instance that does not start; nothing is changed then.
   */
  addWorker(options: WorkerOptions): Worker {
    const worker = this.#create({ ...options, models: [] });
    try {
      this.setModels(worker, options.models ?? [NO_MODEL]);
    } catch (error) {
      this.#forget(worker);
      throw error;
    }
    return worker;
  }

  /** Removes a worker; its requests in flight keep counting on their own object. Does nothing for one that is not here. */
  removeWorker(worker: Worker): void {
    if (this.#workers.get(worker.id) !== worker) return;
    this.setModels(worker, []);
    this.#forget(worker);
  }

  /** Says which models a worker serves, from now on. Throws what `addWorker` throws. */
  setModels(worker: Worker, models: readonly string[]): void {
    if (this.#workers.get(worker.id) !== worker)
      throw new RangeError(`worker "${worker.id}" is not this router's`);
    checkModels(models);
    const before = worker.models;
    const changed = models
      .filter((model) => !before.includes(model))
      .concat(before.filter((model) => !models.includes(model)));
    if (changed.length === 0) return;
    worker.models = [...new Set(models)];
    try {
      this.#refill(changed);
    } catch (error) {
      worker.models = before;
      this.#refill(changed);
      throw error;
    }
  }

  /**
   * Chooses a worker for a request and counts it there. Never waits.
   * Throws a NoWorkerError where there is none and a SessionKeyError where the key or the tenant is malformed.
   */
  acquire(request: AcquireRequest): Lease {
    const { key, model = NO_MODEL, tenant = "" } = request;
    const pool = this.#pools.get(model);
    if (!pool) throw unserved(model);
    if (key !== undefined) checkKey(key, tenant);
    const now = this.#clock();
    this.#bindings.expire(now);
    const session = key === undefined ? null : this.#open(pool, tenant, key);
    if (this.#deterministic) return this.#derive(pool, session);
    this.#describe(pool, session, now);
    return this.#choose(pool, session);
  }

  /** The state to show an operator. */
  status(): RouterStatus {
    this.#bindings.expire(this.#clock());
    return {
      policies: this.#policies(),
      bindings: this.#bindings.size,
      bindings_evicted: this.#bindings.evicted,
      bindings_refused: this.#bindings.refused,
      affinity_kept: this.#kept,
      affinity_broken: this.#broken,
      workers: [...this.#workers.values()].map((worker) => ({
        id: worker.id,
        models: worker.models,
        eligible: worker.eligible,
        active_requests: worker.activeRequests,
        bound_sessions: worker.boundSessions,
      })),
    };
  }

  #policies(): PolicyStatus[] {
    const deciding = this.#contenders.find(({ health }) => health.quarantine === null);
    return this.#contenders.map((contender) => {
      const { instance, health } = contender;
      const { quarantine } = health;
      return {
        name: instance.name,
        type: instance.policy.manifest.type,
        state: quarantine !== null ? "quarantined" : contender === deciding ? "deciding" : "standby",
        ...(quarantine !== null && { reason: quarantine }),
        failures: health.failures(),
      };
    });
  }

  /** Counts the answer to a lease's request and settles the binding. For `Lease.commit`. */
  settle(lease: Lease): void {
    if (lease.keepable === lease.worker) this.#kept++;
    else if (lease.keepable) this.#broken++;
    const { binding } = lease;
    if (!binding || lease.worker.removed) return;
    // Compare-and-set: a binding that somebody else moved since this lease was taken stays with the winner.
    const lost = binding.bound && binding.worker !== lease.worker && binding.version !== lease.version;
    if (lost) return;
    this.#bindings.point(binding, lease.worker, true);
    binding.usedAt = this.#clock();
    lease.version = binding.version;
  }

  /** Takes a lease's request off its worker and its binding. For `Lease.release`. */
  end(lease: Lease): void {
    lease.worker.addRequests(-1);
    const { binding } = lease;
    if (!binding) return;
    if (binding.chooser === lease) this.#bindings.retract(binding);
    this.#bindings.drop(binding, lease, this.#clock(), lease.version === binding.version);
  }

  /** The binding of a session: the one that lives, or a new one that is not in the table yet. */
  #open(pool: Pool, tenant: string, key: string): Binding {
    const id = `${pool.model}\0${tenant}\0${key}`;
    const found = this.#bindings.find(id);
    if (found) return found;
    const { low, high } = hashSession(pool.model, tenant, key);
    return new Binding(id, low, high);
  }

  /** Fills in what the policy reads of this request. */
  #describe(pool: Pool, session: Binding | null, now: number): void {
    const { decider } = pool;
    const turn = this.#turn;
    turn.now = now;
    turn.sessionLow = session ? session.sessionLow : 0;
    turn.sessionHigh = session ? session.sessionHigh : 0;
    if (decider.readsSeed) {
      this.#random.next();
      turn.seedLow = this.#random.low;
      turn.seedHigh = this.#random.high;
    }
    if (decider.readsSessionRequests)
      turn.sessionRequests = session?.worker ? session.requestsOn(session.worker) : 0;
  }

  #choose(pool: Pool, session: Binding | null): Lease {
    const { decider, candidates } = pool;
    const bound = session?.worker ?? null;
    const boundRow = bound ? bound.rowIn(pool) : -1;
    decider.decide(this.#turn, boundRow);
    if (decider.row < 0) throw noneEligible(pool);
    const worker = pool.workers[decider.row]!;
    const keepable = boundRow >= 0 && candidates.truth.eligible[boundRow] === 1 ? bound : null;
    const binding = session && this.#list(session) ? session : null;
    const lease = new Lease(this, worker, decider.reason, pool.policy, decider.failure, binding, keepable);
    if (binding) this.#hold(binding, lease);
    worker.addRequests(1);
    return lease;
  }

  /** Whether a session's binding is in the table, where need be after adding it. */
  #list(session: Binding): boolean {
    const listed = session.leases !== null || session.bound;
    return listed || (this.#binds && this.#bindings.add(session));
  }

  #hold(binding: Binding, lease: Lease): void {
    if (!binding.worker) {
      this.#bindings.point(binding, lease.worker, false);
      binding.chooser = lease;
    }
    lease.version = binding.version;
    this.#bindings.hold(binding, lease);
  }

  /** The choice under full determinism: no policy, no binding. */
  #derive(pool: Pool, session: Binding | null): Lease {
    const { candidates, workers } = pool;
    const row = session
      ? rendezvous(workers, candidates.truth.eligible, session.sessionLow, session.sessionHigh)
      : candidates.leastLoaded();
    if (row < 0) throw noneEligible(pool);
    const worker = workers[row]!;
    worker.addRequests(1);
    return new Lease(this, worker, "deterministic", pool.policy, undefined, null, null);
  }

  #create(options: WorkerOptions): Worker {
    if (this.#workers.has(options.id)) throw new RangeError(`worker "${options.id}" exists already`);
    checkModels(options.models ?? []);
    const worker = new Worker(
      options,
      hashWorker(options.id, (hash) => this.#hashes.has(hash)),
    );
    this.#workers.set(worker.id, worker);
    this.#hashes.add(worker.hash);
    return worker;
  }

  #forget(worker: Worker): void {
    worker.removed = true;
    this.#workers.delete(worker.id);
    this.#hashes.delete(worker.hash);
  }

  /** Brings the pools of these models up to date with what the workers serve. */
  #refill(models: Iterable<string>): void {
    for (const model of new Set(models)) {
      const workers = [...this.#workers.values()].filter((worker) => worker.models.includes(model));
      if (workers.length === 0) {
        this.#pools.get(model)?.setWorkers([]);
        this.#pools.delete(model);
      } else this.#poolOf(model).setWorkers(workers);
    }
  }

  #poolOf(model: string): Pool {
    const existing = this.#pools.get(model);
    if (existing) return existing;
    // Each pool has an instance of its own, and each instance reserves some 10 GB of address space.
    if (this.#pools.size >= MAX_MODELS) throw new RangeError(`at most ${MAX_MODELS} models can be served`);
    const pool = new Pool(model, this.#contenders);
    this.#pools.set(model, pool);
    return pool;
  }
}
