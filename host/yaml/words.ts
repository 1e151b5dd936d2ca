// The words that mistakes are made of: what was found, what is allowed, what may have been meant.
import { distance } from "fastest-levenshtein";

const LONGEST_QUOTE = 80;

/** The candidate that `word` is a slip of: about a third of its letters differ. Case and `_` for `-` do not count. */
export function suggest(word: string, candidates: Iterable<string>): string | undefined {
  const limit = word.length < 4 ? 1 : Math.ceil(word.length / 3);
  let best: string | undefined;
  let bestDistance = limit + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - word.length) >= bestDistance) continue;
    const found = distance(plain(word), plain(candidate));
    if (found < bestDistance) [best, bestDistance] = [candidate, found];
  }
  return best;
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll("_", "-");
}

/** `, did you mean "x"?`, or nothing where no candidate is close. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const meant = suggest(word, candidates);
  return meant === undefined ? "" : `, did you mean "${meant}"?`;
}

/** The sentence about a key or a name that nobody knows: did you mean, and all that is allowed. */
export function unknownWord(
  what: string,
  word: string,
  allowed: readonly string[],
  label = "allowed",
): string {
  return `${what}${didYouMean(word, allowed)} (${label}: ${allowed.join(", ") || "<none>"})`;
}

/** How a value is quoted back: text in double quotes, cut to 80 characters; lists and mappings by name. */
export function describe(value: unknown): string {
  if (value === undefined || value === null) return "nothing";
  if (typeof value === "string") return quote(value);
  if (Array.isArray(value)) return value.length === 0 ? "an empty list" : "a list";
  if (typeof value === "object") return "a mapping";
  return String(value);
}

/** `text` in double quotes, control characters escaped, cut to 80 characters. */
export function quote(text: string): string {
  if (text.length <= LONGEST_QUOTE) return JSON.stringify(text);
  return `${JSON.stringify(text.slice(0, LONGEST_QUOTE))}... (${text.length} characters)`;
}

export interface Range {
  readonly minimum?: number | undefined;
  readonly maximum?: number | undefined;
  readonly exclusiveMinimum?: number | undefined;
}

/** ` from 1 to 9`, ` of at least 1`, ` above 0 and at most 1`, ` of at most 9`, or nothing: follows "an integer". */
export function rangeText({ minimum, maximum, exclusiveMinimum }: Range): string {
  if (exclusiveMinimum !== undefined) {
    return ` above ${exclusiveMinimum}${maximum === undefined ? "" : ` and at most ${maximum}`}`;
  }
  if (minimum !== undefined) {
    return maximum === undefined ? ` of at least ${minimum}` : ` from ${minimum} to ${maximum}`;
  }
  return maximum === undefined ? "" : ` of at most ${maximum}`;
}

/** `workers[1].url`: a path as the sentences name it. Numbers are list indices. */
export function pathText(path: readonly (string | number)[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    const word = /^[\w.-]+$/.test(part) ? part : quote(part);
    return text === "" ? word : `${text}.${word}`;
  }, "");
}
