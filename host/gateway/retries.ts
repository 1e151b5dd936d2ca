// Whether another worker is tried: what the config allows, and what traffic there is to bear it.

import type { Retries as RetryOptions } from "./options.js";

/**
 * Why a worker did not serve a request: no connection, one that broke before an answer, an error as the first event of a
 * stream, or the status of its answer.
 */
export type Cause = "connect" | "reset" | "event" | "drained" | number;

/** Retries that are allowed at once however little traffic there is, unless none are. */
const FEW = 10;
/** Statuses by which a worker says that it did not run the request. */
const NOT_RUN: ReadonlySet<Cause> = new Set<Cause>(["connect", 429, 503]);

/** All retries of a gateway. */
export class Retries {
  /** Retries begun, and those that the budget did not allow. */
  begun = 0;
  refused = 0;
  readonly #live: () => number;
  #options: RetryOptions;
  #causes: ReadonlySet<Cause>;
  #underWay = 0;

  /** `live` tells how many requests are under way. */
  constructor(options: RetryOptions, live: () => number) {
    this.#live = live;
    this.#options = options;
    this.#causes = causesIn(options);
  }

  /** Goes by other options from now on. */
  configure(options: RetryOptions): void {
    this.#options = options;
    this.#causes = causesIn(options);
  }

  /** Most workers tried for one request. */
  get attempts(): number {
    return this.#options.attempts;
  }

  /** Whether a failure of this kind is one to try another worker for. */
  allows(cause: Cause, isStateful: boolean): boolean {
    return this.#causes.has(cause) && this.isSafe(cause, isStateful);
  }

  /** Whether the request may be run once more: it was not run, or leaves nothing behind where it was. */
  isSafe(cause: Cause, isStateful: boolean): boolean {
    return !isStateful || this.#options.stateful || NOT_RUN.has(cause);
  }

  /** Whether the budget allows one more; counts it as refused where it does not. */
  hasRoom(): boolean {
    const { budget } = this.#options;
    const most = budget === 0 ? 0 : Math.max(FEW, budget * this.#live());
    const hasRoom = this.#underWay + 1 <= most;
    if (!hasRoom) this.refused++;
    return hasRoom;
  }

  /** Takes a retry out of the budget, which `end` gives back. */
  begin(): void {
    this.#underWay++;
  }

  /** A retry is no longer one: it was answered, or is over. */
  end(): void {
    this.#underWay--;
  }
}

function causesIn({ connect, reset, statuses }: RetryOptions): ReadonlySet<Cause> {
  return new Set<Cause>([
    // Known only where it was asked for: see `Streams.peek`.
    "event",
    // An operator's will, and no worker's failure.
    "drained",
    ...(connect ? ["connect" as const] : []),
    ...(reset ? ["reset" as const] : []),
    ...statuses,
  ]);
}

/** Milliseconds that a Retry-After asks for (RFC 9110, 10.2.3), NaN where it cannot be read. */
export function retryAfterMs(value: string | string[] | undefined): number {
  const text = (Array.isArray(value) ? value[0] : value)?.trim() ?? "";
  if (/^\d+$/.test(text)) return Number(text) * 1_000;
  // All three forms of a date begin with a day; what else there is may look like a year.
  if (!/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)/.test(text)) return Number.NaN;
  // A date in C's form names no zone, and means this one.
  return Date.parse(/[A-Z]{3}$/.test(text) ? text : `${text} GMT`) - Date.now();
}
