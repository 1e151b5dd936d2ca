// The frame of affinity policy ABI 1: the block of a module's memory through which the host shows a policy
// what it decides about. This folder is the only host code that knows an offset; `assembly/sdk/frame.ts` is its twin.

/** Bytes of the frame's fixed part; the columns follow it. */
export const HEADER_BYTES = 448;
/** Bytes of all columns per row of the stride. */
export const COLUMN_BYTES_PER_ROW = 57;
/** Smallest capacity a host gives an instance. */
export const MIN_CAPACITY = 64;
/** Largest capacity: rows travel in 14 bits of the answer. */
export const MAX_CAPACITY = 16_384;
/** Parameters that fit into the frame. */
export const MAX_PARAMETERS = 32;

/** How a header field is stored. `u64` is two little-endian u32 words, low first; `u64[16]` is sixteen of them. */
export type FieldType = "f64" | "u32" | "u64" | "u64[16]";

export interface FieldLayout {
  readonly name: string;
  readonly type: FieldType;
  /** Byte offset from the frame's address. */
  readonly offset: number;
}

export interface ColumnLayout {
  readonly name: string;
  readonly type: "u8" | "i32";
  /** The column starts at `HEADER_BYTES + perRow * stride`. */
  readonly perRow: number;
  /** The value that means "not known", where a case or an engine leaves it out. */
  readonly unknown: 0 | -1;
}

/** Header fields that describe one decision, in the frame's order (`params` apart). */
export const FIELDS = [
  { name: "now", type: "f64", offset: 0 },
  { name: "seed", type: "u64", offset: 8 },
  { name: "session", type: "u64", offset: 16 },
  { name: "prompt_tokens", type: "u32", offset: 24 },
  { name: "prompt_blocks", type: "u32", offset: 28 },
  { name: "block_tokens", type: "u32", offset: 32 },
  { name: "trigger", type: "u32", offset: 36 },
  { name: "expected_output_tokens", type: "u32", offset: 40 },
  { name: "session_requests", type: "u32", offset: 44 },
  { name: "idle_ms", type: "u32", offset: 48 },
  { name: "prefix", type: "u64[16]", offset: 64 },
] as const satisfies readonly FieldLayout[];

const PARAMS_OFFSET = 192;

/** The columns, one value per row, in the frame's order. Later ones are appended, never reordered. */
export const COLUMNS = [
  { name: "eligible", type: "u8", perRow: 0, unknown: 0 },
  { name: "active_requests", type: "i32", perRow: 1, unknown: 0 },
  { name: "active_prefill_tokens", type: "i32", perRow: 5, unknown: 0 },
  { name: "active_blocks", type: "i32", perRow: 9, unknown: 0 },
  { name: "bound_sessions", type: "i32", perRow: 13, unknown: 0 },
  { name: "cached_blocks", type: "i32", perRow: 17, unknown: 0 },
  { name: "kv_used", type: "i32", perRow: 21, unknown: -1 },
  { name: "queue_depth", type: "i32", perRow: 25, unknown: -1 },
  { name: "weight", type: "i32", perRow: 29, unknown: 0 },
  { name: "worker_hash", type: "i32", perRow: 33, unknown: 0 },
  { name: "slots", type: "i32", perRow: 37, unknown: 0 },
  { name: "kv_blocks", type: "i32", perRow: 41, unknown: 0 },
  { name: "service_ms", type: "i32", perRow: 45, unknown: 0 },
  { name: "prefill_rate", type: "i32", perRow: 49, unknown: 0 },
  { name: "active_mean", type: "i32", perRow: 53, unknown: 0 },
] as const satisfies readonly ColumnLayout[];

export type FieldName = (typeof FIELDS)[number]["name"];
export type ColumnName = (typeof COLUMNS)[number]["name"];

/** Everything a manifest may name under `reads`. */
export const READABLE: readonly string[] = [...FIELDS, ...COLUMNS].map((entry) => entry.name);

/** Rows of a column in memory: the capacity rounded up to whole SIMD groups of sixteen. */
export function strideOf(capacity: number): number {
  return (capacity + 15) & ~15;
}

/** Bytes of a frame for `capacity` rows. */
export function frameBytes(capacity: number): number {
  return HEADER_BYTES + COLUMN_BYTES_PER_ROW * strideOf(capacity);
}

/** The capacity a pool of `rows` workers gets: a power of two, at least 64, at most 16,384. */
export function capacityFor(rows: number): number {
  let capacity = MIN_CAPACITY;
  while (capacity < rows) capacity *= 2;
  return capacity;
}

/** One array per column. */
export type Columns = { readonly [name in ColumnName]: name extends "eligible" ? Uint8Array : Int32Array };

/** Typed views of one frame in a module's memory. Writing an element is the whole cost of telling the policy. */
export class Frame {
  /** Monotonic milliseconds. */
  readonly now: Float64Array;
  /** The header as words: index `FIELDS[i].offset / 4`. */
  readonly words: Uint32Array;
  readonly params: Float64Array;
  readonly columns: Columns;

  /** Throws a RangeError where the frame does not lie inside `buffer` or is not 64-byte aligned. */
  constructor(buffer: ArrayBufferLike, address: number, capacity: number) {
    const stride = strideOf(capacity);
    if (address <= 0 || address % 64 !== 0 || address + frameBytes(capacity) > buffer.byteLength) {
      throw new RangeError(`a frame of ${capacity} rows cannot stand at address ${address}`);
    }
    this.now = new Float64Array(buffer, address, 1);
    this.words = new Uint32Array(buffer, address, PARAMS_OFFSET / 4);
    this.params = new Float64Array(buffer, address + PARAMS_OFFSET, MAX_PARAMETERS);
    const columns: Record<string, Uint8Array | Int32Array> = {};
    for (const { name, type, perRow } of COLUMNS) {
      const at = address + HEADER_BYTES + perRow * stride;
      columns[name] = type === "u8" ? new Uint8Array(buffer, at, stride) : new Int32Array(buffer, at, stride);
    }
    this.columns = columns as unknown as Columns;
  }
}

/** Word indices of the fields that a router writes. */
export const WORD = {
  seed: 2,
  session: 4,
  block_tokens: 8,
  session_requests: 11,
} as const;
