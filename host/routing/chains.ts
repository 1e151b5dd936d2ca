// A hash index over numbered records, in flat memory: made once at its full size, so that it never stops to grow. Memory
// that was never written costs nothing.

/** No record: records are numbered from 1, so that fresh memory is an empty index. */
export const NONE = 0;

/** Finds records by a word of a hash that they hold. */
export class Chains {
  readonly #records: Int32Array;
  readonly #stride: number;
  readonly #word: number;
  readonly #mask: number;
  /** First record of each bucket. */
  readonly #heads: Int32Array;
  /** The next one, by record. */
  readonly #links: Int32Array;

  /** Record `r` has its hash in `records[r * stride + word]`; there are at most `count` records. */
  constructor(records: Int32Array, stride: number, word: number, count: number) {
    let buckets = 16;
    while (buckets < count) buckets *= 2;
    this.#records = records;
    this.#stride = stride;
    this.#word = word;
    this.#mask = buckets - 1;
    this.#heads = new Int32Array(buckets);
    this.#links = new Int32Array(count + 1);
  }

  /** The first record that may have this hash, or NONE. */
  first(hash: number): number {
    return this.#heads[hash & this.#mask]!;
  }

  /** The next one after a record. */
  next(record: number): number {
    return this.#links[record]!;
  }

  /** Adds a record that is not in the index; its hash must not change while it is. */
  add(record: number): void {
    const bucket = this.#bucket(record);
    this.#links[record] = this.#heads[bucket]!;
    this.#heads[bucket] = record;
  }

  /** Takes out a record that is in the index. */
  remove(record: number): void {
    const bucket = this.#bucket(record);
    const next = this.#links[record]!;
    let at = this.#heads[bucket]!;
    if (at === record) {
      this.#heads[bucket] = next;
      return;
    }
    while (this.#links[at] !== record) at = this.#links[at]!;
    this.#links[at] = next;
  }

  #bucket(record: number): number {
    return this.#records[record * this.#stride + this.#word]! & this.#mask;
  }
}
