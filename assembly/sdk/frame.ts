// The frame: what the host tells about one decision, and where the columns stand.
// `host/abi/frame.ts` is the twin of this file; a test holds the two against each other.

const HEADER_BYTES: i32 = 448;
const COLUMN_BYTES_PER_ROW: i32 = 57;
const PARAMS_OFFSET: i32 = 192;
const PREFIX_OFFSET: i32 = 64;

let frame: usize = 0;
let stride: i32 = 0;

/**
 * Places the frame at the heap base, 64-byte aligned, and answers its address; -2 where `capacity` rows do not fit.
 * Every policy exports it: `export { init } from "./sdk"`.
 */
export function init(capacity: i32): i32 {
  const rows = (capacity + 15) & ~15;
  const base = (__heap_base + 63) & ~63;
  // In 64 bits: a product that wraps around would look as if it fitted.
  const end = <u64>base + HEADER_BYTES + COLUMN_BYTES_PER_ROW * <u64>(<u32>rows);
  if (capacity < 0 || end > (<u64>memory.size()) << 16) return -2;
  frame = base;
  stride = rows;
  return <i32>base;
}

/** Rows of a column in memory: the capacity rounded up to a multiple of sixteen. */
export function columnRows(): i32 {
  return stride;
}

/** Monotonic milliseconds. */
export function now(): f64 {
  return load<f64>(frame);
}

/** 64 random bits, fresh for this decision. */
export function seed(): u64 {
  return load<u64>(frame, 8);
}

/** Hash of the scoped session key, 0 = no key. */
export function session(): u64 {
  return load<u64>(frame, 16);
}

/** Tokens of the prompt. */
export function promptTokens(): u32 {
  return load<u32>(frame, 24);
}

/** Blocks of the prompt, the last one rounded up. */
export function promptBlocks(): u32 {
  return load<u32>(frame, 28);
}

/** Tokens in a KV-cache block. */
export function blockTokens(): u32 {
  return load<u32>(frame, 32);
}

/** What caused the turn: 0 unknown, 1 user message, 2 tool result, 3 other. */
export function trigger(): u32 {
  return load<u32>(frame, 36);
}

/** Tokens the answer is expected to have, 0 unknown. */
export function expectedOutputTokens(): u32 {
  return load<u32>(frame, 40);
}

/** Requests of this binding in flight on the bound worker, this one not counted. */
export function sessionRequests(): u32 {
  return load<u32>(frame, 44);
}

/** Mean milliseconds between a session's turns, 0 unknown. */
export function idleMs(): u32 {
  return load<u32>(frame, 48);
}

/** Hash of the prompt's first `2 ** level` blocks, level 0..15; 0 beyond the prompt's end. */
export function prefix(level: i32): u64 {
  return load<u64>(frame + ((<usize>level) << 3), PREFIX_OFFSET);
}

/** The parameter at `index` of the manifest's order. Compare as f64: a cast to i32 is wrong above 2^31-1. */
export function param(index: i32): f64 {
  return load<f64>(frame + ((<usize>index) << 3), PARAMS_OFFSET);
}

/** Whether a nullable parameter is not null. */
export function hasParam(index: i32): bool {
  const value = param(index);
  return !isNaN(value);
}

/** Address of the column that starts `perRow` bytes per row of the stride behind the header. */
export function column(perRow: i32): usize {
  return frame + HEADER_BYTES + <usize>(perRow * stride);
}
