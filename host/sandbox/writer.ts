// Writes WebAssembly's binary format.

/** Bytes that grow. */
export class Writer {
  #bytes = new Uint8Array(1024);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Appends single bytes, each from 0 to 255. */
  byte(...values: readonly number[]): this {
    return this.bytes(values);
  }

  bytes(values: ArrayLike<number>): this {
    this.#reserve(values.length);
    this.#bytes.set(values, this.#length);
    this.#length += values.length;
    return this;
  }

  /** Unsigned LEB128 of 32 bits. */
  u32(value: number): this {
    let rest = value;
    for (; rest >= 0x80; rest >>>= 7) this.byte((rest & 0x7f) | 0x80);
    return this.byte(rest);
  }

  /** Signed LEB128 of 32 bits. */
  i32(value: number): this {
    let rest = value;
    for (; rest < -64 || rest >= 64; rest >>= 7) this.byte((rest & 0x7f) | 0x80);
    return this.byte(rest & 0x7f);
  }

  text(value: string): this {
    return this.sized(new Writer().bytes(new TextEncoder().encode(value)));
  }

  /** A length and what it counts. */
  sized(content: Writer): this {
    return this.u32(content.length).bytes(content.view());
  }

  /** What has been written. Valid until something more is. */
  view(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    grown.set(this.view());
    this.#bytes = grown;
  }
}
