// What the fleet asks of a worker's transport.

/** An answer to a GET. */
export interface Page {
  readonly status: number;
  readonly text: string;
}

/** The way to one worker. */
export interface Line {
  /** Rejects where the worker does not answer within `timeoutMs` milliseconds, or with more than `maxBytes`. */
  get(path: string, timeoutMs: number, maxBytes: number): Promise<Page>;
  /** Has the worker be shown another key from now on, or none. */
  show(apiKey: string | undefined): void;
  /** Lets what is under way finish, then closes the connections. */
  close(): Promise<void>;
  /** Cuts all connections. */
  destroy(): Promise<void>;
}
