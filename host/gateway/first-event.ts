// The first event of a stream, held until it is whole: engines send errors behind a head that says 200.

import type { AnswerHead } from "../transport/answer.js";
import { Gathered } from "./blocks.js";

/** Most bytes of a first event that are looked at. */
const MAX_BYTES = 65_536;

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** What the first event is: not whole yet, no error, or an error with this status. */
export type FirstEvent = "incomplete" | "good" | number;

/** Where in a line the reader is: in it; behind its end; behind a CR that an LF may follow, of that end or of one more. */
type Place = "line" | "end" | "cr" | "endCr";

/** Reads a stream up to its first event. */
export class FirstEventReader {
  readonly #gathered = new Gathered();
  /** Where the event under way begins. */
  #start = 0;
  /** What has been looked at: no byte is a second time. */
  #seen = 0;
  #place: Place = "line";

  /** All that has come. */
  get bytes(): Buffer {
    return this.#gathered.bytes;
  }

  /** Takes the next bytes of the stream. What is too long to be looked at is good. */
  push(chunk: Buffer): FirstEvent {
    this.#gathered.push(chunk);
    if (this.#gathered.size > MAX_BYTES) return "good";
    const { bytes } = this.#gathered;
    for (let end = this.#nextEnd(bytes); end !== undefined; end = this.#nextEnd(bytes)) {
      // Latin-1 does for a part of a stream; what is compared is ASCII.
      const lines = bytes.toString("latin1", this.#start, end).split(/\r\n|\n|\r/);
      this.#start = end;
      const data = field(lines, "data");
      const event = field(lines, "event");
      if (data !== undefined && event !== "ping") return statusOf(event, data) ?? "good";
    }
    return "incomplete";
  }

  /** The end of the event under way: that of an empty line. Its lines end in LF, CR or both. */
  #nextEnd(bytes: Buffer): number | undefined {
    while (this.#seen < bytes.length) {
      const byte = bytes[this.#seen];
      const isLineFeed = byte === LINE_FEED;
      const place = this.#place;
      this.#place = "line";
      // A CR at the end of what came may be half of an end: the byte behind it tells.
      if (place === "endCr" && !isLineFeed) return this.#seen;
      this.#seen++;
      if (isLineFeed) {
        if (place === "end" || place === "endCr") return this.#seen;
        this.#place = "end";
      } else if (byte === CARRIAGE_RETURN) {
        if (place === "cr") return this.#seen;
        this.#place = place === "end" ? "endCr" : "cr";
      }
    }
    return undefined;
  }
}

/** A 200 stream whose head is held back until its first event is known. */
export class HeldStream {
  readonly head: AnswerHead;
  readonly #reader = new FirstEventReader();

  constructor(head: AnswerHead) {
    this.head = head;
  }

  /** All of it that has come. */
  get bytes(): Buffer {
    return this.#reader.bytes;
  }

  get size(): number {
    return this.#reader.bytes.length;
  }

  /** Takes the next bytes. */
  push(chunk: Buffer): FirstEvent {
    return this.#reader.push(chunk);
  }
}

/** The lines of a field together; undefined where there are none. */
function field(lines: readonly string[], name: string): string | undefined {
  const values = lines
    .filter((line) => line.startsWith(`${name}:`))
    .map((line) => line.slice(name.length + 1));
  return values.length === 0 ? undefined : values.map((value) => value.replace(/^ /, "")).join("\n");
}

/** The status that an error event stands for, undefined for one that is no error. */
function statusOf(event: string | undefined, data: string): number | undefined {
  const value = parsed(data);
  const error = value?.error ?? value?.response?.error;
  const isError =
    event === "error" ||
    value?.type === "error" ||
    value?.type === "response.failed" ||
    isPresent(value?.error);
  if (!isError) return undefined;
  const code = Number((error as { code?: unknown } | undefined)?.code ?? Number.NaN);
  return code >= 400 && code < 600 ? code : 500;
}

interface ErrorValue {
  readonly type?: unknown;
  readonly error?: unknown;
  readonly response?: { readonly error?: unknown };
}

function parsed(data: string): ErrorValue | undefined {
  try {
    return (JSON.parse(data) as ErrorValue | null) ?? undefined;
  } catch {
    return undefined;
  }
}

function isPresent(error: unknown): boolean {
  return error !== undefined && error !== null && error !== false;
}
