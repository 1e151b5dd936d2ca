// The client's side of a request: one head, then bytes as they come; or an error, as honest as can still be told.

import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type ErrorStyle, errorEvent, type GatewayError, sendError } from "./errors.js";

/** Milliseconds that a client gets to read how its stream ended. */
const LINGER_MS = 5_000;

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
    return this.#response.destroyed ? 0 : this.#response.writableLength;
  }

  /** The same with what the kernel has not taken yet of a piece on its way: falls whenever the client takes anything. */
  get waiting(): number {
    const { socket } = this.#response as { socket: (Socket & { _handle?: Handle | null }) | null };
    return this.buffered + (socket?._handle?.writeQueueSize ?? 0);
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
    this.#response.write(chunk);
  }

  /** Sends a comment, which readers of events pass over, to say that the connection lives. */
  comment(): void {
    this.#sendHead();
    this.#response.write(": keep-alive\n\n");
  }

  /** The whole answer has been written. */
  end(): void {
    this.#sendHead();
    this.#isOver = true;
    this.#response.end();
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
      this.#linger = setTimeout(() => this.destroy(), LINGER_MS).unref();
      response.once("close", () => clearTimeout(this.#linger));
      // What came last may be half an event: the empty line ends it.
      response.write(`\n\n${errorEvent(this.#style, error, this.answerId)}`, () => response.destroy());
    }
  }

  /** Breaks the connection. */
  destroy(): void {
    const response = this.#response;
    clearTimeout(this.#linger);
    this.#isOver = true;
    // One that waits behind another in a pipeline has no connection of its own: only the client's can be broken.
    if (response.socket === null && !response.writableFinished) response.req.socket.destroy();
    response.destroy();
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
