// The candidates: one row per worker, ordered by worker id, read from the columns of the frame.

import { column } from "./frame";

/** Addresses of the columns that the searches run over. */
export function eligibleColumn(): usize {
  return column(0);
}

export function activeRequestsColumn(): usize {
  return column(1);
}

function value(perRow: i32, row: i32): i32 {
  return load<i32>(column(perRow) + ((<usize>row) << 2));
}

/** Whether `row` may be chosen. False for -1. */
export function isEligible(row: i32): bool {
  if (row < 0) return false;
  return load<u8>(eligibleColumn() + <usize>row) !== 0;
}

/** Requests in flight on the worker, counted by the router, before this one. */
export function activeRequests(row: i32): i32 {
  return value(1, row);
}

/** Prompt tokens dispatched whose first output token has not come, less what was cached. */
export function activePrefillTokens(row: i32): i32 {
  return value(5, row);
}

/** KV blocks held by requests in flight. */
export function activeBlocks(row: i32): i32 {
  return value(9, row);
}

/** Live bindings that point at the worker. */
export function boundSessions(row: i32): i32 {
  return value(13, row);
}

/** Leading blocks of this prompt that the worker is believed to hold. */
export function cachedBlocks(row: i32): i32 {
  return value(17, row);
}

/** KV-cache use reported by the engine, in 1/1000; -1 unknown. */
export function kvUsed(row: i32): i32 {
  return value(21, row);
}

/** Requests waiting inside the engine; -1 unknown. */
export function queueDepth(row: i32): i32 {
  return value(25, row);
}

/** Configured capacity weight, 100 = normal. */
export function weight(row: i32): i32 {
  return value(29, row);
}

/** Stable hash of the worker's id, unique in the pool. Remember this, never a row: rows are renumbered. */
export function workerHash(row: i32): i32 {
  return value(33, row);
}

/** Requests the engine runs at once, 0 unknown. */
export function slots(row: i32): i32 {
  return value(37, row);
}

/** KV-cache capacity in blocks, 0 unknown. */
export function kvBlocks(row: i32): i32 {
  return value(41, row);
}

/** Mean milliseconds of a request on the worker, 0 unknown. */
export function serviceMs(row: i32): i32 {
  return value(45, row);
}

/** Uncached prompt tokens prefilled per second, 0 unknown. */
export function prefillRate(row: i32): i32 {
  return value(49, row);
}

/** Mean of `activeRequests` over the window of `serviceMs`, in 1/1000. */
export function activeMean(row: i32): i32 {
  return value(53, row);
}
