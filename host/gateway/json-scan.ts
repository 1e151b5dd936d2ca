// Reads one top-level string member of a JSON text without building the tree: a hostile body must not block the thread.

/** What a body says of the member asked for; `other` where the object has no such member or it is not a string. */
export type Scan =
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "other" | "not_object" | "invalid" };

/** In place of an index: the text is not JSON here. */
const NONE = -1;

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;
const LOWER_T = 0x74;
const LOWER_U = 0x75;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

// What a byte can be, as bits.
const SPACE = 1;
const DIGIT = 2;
const HEX = 4;
const EXPONENT = 8;
const SIGN = 16;
const CLASSES = new Uint8Array(256);
for (const byte of Buffer.from(" \t\n\r")) CLASSES[byte] |= SPACE;
for (const byte of Buffer.from("0123456789")) CLASSES[byte] |= DIGIT;
for (const byte of Buffer.from("0123456789abcdefABCDEF")) CLASSES[byte] |= HEX;
for (const byte of Buffer.from("eE")) CLASSES[byte] |= EXPONENT;
for (const byte of Buffer.from("+-")) CLASSES[byte] |= SIGN;

/** What the letter after a backslash stands for; 0 where it is no escape of two characters. */
const ESCAPED = new Uint8Array(256);
for (const letter of '"\\/bfnrt') ESCAPED[letter.charCodeAt(0)] = JSON.parse(`"\\${letter}"`).charCodeAt(0);

/**
 * Looks up the string that the JSON object in `body` has under `key`, which must be ASCII. Checks the whole body and
 * agrees with `JSON.parse(body.toString())` in what is valid and in the value; of several members of that name the
 * last one counts. Takes time in proportion to the bytes and, besides the value, a bit of memory per open bracket.
 */
export function topLevelString(body: Buffer, key: string): Scan {
  const scanner = new Scanner(body, key);
  if (!scanner.run()) return { kind: "invalid" };
  if (body[spaceEnd(body, 0)] !== OPEN_BRACE) return { kind: "not_object" };
  const value = scanner.value();
  return value === null ? { kind: "other" } : { kind: "string", value };
}

/** One pass over a body. */
class Scanner {
  readonly #body: Buffer;
  readonly #view: DataView;
  readonly #key: string;
  readonly #open = new Nesting();
  /** Where the value of the last top-level member named `key` starts. */
  #valueAt = NONE;

  constructor(body: Buffer, key: string) {
    this.#body = body;
    this.#view = new DataView(body.buffer, body.byteOffset, body.length);
    this.#key = key;
  }

