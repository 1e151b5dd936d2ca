// What an operator sets of the data plane. The defaults stand in the config's schema.

/** Bytes that requests and answers may hold. */
export interface Limits {
  /** Largest request body. */
  readonly bodyBytes: number;
  /** Most bytes of the bodies of all requests under way; above it a request is turned away with 503. */
  readonly bodyTotalBytes: number;
  /** Most bytes of an event stream that wait for its reader. */
  readonly streamBufferBytes: number;
  /** The same for an answer that is no stream of events, and comes as fast as its worker sends it. */
  readonly answerBufferBytes: number;
  /** The same over all answers. */
  readonly bufferedTotalBytes: number;
}

/** Milliseconds; Infinity for none. */
export interface Timeouts {
  /** To open a connection to a worker. */
  readonly connectMs: number;
  /** Between bytes of a request's body. */
  readonly uploadMs: number;
  /** From the dispatch to a worker until the first byte of the body of its answer. */
  readonly firstByteMs: number;
  /** Between bytes of an answer: until its worker sends more, or its reader takes more. */
  readonly idleMs: number;
  /** From a request's arrival to the end of its answer. */
  readonly totalMs: number;
}

/** When another worker is tried in place of one that failed a request; only as long as nothing went to the client. */
export interface Retries {
  /** Most workers tried for one request, the first included. */
  readonly attempts: number;
  /** Where no connection could be opened. */
  readonly connect: boolean;
  /** Where the connection broke before any byte of an answer. */
  readonly reset: boolean;
  /** Statuses by which a worker turns a request away. */
  readonly statuses: readonly number[];
  /** Most retries under way at once, as a share of the requests under way; some few are always allowed. */
  readonly budget: number;
  /** Whether a request that a worker may have run and stored is tried again: one with `store: true` or a `conversation`. */
  readonly stateful: boolean;
}

/** What is done to streams of events beyond passing them on. */
export interface Streams {
  /** Whether the head is held back until the first event is known not to be an error. */
  readonly peek: boolean;
  /** Milliseconds of silence, before the first byte, after which a comment is sent; Infinity for never. */
  readonly keepAliveMs: number;
}

/** Which requests are logged. */
export interface RequestLogOptions {
  /** `errors`: those that the gateway or a worker failed; `sampled`: a share of the others as well. */
  readonly requests: "errors" | "sampled" | "all";
  /** That share, above 0 to 1. */
  readonly sample: number;
}

/** A client's headers that stay at the gateway unless they are named. */
export const CREDENTIALS = ["authorization", "x-api-key", "cookie"] as const;

/** One of them. */
export type Credential = (typeof CREDENTIALS)[number];

/** A key that a client may show. */
export interface AccessKey {
  /** 1 to 64 letters, digits, dots, dashes or underscores. */
  readonly name: string;
  /** Its SHA-256 in 64 lower-case hex digits. */
  readonly sha256: string;
  /** Most of its requests under way at once; Infinity for any number. */
  readonly maxInFlight: number;
  /** Most of its requests in a minute, an integer; Infinity for any number. */
  readonly requestsPerMinute: number;
}

/** Who may use the gateway. */
export interface AccessOptions {
  readonly keys: readonly AccessKey[];
}

/** All of it. */
export interface DataPlaneOptions {
  readonly limits: Limits;
  readonly timeouts: Timeouts;
  readonly retries: Retries;
  readonly streams: Streams;
  readonly log: RequestLogOptions;
  /** The client's credentials that are passed on to workers. */
  readonly forwardCredentials: readonly Credential[];
}

/** How requests wait where every worker of their model is full. */
export interface AdmissionOptions {
  /** Most requests in line for a model; 0 for none, so that a full fleet refuses at once. */
  readonly queue: number;
  /** Milliseconds that a request waits at most. */
  readonly deadlineMs: number;
  /** Whether those of bound sessions go before all others. */
  readonly boundFirst: boolean;
}
