// One connection: opened for a call, then idle or at work on one call at a time, until either side closes it.

import type { Socket } from "node:net";
import { type AnswerHead, MalformedAnswer } from "./answer.js";
import { AnswerParser, type AnswerSink } from "./answer-parser.js";
import type { Call, Carrier } from "./call.js";
import { openSocket, type Target } from "./socket.js";

/** Bodies up to here are copied behind their head, so that one write carries both. */
const COPIED_BYTES = 16_384;
/** The longest that a timer can wait for. */
const LONGEST_MS = 2 ** 31 - 1;

/** Whoever has connections; each call comes from within a connection's own events. */
export interface ConnectionOwner {
  /** It can take another call; for how many milliseconds the other side keeps it, as far as it says. */
  onIdle(connection: Connection, keepMs: number): void;
  /** It is not to be used any more. A call that was not sent is left, which may be tried on another one. */
  onGone(connection: Connection, unsent: Call | null): void;
  /** Its socket is closed. */
  onClosed(connection: Connection): void;
}

/** A connection that opens, is open, or was. */
export class Connection implements AnswerSink, Carrier {
  /** Until when it may stay idle, on the owner's clock. */
  idleUntil = 0;
  readonly #owner: ConnectionOwner;
  readonly #socket: Socket;
  readonly #parser = new AnswerParser(this);
  #connecting: NodeJS.Timeout | undefined;
  #call: Call | null;
  #isOpen = false;
  #isGone = false;

  /** Begins to open it for a call; it fails where that is not done within `connectMs` milliseconds. */
  constructor(owner: ConnectionOwner, target: Target, connectMs: number, call: Call) {
    this.#owner = owner;
    this.#call = call;
    call.carrier = this;
    const socket = openSocket(target, this.#onRead, this.#onOpen);
    this.#socket = socket;
    socket.on("end", this.#onFin);
    socket.on("error", (error: Error) => this.#fail(readable(error)));
    socket.on("close", () => {
      this.#fail(new Error("the connection was closed"));
      owner.onClosed(this);
    });
    if (connectMs > LONGEST_MS) return;
    const late = `no connection to ${target.host}:${target.port} within ${connectMs} ms`;
    this.#connecting = setTimeout(() => this.#fail(new Error(late)), connectMs).unref();
  }

  /** Takes a call, while it is idle. */
  take(call: Call): void {
    this.#call = call;
    call.carrier = this;
    // What has come in meanwhile, be it the end of the connection, is read first.
    setImmediate(this.#send);
  }

  /** Closes it; the call on it hears nothing more. */
  drop(): void {
    this.#call = null;
    this.#close();
  }

  /** Closes it; the call on it fails. */
  cut(): void {
    this.#fail(new Error("the gateway closed the connection"));
  }

  onHead(head: AnswerHead): void {
    this.#call!.listener.onHead(head);
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    // Not from the buffers' pool, of which a small piece that waits for a slow reader would hold a large one.
    const chunk = Buffer.allocUnsafeSlow(to - from);
    bytes.copy(chunk, 0, from, to);
    this.#call!.listener.onData(chunk);
  }

  readonly #onOpen = (): void => {
    clearTimeout(this.#connecting);
    if (this.#isGone) return;
    this.#isOpen = true;
    this.#send();
  };

  readonly #send = (): void => {
    const call = this.#call;
    if (!call || call.isSent) return;
    const { head, body } = call;
    const socket = this.#socket;
    this.#parser.begin();
    call.isSent = true;
    if (!body) socket.write(head, "latin1");
    else if (body.length <= COPIED_BYTES) {
      const whole = Buffer.allocUnsafe(head.length + body.length);
      whole.write(head, "latin1");
      body.copy(whole, head.length);
      socket.write(whole);
    } else {
      socket.cork();
      socket.write(head, "latin1");
      socket.write(body);
      socket.uncork();
    }
  };

  readonly #onRead = (size: number, bytes: Uint8Array): true => {
    this.#take(size, bytes as Buffer);
    return true;
  };

  #take(size: number, bytes: Buffer): void {
    const call = this.#call;
    if (!call?.isSent) {
      this.#fail(new Error("bytes came that nobody had asked for"));
      return;
    }
    call.isAnswered = true;
    let used: number;
    try {
      used = this.#parser.read(bytes, size);
    } catch (error) {
      if (!(error instanceof MalformedAnswer)) throw error;
      this.#fail(error);
      return;
    }
    // Not where the listener gave it up: the parser was stopped then.
    if (this.#parser.isDone) this.#answered(call, used === size);
  }

  /** `isClean`: nothing came behind the answer. */
  #answered(call: Call, isClean: boolean): void {
    this.#call = null;
    // Where a part of the request was not read yet the next one would wait behind that.
    const isReusable = isClean && this.#parser.keepMs > 0 && this.#socket.writableLength === 0;
    if (isReusable) this.#owner.onIdle(this, this.#parser.keepMs);
    else this.#close();
    call.end();
  }

  readonly #onFin = (): void => {
    const call = this.#call;
    if (call?.isSent && this.#parser.end()) {
      this.#call = null;
      this.#close();
      call.end();
    } else this.#fail(new Error("the connection was closed"));
  };

  #fail(error: Error): void {
    if (this.#isGone) return;
    const call = this.#call;
    this.#call = null;
    const isUnsent = this.#isOpen && call !== null && !call.isSent;
    this.#close(isUnsent ? call : null);
    if (!isUnsent) call?.fail(error);
  }

  #close(unsent: Call | null = null): void {
    if (this.#isGone) return;
    this.#isGone = true;
    clearTimeout(this.#connecting);
    this.#parser.stop();
    this.#socket.destroy();
    this.#owner.onGone(this, unsent);
  }
}

/** An error with a message: where every one of several addresses failed, Node's has none. */
function readable(error: Error): Error {
  const { errors } = error as { errors?: readonly Error[] };
  if (error.message !== "" || !errors) return error;
  return new Error(errors.map(({ message }) => message).join("; "), { cause: error });
}