  /** Whether the body is one JSON text. */
  run(): boolean {
    let at = spaceEnd(this.#body, 0);
    do {
      at = this.#descend(at);
      if (at !== NONE) at = this.#ascend(at);
    } while (at !== NONE && this.#open.depth > 0);
    return at === this.#body.length;
  }

  /** The string that a successful run has found, or null. */
  value(): string | null {
    const at = this.#valueAt;
    if (at === NONE || this.#body[at] !== QUOTE) return null;
    return JSON.parse(this.#body.toString("utf8", at, stringEnd(this.#body, this.#view, at + 1)));
  }

  /** Opens the containers that start at `at`, one in the other; returns the end of the innermost first value. */
  #descend(at: number): number {
    const body = this.#body;
    while (at !== NONE) {
      const byte = byteAt(body, at);
      if (byte !== OPEN_BRACE && byte !== OPEN_BRACKET) return scalarEnd(body, this.#view, at);
      const isObject = byte === OPEN_BRACE;
      const inner = spaceEnd(body, at + 1);
      if (byteAt(body, inner) === (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) return inner + 1;
      this.#open.push(isObject);
      at = isObject ? this.#name(inner) : inner;
    }
    return NONE;
  }

  /** Closes the containers that end after the value before `at`; returns the start of the next value, or the end. */
  #ascend(at: number): number {
    const body = this.#body;
    at = spaceEnd(body, at);
    while (this.#open.depth > 0) {
      const byte = byteAt(body, at);
      const inObject = this.#open.inObject();
      at = spaceEnd(body, at + 1);
      if (byte === COMMA) return inObject ? this.#name(at) : at;
      if (byte !== (inObject ? CLOSE_BRACE : CLOSE_BRACKET)) return NONE;
      this.#open.pop();
    }
    return at;
  }

  /** Reads a member's name and colon; returns the start of its value. */
  #name(at: number): number {
    const body = this.#body;
    if (byteAt(body, at) !== QUOTE) return NONE;
    const end = stringEnd(body, this.#view, at + 1);
    if (end === NONE) return NONE;
    const colon = spaceEnd(body, end);
    if (byteAt(body, colon) !== COLON) return NONE;
    const value = spaceEnd(body, colon + 1);
    if (this.#open.depth === 1 && spells(body, at + 1, end - 1, this.#key)) this.#valueAt = value;
    return value;
  }
}

/** The open containers, one bit for each: whether it is an object. */
class Nesting {
  #bits = new Uint8Array(16);
  depth = 0;

  push(isObject: boolean): void {
    const index = this.depth >> 3;
    if (index === this.#bits.length) this.#grow();
    const bit = 1 << (this.depth & 7);
    if (isObject) this.#bits[index] |= bit;
    else this.#bits[index] &= ~bit;
    this.depth++;
  }

  pop(): void {
    this.depth--;
  }

  /** Whether the innermost container is an object. */
  inObject(): boolean {
    const last = this.depth - 1;
    return ((this.#bits[last >> 3] >> (last & 7)) & 1) === 1;
  }

  #grow(): void {
    const grown = new Uint8Array(this.#bits.length * 2);
    grown.set(this.#bits);
    this.#bits = grown;
  }
}

/** The byte at `at`; past the end NUL, which JSON allows nowhere. Reading past the end itself would slow V8 down. */
function byteAt(body: Buffer, at: number): number {
  return at < body.length ? body[at] : 0;
}

function isA(body: Buffer, at: number, classes: number): boolean {
  return (CLASSES[byteAt(body, at)] & classes) !== 0;
}

function spaceEnd(body: Buffer, at: number): number {
  while (at < body.length && (CLASSES[body[at]] & SPACE) !== 0) at++;
  return at;
}

function digitsEnd(body: Buffer, at: number): number {
  while (isA(body, at, DIGIT)) at++;
  return at;
}

/** The end of the string, literal or number that starts at `at`, or NONE. */
function scalarEnd(body: Buffer, view: DataView, at: number): number {
  switch (byteAt(body, at)) {
    case QUOTE:
      return stringEnd(body, view, at + 1);
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

/** The index after the closing quote of the string whose contents start at `at`, or NONE. */
function stringEnd(body: Buffer, view: DataView, at: number): number {
  for (;;) {
    at = plainEnd(body, view, at);
    const byte = byteAt(body, at);
    if (byte === QUOTE) return at + 1;
    if (byte !== BACKSLASH) return NONE;
    const end = at + escapeLength(body, at);
    if (end === at) return NONE;
    at = end;
  }
}

/** The index of the first quote, backslash or control character from `at` on, or the end of the body. */
function plainEnd(body: Buffer, view: DataView, at: number): number {
  const lastWord = body.length - 4;
  while (at <= lastWord) {
    const special = specialBytes(view.getInt32(at, true));
    if (special !== 0) return at + ((31 - Math.clz32(special & -special)) >> 3);
    at += 4;
  }
  while (at < body.length && !isSpecial(body[at])) at++;
  return at;
}

function isSpecial(byte: number): boolean {
  return byte < 0x20 || byte === QUOTE || byte === BACKSLASH;
}

/**
 * Tests four bytes at once. Zero if none is special; else the lowest bit set is
 * the top bit of the first special one. A byte's top bit comes on where the subtraction goes below zero: flipping
 * 0x02 puts the quote (0x22) next to the control characters, below 0x21; flipping 0x5c makes the backslash 0.
 */
function specialBytes(word: number): number {
  const low = (word ^ 0x02020202) - 0x21212121;
  const backslash = (word ^ 0x5c5c5c5c) - 0x01010101;
  return (low | backslash) & ~word & 0x80808080;
}

/** The length of the escape that starts with the backslash at `at`; 0 if it is not valid. */
function escapeLength(body: Buffer, at: number): number {
  const letter = byteAt(body, at + 1);
  if (letter !== LOWER_U) return ESCAPED[letter] === 0 ? 0 : 2;
  for (let digit = at + 2; digit < at + 6; digit++) if (!isA(body, digit, HEX)) return 0;
  return 6;
}

/** Whether the valid string contents from `at` to `end` decode to `text`, which is ASCII. */
function spells(body: Buffer, at: number, end: number, text: string): boolean {
  for (let index = 0; index < text.length; index++) {
    if (at >= end) return false;
    const escaped = body[at] === BACKSLASH;
    if ((escaped ? escapedUnit(body, at) : body[at]) !== text.charCodeAt(index)) return false;
    at += escaped ? escapeLength(body, at) : 1;
  }
  return at === end;
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
