// What the load generators and the upstream agree on, the orders that generators take, and what comes of an order.

/** Request header, which every proxy forwards: how many events the answer has. stub.c and streams.c know it, too. */
export const EVENTS_HEADER = "x-bench-events";
/** Milliseconds between two events of a stream: 25 a second. stub.c knows it, too. */
export const EVENT_MS = 40;
export const PATH = "/v1/chat/completions";
/** So many sessions take turns. */
export const SESSIONS = 64;

/** An order: requests as fast as they are answered, one at a time on each connection. */
export interface RequestOrder {
  readonly kind: "requests";
  readonly port: number;
  readonly connections: number;
  readonly seconds: number;
  /** The file that holds every request's body. */
  readonly body: string;
}

/** An order: streams, one after another on each connection. */
export interface StreamOrder {
  readonly kind: "streams";
  readonly port: number;
  readonly connections: number;
  /** Streams on each connection. */
  readonly each: number;
  /** Milliseconds over which the connections begin, one after another. */
  readonly spreadMs: number;
  /** Milliseconds between two streams of a connection. */
  readonly pauseMs: number;
  /** Events of every stream. */
  readonly events: number;
  /** The file that holds every request's body. */
  readonly body: string;
}

/** What became of an order, and the microseconds of processor time that the generator itself used. */
interface Outcome {
  readonly seconds: number;
  readonly cpu: number;
}

export interface RequestOutcome extends Outcome {
  readonly requests: number;
  /** Milliseconds. */
  readonly p50: number;
  readonly p99: number;
}

export interface StreamOutcome extends Outcome {
  /** Events that arrived. */
  readonly events: number;
  /** Milliseconds from the request to the first event, of every stream. */
  readonly latencies: number[];
}
