// The rules of the shipped policies in plain JavaScript, over the host's own columns.

import { REASON } from "../../host/abi/reasons.js";
import type { Candidates } from "../../host/policy/candidates.js";
import type { Turn } from "../../host/policy/decider.js";
import { draw, type Search } from "./plain-search.js";

/** What a policy's `select` is: answers `row | reason << 16`. At least one row is eligible. */
export type Rule = (candidates: Candidates, turn: Turn, bound: number) => number;
/** A rule with its parameters, in manifest order. */
type MakeRule = (parameters: Float64Array, search: Search) => Rule;
type Placement = (candidates: Candidates, turn: Turn) => number;

function isEligible({ truth }: Candidates, bound: number): boolean {
  return bound >= 0 && truth.eligible[bound] !== 0;
}

function answer(row: number, reason: number): number {
  return row | (reason << 16);
}

/** The answer where the bound worker cannot be had. */
function afresh(row: number, bound: number): number {
  return answer(row, bound < 0 ? REASON.place : REASON.move_gone);
}

/** The answer of a choice made without regard to the binding. */
function placed(candidates: Candidates, row: number, bound: number): number {
  if (!isEligible(candidates, bound)) return afresh(row, bound);
  return answer(row, row === bound ? REASON.keep : REASON.move_load);
}

function leastLoaded(search: Search, randomTies: boolean): Placement {
  return ({ n, truth }, turn) =>
    randomTies
      ? search.anyLowest(n, truth.eligible, truth.active_requests, turn.seedHigh)
      : search.lowest(n, truth.eligible, truth.active_requests);
}

/** The next eligible row after the worker served last, which is known by its hash: rows are renumbered. */
function roundRobin(): Placement {
  let lastRow = -1;
  let lastHash = 0;
  const next = (row: number, n: number): number => (row + 1 < n ? row + 1 : 0);
  const afterLast = (n: number, hashes: Int32Array): number => {
    if (lastRow < 0) return 0;
    if (lastRow < n && hashes[lastRow] === lastHash) return next(lastRow, n);
    const row = hashes.subarray(0, n).indexOf(lastHash);
    if (row >= 0) return next(row, n);
    return lastRow < n ? lastRow : 0;
  };
  return ({ n, truth }) => {
    let row = afterLast(n, truth.worker_hash);
    while (truth.eligible[row] === 0) row = next(row, n);
    lastRow = row;
    lastHash = truth.worker_hash[row]!;
    return row;
  };
}

// The two below know the count of eligible rows from the host, where a module has to count them.

function anyEligible(search: Search): Placement {
  return ({ n, truth, eligibleCount }, turn) =>
    search.nth(n, truth.eligible, draw(turn.seedHigh, eligibleCount));
}

function powerOfTwo(search: Search): Placement {
  return ({ n, truth, eligibleCount }, turn) => {
    const first = draw(turn.seedLow, eligibleCount);
    const row = search.nth(n, truth.eligible, first);
    if (eligibleCount < 2) return row;
    let second = draw(turn.seedHigh, eligibleCount - 1);
    if (second >= first) second++;
    const other = search.nth(n, truth.eligible, second);
    return truth.active_requests[other]! < truth.active_requests[row]! ? other : row;
  };
}

/** The rule of a policy that places every turn anew. */
function placing(place: Placement): Rule {
  return (candidates, turn, bound) => placed(candidates, place(candidates, turn), bound);
}

const guard: MakeRule = ([max, margin, ties], search) => {
  const place = leastLoaded(search, ties !== 0);
  return (candidates, turn, bound) => {
    if (!isEligible(candidates, bound)) return afresh(place(candidates, turn), bound);
    const { active_requests } = candidates.truth;
    const load = active_requests[bound]!;
    if (load <= max!) return answer(bound, REASON.keep);
    const row = place(candidates, turn);
    if (load - active_requests[row]! < margin!) return answer(bound, REASON.keep_margin);
    return answer(row, REASON.move_load);
  };
};

const repin: MakeRule = ([max, ties], search) => {
  const place = leastLoaded(search, ties !== 0);
  return (candidates, turn, bound) => {
    if (!isEligible(candidates, bound)) return afresh(place(candidates, turn), bound);
    const { eligible, active_requests } = candidates.truth;
    if (active_requests[bound]! <= max!) return answer(bound, REASON.keep);
    eligible[bound] = 0;
    const other = place(candidates, turn);
    eligible[bound] = 1;
    return other < 0 ? answer(bound, REASON.keep_margin) : answer(other, REASON.move_load);
  };
};

const breakMargin: MakeRule = ([margin, ties], search) => {
  const place = leastLoaded(search, ties !== 0);
  const always = Number.isNaN(margin);
  return (candidates, turn, bound) => {
    if (!isEligible(candidates, bound)) return afresh(place(candidates, turn), bound);
    if (always) return answer(bound, REASON.keep);
    const { active_requests } = candidates.truth;
    const row = place(candidates, turn);
    if (active_requests[bound]! - active_requests[row]! <= margin!) return answer(bound, REASON.keep);
    return answer(row, REASON.move_load);
  };
};

const gate: MakeRule = ([absolute, relative, ties], search) => {
  const place = leastLoaded(search, ties !== 0);
  return (candidates, turn, bound) => {
    if (!isEligible(candidates, bound)) return afresh(place(candidates, turn), bound);
    const { eligible, active_requests } = candidates.truth;
    const row = search.range(candidates.n, eligible, active_requests);
    const [low, high] = [active_requests[row]!, search.highest];
    const imbalanced = absolute! > 0 && high - low > absolute! && high > relative! * low;
    if (!imbalanced) return answer(bound, REASON.keep);
    return placed(candidates, ties === 0 ? row : place(candidates, turn), bound);
  };
};

const sticky: MakeRule = ([placement, ties], search) => {
  const placements = [leastLoaded(search, ties !== 0), roundRobin(), anyEligible(search), powerOfTwo(search)];
  const place = placements[placement!]!;
  return (candidates, turn, bound) =>
    isEligible(candidates, bound) ? answer(bound, REASON.keep) : afresh(place(candidates, turn), bound);
};

/** By policy type. */
export const RULES: Readonly<Record<string, MakeRule>> = {
  "affinity-break-margin": breakMargin,
  "imbalance-gate": gate,
  "least-loaded": ([ties], search) => placing(leastLoaded(search, ties !== 0)),
  "power-of-two": (_, search) => placing(powerOfTwo(search)),
  random: (_, search) => placing(anyEligible(search)),
  "round-robin": () => placing(roundRobin()),
  "soft-affinity-load-guard": guard,
  "soft-pin-repin": repin,
  sticky,
};
