// Random cases: small ones with many ties for the most part, and extremes.
import { type ColumnName, FIELDS, type FieldName } from "../abi/frame.js";
import { SeedGenerator } from "../policy/random.js";

/** A case as `policy run` reads it. */
export interface FrameCase {
  readonly loads: readonly number[];
  readonly eligible?: readonly number[];
  readonly bound?: number;
  readonly request?: Readonly<Record<string, number | string | readonly string[]>>;
  readonly columns?: Readonly<Record<string, readonly number[]>>;
}

const I32_MAX = 2 ** 31 - 1;
const U32_MAX = 2 ** 32 - 1;
const EXTREMES = [0, 1, I32_MAX, I32_MAX - 1, 2 ** 30];
/** Loads go from 0 to one of these. */
const SCALES = [1, 3, 3, 10, 40, 1_000, 1_000_000];
const FIELD_TYPES = new Map<string, string>(FIELDS.map(({ name, type }) => [name, type]));

/** Draws cases for what policies read; the same seed draws the same cases. */
export class FrameSource {
  readonly #random: SeedGenerator;
  readonly #reads: readonly (FieldName | ColumnName)[];

  constructor(reads: readonly (FieldName | ColumnName)[], seed: number) {
    this.#reads = [...new Set(reads)];
    this.#random = new SeedGenerator(seed);
  }

  /** A case of 1 to `capacity` rows, seldom a large one. Everything that is read is in it. */
  next(capacity: number): FrameCase {
    const rows = this.#rows(capacity);
    const eligible = this.#eligible(rows);
    const bound = this.#below(rows + 1) - 1;
    const request: Record<string, number | string | readonly string[]> = {};
    const columns: Record<string, readonly number[]> = {};
    for (const name of this.#reads) {
      if (FIELD_TYPES.has(name)) request[name] = this.#field(name);
      else if (name !== "eligible" && name !== "active_requests") columns[name] = this.#column(name, rows);
    }
    return {
      loads: this.#counts(rows),
      ...(eligible && { eligible }),
      ...(bound >= 0 && { bound }),
      ...(Object.keys(request).length > 0 && { request }),
      ...(Object.keys(columns).length > 0 && { columns }),
    };
  }

  #rows(capacity: number): number {
    const kind = this.#below(20);
    if (kind === 0) return capacity;
    const most = kind < 13 ? 6 : kind < 18 ? 40 : capacity;
    return 1 + this.#below(Math.min(most, capacity));
  }

  #eligible(rows: number): number[] | undefined {
    const kind = this.#below(8);
    if (kind < 4) return undefined;
    const only = this.#below(rows);
    return Array.from({ length: rows }, (_, row) => {
      if (kind === 4) return Number(row === only);
      return Number(kind === 5 ? this.#below(50) === 0 : this.#below(4) > 0);
    });
  }

  #counts(rows: number, least = 0): number[] {
    const hasExtremes = this.#below(8) === 0;
    const most = SCALES[this.#below(SCALES.length)]!;
    return Array.from({ length: rows }, () => {
      if (hasExtremes && this.#below(2) === 0) return EXTREMES[this.#below(EXTREMES.length)]!;
      return least + this.#below(most - least + 1);
    });
  }

  #column(name: string, rows: number): readonly number[] {
    switch (name) {
      case "worker_hash":
        return this.#hashes(rows);
      case "kv_used":
        return Array.from({ length: rows }, () => this.#below(1_002) - 1);
      case "queue_depth":
        return this.#counts(rows, -1);
      case "weight":
        return Array.from({ length: rows }, () => [100, 100, 1, 50, 200, 10_000][this.#below(6)]!);
      default:
        return this.#counts(rows);
    }
  }

  /** Unique, as workers' hashes are. */
  #hashes(rows: number): number[] {
    const hashes = new Set<number>();
    while (hashes.size < rows) hashes.add(this.#word());
    return [...hashes];
  }

  #field(name: string): number | string | readonly string[] {
    if (name === "trigger") return this.#below(4);
    switch (FIELD_TYPES.get(name)) {
      case "f64":
        return [0, this.#word(), this.#word() * 1_000][this.#below(3)]!;
      case "u64":
        return this.#hex();
      case "u64[16]":
        return Array.from({ length: this.#below(17) }, () => this.#hex());
      default:
        return [0, 1, this.#below(100), this.#below(100_000), U32_MAX][this.#below(5)]!;
    }
  }

  #hex(): string {
    if (this.#below(10) === 0) return ["0x0", "0xffffffffffffffff"][this.#below(2)]!;
    return `0x${this.#word().toString(16)}${this.#word().toString(16).padStart(8, "0")}`;
  }

  #word(): number {
    this.#random.next();
    return this.#random.low >>> 0;
  }

  /** An integer from 0 to `count - 1`. */
  #below(count: number): number {
    return Math.floor((this.#word() / 2 ** 32) * count);
  }
}
