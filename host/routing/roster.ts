// Who is there: the workers of a router, and the pools that their models make.

import type { Contender } from "./contenders.js";
import { hashWorker } from "./hash.js";
import { Pool } from "./pool.js";
import { checkModels, MAX_MODELS } from "./refusals.js";
import type { Scope } from "./scope.js";
import { NO_MODEL, Worker, type WorkerOptions } from "./worker.js";

/** Workers by id and pools by model. Whatever cannot be done changes nothing. */
export class Roster {
  readonly workers = new Map<string, Worker>();
  readonly pools = new Map<string, Pool>();
  /** Of the pools to come. Written by the router alone. */
  contenders: readonly Contender[];
  readonly #scopeOf: (model: string) => Scope;
  readonly #hashes = new Set<number>();
  /** The pools that change, while several changes are made. */
  #touched: Set<Pool> | null = null;

  /** Every pool is decided over by `contenders`; `scopeOf` makes the scope of a model's sessions. */
  constructor(contenders: readonly Contender[], scopeOf: (model: string) => Scope) {
    this.contenders = contenders;
    this.#scopeOf = scopeOf;
  }

  /** Adds workers to a roster that has none. Throws what `add` throws. */
  fill(workers: readonly WorkerOptions[]): void {
    this.change(() => {
      for (const worker of workers) this.add(worker);
    });
  }

  /** Makes several changes: rows are numbered anew, and pools without workers go, when all are made. Throws what `make` throws. */
  change<T>(make: () => T): T {
    if (this.#touched) return make();
    const touched = new Set<Pool>();
    this.#touched = touched;
    try {
      return make();
    } finally {
      this.#touched = null;
      for (const pool of touched) {
        if (pool.size === 0) this.pools.delete(pool.model);
        pool.settle();
      }
    }
  }

  /** See `Router.addWorker`. */
  add(options: WorkerOptions): Worker {
    const worker = this.#create({ ...options, models: [] });
    try {
      this.setModels(worker, options.models ?? [NO_MODEL]);
    } catch (error) {
      this.#forget(worker);
      throw error;
    }
    return worker;
  }

  /** Removes a worker; false for one that is not here. */
  remove(worker: Worker): boolean {
    if (this.workers.get(worker.id) !== worker) return false;
    this.setModels(worker, []);
    this.#forget(worker);
    return true;
  }

  /** See `Router.setModels`. */
  setModels(worker: Worker, models: readonly string[]): void {
    this.change(() => this.#setModels(worker, models));
  }

  #setModels(worker: Worker, models: readonly string[]): void {
    if (this.workers.get(worker.id) !== worker)
      throw new RangeError(`worker "${worker.id}" is not this router's`);
    checkModels(models);
    const before = worker.models;
    const comes = [...new Set(models)].filter((model) => !before.includes(model));
    const goes = before.filter((model) => !models.includes(model));
    if (comes.length + goes.length === 0) return;
    this.#leave(worker, goes);
    try {
      this.#enter(worker, comes);
    } catch (error) {
      this.#enter(worker, goes);
      throw error;
    }
    worker.models = [...new Set(models)];
  }

  #create(options: WorkerOptions): Worker {
    if (this.workers.has(options.id)) throw new RangeError(`worker "${options.id}" exists already`);
    checkModels(options.models ?? []);
    const worker = new Worker(
      options,
      hashWorker(options.id, (hash) => this.#hashes.has(hash)),
    );
    this.workers.set(worker.id, worker);
    this.#hashes.add(worker.hash);
    return worker;
  }

  #forget(worker: Worker): void {
    worker.removed = true;
    this.workers.delete(worker.id);
    this.#hashes.delete(worker.hash);
  }

  /** Has a worker be in the pools of these models, or in none of them. */
  #enter(worker: Worker, models: readonly string[]): void {
    try {
      for (const model of models) this.#touch(this.#poolOf(model)).add(worker);
    } catch (error) {
      this.#leave(worker, models);
      throw error;
    }
  }

  /** Has a worker be in no pool of these models. */
  #leave(worker: Worker, models: readonly string[]): void {
    for (const model of models) {
      const pool = this.pools.get(model);
      if (pool?.has(worker)) this.#touch(pool).remove(worker);
    }
  }

  #touch(pool: Pool): Pool {
    this.#touched!.add(pool);
    return pool;
  }

  #poolOf(model: string): Pool {
    const existing = this.pools.get(model);
    if (existing) return existing;
    // Each pool has an instance of its own, and each instance reserves some 10 GB of address space.
    if (this.pools.size >= MAX_MODELS && this.#served() >= MAX_MODELS)
      throw new RangeError(`at most ${MAX_MODELS} models can be served`);
    const pool = new Pool(model, this.#scopeOf(model), this.contenders);
    this.pools.set(model, pool);
    return pool;
  }

  /** Models that have workers, once all changes are made. */
  #served(): number {
    return [...this.pools.values()].filter(({ size }) => size > 0).length;
  }
}
