// A hash index over numbered records, in flat memory: made once at its full size, so that it never stops to grow. Memory
// that was never written costs nothing.

/** No record: records are numbered from 1, so that fresh memory is an empty index. */
export const NONE = 0;

/** A word of every record: record `r` has it in `words[r * stride + word]`. */
export interface Field {
  readonly words: Int32Array;
  readonly stride: number;
  readonly word: number;
}

/** Finds records by a word of a hash that they hold. */
export class Chains {
  readonly #hashes: Int32Array;
  readonly #hashStride: number;
  readonly #hashWord: number;
  /** The next record of the same bucket. */
  readonly #links: Int32Array;
  readonly #linkStride: number;
  readonly #linkWord: number;
  /** First record of each bucket. */
  readonly #heads: Int32Array;
  readonly #mask: number;

  /** For at most `count` records; `link` is the index's own to write. */
  constructor(hash: Field, link: Field, count: number) {
    this.#hashes = hash.words;
    this.#hashStride = hash.stride;
    this.#hashWord = hash.word;
    this.#links = link.words;
    this.#linkStride = link.stride;
    this.#linkWord = link.word;
    let buckets = 16;
    while (buckets < count * 2) buckets *= 2;
    this.#heads = new Int32Array(buckets);
    this.#mask = buckets - 1;
  }

  /** The first record that may have this hash, or NONE. */
  first(hash: number): number {
    return this.#heads[hash & this.#mask]!;
  }

  /** The next one after a record. */
  next(record: number): number {
    return this.#links[this.#linkOf(record)]!;
  }

  /** Adds a record that is not in the index; its hash must not change while it is. */
  add(record: number): void {
    const bucket = this.#bucketOf(record);
    this.#links[this.#linkOf(record)] = this.#heads[bucket]!;
    this.#heads[bucket] = record;
  }

  /** Takes out a record that is in the index. */
  remove(record: number): void {
    const bucket = this.#bucketOf(record);
    const next = this.next(record);
    let at = this.#heads[bucket]!;
    if (at === record) {
      this.#heads[bucket] = next;
      return;
    }
    while (this.next(at) !== record) at = this.next(at);
    this.#links[this.#linkOf(at)] = next;
  }

  #bucketOf(record: number): number {
    return this.#hashes[record * this.#hashStride + this.#hashWord]! & this.#mask;
  }

  #linkOf(record: number): number {
    return record * this.#linkStride + this.#linkWord;
  }
}
