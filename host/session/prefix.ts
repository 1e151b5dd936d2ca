// Request -> a key from how its conversation begins: its system prompt and its first user message.
//
// The body has been found valid. It is walked by index, and only one of its strings is decoded at a time, so that the
// time is in proportion to the bytes whatever they are.

import { createHash } from "node:crypto";
import type { JsonPaths, JsonScan } from "./json-scan.js";
import type { JsonStrings } from "./json-strings.js";
import {
  BACKSLASH,
  decoded,
  firstIn,
  memberValue,
  NONE,
  nextAfter,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  spells,
  valueEnd,
} from "./json-text.js";

/** Hexadecimal digits of a key. */
const DIGITS = 32;
/** Most messages among which the first one of a user is looked for. */
const MAX_MESSAGES = 1_024;
/** Most texts and blocks that count, of the system prompt and of the user message each: a hostile body has millions. */
const MAX_PARTS = 1_024;
const NO_BYTES = Buffer.alloc(0);

/** Finds the beginning of a conversation in the bodies of the chat, completions, responses and messages endpoints. */
export class PrefixReader {
  readonly #system: number;
  readonly #instructions: number;
  readonly #messages: number;
  readonly #input: number;
  readonly #prompt: number;

  /** `paths` is what the bodies will be scanned for. */
  constructor(paths: JsonPaths) {
    this.#system = paths.slot(["system"]);
    this.#instructions = paths.slot(["instructions"]);
    this.#messages = paths.slot(["messages"]);
    this.#input = paths.slot(["input"]);
    this.#prompt = paths.slot(["prompt"]);
  }

  /** The key, undefined where there is no user message, or one that is empty. */
  key(scan: JsonScan): string | undefined {
    const beginning = new Beginning(scan);
    beginning.addSystem(scan.start(this.#system));
    beginning.addSystem(scan.start(this.#instructions));
    const found =
      beginning.addList(scan.start(this.#messages)) ||
      beginning.addList(scan.start(this.#input)) ||
      beginning.addText(scan.start(this.#input)) ||
      beginning.addText(scan.start(this.#prompt));
    return found ? `prefix:${beginning.digest()}` : undefined;
  }
}

/** A conversation's beginning in the making. */
class Beginning {
  readonly #body: Buffer;
  readonly #strings: JsonStrings;
  readonly #hash = new PartHash();

  constructor({ body, strings }: JsonScan) {
    this.#body = body;
    this.#strings = strings;
  }

  digest(): string {
    return this.#hash.digest();
  }

  /** Adds the system prompt at `at`, if there is one. */
  addSystem(at: number): void {
    if (at !== NONE) this.#addContent("system", at);
  }

  /** Adds what a list of messages begins with; whether there is such a list and a user's message in it. */
  addList(at: number): boolean {
    if (at === NONE || this.#body[at] !== OPEN_BRACKET) return false;
    let item = firstIn(this.#body, at);
    for (let count = 0; item !== NONE && count < MAX_MESSAGES; count++) {
      const [role, content] = this.#members(item, "role", "content");
      if (this.#says(role, "user")) return content !== NONE && this.#addContent("user", content);
      const isSystem = this.#says(role, "system") || this.#says(role, "developer");
      if (isSystem && content !== NONE) this.#addContent("system", content);
      item = nextAfter(this.#body, this.#strings, item);
    }
    return false;
  }

  /** Adds a user's message that is a bare string; whether there is one. */
  addText(at: number): boolean {
    return at !== NONE && this.#body[at] === QUOTE && this.#addContent("user", at);
  }

  /** Adds a message; whether it has any text or block. */
  #addContent(role: "system" | "user", at: number): boolean {
    const body = this.#body;
    if (body[at] !== QUOTE && body[at] !== OPEN_BRACKET) return false;
    this.#hash.message(role);
    if (body[at] === QUOTE) return this.#addString(at);
    let any = false;
    let block = firstIn(body, at);
    while (block !== NONE && !this.#hash.isFull) {
      if (this.#addBlock(block)) any = true;
      block = nextAfter(body, this.#strings, block);
    }
    return any;
  }

  #addBlock(at: number): boolean {
    const [text] = this.#members(at, "text", "text");
    if (text !== NONE && this.#body[text] === QUOTE) return this.#addString(text);
    this.#addRaw(at);
    return true;
  }

  /** Adds the bytes of a block without text, but for the `cache_control` that clients move from turn to turn. */
  #addRaw(at: number): void {
    const body = this.#body;
    if (body[at] !== OPEN_BRACE) {
      this.#hash.part("block", body.subarray(at, valueEnd(body, this.#strings, at)));
      return;
    }
    this.#hash.part("block", NO_BYTES);
    let name = firstIn(body, at);
    while (name !== NONE && !this.#hash.isFull) {
      const value = memberValue(body, this.#strings, name);
      const nameEnd = this.#strings.end(name + 1);
      if (!spells(body, name + 1, nameEnd - 1, "cache_control")) {
        this.#hash.part("name", body.subarray(name, nameEnd));
        this.#hash.part("value", body.subarray(value, valueEnd(body, this.#strings, value)));
      }
      name = nextAfter(body, this.#strings, value);
    }
  }

  #addString(at: number): boolean {
    const end = this.#strings.end(at + 1);
    const contents = this.#body.subarray(at + 1, end - 1);
    if (contents.length === 0) return false;
    const plain = !contents.includes(BACKSLASH);
    this.#hash.part("text", plain ? contents : Buffer.from(decoded(this.#body, at, end)));
    return true;
  }

  /**
   * Where the values of the first members of these names start in the object at `at`, each NONE where there is none. The
   * first and not the last, unlike in JSON.parse: so that a long value behind them need not be walked.
   */
  #members(at: number, one: string, other: string): [one: number, other: number] {
    const body = this.#body;
    const found: [number, number] = [NONE, NONE];
    let member = body[at] === OPEN_BRACE ? firstIn(body, at) : NONE;
    while (member !== NONE) {
      const value = memberValue(body, this.#strings, member);
      const nameEnd = this.#strings.end(member + 1) - 1;
      if (found[0] === NONE && spells(body, member + 1, nameEnd, one)) found[0] = value;
      if (found[1] === NONE && spells(body, member + 1, nameEnd, other)) found[1] = value;
      if (found[0] !== NONE && found[1] !== NONE) break;
      member = nextAfter(body, this.#strings, value);
    }
    return found;
  }

  #says(at: number, text: string): boolean {
    if (at === NONE || this.#body[at] !== QUOTE) return false;
    return spells(this.#body, at + 1, this.#strings.end(at + 1) - 1, text);
  }
}

/** SHA-256 over parts, each with its kind and length before it, so that no two lists of parts give the same bytes. */
class PartHash {
  readonly #hash = createHash("sha256");
  #left = MAX_PARTS;

  /** Whether any more parts count. */
  get isFull(): boolean {
    return this.#left === 0;
  }

  /** Begins with a message; of a user's, as many parts count as of the system prompt. */
  message(role: "system" | "user"): void {
    if (role === "user") this.#left = MAX_PARTS;
    if (!this.isFull) this.#hash.update(`${role};`);
  }

  part(kind: "text" | "block" | "name" | "value", bytes: Buffer): void {
    if (this.isFull) return;
    this.#left--;
    this.#hash.update(`${kind} ${bytes.length};`).update(bytes);
  }

  digest(): string {
    return this.#hash.digest("hex").slice(0, DIGITS);
  }
}
