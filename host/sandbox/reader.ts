// A bounded, strict reader of WebAssembly's binary format.
import { AdmissionError } from "./error.js";

/** Reads a part of a module from front to back; reading past its end, or what the format forbids, is an AdmissionError. */
export class Reader {
  /**
   * Reads `bytes` from `at` up to `end`. `place` begins every refusal, such as `code section, function 3`.
   */
  constructor(
    readonly bytes: Uint8Array,
    readonly place: string,
    public at = 0,
    readonly end = bytes.length,
  ) {}

  get isAtEnd(): boolean {
    return this.at === this.end;
  }

  byte(what: string): number {
    if (this.at >= this.end) this.malformed(`it ends inside ${what}`);
    return this.bytes[this.at++]!;
  }

  /** Passes over `length` bytes and returns where they begin. */
  skip(length: number, what: string): number {
    if (length > this.end - this.at) {
      this.malformed(`${what} of ${length} bytes goes beyond the end, ${this.end - this.at} are left`);
    }
    this.at += length;
    return this.at - length;
  }

  /** LEB128 of 32 bits, at most five bytes; the bits beyond must be 0. Padding within the five bytes is allowed. */
  u32(what: string): number {
    let value = 0;
    for (let index = 0; ; index++) {
      const byte = this.byte(what);
      if (index === 4 && byte > 0x0f) this.malformed(`${what} is not a LEB128 number of 32 bits`);
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte < 0x80) return value;
    }
  }

  /** Signed LEB128 of 33 bits, which block types are. */
  s33(what: string): number {
    const start = this.at;
    this.skipSigned(33, what);
    let value = 0;
    for (let index = start; index < this.at; index++) {
      value += (this.bytes[index]! & 0x7f) * 2 ** (7 * (index - start));
    }
    const sign = 2 ** (7 * (this.at - start) - 1);
    return value >= sign ? value - 2 * sign : value;
  }

  /** Passes over a signed LEB128 of `bits`; the bits beyond must repeat the sign. */
  skipSigned(bits: number, what: string): void {
    const last = Math.ceil(bits / 7) - 1;
    for (let index = 0; ; index++) {
      const byte = this.byte(what);
      if (index === last && !isSignOf(byte, bits - 7 * last)) {
        this.malformed(`${what} is not a LEB128 number of ${bits} bits`);
      }
      if (byte < 0x80) return;
    }
  }

  /** A vector's length. Every element takes at least one byte, so that a length cannot promise more than there is. */
  count(what: string): number {
    const count = this.u32(`the number of ${what}`);
    if (count > this.end - this.at) {
      this.malformed(`${count} ${what} are announced, ${this.end - this.at} bytes are left`);
    }
    return count;
  }

  /** Text: its length and UTF-8. */
  text(what: string): string {
    const length = this.u32(`the length of ${what}`);
    const start = this.skip(length, what);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
        this.bytes.subarray(start, start + length),
      );
    } catch {
      return this.malformed(`${what} is not UTF-8`);
    }
  }

  /** A part of its own: the next `length` bytes. */
  part(length: number, place: string): Reader {
    const start = this.skip(length, place);
    return new Reader(this.bytes, place, start, start + length);
  }

  expectEnd(): void {
    if (!this.isAtEnd) this.malformed(`${this.end - this.at} bytes follow its end`);
  }

  /** Refuses what a policy may not have. */
  refuse(reason: string): never {
    throw new AdmissionError(`${this.place}: ${reason}`);
  }

  /** Refuses what no module may have. */
  malformed(reason: string): never {
    const place = `${this.place}, byte ${this.at}`;
    throw new AdmissionError(`the module is not valid WebAssembly: ${place}: ${reason}`);
  }
}

/** Whether a final byte ends the number, and its bits from `used` on repeat the sign bit. */
function isSignOf(byte: number, used: number): boolean {
  if (byte >= 0x80) return false;
  const high = byte >> (used - 1);
  return high === 0 || high === 0x7f >> (used - 1);
}
