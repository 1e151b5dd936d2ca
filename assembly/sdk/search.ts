// Searches over the rows. The SIMD forms read sixteen rows at a step and need no tail, since the rows from n up to
// the stride are never eligible; the scalar forms are the same rules in plain loops, for rules that SIMD does not fit.

import { activeRequestsColumn, eligibleColumn, isEligible } from "./candidates";
import { seed } from "./frame";

const NONE: i32 = i32.MAX_VALUE;

/** An index below `count`, uniform, from the 32 random bits `draw`. */
export function pick(draw: u32, count: i32): i32 {
  return <i32>((<u64>draw * <u64>(<u32>count)) >> 32);
}

/** The eligible bytes of rows `group` .. `group + 15`; `eligibles` is their column, which loops look up once. */
function eligibleGroup(eligibles: usize, group: i32): v128 {
  return v128.load(eligibles + <usize>group);
}

/** Four i32 values from row `row` on, with those that are not eligible replaced by `instead`. */
function masked(values: usize, row: i32, mask: v128, instead: v128): v128 {
  return v128.bitselect(v128.load(values + ((<usize>row) << 2)), instead, mask);
}

function lowest(four: v128): i32 {
  const two = i32x4.min_s(four, v128.shuffle<i32>(four, four, 2, 3, 0, 1));
  return i32x4.extract_lane(i32x4.min_s(two, v128.shuffle<i32>(two, two, 1, 0, 3, 2)), 0);
}

function highest(four: v128): i32 {
  const two = i32x4.max_s(four, v128.shuffle<i32>(four, four, 2, 3, 0, 1));
  return i32x4.extract_lane(i32x4.max_s(two, v128.shuffle<i32>(two, two, 1, 0, 3, 2)), 0);
}

/** The smallest values of a group's eligible rows, lane by lane; i32.MAX_VALUE where a lane has none. */
function groupMinimum(values: usize, eligibles: usize, group: i32): v128 {
  const at = values + ((<usize>group) << 2);
  let a = v128.load(at);
  let b = v128.load(at, 16);
  let c = v128.load(at, 32);
  let d = v128.load(at, 48);
  const eligible = eligibleGroup(eligibles, group);
  if (!i8x16.all_true(eligible)) {
    const none = i32x4.splat(NONE);
    const bytes = i8x16.ne(eligible, i8x16.splat(0));
    const low = i16x8.extend_low_i8x16_s(bytes);
    const high = i16x8.extend_high_i8x16_s(bytes);
    a = v128.bitselect(a, none, i32x4.extend_low_i16x8_s(low));
    b = v128.bitselect(b, none, i32x4.extend_high_i16x8_s(low));
    c = v128.bitselect(c, none, i32x4.extend_low_i16x8_s(high));
    d = v128.bitselect(d, none, i32x4.extend_high_i16x8_s(high));
  }
  return i32x4.min_s(i32x4.min_s(a, b), i32x4.min_s(c, d));
}

/** The smallest value of an i32 column over the eligible rows; i32.MAX_VALUE where none is. */
export function minimum(values: usize, n: i32): i32 {
  let best = i32x4.splat(NONE);
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    best = i32x4.min_s(best, groupMinimum(values, eligibles, group));
  }
  return lowest(best);
}

/** The largest value of an i32 column over the eligible rows; i32.MIN_VALUE where none is. */
export function maximum(values: usize, n: i32): i32 {
  const none = i32x4.splat(i32.MIN_VALUE);
  let a = none;
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    const eligible = eligibleGroup(eligibles, group);
    const bytes = i8x16.ne(eligible, i8x16.splat(0));
    const low = i16x8.extend_low_i8x16_s(bytes);
    const high = i16x8.extend_high_i8x16_s(bytes);
    a = i32x4.max_s(a, masked(values, group, i32x4.extend_low_i16x8_s(low), none));
    a = i32x4.max_s(a, masked(values, group + 4, i32x4.extend_high_i16x8_s(low), none));
    a = i32x4.max_s(a, masked(values, group + 8, i32x4.extend_low_i16x8_s(high), none));
    a = i32x4.max_s(a, masked(values, group + 12, i32x4.extend_high_i16x8_s(high), none));
  }
  return highest(a);
}

/** One bit per row of the group: eligible and equal to the four copies in `wanted`. */
function equalBits(values: usize, eligibles: usize, group: i32, wanted: v128): i32 {
  const at = values + ((<usize>group) << 2);
  const low = i16x8.narrow_i32x4_s(i32x4.eq(v128.load(at), wanted), i32x4.eq(v128.load(at, 16), wanted));
  const high = i16x8.narrow_i32x4_s(i32x4.eq(v128.load(at, 32), wanted), i32x4.eq(v128.load(at, 48), wanted));
  const equal = i8x16.narrow_i16x8_s(low, high);
  return i8x16.bitmask(v128.and(equal, i8x16.ne(eligibleGroup(eligibles, group), i8x16.splat(0))));
}

/** The lowest eligible row whose value in an i32 column is `wanted`; -1 where none is. */
export function firstEqual(values: usize, n: i32, wanted: i32): i32 {
  const four = i32x4.splat(wanted);
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    const bits = equalBits(values, eligibles, group, four);
    if (bits) return group + ctz(bits);
  }
  return -1;
}

