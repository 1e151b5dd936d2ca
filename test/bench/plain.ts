// The guard's rule in plain JavaScript over the host's own columns, with the host's checks and counters: what a
// decision would cost without WebAssembly. The search has two forms, since V8 compiles them differently.

import { FAILURES, LAST_SHARED_REASON, REASON, ROW_MASK } from "../../host/abi/reasons.js";
import type { Candidates } from "../../host/policy/candidates.js";
import type { Turn } from "../../host/policy/decider.js";
import { PolicyHealth } from "../../host/policy/health.js";
import { MAX_ACTIVE_REQUESTS, MOVE_MARGIN, type Ties } from "./deck.js";

const BAD_ROW = FAILURES.indexOf("bad_row");
const NOT_ELIGIBLE = FAILURES.indexOf("not_eligible");
const BAD_REASON = FAILURES.indexOf("bad_reason");
const NO_CHOICE = FAILURES.indexOf("no_choice");

/** Decides as `LivePolicy` does: the answer stands in `row` and `reason`, and is checked and counted alike. */
export class PlainGuard {
  row = -1;
  reason = 0;
  fallback = false;
  readonly health = new PolicyHealth();
  readonly candidates: Candidates;
  readonly randomTies: boolean;

  constructor(candidates: Candidates, ties: Ties) {
    this.candidates = candidates;
    this.randomTies = ties === "random";
  }

  /** The rule with one condition per row, `&&`. */
  decideByAnd(turn: Turn, bound: number): void {
    const { n, truth, eligibleCount } = this.candidates;
    if (eligibleCount === 0) {
      this.row = -1;
      this.fallback = true;
      return;
    }
    const { eligible, active_requests: loads } = truth;
    if (bound < 0 || eligible[bound] === 0) {
      const row = this.randomTies
        ? anyLowestByAnd(n, eligible, loads, turn)
        : lowestByAnd(n, eligible, loads);
      this.take(row | ((bound < 0 ? REASON.place : REASON.move_gone) << 16));
      return;
    }
    const load = loads[bound]!;
    if (load <= MAX_ACTIVE_REQUESTS) {
      this.take(bound | (REASON.keep << 16));
      return;
    }
    const row = this.randomTies ? anyLowestByAnd(n, eligible, loads, turn) : lowestByAnd(n, eligible, loads);
    if (load - loads[row]! < MOVE_MARGIN) this.take(bound | (REASON.keep_margin << 16));
    else this.take(row | (REASON.move_load << 16));
  }

  /** The same with nested conditions. */
  decideByNesting(turn: Turn, bound: number): void {
    const { n, truth, eligibleCount } = this.candidates;
    if (eligibleCount === 0) {
      this.row = -1;
      this.fallback = true;
      return;
    }
    const { eligible, active_requests: loads } = truth;
    if (bound < 0 || eligible[bound] === 0) {
      const row = this.randomTies
        ? anyLowestByNesting(n, eligible, loads, turn)
        : lowestByNesting(n, eligible, loads);
      this.take(row | ((bound < 0 ? REASON.place : REASON.move_gone) << 16));
      return;
    }
    const load = loads[bound]!;
    if (load <= MAX_ACTIVE_REQUESTS) {
      this.take(bound | (REASON.keep << 16));
      return;
    }
    const row = this.randomTies
      ? anyLowestByNesting(n, eligible, loads, turn)
      : lowestByNesting(n, eligible, loads);
    if (load - loads[row]! < MOVE_MARGIN) this.take(bound | (REASON.keep_margin << 16));
    else this.take(row | (REASON.move_load << 16));
  }

  /** Checks an answer of the rule as the host checks a policy's. */
  take(answer: number): void {
    const { candidates } = this;
    const row = answer & ROW_MASK;
    const reason = answer >> 16;
    if (answer < 0) this.fail(NO_CHOICE);
    else if (row >= candidates.n) this.fail(BAD_ROW);
    else if (candidates.truth.eligible[row] === 0) this.fail(NOT_ELIGIBLE);
    else if (reason > LAST_SHARED_REASON) this.fail(BAD_REASON);
    else {
      this.row = row;
      this.reason = reason;
      this.fallback = false;
      this.health.succeed();
    }
  }

  fail(kind: number): void {
    this.health.fail(kind);
    this.row = this.candidates.leastLoaded();
    this.fallback = true;
  }
}

function lowestByAnd(n: number, eligible: Uint8Array, loads: Int32Array): number {
  let best = 0x7fffffff;
  let at = -1;
  for (let row = 0; row < n; row++) {
    if (eligible[row] !== 0 && loads[row]! < best) {
      best = loads[row]!;
      at = row;
    }
  }
  return at;
}

function lowestByNesting(n: number, eligible: Uint8Array, loads: Int32Array): number {
  let best = 0x7fffffff;
  let at = -1;
  for (let row = 0; row < n; row++) {
    if (eligible[row] !== 0) {
      const load = loads[row]!;
      if (load < best) {
        best = load;
        at = row;
      }
    }
  }
  return at;
}

/** Any of the lowest, by the turn's seed, as the guard's module draws it. */
function anyLowestByAnd(n: number, eligible: Uint8Array, loads: Int32Array, turn: Turn): number {
  const best = loads[lowestByAnd(n, eligible, loads)]!;
  let count = 0;
  for (let row = 0; row < n; row++) {
    if (eligible[row] !== 0 && loads[row]! === best) count++;
  }
  let index = draw(turn, count);
  for (let row = 0; row < n; row++) {
    if (eligible[row] !== 0 && loads[row]! === best && index-- === 0) return row;
  }
  return -1;
}

function anyLowestByNesting(n: number, eligible: Uint8Array, loads: Int32Array, turn: Turn): number {
  let best = 0x7fffffff;
  let count = 0;
  for (let row = 0; row < n; row++) {
    if (eligible[row] !== 0) {
      const load = loads[row]!;
      if (load < best) {
        best = load;
        count = 1;
      } else if (load === best) count++;
    }
  }
  let index = draw(turn, count);
  for (let row = 0; row < n; row++) {
    if (eligible[row] !== 0) {
      if (loads[row] === best) {
        if (index-- === 0) return row;
      }
    }
  }
  return -1;
}

function draw(turn: Turn, count: number): number {
  return Math.floor(((turn.seedHigh >>> 0) * count) / 2 ** 32);
}
