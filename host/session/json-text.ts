// JSON texts as bytes: where their tokens end, and what is inside a text that is known to be valid.

import type { JsonStrings } from "./json-strings.js";

/** In place of an index: there is nothing, or the text is not JSON here. */
export const NONE = -1;

export const QUOTE = 0x22;
export const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_BRACKET = 0x5d;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;
const LOWER_T = 0x74;
const LOWER_U = 0x75;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;

// What a byte can be, as bits.
const SPACE = 1;
const DIGIT = 2;
const EXPONENT = 4;
const SIGN = 8;
/** What may stand in a number or a literal. */
const WORD = 16;
const CLASSES = new Uint8Array(256);
for (const byte of Buffer.from(" \t\n\r")) CLASSES[byte] |= SPACE;
for (const byte of Buffer.from("0123456789")) CLASSES[byte] |= DIGIT;
for (const byte of Buffer.from("eE")) CLASSES[byte] |= EXPONENT;
for (const byte of Buffer.from("+-")) CLASSES[byte] |= SIGN;
for (const byte of Buffer.from("+-.0123456789Eaeflnrstu")) CLASSES[byte] |= WORD;

/** What the letter after a backslash stands for, in an escape of two characters. */
const ESCAPED = new Uint8Array(256);
for (const letter of '"\\/bfnrt') ESCAPED[letter.charCodeAt(0)] = JSON.parse(`"\\${letter}"`).charCodeAt(0);

/** Most bytes that one UTF-16 unit of a string takes: `\u0041`. */
export const UNIT_BYTES = 6;

/** The byte at `at`; past the end NUL, which JSON allows nowhere. Reading past the end itself would slow V8 down. */
export function byteAt(body: Buffer, at: number): number {
  return at < body.length ? body[at] : 0;
}

function isA(body: Buffer, at: number, classes: number): boolean {
  return (CLASSES[byteAt(body, at)] & classes) !== 0;
}

/** The index of the first byte from `at` on that is no white space. */
export function spaceEnd(body: Buffer, at: number): number {
  while (at < body.length && (CLASSES[body[at]] & SPACE) !== 0) at++;
  return at;
}

function digitsEnd(body: Buffer, at: number): number {
  while (isA(body, at, DIGIT)) at++;
  return at;
}

/** The end of the string, literal or number that starts at `at`, or NONE. */
export function scalarEnd(body: Buffer, strings: JsonStrings, at: number): number {
  switch (byteAt(body, at)) {
    case QUOTE:
      return strings.end(at + 1);
    case LOWER_T:
      return literalEnd(body, at, "true");
    case LOWER_F:
      return literalEnd(body, at, "false");
    case LOWER_N:
      return literalEnd(body, at, "null");
    default:
      return numberEnd(body, at);
  }
}

function literalEnd(body: Buffer, at: number, literal: string): number {
  for (let index = 0; index < literal.length; index++)
    if (byteAt(body, at + index) !== literal.charCodeAt(index)) return NONE;
  return at + literal.length;
}

function numberEnd(body: Buffer, at: number): number {
  if (byteAt(body, at) === MINUS) at++;
  if (!isA(body, at, DIGIT)) return NONE;
  at = byteAt(body, at) === ZERO ? at + 1 : digitsEnd(body, at);
  if (byteAt(body, at) === POINT) {
    if (!isA(body, at + 1, DIGIT)) return NONE;
    at = digitsEnd(body, at + 1);
  }
  if (!isA(body, at, EXPONENT)) return at;
  at = isA(body, at + 1, SIGN) ? at + 2 : at + 1;
  return isA(body, at, DIGIT) ? digitsEnd(body, at) : NONE;
}

/** Whether the valid string contents from `at` to `end` decode to `text`, which is ASCII. */
export function spells(body: Buffer, at: number, end: number, text: string): boolean {
  for (let index = 0; index < text.length; index++) {
    if (at >= end) return false;
    const escaped = body[at] === BACKSLASH;
    if ((escaped ? escapedUnit(body, at) : body[at]) !== text.charCodeAt(index)) return false;
    at += escaped ? escapeLength(body, at) : 1;
  }
  return at === end;
}

/** As `spells`, for any `text`; slower. */
export function spellsAny(body: Buffer, at: number, end: number, text: string): boolean {
  return end - at <= text.length * UNIT_BYTES && decoded(body, at - 1, end + 1) === text;
}

/** The string that stands, quotes included, from `at` to `end` of a valid text. */
export function decoded(body: Buffer, at: number, end: number): string {
  return JSON.parse(body.toString("utf8", at, end));
}

/** The length of the valid escape at `at`. */
function escapeLength(body: Buffer, at: number): number {
  return body[at + 1] === LOWER_U ? UNIT_BYTES : 2;
}

/** The code unit that the valid escape at `at` stands for. */
function escapedUnit(body: Buffer, at: number): number {
  const letter = body[at + 1];
  if (letter !== LOWER_U) return ESCAPED[letter];
  let unit = 0;
  for (let digit = at + 2; digit < at + 6; digit++) unit = unit * 16 + hexValue(body[digit]);
  return unit;
}

function hexValue(digit: number): number {
  return digit > NINE ? (digit & 0x0f) + 9 : digit - ZERO;
}

/** The end of the value that starts at `at` of a valid text. */
export function valueEnd(body: Buffer, strings: JsonStrings, at: number): number {
  const byte = body[at];
  if (byte === QUOTE) return strings.end(at + 1);
  if (byte === OPEN_BRACE || byte === OPEN_BRACKET) return containerEnd(body, strings, at);
  while (isA(body, at, WORD)) at++;
  return at;
}

function containerEnd(body: Buffer, strings: JsonStrings, at: number): number {
  let depth = 0;
  do {
    const byte = body[at];
    at = byte === QUOTE ? strings.end(at + 1) : at + 1;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++;
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth--;
  } while (depth > 0);
  return at;
}

/** Where the first item of the array, or the first name in the object, at `at` of a valid text starts, or NONE. */
export function firstIn(body: Buffer, at: number): number {
  const first = spaceEnd(body, at + 1);
  return body[first] === CLOSE_BRACE || body[first] === CLOSE_BRACKET ? NONE : first;
}

/** What follows the item, or the member's value, that starts at `at` of a valid text: as `firstIn`. */
export function nextAfter(body: Buffer, strings: JsonStrings, at: number): number {
  const end = spaceEnd(body, valueEnd(body, strings, at));
  return body[end] === COMMA ? spaceEnd(body, end + 1) : NONE;
}

/** Where the value of the member whose name starts at `at` of a valid text starts. */
export function memberValue(body: Buffer, strings: JsonStrings, at: number): number {
  const colon = spaceEnd(body, strings.end(at + 1));
  return spaceEnd(body, colon + 1);
}
