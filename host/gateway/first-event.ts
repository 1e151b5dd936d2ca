// The first event of a stream, held until it is whole: engines send errors behind a head that says 200.

import type { Head } from "./attempt.js";

/** Most bytes of a first event that are looked at. */
const MAX_BYTES = 65_536;

/** Two ends of lines, each of any of the three kinds. A CR at the end of what came may be half of one. */
const EMPTY_LINE = /\r?\n(?:\r?\n|\r(?=[^\n]))|\r\r/;

/** What the first event is: not whole yet, no error, or an error with this status. */
export type FirstEvent = "incomplete" | "good" | number;

/** Reads a stream up to its first event. */
export class FirstEventReader {
  #text = "";
  #size = 0;

  /** Takes the next bytes of the stream. What is too long to be looked at is good. */
  push(chunk: Buffer): FirstEvent {
    this.#size += chunk.length;
    if (this.#size > MAX_BYTES) return "good";
    // Latin-1 keeps a character that is split between chunks; what is compared is ASCII.
    this.#text += chunk.toString("latin1");
    for (;;) {
      const end = EMPTY_LINE.exec(this.#text);
      if (!end) return "incomplete";
      const lines = this.#text.slice(0, end.index).split(/\r\n|\n|\r/);
      this.#text = this.#text.slice(end.index + end[0].length);
      const data = field(lines, "data");
      const event = field(lines, "event");
      if (data !== undefined && event !== "ping") return statusOf(event, data) ?? "good";
    }
  }
}

/** A 200 stream whose head is held back until its first event is known. */
export class HeldStream {
  readonly head: Head;
  readonly chunks: Buffer[] = [];
  readonly #reader = new FirstEventReader();

  constructor(head: Head) {
    this.head = head;
  }

  /** Takes the next bytes. */
  push(chunk: Buffer): FirstEvent {
    this.chunks.push(chunk);
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
