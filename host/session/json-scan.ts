// Reads a few members of a JSON text without building the tree: a hostile body must not block the thread.

import { JsonStrings, loadSearch } from "./json-strings.js";
import {
  byteAt,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  decoded,
  NONE,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  scalarEnd,
  spaceEnd,
  spells,
  spellsAny,
} from "./json-text.js";

/** What `true` and `null`, of all values, begin with. */
const [SMALL_T, SMALL_N] = [0x74, 0x6e];

/** A member that some path goes through. */
interface Member {
  readonly name: string;
  readonly isAscii: boolean;
  /** The slot of the path that ends here, or NONE. */
  slot: number;
  /** The slots of the paths that go on from here. */
  readonly beneath: number[];
  /** The members that these go through next, null where there are none. */
  inner: Member[] | null;
}

/** A set of paths, each through objects only, compiled once for many bodies. */
export class JsonPaths {
  readonly #root: Member[] = [];
  #count = 0;

  /** Throws an Error where the process may not have the address space that the search for strings takes. */
  constructor() {
    loadSearch();
  }

  /** Adds a path of at least one name, unless it is there; returns the number under which a scan has its value. */
  slot(path: readonly string[]): number {
    let level = this.#root;
    const way = path.map((name, depth) => {
      const member = memberOf(level, name);
      if (depth < path.length - 1) {
        member.inner ??= [];
        level = member.inner;
      }
      return member;
    });
    const last = way.pop()!;
    if (last.slot !== NONE) return last.slot;
    last.slot = this.#count++;
    for (const member of way) member.beneath.push(last.slot);
    return last.slot;
  }

  /**
   * Looks up the paths in the JSON object that is `body`. Checks the whole body and agrees with
   * `JSON.parse(body.toString())` in what is valid and in the values; of several members of one name the last one
   * counts, with what is in it. Takes time in proportion to the bytes and a bit of memory per open bracket.
   */
  scan(body: Buffer): JsonScan | "invalid" | "not_object" {
    const starts = new Int32Array(this.#count).fill(NONE);
    const strings = new JsonStrings(body);
    if (!new Scanner(body, strings, this.#root, starts).run()) return "invalid";
    return body[spaceEnd(body, 0)] === OPEN_BRACE ? new JsonScan(body, strings, starts) : "not_object";
  }
}

function memberOf(level: Member[], name: string): Member {
  const known = level.find((member) => member.name === name);
  if (known) return known;
  const isAscii = Buffer.byteLength(name) === name.length;
  const member = { name, isAscii, slot: NONE, beneath: [], inner: null };
  level.push(member);
  return member;
}

/** What a valid body has at the paths that it was scanned for. Values are read when asked for. */
export class JsonScan {
  readonly body: Buffer;
  readonly strings: JsonStrings;
  readonly #starts: Int32Array;

  constructor(body: Buffer, strings: JsonStrings, starts: Int32Array) {
    this.body = body;
    this.strings = strings;
    this.#starts = starts;
  }

  /** Where the value of the path starts, or NONE. */
  start(slot: number): number {
    return this.#starts[slot];
  }

  /** Whether the value at the path is `true`. */
  isTrue(slot: number): boolean {
    const at = this.#starts[slot];
    return at !== NONE && this.body[at] === SMALL_T;
  }

  /** Whether there is a value at the path, `null` apart. */
  has(slot: number): boolean {
    const at = this.#starts[slot];
    return at !== NONE && this.body[at] !== SMALL_N;
  }

  /** The string at the path, undefined where there is none or something else. */
  string(slot: number): string | undefined {
    const at = this.#starts[slot];
    if (at === NONE || this.body[at] !== QUOTE) return undefined;
    return decoded(this.body, at, this.strings.end(at + 1));
  }

  /** The digits of the integer at the path, as they stand there, undefined where there is none or something else. */
  integer(slot: number): string | undefined {
    const at = this.#starts[slot];
    if (at === NONE) return undefined;
    const byte = this.body[at];
    if (byte === QUOTE || byte === OPEN_BRACE || byte === OPEN_BRACKET) return undefined;
    const text = this.body.toString("latin1", at, scalarEnd(this.body, this.strings, at));
    return /^-?\d+$/.test(text) ? text : undefined;
  }
}

/** One pass over a body. */
class Scanner {
  readonly #body: Buffer;
  readonly #strings: JsonStrings;
  readonly #starts: Int32Array;
  readonly #open = new Nesting();
  /** What is looked for in each of the outermost open objects, as far in as paths lead ... */
  readonly #levels: (readonly Member[])[];
  /** ... and how many these are. */
  #reach = 1;

  constructor(body: Buffer, strings: JsonStrings, root: readonly Member[], starts: Int32Array) {
    this.#body = body;
    this.#strings = strings;
    this.#levels = [root];
    this.#starts = starts;
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

  /** Opens the containers that start at `at`, one in the other; returns the end of the innermost first value. */
  #descend(at: number): number {
    const body = this.#body;
    while (at !== NONE) {
      const byte = byteAt(body, at);
      if (byte !== OPEN_BRACE && byte !== OPEN_BRACKET) return scalarEnd(body, this.#strings, at);
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
      if (this.#open.depth < this.#reach) this.#reach--;
    }
    return at;
  }

  /** Reads a member's name and colon; returns the start of its value. */
  #name(at: number): number {
    const body = this.#body;
    if (byteAt(body, at) !== QUOTE) return NONE;
    const end = this.#strings.end(at + 1);
    if (end === NONE) return NONE;
    const colon = spaceEnd(body, end);
    if (byteAt(body, colon) !== COLON) return NONE;
    const value = spaceEnd(body, colon + 1);
    // Below the paths' reach, names are of no interest.
    if (this.#open.depth === this.#reach) this.#note(at + 1, end - 1, value);
    return value;
  }

  /** Notes where a member's value starts, in place of any earlier member of that name and of what was in it. */
  #note(nameAt: number, nameEnd: number, value: number): void {
    const member = named(this.#levels[this.#reach - 1], this.#body, nameAt, nameEnd);
    if (member === undefined) return;
    if (member.slot !== NONE) this.#starts[member.slot] = value;
    for (const slot of member.beneath) this.#starts[slot] = NONE;
    if (member.inner && this.#opensObject(value)) this.#levels[this.#reach++] = member.inner;
  }

  /** Whether an object that is not empty starts at `at`: the container that is opened next. */
  #opensObject(at: number): boolean {
    if (byteAt(this.#body, at) !== OPEN_BRACE) return false;
    return byteAt(this.#body, spaceEnd(this.#body, at + 1)) !== CLOSE_BRACE;
  }
}

/** The member whose name the string contents from `at` to `end` are. */
function named(level: readonly Member[], body: Buffer, at: number, end: number): Member | undefined {
  return level.find(({ name, isAscii }) => (isAscii ? spells : spellsAny)(body, at, end, name));
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
