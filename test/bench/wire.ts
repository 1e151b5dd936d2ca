// What the load generator and its upstream agree on, and how the bench gives orders to the load generator.

/** Request header, which the gateway forwards: how many events the answer has. */
export const EVENTS_HEADER = "x-bench-events";
/** Milliseconds between two events of a stream: 25 a second. */
export const EVENT_MS = 40;

/** An order: so many requests to one origin, at most `connections` at a time. */
export interface Order {
  readonly origin: string;
  readonly requests: number;
  readonly connections: number;
  /** Milliseconds over which the connections begin, one after another. */
  readonly spreadMs: number;
  /** Size of every request's body. */
  readonly bytes: number;
  /** Events of every answer; 0 for an answer in one piece. */
  readonly events: number;
}

/** What became of an order. */
export interface Outcome {
  readonly seconds: number;
  /** Milliseconds of every request: to the first byte of a stream, else to the end. */
  readonly latencies: number[];
  /** Events that arrived. */
  readonly events: number;
}
