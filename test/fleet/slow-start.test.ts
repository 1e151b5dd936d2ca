// How much a worker that has just come is given while its peers carry so and so much.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SlowStart } from "../../host/fleet/slow-start.js";

const NO_LIMIT = Number.POSITIVE_INFINITY;

/** A slow start that began at 1,000. */
function begun(ms: number): SlowStart {
  const start = new SlowStart(ms);
  start.begin(1_000);
  return start;
}

describe("a slow start of 30 s", () => {
  it.each([
    { after: 0, mean: 31, limit: 1 },
    { after: 1, mean: 31, limit: 1 },
    { after: 999, mean: 31, limit: 1 },
    { after: 1_000, mean: 31, limit: 2 },
    { after: 1_999, mean: 31, limit: 2 },
    { after: 10_000, mean: 31, limit: 11 },
    { after: 15_000, mean: 4, limit: 2 },
    { after: 29_999, mean: 31, limit: 30 },
    { after: 29_999, mean: 2.1, limit: 2 },
    { after: 29_999, mean: 1, limit: 1 },
    { after: 29_999, mean: 0.2, limit: 1 },
    { after: 15_000, mean: 0, limit: 1 },
    { after: 30_000, mean: 31, limit: NO_LIMIT },
    { after: 1e9, mean: 0, limit: NO_LIMIT },
  ])("gives $limit after $after ms where others have $mean", ({ after, mean, limit }) => {
    expect(begun(30_000).limit(1_000 + after, mean)).toBe(limit);
  });

  it("limits nothing where there are no such peers, and goes on when there are", () => {
    const start = begun(30_000);
    expect(start.limit(2_000, undefined)).toBe(NO_LIMIT);
    expect(start.limit(2_000, 31)).toBe(2);
  });

  it("is none before it begins, over at its end, and can begin anew", () => {
    const start = new SlowStart(30_000);
    expect([start.isUnderWay(5), start.limit(5, 10)]).toEqual([false, NO_LIMIT]);
    start.begin(1_000);
    expect([1_000, 30_999, 31_000].map((now) => start.isUnderWay(now))).toEqual([true, true, false]);
    start.begin(31_000);
    expect([start.isUnderWay(31_000), start.limit(31_000, 10)]).toEqual([true, 1]);
    start.begin(46_000);
    expect(start.limit(61_000, 11)).toBe(6);
  });

  it("is none where it is off", () => {
    const start = begun(0);
    expect([start.isUnderWay(1_000), start.limit(1_000, 10)]).toEqual([false, NO_LIMIT]);
  });
});

it("rises in a straight line, from 1 and never beyond the mean, whatever its length", () => {
  const ms = fc.oneof(fc.integer({ min: 1, max: 600_000 }), fc.constantFrom(30_000, 0.5, 86_400_000));
  const moment = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  const mean = fc.oneof(fc.nat(2_000), fc.double({ min: 0, max: 2_000, noNaN: true }));
  fc.assert(
    fc.property(ms, fc.array(moment, { minLength: 2 }), mean, (length, moments, others) => {
      const start = new SlowStart(length);
      start.begin(0);
      let last = 1;
      for (const part of moments.sort((a, b) => a - b)) {
        const limit = start.limit(part * length, others);
        const exact = 1 + part * Math.max(0, others - 1);
        expect(Number.isInteger(limit)).toBe(true);
        expect(limit).toBeGreaterThanOrEqual(last);
        expect(limit).toBeLessThanOrEqual(Math.max(1, Math.floor(others)));
        // Rounded down, but for what floating point adds or takes.
        expect(exact - limit).toBeGreaterThan(-1e-6);
        expect(exact - limit).toBeLessThan(1 + 1e-6);
        last = limit;
      }
    }),
    { seed: 5, numRuns: 500 },
  );
});
