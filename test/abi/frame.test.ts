// The numbers of ABI 1, written out: an offset that moves breaks every module in the field.
import { describe, expect, test } from "vitest";
import {
  COLUMNS,
  capacityFor,
  FIELDS,
  Frame,
  frameBytes,
  HEADER_BYTES,
  MAX_CAPACITY,
  MAX_PARAMETERS,
  READABLE,
  strideOf,
  WORD,
} from "../../host/abi/frame.js";
import { FAILURES, REASON, REASON_NAMES } from "../../host/abi/reasons.js";

const FIELD_TABLE = [
  ["now", "f64", 0],
  ["seed", "u64", 8],
  ["session", "u64", 16],
  ["prompt_tokens", "u32", 24],
  ["prompt_blocks", "u32", 28],
  ["block_tokens", "u32", 32],
  ["trigger", "u32", 36],
  ["expected_output_tokens", "u32", 40],
  ["session_requests", "u32", 44],
  ["idle_ms", "u32", 48],
  ["prefix", "u64[16]", 64],
];

const COLUMN_TABLE = [
  ["eligible", "u8", 0, 0],
  ["active_requests", "i32", 1, 0],
  ["active_prefill_tokens", "i32", 5, 0],
  ["active_blocks", "i32", 9, 0],
  ["bound_sessions", "i32", 13, 0],
  ["cached_blocks", "i32", 17, 0],
  ["kv_used", "i32", 21, -1],
  ["queue_depth", "i32", 25, -1],
  ["weight", "i32", 29, 0],
  ["worker_hash", "i32", 33, 0],
  ["slots", "i32", 37, 0],
  ["kv_blocks", "i32", 41, 0],
  ["service_ms", "i32", 45, 0],
  ["prefill_rate", "i32", 49, 0],
  ["active_mean", "i32", 53, 0],
] as const;

const STRIDES = [
  [1, 16],
  [15, 16],
  [16, 16],
  [17, 32],
  [64, 64],
  [100, 112],
  [4096, 4096],
  [16_384, 16_384],
];

test("the header's fields", () => {
  expect(FIELDS.map(({ name, type, offset }) => [name, type, offset])).toEqual(FIELD_TABLE);
  expect(HEADER_BYTES).toBe(448);
});

test("the columns, in their order, with what stands for an unknown value", () => {
  const columns = COLUMNS.map(({ name, type, perRow, unknown }) => [name, type, perRow, unknown]);
  expect(columns).toEqual(COLUMN_TABLE);
});

test("a manifest may read every field and column, and nothing else", () => {
  expect(READABLE).toEqual([...FIELD_TABLE, ...COLUMN_TABLE].map(([name]) => name));
});

test("the router's words are where the fields are", () => {
  for (const [name, word] of Object.entries(WORD)) {
    expect(word * 4, name).toBe(FIELDS.find((field) => field.name === name)!.offset);
  }
});

test.each(STRIDES)("%i rows have a stride of %i and 448 + 57 bytes for each of it", (capacity, stride) => {
  expect(strideOf(capacity)).toBe(stride);
  expect(frameBytes(capacity)).toBe(448 + 57 * stride);
});

test.each([
  [0, 64],
  [1, 64],
  [64, 64],
  [65, 128],
  [1000, 1024],
  [8193, 16_384],
  [16_384, 16_384],
])("a pool of %i workers gets a capacity of %i", (rows, capacity) => {
  expect(capacityFor(rows)).toBe(capacity);
  expect(MAX_CAPACITY).toBe(16_384);
});

describe("Frame", () => {
  const ADDRESS = 128;

  test.each([64, 100])("%i rows: writes land on the ABI's offsets, little-endian", (capacity) => {
    const buffer = new ArrayBuffer(ADDRESS + frameBytes(capacity));
    const frame = new Frame(buffer, ADDRESS, capacity);
    const view = new DataView(buffer, ADDRESS);
    frame.now[0] = 12.5;
    expect(view.getFloat64(0, true)).toBe(12.5);
    frame.words.set([0x11223344, 0x55667788], 2);
    expect(view.getBigUint64(8, true)).toBe(0x5566778811223344n);
    frame.words.set([7, 9], 64 / 4 + 2 * 15);
    expect(view.getBigUint64(184, true)).toBe(0x900000007n);
    frame.params[31] = -0.75;
    expect(view.getFloat64(192 + 8 * 31, true)).toBe(-0.75);
    expect([frame.params.length, MAX_PARAMETERS]).toEqual([32, 32]);

    const stride = strideOf(capacity);
    frame.columns.eligible[capacity - 1] = 1;
    expect(view.getUint8(448 + capacity - 1)).toBe(1);
    for (const [name, type, perRow] of COLUMN_TABLE) {
      expect(frame.columns[name].length, name).toBe(stride);
      expect((448 + perRow * stride) % 16, name).toBe(0);
      if (type === "u8") continue;
      frame.columns[name][capacity - 1] = -perRow;
      expect(view.getInt32(448 + perRow * stride + 4 * (capacity - 1), true), name).toBe(-perRow);
    }
  });

  test("the last column ends with the frame", () => {
    const buffer = new ArrayBuffer(64 + frameBytes(64));
    const { active_mean } = new Frame(buffer, 64, 64).columns;
    expect(active_mean.byteOffset + active_mean.byteLength).toBe(buffer.byteLength);
  });

  test.each([
    ["0", 0],
    ["a negative address", -64],
    ["an address that is not 64-byte aligned", 96],
    ["a frame that does not end inside the memory", 128],
  ])("refuses %s", (_, address) => {
    const buffer = new ArrayBuffer(64 + frameBytes(64));
    expect(() => new Frame(buffer, address, 64)).toThrow(
      new RangeError(`a frame of 64 rows cannot stand at address ${address}`),
    );
    expect(() => new Frame(buffer, 64, 64)).not.toThrow();
  });
});

test("the reasons that every policy shares", () => {
  expect(REASON).toEqual({
    ...{ unspecified: 0, keep: 1, keep_margin: 2, move_load: 3, move_gone: 4, place: 5, cache: 6 },
  });
  expect(REASON_NAMES.map((name) => REASON[name as keyof typeof REASON])).toEqual([0, 1, 2, 3, 4, 5, 6]);
});

test("the kinds of failure", () => {
  expect(FAILURES).toEqual(["trap", "fuel", "bad_row", "not_eligible", "bad_reason", "no_choice"]);
});
