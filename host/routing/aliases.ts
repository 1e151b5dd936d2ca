// Other names of bindings: the ids of answers, by which a later request may refer to its session.

import { Chains, NONE } from "./chains.js";

/** Names that one binding keeps: the latest ones. */
const MOST_PER_BINDING = 16;

// A record's words: the hash of the name, the binding, its list of names, newest first, and the index's link.
const STRIDE = 8;
const BINDING = 4;
const NEWER = 5;
const OLDER = 6;
const LINK = 7;

/** Names of bindings, up to a number in all; beyond that the oldest give way. */
export class AliasTable {
  readonly #records: Int32Array;
  readonly #byHash: Chains;
  readonly #capacity: number;
  /** Newest name of each binding. */
  readonly #newest: Int32Array;
  /** Records that were in use once and are free, through their OLDER words. */
  #free = NONE;
  /** Records that were ever in use. */
  #used = 0;
  /** The record that gives way next where all are in use. */
  #hand = 0;

  constructor(bindings: number, capacity: number) {
    this.#capacity = capacity;
    this.#records = new Int32Array((capacity + 1) * STRIDE);
    const words = this.#records;
    const link = { words, stride: STRIDE, word: LINK };
    this.#byHash = new Chains({ words, stride: STRIDE, word: 0 }, link, capacity);
    this.#newest = new Int32Array(bindings + 1);
  }

  /** The binding that a name stands for, or NONE. */
  find(hash: Int32Array): number {
    const record = this.#find(hash);
    return record === NONE ? NONE : this.#records[record * STRIDE + BINDING]!;
  }

  /** Makes a name stand for a binding, whatever it stood for before. */
  add(hash: Int32Array, binding: number): void {
    const known = this.#find(hash);
    if (known !== NONE) this.#remove(known);
    const record = this.#take();
    const at = record * STRIDE;
    this.#records.set(hash, at);
    this.#records[at + BINDING] = binding;
    this.#link(record, binding);
    this.#byHash.add(record);
    this.#trim(binding);
  }

  /** Forgets all names of a binding. */
  forget(binding: number): void {
    while (this.#newest[binding] !== NONE) this.#remove(this.#newest[binding]!);
  }

  #find(hash: Int32Array): number {
    const records = this.#records;
    let record = this.#byHash.first(hash[0]!);
    while (record !== NONE) {
      const at = record * STRIDE;
      const same =
        records[at] === hash[0] &&
        records[at + 1] === hash[1] &&
        records[at + 2] === hash[2] &&
        records[at + 3] === hash[3];
      if (same) return record;
      record = this.#byHash.next(record);
    }
    return NONE;
  }

  #take(): number {
    if (this.#free === NONE && this.#used === this.#capacity) {
      this.#hand = (this.#hand % this.#capacity) + 1;
      this.#remove(this.#hand);
    }
    const record = this.#free;
    if (record === NONE) return ++this.#used;
    this.#free = this.#records[record * STRIDE + OLDER]!;
    return record;
  }

  #link(record: number, binding: number): void {
    const older = this.#newest[binding]!;
    this.#records[record * STRIDE + NEWER] = NONE;
    this.#records[record * STRIDE + OLDER] = older;
    if (older !== NONE) this.#records[older * STRIDE + NEWER] = record;
    this.#newest[binding] = record;
  }

  #remove(record: number): void {
    const records = this.#records;
    const at = record * STRIDE;
    const newer = records[at + NEWER]!;
    const older = records[at + OLDER]!;
    this.#byHash.remove(record);
    if (newer === NONE) this.#newest[records[at + BINDING]!] = older;
    else records[newer * STRIDE + OLDER] = older;
    if (older !== NONE) records[older * STRIDE + NEWER] = newer;
    records[at + OLDER] = this.#free;
    this.#free = record;
  }

  #trim(binding: number): void {
    let record = this.#newest[binding]!;
    for (let count = 1; record !== NONE; count++) {
      const older = this.#records[record * STRIDE + OLDER]!;
      if (count > MOST_PER_BINDING) this.#remove(record);
      record = older;
    }
  }
}
