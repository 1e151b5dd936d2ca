// What befell which worker when, so that an end of a request can be traced to it. All times are monotonic milliseconds.

interface Cut {
  readonly id: string;
  /** When it was known to get nothing new. */
  drainedAt: number;
  /** When what it had was to be over. */
  readonly deadline: number;
}

/** All of it. */
export class History {
  readonly #deaths: { readonly id: string; readonly at: number }[] = [];
  readonly #cuts: Cut[] = [];

  /** A worker's process is about to be killed. */
  dies(id: string): void {
    this.#deaths.push({ id, at: performance.now() });
  }

  /** A worker is told that what it has is to be over at `deadline`; it gets nothing new when `drained` is fulfilled. */
  async isToEnd(id: string, deadline: number, drained: Promise<unknown>): Promise<void> {
    const cut = { id, deadline, drainedAt: Number.POSITIVE_INFINITY };
    this.#cuts.push(cut);
    await drained;
    cut.drainedAt = performance.now();
  }

  /** Whether a worker died after `since`. */
  hasDied(id: string, since: number): boolean {
    return this.#deaths.some((death) => death.id === id && death.at >= since);
  }

  /** Whether a worker that was drained after `since` had no more time. */
  wasCut(id: string, since: number): boolean {
    const now = performance.now();
    return this.#cuts.some((cut) => cut.id === id && cut.drainedAt >= since && cut.deadline <= now);
  }
}
