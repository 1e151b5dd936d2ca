// How long a request is waited for: the phases of its way, each with a deadline of its own, counted at every beat.

/** What is waited for: the body, a worker with room, the answer's first byte, its next one, and a reader that takes the rest. */
export type Phase = "upload" | "queue" | "firstByte" | "idle" | "drain";

/** Milliseconds, Infinity for none. */
export type Deadlines = Readonly<Record<Phase | "total" | "keepAlive", number>>;

/** What is due at a beat: the end of the request, for one of two reasons, or a sign of life to a client that waits. */
export type Due = "nothing" | "total" | "silence" | "keepAlive";

/** Before the first beat, which is not counted: what is waited for began somewhere in it, however long it was. */
const UNCOUNTED = -1;

/** The time of one request. Beats may come at other intervals than before. */
export class Patience {
  readonly #deadlines: Deadlines;
  #phase: Phase = "upload";
  /** Milliseconds in whole beats since the request came, and since something moved. */
  #age = UNCOUNTED;
  #quiet = UNCOUNTED;
  /** The same since its client last heard of it, the first beat counted. */
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
    this.#quiet = UNCOUNTED;
    this.#seen = progress;
  }

  /** One beat more, `ms` milliseconds behind the one before. */
  beat(progress: number, ms: number): Due {
    const deadlines = this.#deadlines;
    this.#age = longer(this.#age, ms);
    this.#unheard += ms;
    this.#quiet = progress === this.#seen ? longer(this.#quiet, ms) : UNCOUNTED;
    this.#seen = progress;
    // A deadline is over for certain one beat late; a sign of life comes for certain before its time one beat early.
    if (this.#phase !== "drain" && this.#age >= deadlines.total) return "total";
    if (this.#quiet >= deadlines[this.#phase]) return "silence";
    if (this.#phase !== "firstByte" || this.#unheard + ms <= deadlines.keepAlive) return "nothing";
    this.#unheard = 0;
    return "keepAlive";
  }
}

function longer(counted: number, ms: number): number {
  return counted === UNCOUNTED ? 0 : counted + ms;
}
