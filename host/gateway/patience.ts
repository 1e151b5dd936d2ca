// How long a request is waited for: the phases of its way, each with a deadline of its own, counted at every beat.

/** What is waited for: the body, a worker with room, the answer's first byte, its next one, and a reader that takes the rest. */
export type Phase = "upload" | "queue" | "firstByte" | "idle" | "drain";

/** Milliseconds, Infinity for none. */
export type Deadlines = Readonly<Record<Phase | "total" | "keepAlive", number>>;

/** What is due at a beat: the end of the request, for one of two reasons, or a sign of life to a client that waits. */
export type Due = "nothing" | "total" | "silence" | "keepAlive";

/** The time of one request. */
export class Patience {
  readonly #deadlines: Deadlines;
  #phase: Phase = "upload";
  /** Milliseconds in whole beats since the request came, since something moved, and since its client last heard of it. */
  #age = 0;
  #quiet = 0;
  #unheard = 0;
  #seen = 0;

  constructor(deadlines: Deadlines) {
    this.#deadlines = deadlines;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** Begins a phase; `progress` is a number that changes whenever that which is waited for moves. */
  enter(phase: Phase, progress: number): void {
    // A client that has just sent the last of its request waits only now.
    if (this.#phase === "upload") this.#unheard = 0;
    this.#phase = phase;
    this.#quiet = 0;
    this.#seen = progress;
  }

  /** One beat more, which comes every `ms` milliseconds. What is waited for began anywhere in the beat before the first that was counted. */
  beat(progress: number, ms: number): Due {
    const deadlines = this.#deadlines;
    this.#age += ms;
    this.#unheard += ms;
    this.#quiet = progress === this.#seen ? this.#quiet + ms : 0;
    this.#seen = progress;
    // A deadline is over for certain one beat late; a sign of life comes for certain before its time one beat early.
    if (this.#phase !== "drain" && this.#age - ms >= deadlines.total) return "total";
    if (this.#quiet - ms >= deadlines[this.#phase]) return "silence";
    if (this.#phase !== "firstByte" || this.#unheard + ms <= deadlines.keepAlive) return "nothing";
    this.#unheard = 0;
    return "keepAlive";
  }
}
