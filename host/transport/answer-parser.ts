// Reads the answers that come on one connection, one at a time, from bytes that come in any pieces.

import { type AnswerHead, MalformedAnswer } from "./answer.js";
import { ChunkedBody } from "./chunked-body.js";
import { framingOf } from "./framing.js";
import { HeadReader } from "./head-reader.js";

/** Hears what an answer has. It may call `stop` from within, and hears nothing more then. */
export interface AnswerSink {
  onHead(head: AnswerHead): void;
  /** Bytes of the body; they stand there only during the call. */
  onBody(bytes: Buffer, from: number, to: number): void;
}

type State = "head" | "chunked" | "trailer" | "length" | "close" | "done" | "stopped";

/** A parser for one answer after another. */
export class AnswerParser {
  /** Milliseconds for which the other side keeps the connection open behind this answer, as far as it says; 0: it does not. */
  keepMs = 0;
  readonly #sink: AnswerSink;
  readonly #reader = new HeadReader();
  readonly #chunked = new ChunkedBody();
  #state: State = "head";
  #left = 0;

  constructor(sink: AnswerSink) {
    this.#sink = sink;
  }

  /** Whether the answer is whole. */
  get isDone(): boolean {
    return this.#state === "done";
  }

  /** Begins the next answer. */
  begin(): void {
    this.#state = "head";
    this.#reader.begin(false);
  }

  /** Tells the sink nothing more. */
  stop(): void {
    this.#state = "stopped";
  }

  /**
   * Takes the first `size` bytes, among which it may move some. Returns how many of them belong to this answer: less than
   * `size` only where it is whole. Throws a MalformedAnswer.
   */
  read(bytes: Buffer, size: number): number {
    let at = 0;
    while (at < size) {
      switch (this.#state) {
        case "head":
          at = this.#readHead(bytes, at, size);
          break;
        case "chunked":
          at = this.#readChunks(bytes, at, size);
          break;
        case "trailer":
          at = this.#skipTrailer(bytes, at, size);
          break;
        case "length":
          at = this.#readLength(bytes, at, size);
          break;
        case "close":
          this.#sink.onBody(bytes, at, size);
          return size;
        case "done":
          return at;
        case "stopped":
          return size;
      }
    }
    return at;
  }

  /** The connection has ended in peace; true where that was the end of the answer. */
  end(): boolean {
    if (this.#state === "close") this.#state = "done";
    return this.isDone;
  }

  #readHead(bytes: Buffer, from: number, to: number): number {
    const reader = this.#reader;
    const at = reader.read(bytes, from, to);
    if (at < 0) return to;
    const { status, message, minor, fields } = reader;
    if (status === 101) throw new MalformedAnswer("it switches to another protocol, which was not asked for");
    if (status < 200) {
      // An interim answer, behind which the final one comes.
      reader.begin(false);
      return at;
    }
    const { body, keepMs } = framingOf(status, minor, fields);
    this.keepMs = keepMs;
    if (body === "chunked") this.#chunked.begin();
    this.#left = typeof body === "number" ? body : 0;
    this.#state = body === 0 ? "done" : typeof body === "number" ? "length" : body;
    this.#sink.onHead({ status, message, fields });
    return at;
  }

  #readChunks(bytes: Buffer, from: number, to: number): number {
    const chunked = this.#chunked;
    const at = chunked.read(bytes, from, to);
    const { dataFrom, dataTo, fault } = chunked;
    if (chunked.isDone) {
      this.#reader.begin(true);
      this.#state = "trailer";
    }
    if (dataTo > dataFrom) this.#sink.onBody(bytes, dataFrom, dataTo);
    if (fault !== "" && this.#state !== "stopped") throw new MalformedAnswer(fault);
    return at;
  }

  #skipTrailer(bytes: Buffer, from: number, to: number): number {
    const at = this.#reader.read(bytes, from, to);
    if (at < 0) return to;
    this.#state = "done";
    return at;
  }

  #readLength(bytes: Buffer, from: number, to: number): number {
    const end = Math.min(to, from + this.#left);
    this.#left -= end - from;
    if (this.#left === 0) this.#state = "done";
    this.#sink.onBody(bytes, from, end);
    return end;
  }
}
