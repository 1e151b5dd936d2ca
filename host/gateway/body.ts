// Reading a request's body into memory, within a limit.

import type { IncomingMessage } from "node:http";

/** What became of a body: read, over the limit, or its client gone. */
export type BodyResult = Buffer | "too_large" | "aborted";

/** Milliseconds a client gets to notice an early refusal of its upload before the connection is cut. */
const LINGER_MS = 5_000;

/** Reads the body and calls `done` once. A declared length over `limit` bytes is refused before anything is read. */
export function readBody(request: IncomingMessage, limit: number, done: (result: BodyResult) => void): void {
  if (Number(request.headers["content-length"] ?? 0) > limit) {
    done("too_large");
    return;
  }
  const chunks: Buffer[] = [];
  let size = 0;
  const finish = (result: BodyResult): void => {
    request.off("data", onData).off("end", onEnd).off("close", onClose);
    done(result);
  };
  const onData = (chunk: Buffer): void => {
    size += chunk.length;
    if (size > limit) finish("too_large");
    else chunks.push(chunk);
  };
  const onEnd = (): void => finish(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size));
  const onClose = (): void => finish("aborted");
  request.on("data", onData).on("end", onEnd).on("close", onClose);
}

/**
 * Throws away the rest of a body that was refused, so that the client can read the answer instead of meeting a reset;
 * cuts the connection of one that goes on sending.
 */
export function discardBody(request: IncomingMessage): void {
  if (request.complete) return;
  request.on("error", () => {});
  request.resume();
  const timer = setTimeout(() => request.destroy(), LINGER_MS);
  request.once("close", () => clearTimeout(timer));
}
