// Takes a body out of its chunks (RFC 9112, 7.1), strictly: a size is hexadecimal digits, every line ends in CR LF. Their
// extensions are bounded and dropped.

/** Most bytes of one chunk's extensions. */
export const MAX_EXTENSION_BYTES = 4_096;

const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const SEMICOLON = 59;
const DELETE = 127;

type State = "size" | "extension" | "sizeLf" | "data" | "dataCr" | "dataLf" | "done";

/** Decodes one body after another. */
export class ChunkedBody {
  /** Where in the bytes that were read last those of the body stand together now. */
  dataFrom = 0;
  dataTo = 0;
  /** What is wrong with what came behind those, empty where nothing is. */
  fault = "";
  #state: State = "size";
  #size = 0;
  #digits = 0;
  #extension = 0;

  /** Whether the last chunk was read: only the trailer is left. */
  get isDone(): boolean {
    return this.#state === "done";
  }

  /** Begins a body. */
  begin(): void {
    this.fault = "";
    this.#awaitSize();
  }

  /**
   * Takes the bytes `from` until `to`, and moves those of the body together, in place. Returns where it stopped: before the
   * trailer, or at a fault.
   */
  read(bytes: Buffer, from: number, to: number): number {
    this.dataFrom = this.dataTo = from;
    let at = from;
    while (at < to && this.#state !== "done" && this.fault === "") {
      if (this.#state === "data") at = this.#takeData(bytes, at, to);
      else this.#takeByte(bytes[at++]!);
    }
    return at;
  }

  #takeData(bytes: Buffer, at: number, to: number): number {
    const end = Math.min(to, at + this.#size);
    if (this.dataTo === this.dataFrom) this.dataFrom = at;
    else bytes.copyWithin(this.dataTo, at, end);
    this.dataTo = Math.max(this.dataTo, this.dataFrom) + end - at;
    this.#size -= end - at;
    if (this.#size === 0) this.#state = "dataCr";
    return end;
  }

  #takeByte(byte: number): void {
    switch (this.#state) {
      case "size":
        this.#takeSize(byte);
        break;
      case "extension":
        if (byte === CR) this.#state = "sizeLf";
        else if ((byte < SPACE && byte !== TAB) || byte === DELETE) this.#fail("has a control character");
        else if (++this.#extension > MAX_EXTENSION_BYTES) this.#fail("is too long");
        break;
      case "sizeLf":
        if (byte !== LF) this.#fail("does not end in CR LF");
        else this.#state = this.#size > 0 ? "data" : "done";
        break;
      case "dataCr":
        if (byte !== CR) this.#fail("is not behind the end of a chunk");
        else this.#state = "dataLf";
        break;
      default:
        if (byte !== LF) this.#fail("is not behind the end of a chunk");
        else this.#awaitSize();
    }
  }

  #takeSize(byte: number): void {
    const digit = hexOf(byte);
    if (digit >= 0) {
      this.#size = this.#size * 16 + digit;
      if (++this.#digits > 16 || this.#size > Number.MAX_SAFE_INTEGER) this.#fail("is beyond any counter");
    } else if (this.#digits === 0) this.#fail("is no number");
    else if (byte === CR) this.#state = "sizeLf";
    else if (byte === SEMICOLON) this.#state = "extension";
    else this.#fail("is no number");
  }

  #awaitSize(): void {
    this.#state = "size";
    this.#size = this.#digits = this.#extension = 0;
  }

  #fail(what: string): void {
    this.fault = `the size of a chunk of its body ${what}`;
  }
}

/** The value of a hexadecimal digit, -1 for any other byte. */
function hexOf(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}
