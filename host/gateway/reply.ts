// The client's side of a request: one head, then bytes as they come; or an error, as honest as can still be told.

import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Backlog, tight } from "./blocks.js";
import { type ErrorStyle, errorEvent, type GatewayError, sendError } from "./errors.js";
import { inTurn, waitsForTurn } from "./pipeline.js";
import { discardBody } from "./upload.js";

/** Milliseconds that a client gets to read how its stream ended. */
const LINGER_MS = 5_000;
/** Most pieces that are written one by one while the connection has not taken the first of them: each is several entries in its queue. */
const MAX_PIECES = 16;

const COMMENT = Buffer.from(": keep-alive\n\n");

/** Of libuv's, which net.Socket itself reads to see whether a slow write gets on. */
interface Handle {
  readonly writeQueueSize: number;
}

/** The head of an answer, as it is sent. */
export interface ReplyHead {
  readonly status: number;
  readonly message: string | undefined;
  /** Names and values in turn. */
  readonly headers: string[];
  /** Whether what follows is a stream of events that more may be added to. */
  readonly isEventStream: boolean;
}

/** The answer to one request. */
export class Reply {
  readonly #response: ServerResponse;
  readonly #style: ErrorStyle;
  /** The head, until it is sent. */
  #head: ReplyHead | null = null;
  #isEventStream = false;
  #isOver = false;
  #linger: NodeJS.Timeout | undefined;
  /** Pieces written since the connection had taken all. */
  #pieces = 0;
  /** Whether the connection is to take what was written before it gets more, which waits here until then. */
  #isWaiting = false;
  readonly #backlog = new Backlog();
  /** What is to be done behind the last of it. */
  #last: (() => void) | null = null;
  /** The id of a Responses API's answer, once it is known. */
  answerId: string | undefined;

  constructor(response: ServerResponse, style: ErrorStyle) {
    this.#response = response;
    this.#style = style;
    response.on("error", () => {});
  }

  /** Whether a head has been taken, or sent. */
  get hasHead(): boolean {
    return this.#head !== null || this.#response.headersSent;
  }

  /** Whether anything has gone to the client. */
  get isSent(): boolean {
    return this.#response.headersSent;
  }

  get isEventStream(): boolean {
    return this.#isEventStream;
  }

  /** Bytes that wait for the client. */
  get buffered(): number {
    return this.#response.destroyed ? 0 : this.#response.writableLength + this.#backlog.size;
  }

  /**
   * The same with what the kernel has not taken yet of a piece on its way: falls whenever the client takes anything. Before its
   * turn it is what its connection holds of the answers before it.
   */
  get waiting(): number {
    const isInTurn = !waitsForTurn(this.#response);
    const socket = (isInTurn ? this.#response.socket : this.#response.req.socket) as
      | (Socket & { _handle?: Handle | null })
      | null;
    const written = isInTurn ? this.buffered : (socket?.writableLength ?? 0);
    return written + (socket?._handle?.writeQueueSize ?? 0);
  }

  /** Takes the head. It goes out with the first bytes behind it, or in a moment. */
  begin(head: ReplyHead): void {
    this.#head = head;
    this.#isEventStream = head.isEventStream;
    // The client waits for the head; but where the body's first bytes came with it, one write carries both.
    setImmediate(this.#flushHead);
  }

  write(chunk: Buffer): void {
    this.#sendHead();
    if (this.#isWaiting) this.#backlog.push(chunk);
    else if (waitsForTurn(this.#response)) this.#waitForTurn(chunk);
    else if (this.#takesMore()) this.#response.write(tight(chunk));
    else {
      this.#isWaiting = true;
      this.#response.write(tight(chunk), this.#onTaken);
    }
  }

  /** Sends a comment, which readers of events pass over, to say that the connection lives. */
  comment(): void {
    this.write(COMMENT);
  }

  /** The whole answer has been written. */
  end(): void {
    this.#sendHead();
    this.#isOver = true;
    this.#behindAll(() => this.#response.end());
  }

  /** Throws away what still comes of the request: it has its answer. */
  discardBody(): void {
    discardBody(this.#response);
  }

  /** Closes the connection behind the answer, where it has not begun. */
  closeBehind(): void {
    if (!this.#response.headersSent) this.#response.shouldKeepAlive = false;
  }

  /**
   * Ends in an error. Where no part of an answer is out it is the answer. A stream of events that has begun can say so;
   * otherwise, and in any case at last, only a broken connection tells the client that the rest is missing.
   */
  fail(error: GatewayError): void {
    const response = this.#response;
    this.#head = null;
    this.#isOver = true;
    if (!response.headersSent) sendError(response, this.#style, error);
    else if (!this.#isEventStream) this.#breakOff();
    else {
      inTurn(response, () => {
        this.#linger = setTimeout(() => this.destroy(), LINGER_MS).unref();
        response.once("close", () => clearTimeout(this.#linger));
      });
      // What came last may be half an event: the empty line ends it.
      const event = `\n\n${errorEvent(this.#style, error, this.answerId)}`;
      this.#behindAll(() => response.write(event, () => response.destroy()));
    }
  }

  /** Breaks the connection, when its turn has come: the answers before it go out whole. What waits goes at once. */
  destroy(): void {
    const response = this.#response;
    clearTimeout(this.#linger);
    this.#isOver = true;
    this.#drop();
    response.destroy();
  }

  /** Holds the first piece before its turn: what Node holds in its place could not be let go of. */
  #waitForTurn(chunk: Buffer): void {
    this.#isWaiting = true;
    this.#backlog.push(chunk);
    this.#response.once("socket", () => process.nextTick(this.#onTaken));
  }

  /** Whether the connection has taken all, or what was written in this turn goes out at its end, as one. */
  #takesMore(): boolean {
    const { writableLength, socket } = this.#response;
    if (writableLength === 0) this.#pieces = 0;
    else if (!socket?.writableCorked || this.#pieces === MAX_PIECES) return false;
    this.#pieces++;
    return true;
  }

  /** The connection has taken what was written: a block follows. */
  readonly #onTaken = (error?: Error | null): void => {
    if (error) {
      this.#drop();
      return;
    }
    const block = this.#backlog.shift();
    if (block === undefined) this.#isWaiting = false;
    else this.#response.write(block, this.#onTaken);
    if (this.#backlog.size === 0) this.#doLast();
  };

  /** Does something when all that waits here has been written: at once where nothing does. */
  #behindAll(last: () => void): void {
    this.#last = last;
    if (this.#backlog.size === 0) this.#doLast();
  }

  #doLast(): void {
    const last = this.#last;
    this.#last = null;
    last?.();
  }

  /** Lets go of what nobody is going to take any more. */
  #drop(): void {
    this.#backlog.clear();
    this.#last = null;
  }

  #breakOff(): void {
    // To a client of HTTP/1.0 the end of the connection is that of the answer, unless it is a reset.
    if (this.#response.req.httpVersionMinor === 0) this.#response.socket?.resetAndDestroy();
    this.destroy();
  }

  readonly #flushHead = (): void => {
    if (this.#isOver || !this.#head) return;
    this.#sendHead();
    this.#response.flushHeaders();
  };

  #sendHead(): void {
    if (!this.#head) return;
    const { status, message, headers } = this.#head;
    this.#head = null;
    this.#response.writeHead(status, message, headers);
  }
}
