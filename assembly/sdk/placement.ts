// Ways to place a turn without regard to where its session is bound.

import { isEligible, workerHash } from "./candidates";
import { anyEligible, leastLoaded, powerOfTwo } from "./search";

/** The placements, in the order in which a manifest lists them as an enum. */
export const LEAST_LOADED: i32 = 0;
export const ROUND_ROBIN: i32 = 1;
export const RANDOM: i32 = 2;
export const POWER_OF_TWO: i32 = 3;

// The worker served last: by hash, since rows are renumbered when workers come and go. The row is where it stood.
let lastHash: i32 = 0;
let lastRow: i32 = -1;

/** The next eligible row after the one served last, around the end; the lowest one at first. State: the worker served last. */
export function roundRobin(n: i32): i32 {
  const start = afterLast(n);
  for (let step = 0; step < n; step++) {
    let row = start + step;
    if (row >= n) row -= n;
    if (isEligible(row)) {
      lastRow = row;
      lastHash = workerHash(row);
      return row;
    }
  }
  return -1;
}

/** The row behind the worker served last; where that worker is gone, the row that took its place. */
function afterLast(n: i32): i32 {
  if (lastRow < 0) return 0;
  if (lastRow < n && workerHash(lastRow) === lastHash) return next(lastRow, n);
  for (let row = 0; row < n; row++) {
    if (workerHash(row) === lastHash) return next(row, n);
  }
  return lastRow < n ? lastRow : 0;
}

function next(row: i32, n: i32): i32 {
  return row + 1 < n ? row + 1 : 0;
}

/** A row chosen by one of the placements above. */
export function place(placement: i32, n: i32, randomTies: bool): i32 {
  if (placement === ROUND_ROBIN) return roundRobin(n);
  if (placement === RANDOM) return anyEligible(n);
  if (placement === POWER_OF_TWO) return powerOfTwo(n);
  return leastLoaded(n, randomTies);
}
