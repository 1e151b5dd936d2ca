// A rule in plain JavaScript with the host's checks and counters: what a decision would cost without WebAssembly.

import { FAILURES, LAST_SHARED_REASON, ROW_MASK } from "../../host/abi/reasons.js";
import type { Candidates } from "../../host/policy/candidates.js";
import type { Turn } from "../../host/policy/decider.js";
import { PolicyHealth } from "../../host/policy/health.js";
import type { Rule } from "./plain-rules.js";

const BAD_ROW = FAILURES.indexOf("bad_row");
const NOT_ELIGIBLE = FAILURES.indexOf("not_eligible");
const BAD_REASON = FAILURES.indexOf("bad_reason");
const NO_CHOICE = FAILURES.indexOf("no_choice");

/** Decides as `LivePolicy` does: the answer stands in `row` and `reason`, and is checked and counted alike. */
export class PlainPolicy {
  row = -1;
  reason = 0;
  fallback = false;
  readonly health = new PolicyHealth();

  constructor(
    readonly candidates: Candidates,
    readonly rule: Rule,
    readonly readsSeed: boolean,
  ) {}

  decide(turn: Turn, bound: number): void {
    if (this.candidates.eligibleCount === 0) {
      this.row = -1;
      this.fallback = true;
      return;
    }
    this.take(this.rule(this.candidates, turn, bound));
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
