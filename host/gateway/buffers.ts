// What the readers of all answers have not taken yet, kept within one limit.

/** An answer on its way to its reader. */
export interface Buffering {
  /** Bytes that wait for the reader. */
  readonly buffered: number;
  /** As many as were counted last. Written by `Buffers` alone. */
  noted: number;
  /** Whether it has ended, and only what waits goes out still. */
  readonly isOver: boolean;
  /** Ends it in an error, because its reader is too slow. */
  cutSlow(): void;
  /** Breaks its connection. */
  destroy(): void;
}

/** Of the limit, in parts: what answers may take that still go on. The rest is for the last words of those that were cut. */
const LIVE = 7 / 8;
/** What may come in between two counts of all. */
const STEP = 1 / 64;

/** Counts what all answers hold, and cuts where it is too much. */
export class Buffers {
  #limit: number;
  readonly #all: Iterable<Buffering>;
  /** At least what they hold: what readers take is noticed at the next count of all. */
  #bytes = 0;
  /** From here on all are counted. */
  #mark: number;

  /** `limit` in bytes. */
  constructor(limit: number, all: Iterable<Buffering>) {
    this.#limit = limit;
    this.#all = all;
    this.#mark = limit * LIVE;
  }

  /** Another limit, from now on; it is looked at when the next answer grows. */
  set limit(limit: number) {
    this.#limit = limit;
    this.recount();
  }

  /** Bytes at the last count. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Counts one anew, after it has grown. */
  note(one: Buffering): void {
    this.#count(one);
    if (this.#bytes > this.#mark) this.#relieve();
  }

  /** Forgets one that is gone. */
  forget(one: Buffering): void {
    this.#bytes -= one.noted;
    one.noted = 0;
  }

  /** Counts all of them anew. */
  recount(): void {
    for (const one of this.#all) this.#count(one);
    // Never beyond the limit, however often what grows little by little is counted.
    this.#mark = Math.min(this.#limit, Math.max(this.#limit * LIVE, this.#bytes + this.#limit * STEP));
  }

  #count(one: Buffering): void {
    const { buffered } = one;
    this.#bytes += buffered - one.noted;
    one.noted = buffered;
  }

  /** Cuts those that hold most: the live ones down to their share, then what is left of them down to the limit. */
  #relieve(): void {
    this.recount();
    const byHeld = [...this.#all].sort((a, b) => b.noted - a.noted);
    let live = byHeld.reduce((sum, { isOver, noted }) => (isOver ? sum : sum + noted), 0);
    for (const one of byHeld) {
      if (live <= this.#limit * LIVE) break;
      if (one.isOver) continue;
      live -= one.noted;
      one.cutSlow();
    }
    for (const one of byHeld) {
      if (this.#bytes <= this.#limit * (1 - STEP)) break;
      if (!one.isOver) continue;
      this.forget(one);
      one.destroy();
    }
    this.recount();
  }
}
