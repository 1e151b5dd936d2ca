// The id of an answer of /v1/responses, read from its bytes as they pass.

import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from "./json-text.js";
import { shortId, trimmedJson } from "./values.js";

/** Bytes of an answer that are looked through: the id stands near its beginning. */
const REACH = 65_536;
/** Most bytes of a string that are kept: an id of 256 bytes, each of them as an escape, with two quotes. */
const MAX_STRING = 256 * 6 + 2;

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

const DATA = Buffer.from("data:");
const IN_DATA = DATA.length;
const NOT_DATA = -1;

/** Finds the id of one answer. Keeps nothing of the answer but the string that it is in. */
export class ResponseIdReader {
  #reader: MemberReader | EventReader | null;
  #left = REACH;
  #id: string | undefined;

  /** `contentType` is the answer's; of types other than JSON and event streams no id is found. */
  constructor(contentType: string | undefined) {
    const type = contentType?.replace(/;.*/s, "").trim().toLowerCase();
    if (type === "application/json") this.#reader = new MemberReader(["id"]);
    else this.#reader = type === "text/event-stream" ? new EventReader(["response", "id"]) : null;
  }

  /** Takes the next bytes, which it does not change; returns the id once that is known. */
  push(chunk: Buffer): string | undefined {
    const reader = this.#reader;
    if (reader === null) return this.#id;
    const end = Math.min(chunk.length, this.#left);
    for (let at = 0; at < end && this.#id === undefined; at++) this.#id = reader.push(chunk[at]);
    this.#left -= end;
    if (this.#id !== undefined || this.#left === 0) this.#reader = null;
    return this.#id;
  }
}

/** The data of a stream of events, line by line. */
class EventReader {
  readonly #path: readonly string[];
  #data: MemberReader;
  /** How many bytes of `data:` the line has begun with; IN_DATA after all of them, NOT_DATA in another field. */
  #field = 0;
  #isEmptyLine = true;
  #afterReturn = false;

  constructor(path: readonly string[]) {
    this.#path = path;
    this.#data = new MemberReader(path);
  }

  push(byte: number): string | undefined {
    const isSecondHalf = byte === LINE_FEED && this.#afterReturn;
    this.#afterReturn = byte === CARRIAGE_RETURN;
    if (isSecondHalf) return undefined;
    if (byte === LINE_FEED || byte === CARRIAGE_RETURN) return this.#endLine();
    this.#isEmptyLine = false;
    if (this.#field === IN_DATA) return this.#data.push(byte);
    if (this.#field !== NOT_DATA) this.#field = byte === DATA[this.#field] ? this.#field + 1 : NOT_DATA;
    return undefined;
  }

  /** An event ends with an empty line; until then its data goes on in the next `data` line. */
  #endLine(): undefined {
    if (this.#isEmptyLine) this.#data = new MemberReader(this.#path);
    else if (this.#field === IN_DATA) this.#data.push(LINE_FEED);
    this.#field = 0;
    this.#isEmptyLine = true;
  }
}

/** A string that is one member of a JSON text, byte by byte: the text may end anywhere after it. */
class MemberReader {
  readonly #path: readonly string[];
  /** Open containers, and how many of them are the objects that the path goes through. */
  #depth = 0;
  #reach = 0;
  /** Whether a value is due, not a name. */
  #isValue = true;
  /** Whether the last name in the object that the path has come to is the path's next. */
  #isNamed = true;
  #inString = false;
  #escaped = false;
  #string: number[] = [];

  constructor(path: readonly string[]) {
    this.#path = path;
  }

  push(byte: number): string | undefined {
    if (this.#inString) return this.#pushString(byte);
    switch (byte) {
      case QUOTE:
        this.#inString = true;
        this.#string = [QUOTE];
        break;
      case OPEN_BRACE:
      case OPEN_BRACKET:
        this.#open(byte === OPEN_BRACE);
        break;
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        this.#close();
        break;
      case COLON:
      case COMMA:
        if (this.#isHere()) this.#isValue = byte === COLON;
    }
    return undefined;
  }

  #pushString(byte: number): string | undefined {
    if (this.#isHere() && this.#string.length < MAX_STRING) this.#string.push(byte);
    if (this.#escaped) this.#escaped = false;
    else if (byte === BACKSLASH) this.#escaped = true;
    else if (byte === QUOTE) return this.#endString();
    return undefined;
  }

  #endString(): string | undefined {
    this.#inString = false;
    if (!this.#isHere()) return undefined;
    const isLast = this.#reach === this.#path.length;
    if (this.#isValue) return this.#isNamed && isLast ? shortId(trimmedJson(this.#text())) : undefined;
    this.#isNamed = this.#text() === this.#path[this.#reach - 1];
    return undefined;
  }

  /** Whether the innermost container is the one that the path has come to. */
  #isHere(): boolean {
    return this.#depth > 0 && this.#depth === this.#reach;
  }

  #open(isObject: boolean): void {
    const leadsOn = this.#depth === this.#reach && this.#isValue && this.#isNamed;
    this.#depth++;
    if (!leadsOn || !isObject || this.#reach === this.#path.length) return;
    this.#reach++;
    this.#isValue = false;
  }

  #close(): void {
    if (this.#isHere()) {
      this.#reach--;
      // Whatever follows in the object around it is another member.
      this.#isNamed = false;
    }
    this.#depth--;
  }

  /** The string just read, undefined if it is too long or not valid. */
  #text(): string | undefined {
    try {
      return JSON.parse(Buffer.from(this.#string).toString());
    } catch {
      return undefined;
    }
  }
}
