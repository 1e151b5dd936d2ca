// What an engine says of the tokens of an answer, read from its bytes as they pass: of chat, completions, embeddings,
// /v1/responses and /v1/messages, whole or as a stream of events. Only the ends of an answer are kept.

import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, OPEN_BRACE, OPEN_BRACKET, QUOTE } from "./json-text.js";

/** Tokens of one request; undefined where the engine does not say. */
export interface Usage {
  /** Of the whole prompt, cached ones included. */
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  /** Of the prompt, taken from the engine's cache. */
  readonly cachedTokens: number | undefined;
}

/** Bytes of an answer's beginning that are looked through: the first event, or what stands before a long list. */
const HEAD = 4_096;
/** Bytes of its end: behind the usage there may be metadata of the client's. */
const TAIL = 16_384;
const FIRST_SIZE = 1_024;

/**
 * The name with its colon and the brace of an object. In a string the second quote would be escaped; the first one alone is, where
 * a longer name ends like this.
 */
const KEY = /(?<=[^\\])"usage"[ \t\r\n]*:[ \t\r\n]*\{/;
const KEY_HERE = new RegExp(KEY, "y");
/** Levels at which a usage stands: at the top, and in events also one below, in `response` or `message`. */
const IN_TEXT: readonly number[] = [1];
const IN_EVENT: readonly number[] = [1, 2];

type Counts = Record<string, unknown>;

/** Reads the usage of one answer. Keeps at most 36 KiB of it. */
export class UsageReader {
  /** Its beginning, once that is not among the latest bytes any more. */
  #head: Buffer | null = null;
  /** The latest bytes, up to twice TAIL, so that they are moved seldom. */
  #tail = Buffer.alloc(0);
  #length = 0;

  /** Takes the next bytes, which it does not change or keep. */
  push(chunk: Buffer): void {
    let latest = chunk;
    if (this.#length + chunk.length > 2 * TAIL) {
      this.#cut(chunk);
      latest = chunk.subarray(Math.max(0, chunk.length - TAIL));
    }
    const length = this.#length + latest.length;
    if (length > this.#tail.length) {
      const larger = Buffer.allocUnsafe(Math.min(2 * TAIL, Math.max(FIRST_SIZE, 2 * length)));
      this.#tail.copy(larger, 0, 0, this.#length);
      this.#tail = larger;
    }
    latest.copy(this.#tail, this.#length);
    this.#length = length;
  }

  /** What is known of the usage so far; undefined where nothing is. */
  read(): Usage | undefined {
    // One byte is one character, so that what is cut in the middle of one does no harm.
    const tail = this.#tail.toString("latin1", 0, this.#length);
    const head = this.#head?.toString("latin1");
    const isJson = /^[ \t\r\n]*\{/.test(head ?? tail);
    const found = isJson
      ? head === undefined
        ? usagesFrom(tail)
        : [...usagesFrom(head), ...usagesUpTo(tail, IN_TEXT)]
      : [...usagesOfEvents(head ?? ""), ...usagesOfEvents(tail)];
    return usageOf(Object.assign({}, ...found));
  }

  /** Makes room for a chunk. Before the end of one that is longer than what is kept there is nothing to keep. */
  #cut(chunk: Buffer): void {
    this.#head ??= Buffer.concat([this.#tail.subarray(0, this.#length), chunk], HEAD);
    const kept = chunk.length > TAIL ? 0 : Math.min(this.#length, TAIL);
    this.#tail.copyWithin(0, this.#length - kept, this.#length);
    this.#length = kept;
  }
}

/** Those in the events of a text. What it begins with may be the end of an event; its last line is not whole yet. */
function usagesOfEvents(text: string): Counts[] {
  const lines = text.split(/\r\n|\n|\r/);
  const found: Counts[] = [];
  let data: string[] = [];
  for (const [index, line] of lines.slice(0, -1).entries()) {
    if (line.startsWith("data:")) data.push(line.slice(5));
    else if (index === 0) data.push(line);
    else if (line === "") {
      found.push(...usagesUpTo(data.join("\n"), IN_EVENT));
      data = [];
    }
  }
  return [...found, ...usagesUpTo(data.join("\n"), IN_EVENT)];
}

/** Those at the top of a JSON text whose end may be missing. */
function usagesFrom(text: string): Counts[] {
  const { candidates } = scan(text, 0);
  return candidates.flatMap((candidate) => (candidate.depth === 1 ? countsIn(text, candidate) : []));
}

/** Those on one of the levels of a JSON text whose beginning may be missing: from the first name on, nothing is in a string. */
function usagesUpTo(text: string, levels: readonly number[]): Counts[] {
  const first = text.search(KEY);
  if (first < 0) return [];
  const { candidates, depth: last } = scan(text, first);
  return candidates.flatMap((candidate) =>
    levels.includes(candidate.depth - last) ? countsIn(text, candidate) : [],
  );
}

interface Candidate {
  /** Containers around it that were opened since the scan began, less those that were closed. */
  readonly depth: number;
  /** Where its object starts, and where that ends: at the text's end where it is not whole. */
  readonly from: number;
  end: number;
}

interface Scan {
  readonly candidates: readonly Candidate[];
  /** At the end; NaN where that is in a string. */
  readonly depth: number;
}

/**
 * All candidates from `at` on, which is outside of a string. One pass, whatever the text: a client can have a worker repeat as
 * many of these names as it likes. Those of one depth do not overlap, so that reading their objects is not more than another.
 */
function scan(text: string, at: number): Scan {
  const candidates: Candidate[] = [];
  const open: Candidate[] = [];
  let depth = 0;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      const from = objectAt(text, at);
      if (from >= 0) {
        const candidate = { depth, from, end: text.length };
        candidates.push(candidate);
        open.push(candidate);
      }
      at = stringEnd(text, at);
      continue;
    }
    at++;
    if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      depth--;
      if (open.at(-1)?.depth === depth) open.pop()!.end = at;
    }
  }
  return { candidates, depth: at > text.length ? Number.NaN : depth };
}

