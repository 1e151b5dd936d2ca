// The trace form: JSON Lines, one session each. Read as a stream, so that a long file is not held in memory.
import { createReadStream } from "node:fs";

/** `count` blocks with the ids `start`, `start + 1`, ... */
export type BlockRun = readonly [start: number, count: number];

/** One request of a session. Other fields of the file are ignored. */
export interface TraceTurn {
  /** Seconds since the session's start. */
  readonly t: number;
  /** Prompt and answer, in tokens. */
  readonly in: number;
  readonly out: number;
  /** Seconds between the previous answer and this request; null where not known. */
  readonly think: number | null;
  /** The prompt's full blocks; what is left of `in` fills no block. */
  readonly h: readonly BlockRun[];
}

export interface TraceSession {
  readonly session_id: string;
  /** Equal block ids mean equal content within a group only. */
  readonly group: string;
  /** The session that started this one. */
  readonly parent: string | null;
  readonly kind: string;
  /** Seconds since the group's first request. */
  readonly start_s: number;
  /** Tokens per block. */
  readonly block: number;
  readonly turns: readonly TraceTurn[];
}

/** A trace that cannot be used; the message is one sentence with the file and the line. */
export class TraceError extends Error {
  override readonly name = "TraceError";
}

/**
 * The sessions of a trace, in its order. Throws a TraceError at the first broken line, and where the file cannot be
 * read or names a session twice. Whoever stops early leaves the rest unread.
 */
export async function* readTrace(file: string): AsyncGenerator<TraceSession> {
  const seen = new Set<string>();
  let number = 0;
  for await (const line of readLines(file)) {
    number++;
    const session = parseLine(line, `${file}, line ${number}`);
    if (seen.has(session.session_id)) {
      const id = JSON.stringify(session.session_id);
      throw new TraceError(`${file}, line ${number}: session_id ${id} is there twice.`);
    }
    seen.add(session.session_id);
    yield session;
  }
}

// Not readline: whether its iterator passes on an error of its input depends on Node's version.
async function* readLines(file: string): AsyncGenerator<string> {
  let rest = "";
  try {
    for await (const chunk of createReadStream(file, "utf8")) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop()!;
      yield* lines;
    }
  } catch (error) {
    throw new TraceError(`${file} cannot be read: ${(error as Error).message}.`);
  }
  if (rest !== "") yield rest;
}

/** One line as a session; `place` starts the message of the TraceError it throws. */
export function parseLine(line: string, place: string): TraceSession {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new TraceError(`${place}: a JSON object is needed, found ${excerpt(line)}.`);
  }
  const session = new Fields(value, place, "");
  session.check("session_id", isKey, "a string of 1 to 256 printable ASCII characters");
  session.check("group", isName, "a string that is not empty");
  session.check("parent", (parent) => parent === null || isName(parent), "the id of a session or null");
  session.check("kind", isName, "a string that is not empty");
  session.check("start_s", isDuration, "a number from 0");
  session.check("block", isPositive, "a whole number from 1");
  session.check("turns", isFilledList, "a list of at least one turn");
  const { block, turns } = value as TraceSession;
  for (const [index, turn] of turns.entries()) checkTurn(turn, block, place, `turns[${index}]`);
  return value as TraceSession;
}

function checkTurn(value: unknown, block: number, place: string, path: string): void {
  const turn = new Fields(value, place, path);
  turn.check("t", isDuration, "a number from 0");
  turn.check("in", isPositive, "a whole number from 1");
  turn.check("out", isCount, "a whole number from 0");
  turn.check("think", (think) => think === null || isDuration(think), "a number from 0 or null");
  turn.check("h", isRuns, "a list of pairs [start, count] of whole numbers, start from 0 and count from 1");
  const { in: tokens, h } = value as TraceTurn;
  const blocks = h.reduce((sum, [, count]) => sum + count, 0);
  if (blocks === Math.floor(tokens / block)) return;
  const full = Math.floor(tokens / block);
  throw new TraceError(`${place}: ${path}.h has ${blocks} blocks, but ${tokens} tokens fill ${full}.`);
}

/** The fields of one object. */
class Fields {
  readonly #object: Readonly<Record<string, unknown>>;

  constructor(
    value: unknown,
    readonly place: string,
    readonly path: string,
  ) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      const needed = path === "" ? "a JSON object is needed" : `${path} must be a JSON object`;
      throw new TraceError(`${place}: ${needed}, found ${excerpt(value)}.`);
    }
    this.#object = value as Record<string, unknown>;
  }

  check(name: string, accepts: (value: unknown) => boolean, allowed: string): void {
    const value = this.#object[name];
    if (accepts(value)) return;
    const path = this.path === "" ? name : `${this.path}.${name}`;
    const found = value === undefined ? "nothing" : excerpt(value);
    throw new TraceError(`${this.place}: ${path} must be ${allowed}, found ${found}.`);
  }
}

function excerpt(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}

/** It becomes a header. */
function isKey(value: unknown): boolean {
  return typeof value === "string" && /^[!-~]{1,256}$/.test(value);
}

function isName(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

function isDuration(value: unknown): boolean {
  return typeof value === "number" && value >= 0;
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isPositive(value: unknown): boolean {
  return isCount(value) && value !== 0;
}

function isFilledList(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

function isRuns(value: unknown): boolean {
  const isRun = (run: unknown) =>
    Array.isArray(run) && run.length === 2 && isCount(run[0]) && isPositive(run[1]);
  return Array.isArray(value) && value.every(isRun);
}
