// Requests on one connection that come before the answers to those before them, as HTTP/1.1 has it: their answers wait for
// their turn. How many may, and what is to be done in turn.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * Most requests of one connection at once, each of which may hold a body, a worker's connection and an answer. Clients that
 * pipeline at all send a few; those of the APIs open a connection more.
 */
export const MAX_AT_ONCE = 16;
/** Most that are passed over in the one read in which the limit was met: a request that is proxied is longer than that. */
const MAX_PASSED_OVER = 1_024;

/** Does something when an answer's turn has come, which waits behind others on its connection; at once where it does not. */
export function inTurn(response: ServerResponse, act: () => void): void {
  if (waitsForTurn(response)) response.once("socket", act);
  else act();
}

/** Whether an answer waits behind others on its connection, and has none of its own yet. */
export function waitsForTurn(response: ServerResponse): boolean {
  return response.socket === null && !response.writableFinished;
}

/** Prepares a client's connection. */
export function readOn(socket: Socket): void {
  // Every request on it listens for its end.
  socket.setMaxListeners(0);
  // Node stops reading where the answers that wait have as many bytes, and then does not see the client leave. Their number,
  // and what each holds, is limited here.
  Object.defineProperty(socket, "writableHighWaterMark", { value: Number.POSITIVE_INFINITY });
}

/** Counts what waits on each connection. A request that is alone on its own is not counted, and costs nothing. */
export class Pipelines {
  readonly #refuse: (request: IncomingMessage, response: ServerResponse) => void;
  readonly #waiting = new WeakMap<Socket, number>();
  /** Connections of which nothing more is begun, with the number of requests that were passed over. */
  readonly #closed = new WeakMap<Socket, number>();

  /** `refuse` answers the first request that is too many. The connection is closed behind that answer. */
  constructor(refuse: (request: IncomingMessage, response: ServerResponse) => void) {
    this.#refuse = refuse;
  }

  /** Whether a request, just come, is to be begun; where not it has been dealt with. */
  admits(request: IncomingMessage, response: ServerResponse): boolean {
    if (!waitsForTurn(response)) return true;
    const { socket } = request;
    if (this.#closed.has(socket)) {
      this.#passOver(socket);
      return false;
    }
    const waiting = this.#waiting.get(socket) ?? 0;
    if (waiting + 1 < MAX_AT_ONCE) {
      this.#waiting.set(socket, waiting + 1);
      response.once("socket", () => this.#waiting.set(socket, this.#waiting.get(socket)! - 1));
      return true;
    }
    this.#closed.set(socket, 0);
    response.shouldKeepAlive = false;
    this.#refuse(request, response);
    process.nextTick(takeNoMore, socket);
    return false;
  }

  /** Whether a connection was refused a request: nothing that comes there is read as one any more. */
  isClosed(socket: Socket): boolean {
    return this.#closed.has(socket);
  }

  /** It gets no answer: its connection ends before its turn. What is known of it is held until then. */
  #passOver(socket: Socket): void {
    const count = this.#closed.get(socket)! + 1;
    this.#closed.set(socket, count);
    if (count > MAX_PASSED_OVER) socket.destroy();
  }
}

/** Has what comes on a connection thrown away, read only to see its client leave, while answers still go out there. */
function takeNoMore(socket: Socket): void {
  // The one listener is Node's parser; another one takes the bytes away from it for good.
  socket.removeAllListeners("data");
  socket.on("data", () => {});
}
