// The connections to one worker: as many as there are calls at once, each used again while it is fresh.

import type { Call } from "./call.js";
import { Connection, type ConnectionOwner } from "./connection.js";
import { type Target, targetOf } from "./socket.js";

/** Milliseconds that a connection stays idle: below the 5 s after which engines close it. */
const IDLE_MS = 4_000;
/** A connection that the other side keeps for a time is closed so many milliseconds before. */
const MARGIN_MS = 1_000;

/** A pool without a limit: it would have to be above the number of streams. */
export class ConnectionPool implements ConnectionOwner {
  readonly #target: Target;
  /** Milliseconds within which a connection is to be open; may be Infinity. */
  connectMs: number;
  /** The one that was used last comes last. */
  readonly #idle: Connection[] = [];
  readonly #open = new Set<Connection>();
  #sweep: NodeJS.Timeout | undefined;
  /** When the sweep is due. */
  #due = Number.POSITIVE_INFINITY;
  #isClosing = false;
  /** Called when none is open. */
  readonly #waiting: (() => void)[] = [];

  /** `origin` is an http or https URL, of which the path is not looked at. */
  constructor(origin: URL, connectMs: number) {
    this.#target = targetOf(origin);
    this.connectMs = connectMs;
  }

  /** Carries a call out. Whatever becomes of it is told later, never from within. */
  dispatch(call: Call): void {
    if (this.#isClosing) {
      process.nextTick(() => call.fail(new Error("the connections are closed")));
      return;
    }
    const connection = this.#takeIdle();
    if (connection) connection.take(call);
    else this.#open.add(new Connection(this, this.#target, this.connectMs, call));
  }

  onIdle(connection: Connection, keepMs: number): void {
    const idleMs = Math.min(IDLE_MS, keepMs - MARGIN_MS);
    if (this.#isClosing || idleMs <= 0) {
      connection.drop();
      return;
    }
    connection.idleUntil = performance.now() + idleMs;
    this.#idle.push(connection);
    this.#sweepAt(connection.idleUntil);
  }

  onGone(connection: Connection, unsent: Call | null): void {
    const at = this.#idle.lastIndexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
    if (unsent) this.dispatch(unsent);
  }

  onClosed(connection: Connection): void {
    this.#open.delete(connection);
    if (this.#open.size === 0) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Lets what is under way finish, then closes all. Resolves when none is left. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const connection of this.#idle.splice(0)) connection.drop();
    await this.#empty();
  }

  /** Closes all; what is under way fails. Resolves when none is left. */
  async destroy(): Promise<void> {
    this.#isClosing = true;
    for (const connection of [...this.#open]) connection.cut();
    await this.#empty();
  }

  async #empty(): Promise<void> {
    if (this.#open.size > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #takeIdle(): Connection | undefined {
    const now = performance.now();
    for (let connection = this.#idle.pop(); connection; connection = this.#idle.pop()) {
      if (connection.idleUntil > now) return connection;
      // The sweep is late: the process stood still.
      connection.drop();
    }
    return undefined;
  }

  #sweepAt(time: number): void {
    if (time >= this.#due) return;
    clearTimeout(this.#sweep);
    this.#due = time;
    this.#sweep = setTimeout(this.#closeOld, Math.ceil(time - performance.now())).unref();
  }

  readonly #closeOld = (): void => {
    const now = performance.now();
    this.#due = Number.POSITIVE_INFINITY;
    let next = Number.POSITIVE_INFINITY;
    for (const connection of [...this.#idle]) {
      if (connection.idleUntil <= now) connection.drop();
      else next = Math.min(next, connection.idleUntil);
    }
    if (next < Number.POSITIVE_INFINITY) this.#sweepAt(next);
  };
}
