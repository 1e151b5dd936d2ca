// Time that a test moves: half an hour passes at once.
import type { Clock } from "../../host/fleet/clock.js";

interface Beating {
  readonly ms: number;
  readonly beat: () => void;
  due: number;
}

/** A clock that stands still until it is told to go on. */
export class VirtualClock implements Clock {
  #now = 0;
  readonly #beating = new Set<Beating>();

  now(): number {
    return this.#now;
  }

  every(ms: number, beat: () => void): () => void {
    const beating = { ms, beat, due: this.#now + ms };
    this.#beating.add(beating);
    return () => this.#beating.delete(beating);
  }

  /** Lets `ms` milliseconds pass, with every beat that is due in them, in order. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (let next = this.#next(end); next; next = this.#next(end)) {
      this.#now = next.due;
      next.due += next.ms;
      next.beat();
    }
    this.#now = end;
  }

  #next(end: number): Beating | undefined {
    let next: Beating | undefined;
    for (const beating of this.#beating)
      if (beating.due <= end && !(next && next.due <= beating.due)) next = beating;
    return next;
  }
}
