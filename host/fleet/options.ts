// What an operator sets of the fleet. The defaults stand in the config's schema.

/** How workers are checked. */
export interface HealthOptions {
  /** What a worker that is well answers with a 2xx; null where only its list of models is asked for. */
  readonly path: string | null;
  /** Milliseconds between two checks of a worker. */
  readonly intervalMs: number;
  /** Milliseconds within which a check must be answered. */
  readonly timeoutMs: number;
  /** Failures in a row after which a worker is out of service, and passes after which it is back; each at least 1. */
  readonly unhealthyAfter: number;
  readonly healthyAfter: number;
  /** Milliseconds in which a worker that comes, or comes back, is given ever more; 0 for none. */
  readonly slowStartMs: number;
}

/** All of it. */
export interface FleetOptions {
  readonly health: HealthOptions;
  /** Null for no breaker. */
  readonly breaker: BreakerOptions | null;
  readonly signals: SignalOptions;
}

/** When a worker that fails is left alone, and how it is tried again. */
export interface BreakerOptions {
  /** Milliseconds, above 0, over which results are counted. */
  readonly windowMs: number;
  /** Fewest results within them by which a ratio is judged; at least 1. */
  readonly minRequests: number;
  /** Share of failures among them that opens; above 0 to 1. */
  readonly failureRatio: number;
  /** Failures in a row that open, however long they take; at least 1. */
  readonly consecutive: number;
  /** Milliseconds, above 0, that it stays open the first time. */
  readonly openMs: number;
  /** Most milliseconds that it stays open at once, however often it opened before; at least `openMs`. */
  readonly openMaxMs: number;
  /** Requests under way at once while it is half-open, and good answers in a row that close it; at least 1. */
  readonly halfOpen: number;
}

/** How the engines' own counts are asked for. */
export interface SignalOptions {
  /** Where a worker shows them, as Prometheus text; null where none is asked. */
  readonly path: string | null;
  /** Milliseconds, above 0, between two questions to a worker. */
  readonly intervalMs: number;
  /** Milliseconds after which an answer says nothing any more; above `intervalMs`, or counts are unknown in between. */
  readonly staleAfterMs: number;
}

/** What a worker's engine says of itself, over all its data-parallel ranks; undefined where it does not say. */
export interface EngineSignals {
  /** Requests that it runs, 0 to 2^31 - 1. */
  readonly running: number | undefined;
  /** Requests that wait in it, 0 to 2^31 - 1. */
  readonly waiting: number | undefined;
  /** Use of its KV cache in 1/1000, 0 to 1000. */
  readonly kvUsed: number | undefined;
  /** Tokens per block of its KV cache, at least 1. */
  readonly blockSize: number | undefined;
  /** Blocks of its KV cache, at least 1. */
  readonly blocks: number | undefined;
  /** When its process started, in seconds since 1970. */
  readonly startSeconds: number | undefined;
  /** Prompt tokens that its process has taken in so far; undefined also where it has several ranks. */
  readonly promptTokens: number | undefined;
}

/** A source of workers. */
export type DiscoveryOptions = FileDiscoveryOptions | DnsDiscoveryOptions;

/** Workers in a file of targets that is watched. */
export interface FileDiscoveryOptions {
  readonly kind: "file";
  /** Its absolute path. */
  readonly file: string;
  /** What each of its workers is shown; undefined for nothing. */
  readonly apiKey?: string | undefined;
}

/** Workers behind a name. */
export interface DnsDiscoveryOptions {
  readonly kind: "dns";
  /** A full name: no search domains are tried. */
  readonly name: string;
  readonly type: "a" | "aaaa" | "srv";
  /** Where the workers at the addresses listen, 1 to 65535; 0 for SRV records, which say so themselves. */
  readonly port: number;
  readonly scheme: "http" | "https";
  /** What their URL has behind the port: empty, or begins with a slash. */
  readonly path: string;
  /** Of each of them; undefined where they are asked. */
  readonly models: readonly string[] | undefined;
  /** Capacity weight of each, 1..10000; undefined for the default. */
  readonly weight: number | undefined;
  /** Requests the engine of each runs at once, at least 1; undefined where that is unknown. */
  readonly slots: number | undefined;
  /** Most requests that each is given at once, at least 1; undefined for no limit. */
  readonly maxInFlight: number | undefined;
  /** The DNS servers, an IP address each, with a port or without; none for the system's. */
  readonly servers: readonly string[];
  /** What each of its workers is shown; undefined for nothing. */
  readonly apiKey?: string | undefined;
}
