// What is counted for every chunk and every decision allocates nothing: the collector would have it to clear away.
import { expect, it } from "vitest";
import { PolicySeries } from "../../host/gateway/metrics-series.js";
import { Histogram } from "../../host/metrics/histogram.js";
import { Tally } from "../../host/metrics/tally.js";
import { collect } from "./memory.js";

const CALLS = 100_000;
/** An object has 12 bytes and more. */
const LEAST_OBJECT = 12;

/** Bytes that the heap grows by in each of many calls: in the middle one of several rounds, as others allocate too, and collect. */
function growth(call: () => void): number {
  const rounds = Array.from({ length: 6 }, () => {
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < CALLS; i++) call();
    return process.memoryUsage().heapUsed - before;
  });
  return rounds.sort((a, b) => a - b)[rounds.length >> 1]! / CALLS;
}

let sink: unknown;

it("sees what allocates", () => {
  expect(growth(() => (sink = { count: 1 }))).toBeGreaterThanOrEqual(LEAST_OBJECT);
  expect(sink).toEqual({ count: 1 });
});

it.each([
  [
    "an observation",
    (
      (histogram) => () =>
        histogram.observe(12.25)
    )(new Histogram([1, 2, 5, 10, 50, 100])),
  ],
  [
    "a count",
    (
      (tally) => () =>
        tally.add("keep")
    )(new Tally()),
  ],
  [
    "a decision",
    (
      (series) => () =>
        series.decided("keep", undefined, 3.25, 1_200, 60_000)
    )(new PolicySeries()),
  ],
])("%s allocates nothing", (_, call) => {
  expect(growth(call)).toBeLessThan(LEAST_OBJECT / 4);
});
