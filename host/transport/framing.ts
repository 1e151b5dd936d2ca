// How the end of an answer is found, and whether its connection can be used again, from its head (RFC 9112, 6.3 and 9.3).

import { MalformedAnswer } from "./answer.js";

/** What of a head says how the message is framed. */
export interface Framing {
  /** How the body comes: in chunks, until the connection ends, or in so many bytes. */
  readonly body: "chunked" | "close" | number;
  /** Milliseconds that the other side says it keeps the connection open for, Infinity where it does not say; 0: it closes it. */
  readonly keepMs: number;
}

/** Statuses whose answers have no body, whatever their heads say. */
const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** Reads the framing of a final answer. Throws a MalformedAnswer where it is in doubt. */
export function framingOf(status: number, minor: number, fields: readonly string[]): Framing {
  let length: number | undefined;
  let isChunked = false;
  let keepMs = minor === 0 ? 0 : Number.POSITIVE_INFINITY;
  for (let i = 0; i < fields.length; i += 2) {
    // Most fields are none of these: their lengths say so.
    switch (fields[i]!.length) {
      case 10: {
        const name = fields[i]!.toLowerCase();
        if (name === "connection" && hasClose(fields[i + 1]!)) keepMs = 0;
        else if (name === "keep-alive") keepMs = Math.min(keepMs, timeoutOf(fields[i + 1]!));
        break;
      }
      case 14:
        if (fields[i]!.toLowerCase() !== "content-length") break;
        if (length !== undefined) throw new MalformedAnswer("its head has more than one Content-Length");
        length = lengthOf(fields[i + 1]!);
        break;
      case 17:
        if (fields[i]!.toLowerCase() !== "transfer-encoding") break;
        if (isChunked || fields[i + 1]!.toLowerCase() !== "chunked")
          throw new MalformedAnswer("its body comes in a transfer coding other than `chunked`");
        isChunked = true;
    }
  }
  if (isChunked && length !== undefined)
    throw new MalformedAnswer("its head has both a Content-Length and a Transfer-Encoding");
  if (BODILESS.has(status)) return { body: 0, keepMs };
  if (isChunked) return { body: "chunked", keepMs };
  return length === undefined ? { body: "close", keepMs: 0 } : { body: length, keepMs };
}

function lengthOf(text: string): number {
  // Up to here every number is one of its own.
  if (!/^\d{1,15}$/.test(text)) throw new MalformedAnswer("its Content-Length is no number");
  return Number(text);
}

function hasClose(value: string): boolean {
  return value
    .toLowerCase()
    .split(",")
    .some((option) => option.trim() === "close");
}

function timeoutOf(value: string): number {
  const seconds = /(?:^|[,;\s])timeout=(\d{1,9})(?=$|[,;\s])/i.exec(value)?.[1];
  return seconds === undefined ? Number.POSITIVE_INFINITY : Number(seconds) * 1_000;
}
