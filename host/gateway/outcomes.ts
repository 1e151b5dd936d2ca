// How requests ended, counted by kind.

/** Counts by `complete`, `client_gone`, or the code of the error that ended a request. */
export class Outcomes {
  readonly #counts = new Map<string, number>();

  /** `outcome` must be one of a few words of the gateway's own. */
  count(outcome: string): void {
    this.#counts.set(outcome, (this.#counts.get(outcome) ?? 0) + 1);
  }

  /** The counts so far. */
  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }
}
