// Text to tokens, by a rule simple enough to do in one's head.
//
// A token is one word with the white space before it; a word longer than 16 UTF-16 units is cut into pieces
// of 16; white space that no word follows is a token of its own. White space is what `\s` matches. A token
// is known by a 32-bit hash of its characters: nothing needs its text again.
import { finish, mix } from "./hash.js";

/** The most UTF-16 units of a word that one token holds. */
export const MAX_PIECE = 16;

/** What a part that is not text (an image, a tool call) costs, in tokens. */
export const OPAQUE_TOKENS = 4;

const MARKER_SEED = 0x6d61726b;
const OPAQUE_SEED = 0x6f706171;

/** Appends the tokens of `text` to `into` and returns `into`. */
export function tokenize(text: string, into: number[] = []): number[] {
  let at = 0;
  while (at < text.length) {
    const start = at;
    while (at < text.length && isSpace(text.charCodeAt(at))) at++;
    const end = Math.min(text.length, at + MAX_PIECE);
    while (at < end && !isSpace(text.charCodeAt(at))) at++;
    into.push(hashUnits(text, start, at, 0));
  }
  return into;
}

/** The token that opens a message of `role`; no text has the same. */
export function marker(role: string): number {
  return hashUnits(role, 0, role.length, MARKER_SEED);
}

/**
 * Appends the tokens that stand for a part which is not text. They depend on what the part holds, so that two
 * images do not pass for a common prefix; `cache_control` does not count, for clients move it between turns.
 */
export function tokenizeOpaque(part: unknown, into: number[]): void {
  const json = JSON.stringify(part, (key, value) => (key === "cache_control" ? undefined : value));
  const token = hashUnits(json, 0, json.length, OPAQUE_SEED);
  for (let i = 0; i < OPAQUE_TOKENS; i++) into.push(token);
}

function hashUnits(text: string, start: number, end: number, seed: number): number {
  let hash = seed;
  for (let i = start; i < end; i++) hash = mix(hash, text.charCodeAt(i));
  return finish(hash) | 0;
}

function isSpace(unit: number): boolean {
  if (unit < 0xa0) return unit === 32 || (unit >= 9 && unit <= 13);
  return /\s/.test(String.fromCharCode(unit));
}