/** How many eligible rows have the value `wanted` in an i32 column. */
export function countEqual(values: usize, n: i32, wanted: i32): i32 {
  const four = i32x4.splat(wanted);
  let count = 0;
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    count += popcnt(equalBits(values, eligibles, group, four));
  }
  return count;
}

/** Row of the set bit number `index` (from 0, lowest first) in a group's bits. */
function nthBit(group: i32, bits: i32, index: i32): i32 {
  while (index-- > 0) bits &= bits - 1;
  return group + ctz(bits);
}

/** The eligible row number `index` (from 0) among those with the value `wanted`; -1 where there are fewer. */
export function nthEqual(values: usize, n: i32, wanted: i32, index: i32): i32 {
  const four = i32x4.splat(wanted);
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    const bits = equalBits(values, eligibles, group, four);
    const count = popcnt(bits);
    if (index < count) return nthBit(group, bits, index);
    index -= count;
  }
  return -1;
}

/** How many rows are eligible. */
export function countEligible(n: i32): i32 {
  let count = 0;
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    count += popcnt(i8x16.bitmask(i8x16.ne(eligibleGroup(eligibles, group), i8x16.splat(0))));
  }
  return count;
}

/** The eligible row number `index` (from 0); -1 where there are fewer. */
export function nthEligible(n: i32, index: i32): i32 {
  const eligibles = eligibleColumn();
  for (let group = 0; group < n; group += 16) {
    const bits = i8x16.bitmask(i8x16.ne(eligibleGroup(eligibles, group), i8x16.splat(0)));
    const count = popcnt(bits);
    if (index < count) return nthBit(group, bits, index);
    index -= count;
  }
  return -1;
}

/** A row with the value `wanted`: the lowest, or with `randomTies` any of them, uniformly by this decision's seed. */
export function rowWith(values: usize, n: i32, wanted: i32, randomTies: bool): i32 {
  if (!randomTies) return firstEqual(values, n, wanted);
  const count = countEqual(values, n, wanted);
  return nthEqual(values, n, wanted, pick(<u32>(seed() >> 32), count));
}

/** The smallest `active_requests` over the eligible rows. */
export function lowestLoad(n: i32): i32 {
  return minimum(activeRequestsColumn(), n);
}

/** The largest `active_requests` over the eligible rows. */
export function highestLoad(n: i32): i32 {
  return maximum(activeRequestsColumn(), n);
}

/** An eligible row with `load` active requests; ties as in `rowWith`. */
export function rowWithLoad(n: i32, load: i32, randomTies: bool): i32 {
  return rowWith(activeRequestsColumn(), n, load, randomTies);
}

/** The eligible row with the fewest active requests; -1 where none is eligible. */
export function leastLoaded(n: i32, randomTies: bool): i32 {
  return rowWithLoad(n, lowestLoad(n), randomTies);
}

/** The eligible row other than `except` with the fewest active requests; -1 where there is none. */
export function leastLoadedExcept(n: i32, except: i32, randomTies: bool): i32 {
  const at = eligibleColumn() + <usize>except;
  const was = load<u8>(at);
  store<u8>(at, 0);
  const row = leastLoaded(n, randomTies);
  store<u8>(at, was);
  return row;
}

/** Two different eligible rows at random, the one with fewer active requests, the first drawn on a tie. */
export function powerOfTwo(n: i32): i32 {
  const count = countEligible(n);
  const bits = seed();
  const first = pick(<u32>bits, count);
  const row = nthEligible(n, first);
  if (count < 2) return row;
  let second = pick(<u32>(bits >> 32), count - 1);
  if (second >= first) second++;
  const other = nthEligible(n, second);
  const values = activeRequestsColumn();
  return load<i32>(values + ((<usize>other) << 2)) < load<i32>(values + ((<usize>row) << 2)) ? other : row;
}

/** Any eligible row, uniformly; -1 where none is eligible. */
export function anyEligible(n: i32): i32 {
  return nthEligible(n, pick(<u32>(seed() >> 32), countEligible(n)));
}

/** Scalar twin of `minimum`. */
export function scalarMinimum(values: usize, n: i32): i32 {
  let best = NONE;
  for (let row = 0; row < n; row++) {
    // Nested ifs, not one `&&`: measurably faster in scalar loops from 64 rows on.
    if (isEligible(row)) {
      const value = load<i32>(values + ((<usize>row) << 2));
      if (value < best) best = value;
    }
  }
  return best;
}

/** Scalar twin of `maximum`. */
export function scalarMaximum(values: usize, n: i32): i32 {
  let best = i32.MIN_VALUE;
  for (let row = 0; row < n; row++) {
    if (isEligible(row)) {
      const value = load<i32>(values + ((<usize>row) << 2));
      if (value > best) best = value;
    }
  }
  return best;
}

/** Scalar twin of `nthEqual`; with `index` 0 of `firstEqual`. */
export function scalarNthEqual(values: usize, n: i32, wanted: i32, index: i32): i32 {
  for (let row = 0; row < n; row++) {
    if (isEligible(row)) {
      if (load<i32>(values + ((<usize>row) << 2)) === wanted) {
        if (index-- === 0) return row;
      }
    }
  }
  return -1;
}
