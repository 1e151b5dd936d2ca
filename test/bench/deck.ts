// The scene of a measured decision: a pool with uneven loads, one of which changes before every decision.

import { SeedGenerator } from "../../host/policy/random.js";
import { Contender, type PolicyInstance } from "../../host/routing/contenders.js";
import { Pool } from "../../host/routing/pool.js";
import { Scope } from "../../host/routing/scope.js";
import { Worker } from "../../host/routing/worker.js";

/** Requests that a busy worker has at least, and that the others stay below. */
export const BUSY_LOAD = 40;
export const CALM_LOAD = 24;

/** Steps until a deck repeats itself: too many for a branch predictor to learn. */
const STEPS = 4096;
const LOWEST_LOAD = 8;
/** One worker in so many is busy. */
const BUSY_EVERY = 8;
/** Row of the one worker that is down, where there are that many. */
const DOWN_ROW = 9;

/** Where the session of a step is bound: to a busy worker, to another one, nowhere. */
export type Bound = "busy" | "calm" | "none";

/** A pool of `size` workers and what happens to their loads. */
export class Deck {
  readonly pool: Pool;
  /** The bound row of step `i & mask`. */
  readonly bounds: Readonly<Record<Bound, Int32Array>>;
  readonly mask = STEPS - 1;
  readonly #initial: Int32Array;
  readonly #rows = new Int32Array(STEPS);
  readonly #loads = new Int32Array(STEPS);

  constructor(size: number, instance: PolicyInstance) {
    this.pool = new Pool("m", new Scope("m", new Int32Array(4)), [new Contender(instance)]);
    // Rows are ordered by id: the zeros make worker and row number the same.
    const id = (row: number) => `w${String(row).padStart(5, "0")}`;
    for (let row = 0; row < size; row++)
      this.pool.add(new Worker({ id: id(row), ready: row !== DOWN_ROW }, row));
    this.pool.settle();
    const random = new SeedGenerator(size);
    const below = (limit: number): number => {
      random.next();
      return (random.low >>> 0) % limit;
    };
    const calmLoad = (): number => LOWEST_LOAD + below(CALM_LOAD - LOWEST_LOAD);
    const rows = Array.from({ length: size }, (_, row) => row).filter((row) => row !== DOWN_ROW);
    const busyRows = rows.filter((row) => row % BUSY_EVERY === 0);
    const calmRows = rows.filter((row) => row % BUSY_EVERY !== 0);
    this.#initial = Int32Array.from({ length: size }, (_, row) =>
      row % BUSY_EVERY === 0 ? BUSY_LOAD + below(8) : calmLoad(),
    );
    const [busy, calm] = [new Int32Array(STEPS), new Int32Array(STEPS)];
    for (let step = 0; step < STEPS; step++) {
      busy[step] = busyRows[below(busyRows.length)]!;
      calm[step] = calmRows[below(calmRows.length)]!;
      this.#rows[step] = calmRows[below(calmRows.length)]!;
      this.#loads[step] = calmLoad();
    }
    this.bounds = { busy, calm, none: new Int32Array(STEPS).fill(-1) };
    this.reset();
  }

  /** Back to the loads of the beginning, so that every round decides the same. */
  reset(): void {
    for (const [row, load] of this.#initial.entries()) this.pool.candidates.setActiveRequests(row, load);
  }

  /** Changes one worker's load. */
  step(i: number): void {
    this.pool.candidates.setActiveRequests(this.#rows[i & this.mask]!, this.#loads[i & this.mask]!);
  }
}
