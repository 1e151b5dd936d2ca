// Bytes that have to wait, held so that they cost what they count: a piece on its own costs some hundred bytes beside its own,
// and one that was cut out of a connection's read buffer keeps all of that.

const SMALLEST_BLOCK = 4_096;
const LARGEST_BLOCK = 65_536;
/** A block is as large as what comes, or this part of what is there already. */
const SHARE = 8;
/** What a piece may keep beside itself: some times its length, and a little in any case. */
const SLACK = 4;
const LITTLE = 4_096;

const NOTHING = Buffer.alloc(0);

/** A piece that may be held: itself, or a copy where it would keep a buffer much larger than it is. */
export function tight(piece: Buffer): Buffer {
  return piece.buffer.byteLength <= piece.length * SLACK + LITTLE ? piece : copyOf(piece);
}

function copyOf(piece: Buffer): Buffer {
  // Not from Node's pool: the smallest piece would keep 8 KB.
  const copy = Buffer.allocUnsafeSlow(piece.length);
  piece.copy(copy);
  return copy;
}

/** Bytes that come in pieces and are needed as one. What it holds is at most about twice their number. */
export class Gathered {
  #block: Buffer = NOTHING;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** All of them; no copy. */
  get bytes(): Buffer {
    return this.#block.subarray(0, this.#size);
  }

  /** Adds a piece; of `expected` bytes in all, where that is known, the last are not made room for twice. A first piece is not copied unless it must be. */
  push(piece: Buffer, expected = Number.POSITIVE_INFINITY): void {
    const needed = this.#size + piece.length;
    if (this.#size === 0) this.#block = tight(piece);
    else {
      if (needed > this.#block.length) this.#grow(needed, expected);
      piece.copy(this.#block, this.#size);
    }
    this.#size = needed;
  }

  clear(): void {
    this.#block = NOTHING;
    this.#size = 0;
  }

  #grow(needed: number, expected: number): void {
    const room = Math.max(needed, Math.min(Math.max(2 * needed, SMALLEST_BLOCK), expected));
    const block = Buffer.allocUnsafeSlow(room);
    this.#block.copy(block, 0, 0, this.#size);
    this.#block = block;
  }
}

/** Bytes that come in pieces and are taken in blocks, first in, first out. What it holds is an eighth more than their number, and a block. */
export class Backlog {
  /** All of them full, but for the last. */
  readonly #blocks: Buffer[] = [];
  /** Bytes in the last. */
  #filled = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Copies a piece. */
  push(piece: Buffer): void {
    for (let at = 0; at < piece.length; ) {
      const last = this.#blocks.at(-1);
      const block = last !== undefined && this.#filled < last.length ? last : this.#open(piece.length - at);
      const copied = piece.copy(block, this.#filled, at);
      this.#filled += copied;
      this.#size += copied;
      at += copied;
    }
  }

  /** The next block, undefined where there is none. */
  shift(): Buffer | undefined {
    const block = this.#blocks.shift();
    if (block === undefined) return undefined;
    const bytes = this.#blocks.length > 0 ? block : tight(block.subarray(0, this.#filled));
    this.#size -= bytes.length;
    return bytes;
  }

  clear(): void {
    this.#blocks.length = 0;
    this.#size = 0;
  }

  #open(coming: number): Buffer {
    const size = Math.min(LARGEST_BLOCK, Math.max(SMALLEST_BLOCK, coming, this.#size / SHARE));
    const block = Buffer.allocUnsafeSlow(Math.floor(size));
    this.#blocks.push(block);
    this.#filled = 0;
    return block;
  }
}
