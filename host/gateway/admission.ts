// Requests for which every worker of their model is full: they wait in line until a lease ends, and then ask the router anew.

import type { Worker } from "../routing/worker.js";
import type { AdmissionOptions } from "./options.js";

/** What came of another try: it has a worker, it waits on, or there is nothing left to wait for. */
export type Try = "gone" | "full";

/** A request in line. */
export interface Waiting {
  readonly model: string;
  /** When it came, in monotonic milliseconds. */
  readonly since: number;
  /** Whether its session is bound. */
  readonly isBound: boolean;
  /** The workers that have failed it, and that it does not go to: where there are any it goes before those that none has. */
  readonly exclude: readonly Worker[];
  /** Asks for a worker once more; `gone` where it is no longer in need of a place in line, whatever came of it. */
  tryAgain(): Try;
}

/** One line: first come, first served, but for those that go before others. A Set keeps the order, and lets anybody leave. */
class Line {
  readonly retries = new Set<Waiting>();
  readonly bound = new Set<Waiting>();
  readonly others = new Set<Waiting>();
  isMoving = false;
  /** Whether something came free while it moved. */
  isStirred = false;

  get size(): number {
    return this.retries.size + this.bound.size + this.others.size;
  }

  /** When the one came whose turn it is. */
  get since(): number {
    for (const { since } of this) return since;
    return Number.POSITIVE_INFINITY;
  }

  /** Whether any of them may go to any worker. */
  get hasFirstTries(): boolean {
    return this.bound.size + this.others.size > 0;
  }

  /** In the order of their turns. */
  *[Symbol.iterator](): Iterator<Waiting> {
    yield* this.retries;
    yield* this.bound;
    yield* this.others;
  }
}

/** One line for each model. */
export class Admission {
  /** Requests that found the line too long, and those that waited for longer than they may. */
  refused = 0;
  expired = 0;
  /** From now on; who waits already waits on. */
  options: AdmissionOptions;
  readonly #lines = new Map<string, Line>();

  constructor(options: AdmissionOptions) {
    this.options = options;
  }

  /** Milliseconds that a request waits at most. */
  get deadlineMs(): number {
    return this.options.deadlineMs;
  }

  /** Requests in line, over all models. */
  get size(): number {
    let size = 0;
    for (const line of this.#lines.values()) size += line.size;
    return size;
  }

  /** Requests in line for each model that has any. */
  sizes(): Map<string, number> {
    return new Map([...this.#lines].map(([model, { size }]) => [model, size]));
  }

  /** Whether others wait for the model, so that whoever comes now is behind them; what retries wait for may not be all there is. */
  hasLine(model: string): boolean {
    return this.#lines.size > 0 && (this.#lines.get(model)?.hasFirstTries ?? false);
  }

  /** Whole seconds after which one more may find a place: as long as those who are next have waited, a second at least. */
  retryAfter(model: string, now: number): number {
    for (const { since } of this.#lines.get(model) ?? [])
      return Math.max(1, Math.ceil((now - since) / 1_000));
    return 1;
  }

  /** Whether one more may wait for the model; counts it as refused where not. */
  hasRoom(model: string): boolean {
    const hasRoom = (this.#lines.get(model)?.size ?? 0) < this.options.queue;
    if (!hasRoom) this.refused++;
    return hasRoom;
  }

  /** Puts a request in line, for which there is to be room. */
  join(waiting: Waiting): void {
    const { model, exclude, isBound } = waiting;
    const line = this.#lines.get(model) ?? new Line();
    this.#lines.set(model, line);
    if (exclude.length > 0) line.retries.add(waiting);
    else if (isBound && this.options.boundFirst) line.bound.add(waiting);
    else line.others.add(waiting);
  }

  /** Takes a request out of line. */
  leave(waiting: Waiting): void {
    const line = this.#lines.get(waiting.model);
    if (!line) return;
    line.retries.delete(waiting);
    line.bound.delete(waiting);
    line.others.delete(waiting);
    if (line.size === 0) this.#lines.delete(waiting.model);
  }

  /**
   * Something may have come free for these models, for any where there is null: whoever is first tries again, and so on until there is nothing more. Of several
   * lines that moves first whose first one has waited longest.
   */
  move(models: readonly string[] | null): void {
    if (this.#lines.size === 0) return;
    const named = models ?? [...this.#lines.keys()];
    const lines = named.map((model) => this.#lines.get(model)).filter((line) => line !== undefined);
    for (const line of lines.sort((a, b) => a.since - b.since)) this.#move(line);
  }

  /** A try may itself end requests, and so free what others wait for: those are served in their order, not from within. */
  #move(line: Line): void {
    if (line.isMoving) {
      line.isStirred = true;
      return;
    }
    line.isMoving = true;
    try {
      do {
        line.isStirred = false;
        this.#serve(line);
      } while (line.isStirred);
    } finally {
      line.isMoving = false;
    }
  }

  #serve(line: Line): void {
    const inVain: (readonly Worker[])[] = [];
    for (const waiting of line) {
      const { exclude } = waiting;
      if (inVain.some((others) => others.every((worker) => exclude.includes(worker)))) continue;
      if (waiting.tryAgain() === "gone") this.leave(waiting);
      // What a retry may not have, others may.
      else if (exclude.length > 0) inVain.push(exclude);
      else break;
    }
  }
}