/** Where the object starts whose name is at `at`; -1 where another string is. */
function objectAt(text: string, at: number): number {
  KEY_HERE.lastIndex = at;
  return KEY_HERE.test(text) ? KEY_HERE.lastIndex - 1 : -1;
}

/** Behind the closing quote of the string that starts at `at`; infinite where that is missing. */
function stringEnd(text: string, at: number): number {
  for (at++; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === BACKSLASH) at++;
    else if (code === QUOTE) return at + 1;
  }
  return Number.POSITIVE_INFINITY;
}

/** What an object says in detail; none where it is not whole. */
function countsIn(text: string, { from, end }: Candidate): Counts[] {
  try {
    const { prompt_tokens_details, input_tokens_details, ...rest } = JSON.parse(
      text.slice(from, end),
    ) as Counts;
    const details = { ...(prompt_tokens_details as object), ...(input_tokens_details as object) };
    const all: Counts = { ...pick(details, ["cached_tokens"]), ...pick(rest, NAMES) };
    return [all];
  } catch {
    return [];
  }
}

const NAMES = [
  ...["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"],
  ...["cache_read_input_tokens", "cache_creation_input_tokens"],
];

/** Members that are counts: later events repeat some, and say null of others. */
function pick(from: Counts, names: readonly string[]): Counts {
  return Object.fromEntries(
    names.filter((name) => Number.isSafeInteger(from[name])).map((name) => [name, from[name]]),
  );
}

function usageOf(counts: Partial<Record<string, number>>): Usage | undefined {
  const { prompt_tokens, completion_tokens, input_tokens, output_tokens, cached_tokens } = counts;
  const { cache_read_input_tokens: read, cache_creation_input_tokens: created } = counts;
  // Anthropic counts what its cache read and wrote apart; the others count it in.
  const input = input_tokens === undefined ? undefined : input_tokens + (read ?? 0) + (created ?? 0);
  const usage = {
    promptTokens: prompt_tokens ?? input,
    completionTokens: completion_tokens ?? output_tokens,
    cachedTokens: cached_tokens ?? read,
  };
  return Object.values(usage).some((count) => count !== undefined) ? usage : undefined;
}
