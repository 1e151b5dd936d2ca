// What is counted as it happens: of requests, of models and of policies. Counting builds no string and allocates nothing, but for
// the first event of its kind.

import { Histogram } from "../metrics/histogram.js";
import { Tally } from "../metrics/tally.js";
import type { PolicyStatus } from "../routing/requests.js";

/** In milliseconds, as they are observed; shown in seconds. */
const FIRST_BYTE = [
  10, 25, 50, 100, 200, 350, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 20_000, 30_000,
  60_000, 120_000, 300_000,
];
const CHUNK = [1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000];
const DURATION = [
  10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000,
  1_200_000, 1_800_000, 3_600_000,
];
const MS = 1_000;
/** In microseconds. */
const DECISION = [0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1_000, 2_500, 10_000];
/** Parts of a call's budget. */
const FUEL = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1];

/** Why an answer of a policy is not used. */
export type PolicyFailure = keyof PolicyStatus["failures"];

const FAILURES = Object.keys({
  trap: 0,
  fuel: 0,
  bad_row: 0,
  not_eligible: 0,
  bad_reason: 0,
  no_choice: 0,
} satisfies Record<PolicyFailure, 0>);

/**
 * Ends of requests that are shown from the start: those on which an operator wants to be told of the first one. The others are
 * shown when they have been.
 */
export const EXPECTED_OUTCOMES = [
  "complete",
  "client_gone",
  "internal_error",
  "no_worker_eligible",
  "queue_full",
  "queue_timeout",
  "workers_full",
  "worker_unreachable",
  "worker_failed",
  "worker_timeout",
  "worker_error",
  "worker_drained",
  "worker_answered_5xx",
  "answered_429",
  "request_timeout",
];

/** The times of one model's requests, in milliseconds. */
export class ModelSeries {
  /** From the arrival of a request for a stream of events until its first byte. */
  readonly firstByte = new Histogram(FIRST_BYTE, MS);
  /** Between two chunks of a stream of events. */
  readonly chunks = new Histogram(CHUNK, MS);
  /** From the arrival of a request until its end, whatever that was. */
  readonly duration = new Histogram(DURATION, MS);
}

/** The decisions under one policy's name. */
export class PolicySeries {
  readonly decisions = new Tally(["fallback"]);
  readonly failures = new Tally(FAILURES);
  /** What a call took, in microseconds. */
  readonly time = new Histogram(DECISION);
  /** What a call used, as a part of its budget. */
  readonly fuel = new Histogram(FUEL);
  fuelUsed = 0;

  /** See `GatewayMetrics.decided`. */
  decided(
    reason: string,
    failure: PolicyFailure | undefined,
    microseconds: number,
    fuelUsed: number,
    budget: number,
  ): void {
    this.decisions.add(reason);
    if (failure !== undefined) this.failures.add(failure);
    if (budget === 0) return;
    this.time.observe(microseconds);
    this.fuel.observe(fuelUsed / budget);
    this.fuelUsed += fuelUsed;
  }
}
