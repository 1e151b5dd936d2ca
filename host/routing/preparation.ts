// A change of a router's policies on its way: instances are started pool by pool, between requests, before any of them decides.

import { type Contenders, inOrder } from "./contenders.js";
import type { Pool, Seats } from "./pool.js";
import type { SessionOptions } from "./requests.js";

/** A change that is being prepared. See `Router.prepare`. */
export class Preparation {
  readonly contenders: Contenders;
  /** What decided when it was begun. */
  readonly before: Contenders;
  /** How sessions are bound from then on. */
  readonly session: SessionOptions;
  readonly #pools: () => Iterable<Pool>;
  readonly #seats = new Map<Pool, Seats>();

  /** `pools` are those that there are at the time. */
  constructor(
    contenders: Contenders,
    before: Contenders,
    session: SessionOptions,
    pools: () => Iterable<Pool>,
  ) {
    this.contenders = contenders;
    this.before = before;
    this.session = session;
    this.#pools = pools;
  }

  /**
   * Starts the new instances of one pool; what decides there decides on. Answers whether there may be more to do. Throws a PolicyStartError
   * where the one that is to decide does not start.
   */
  step(): boolean {
    for (const pool of this.#pools()) {
      if (this.#isReady(pool)) continue;
      this.#seats.set(pool, pool.prepare(inOrder(this.contenders)));
      return true;
    }
    return false;
  }

  /** What is prepared for a pool. Only when `step` has nothing more to do. */
  seatsOf(pool: Pool): Seats {
    return this.#seats.get(pool)!;
  }

  /** A pool may have grown out of its rows since. */
  #isReady(pool: Pool): boolean {
    return this.#seats.get(pool)?.candidates === pool.candidates;
  }
}
