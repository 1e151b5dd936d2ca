// A request's body on its way into memory: within its own limit, and within one for all of them.

import type { IncomingMessage, ServerResponse } from "node:http";
import { Gathered } from "./blocks.js";
import { inTurn } from "./pipeline.js";

/** Bytes that many hold together, up to a limit. */
export class ByteAccount {
  limit: number;
  #used = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get used(): number {
    return this.#used;
  }

  /** Whether `bytes` more would be within the limit. */
  hasRoom(bytes: number): boolean {
    return this.#used + bytes <= this.limit;
  }

  add(bytes: number): void {
    this.#used += bytes;
  }
}

/** What became of an upload: the body, or what it met first. */
export type UploadResult = Buffer | "too_large" | "no_room" | "aborted";

/** Milliseconds a client gets to notice an early refusal of its upload before the connection is cut. */
const LINGER_MS = 5_000;

/** One body, whose bytes count until they are freed. */
export class Upload {
  readonly #request: IncomingMessage;
  readonly #limit: number;
  readonly #account: ByteAccount;
  readonly #gathered = new Gathered();
  /** Bytes that count. */
  #size = 0;
  /** Its length, where the client told it. */
  #expected = Number.POSITIVE_INFINITY;
  #done: ((result: UploadResult) => void) | null = null;

  /** `limit` is that of this body, in bytes; `account` counts all bodies. */
  constructor(request: IncomingMessage, limit: number, account: ByteAccount) {
    this.#request = request;
    this.#limit = limit;
    this.#account = account;
  }

  /** Bytes read so far. */
  get size(): number {
    return this.#size;
  }

  /** Reads the body and calls `done` once. A declared length over a limit is refused before anything is read. */
  read(done: (result: UploadResult) => void): void {
    const length = this.#request.headers["content-length"];
    const declared = Number(length ?? 0);
    if (declared > this.#limit) done("too_large");
    else if (!this.#account.hasRoom(declared)) done("no_room");
    else {
      if (length !== undefined) this.#expected = declared;
      this.#done = done;
      this.#request.on("data", this.#onData).on("end", this.#onEnd).on("close", this.#onClose);
    }
  }

  /** Reads no further and calls nobody any more. The rest is to be discarded. */
  stop(): void {
    this.#done = null;
    this.#request.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onClose);
  }

  /** Counts its bytes no longer: nobody is going to need them. */
  free(): void {
    this.#account.add(-this.#size);
    this.#size = 0;
    this.#gathered.clear();
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#size + chunk.length > this.#limit) this.#end("too_large");
    else if (!this.#account.hasRoom(chunk.length)) this.#end("no_room");
    else {
      this.#size += chunk.length;
      this.#account.add(chunk.length);
      this.#gathered.push(chunk, this.#expected);
    }
  };

  readonly #onEnd = (): void => this.#end(this.#gathered.bytes);

  readonly #onClose = (): void => this.#end("aborted");

  #end(result: UploadResult): void {
    const done = this.#done;
    this.stop();
    this.#gathered.clear();
    done?.(result);
  }
}

/**
 * Throws away the rest of the body of a request that has its answer without it, so that the client can read that instead of
 * meeting a reset; cuts the connection of one that goes on sending, when the answers before this one are out.
 */
export function discardBody(response: ServerResponse): void {
  const { req: request } = response;
  if (request.complete) return;
  request.on("error", () => {});
  request.resume();
  inTurn(response, () => {
    if (request.complete) return;
    const timer = setTimeout(() => request.destroy(), LINGER_MS);
    request.once("close", () => clearTimeout(timer));
  });
}
