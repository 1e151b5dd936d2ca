// The rows a policy chooses from: the host's own arrays, which are the truth, and their mirror in the module's memory.

import { COLUMNS, type ColumnName, type Columns, type Frame, strideOf, WORD } from "../abi/frame.js";

/** Columns that every policy sees, whatever its manifest reads. */
const ALWAYS: ReadonlySet<string> = new Set<ColumnName>(["eligible", "active_requests"]);

/** One row per worker of a pool, ordered by worker id. */
export class Candidates {
  /** Rows in use. */
  n = 0;
  /** Rows with `eligible = 1`. */
  eligibleCount = 0;
  readonly capacity: number;
  /** What holds, whatever a policy does to its memory. */
  readonly truth: Columns;
  /** What the policy sees. A column it does not read is the truth itself here, so that a write needs no branch. */
  #mirror: Columns;
  /** Tokens per KV-cache block, 0 unknown: of the pool, not of a row. */
  #blockTokens = 0;
  /** The header that is shown it, where the policy reads it. */
  #header: Uint32Array | null = null;

  constructor(capacity: number) {
    this.capacity = capacity;
    const columns: Record<string, Uint8Array | Int32Array> = {};
    for (const { name, type } of COLUMNS) {
      columns[name] = new (type === "u8" ? Uint8Array : Int32Array)(strideOf(capacity));
    }
    this.truth = columns as unknown as Columns;
    this.#mirror = this.truth;
  }

  /** Shows the rows to a policy through `frame`, from now on, in the columns it reads. */
  mirrorTo(frame: Frame, reads: readonly string[]): void {
    const mirror: Record<string, Uint8Array | Int32Array> = { ...this.truth };
    for (const { name } of COLUMNS) {
      if (!ALWAYS.has(name) && !reads.includes(name)) continue;
      mirror[name] = frame.columns[name];
      frame.columns[name].set(this.truth[name]);
    }
    this.#mirror = mirror as unknown as Columns;
    this.#header = reads.includes("block_tokens") ? frame.words : null;
    this.setBlockTokens(this.#blockTokens);
  }

  /** The same rows, shown to no policy. */
  copy(): Candidates {
    const copy = new Candidates(this.capacity);
    copy.n = this.n;
    copy.eligibleCount = this.eligibleCount;
    copy.#blockTokens = this.#blockTokens;
    for (const { name } of COLUMNS) copy.truth[name].set(this.truth[name]);
    return copy;
  }

  /** Sets one value. `eligible` has a setter of its own. */
  set(column: Exclude<ColumnName, "eligible">, row: number, value: number): void {
    this.truth[column][row] = value;
    this.#mirror[column][row] = value;
  }

  get blockTokens(): number {
    return this.#blockTokens;
  }

  /** Sets the tokens per KV-cache block, 0 unknown. */
  setBlockTokens(tokens: number): void {
    this.#blockTokens = tokens;
    if (this.#header) this.#header[WORD.block_tokens] = tokens;
  }

  /** Requests in flight on the row's worker: the one column that changes with every request. */
  setActiveRequests(row: number, value: number): void {
    this.truth.active_requests[row] = value;
    this.#mirror.active_requests[row] = value;
  }

  /** Whether the row may be chosen. */
  setEligible(row: number, eligible: boolean): void {
    const value = eligible ? 1 : 0;
    this.eligibleCount += value - this.truth.eligible[row]!;
    this.truth.eligible[row] = value;
    this.#mirror.eligible[row] = value;
  }

  /** The host's built-in rule, for when a policy fails: the least-loaded eligible row, the lowest on a tie; -1 where none is. */
  leastLoaded(): number {
    const { eligible, active_requests } = this.truth;
    let best = -1;
    for (let row = 0; row < this.n; row++) {
      if (eligible[row] === 0) continue;
      if (best < 0 || active_requests[row]! < active_requests[best]!) best = row;
    }
    return best;
  }
}
