// Reads the lines of a head, or of the trailer behind a body in chunks, from bytes that come in any pieces. It is strict:
// what two readers could take in two ways is no head (RFC 9112, 2.2 and 5).

import { MalformedAnswer } from "./answer.js";

/** Most bytes of a head, its line ends included; Node's own limit. */
export const MAX_HEAD_BYTES = 16_384;
/** Most fields of a head. */
export const MAX_FIELDS = 256;
/** So many bytes are looked at as text at once: enough for most heads, and little to waste on a body behind one. */
const SLICE_BYTES = 1_024;

const START = "HTTP/1.";
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/;
const ILLEGAL = /[^\t\x20-\x7e\x80-\xff]/;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const TAB = 9;
const CR = 13;
const SPACE = 32;

/** Reads one head or trailer after another. */
export class HeadReader {
  status = 0;
  message = "";
  /** Of the protocol's version, 0 or 1. */
  minor = 0;
  /** Names and values in turn. */
  fields: string[] = [];
  #isTrailer = false;
  #size = 0;
  /** The beginning of a line whose end is still to come. */
  #rest = "";

  /** Begins a head, or the fields of a trailer. */
  begin(isTrailer: boolean): void {
    this.status = 0;
    this.fields = [];
    this.#isTrailer = isTrailer;
    this.#size = 0;
    this.#rest = "";
  }

  /** Takes the bytes `from` until `to`. Returns where the head is over, -1 where it is not. Throws a MalformedAnswer. */
  read(bytes: Buffer, from: number, to: number): number {
    for (let at = from; at < to; at += SLICE_BYTES) {
      const text = bytes.toString("latin1", at, Math.min(to, at + SLICE_BYTES));
      let start = 0;
      for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
        const line = this.#rest + text.slice(start, end);
        this.#rest = "";
        start = end + 1;
        if (this.#isLast(line)) return at + start;
      }
      this.#keep(text.slice(start));
    }
    return -1;
  }

  #keep(rest: string): void {
    this.#rest += rest;
    if (this.#size + this.#rest.length > MAX_HEAD_BYTES) throw tooLarge();
    // One who speaks another protocol may never end the line.
    if (this.#awaitsStatus && !START.startsWith(this.#rest.slice(0, START.length))) throw noHttp();
  }

  get #awaitsStatus(): boolean {
    return this.status === 0 && !this.#isTrailer;
  }

  /** Takes a line, without its LF; true where it is the empty one, behind which the head is over. */
  #isLast(line: string): boolean {
    const length = line.length - 1;
    this.#size += length + 2;
    if (this.#size > MAX_HEAD_BYTES) throw tooLarge();
    if (line.charCodeAt(length) !== CR) throw new MalformedAnswer("a line of its head ends in a bare LF");
    if (this.#awaitsStatus) this.#takeStatus(line.slice(0, length));
    else if (length === 0) return true;
    else this.#takeField(line.slice(0, length));
    return false;
  }

  #takeStatus(line: string): void {
    const parts = STATUS_LINE.exec(line);
    if (!parts || ILLEGAL.test(line)) throw noHttp();
    this.minor = Number(parts[1]);
    this.status = Number(parts[2]);
    this.message = parts[3] ?? "";
  }

  #takeField(line: string): void {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon));
    // A line that begins with a space would go on with the one before it; a name ends at the colon.
    if (!NAME.test(name)) throw new MalformedAnswer("a line of its head is no field");
    if (ILLEGAL.test(line)) throw new MalformedAnswer("a field of its head has a control character");
    if (this.fields.length >= 2 * MAX_FIELDS) throw tooLarge();
    let start = colon + 1;
    let end = line.length;
    while (start < end && isBlank(line.charCodeAt(start))) start++;
    while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
    this.fields.push(name, line.slice(start, end));
  }
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}

function tooLarge(): MalformedAnswer {
  return new MalformedAnswer(
    `its head has more than ${MAX_HEAD_BYTES} bytes, or more than ${MAX_FIELDS} fields`,
  );
}

function noHttp(): MalformedAnswer {
  return new MalformedAnswer("its answer does not begin with a status line of HTTP/1.1 or HTTP/1.0");
}
