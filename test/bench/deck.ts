// The scene of a measured decision: a pool with uneven loads, one of which changes before every decision.

import { loadPolicy } from "../../host/policy/load.js";
import { resolveParameters } from "../../host/policy/parameters.js";
import { SeedGenerator } from "../../host/policy/random.js";
import { Contender, type PolicyInstance, Pool } from "../../host/routing/pool.js";
import { Worker } from "../../host/routing/worker.js";

export type Ties = "first" | "random";

/** The guard's parameters here: over 32 requests a session moves to a worker that has at least 2 fewer. */
export const MAX_ACTIVE_REQUESTS = 32;
export const MOVE_MARGIN = 2;

const TYPE = "soft-affinity-load-guard";
/** Steps until a deck repeats itself: too many for a branch predictor to learn. */
const STEPS = 4096;
/** One worker in so many is over the threshold; the others are below it. */
const BUSY_EVERY = 8;
/** Row of the one worker that is down, where there are that many. */
const DOWN_ROW = 9;

/** The guard as an instance of a config. */
export function guard(ties: Ties): PolicyInstance {
  const policy = loadPolicy(TYPE);
  const given = { max_active_requests: MAX_ACTIVE_REQUESTS, move_margin: MOVE_MARGIN, ties };
  return { name: TYPE, policy, parameters: resolveParameters(policy.manifest.parameters, given).values };
}

/** A pool of `size` workers and what happens to their loads. */
export class Deck {
  readonly pool: Pool;
  /** The bound row of step `i & mask`: `busy` ones move, `calm` ones stay. */
  readonly busy = new Int32Array(STEPS);
  readonly calm = new Int32Array(STEPS);
  readonly mask = STEPS - 1;
  readonly #initial: Int32Array;
  readonly #rows = new Int32Array(STEPS);
  readonly #loads = new Int32Array(STEPS);

  constructor(size: number, ties: Ties) {
    this.pool = new Pool("m", [new Contender(guard(ties))]);
    // Rows are ordered by id: the zeros make worker and row number the same.
    const id = (row: number) => `w${String(row).padStart(5, "0")}`;
    this.pool.setWorkers(
      Array.from({ length: size }, (_, row) => new Worker({ id: id(row), eligible: row !== DOWN_ROW }, row)),
    );
    const random = new SeedGenerator(size);
    const below = (limit: number): number => {
      random.next();
      return (random.low >>> 0) % limit;
    };
    const rows = Array.from({ length: size }, (_, row) => row).filter((row) => row !== DOWN_ROW);
    const busyRows = rows.filter((row) => row % BUSY_EVERY === 0);
    const calmRows = rows.filter((row) => row % BUSY_EVERY !== 0);
    this.#initial = Int32Array.from({ length: size }, (_, row) =>
      row % BUSY_EVERY === 0 ? MAX_ACTIVE_REQUESTS + 8 + below(8) : 8 + below(16),
    );
    for (let step = 0; step < STEPS; step++) {
      this.busy[step] = busyRows[below(busyRows.length)]!;
      this.calm[step] = calmRows[below(calmRows.length)]!;
      this.#rows[step] = calmRows[below(calmRows.length)]!;
      this.#loads[step] = 8 + below(16);
    }
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
