import { describe, expect, it } from "vitest";
import { Histogram } from "../../host/metrics/histogram.js";

describe("a histogram", () => {
  it("counts what is at a bound as below it, and what is above all bounds as well", () => {
    const histogram = new Histogram([1, 2, 5]);
    for (const value of [0, 1, 1.5, 2, 5, 5.1, 1_000]) histogram.observe(value);
    expect(histogram.cumulated()).toEqual([2, 4, 5, 7]);
    expect(histogram.sum).toBeCloseTo(1_014.6, 9);
  });

  it("is shown in another unit than it is observed in, without rounding its bounds", () => {
    const histogram = new Histogram([1, 70, 300, 3_600_000], 1_000);
    for (const value of [1, 70, 71, 500]) histogram.observe(value);
    expect(histogram.bounds).toEqual([0.001, 0.07, 0.3, 3_600]);
    expect(histogram.cumulated()).toEqual([1, 2, 3, 4, 4]);
    expect(histogram.sum).toBe(0.642);
  });

  it("takes nothing that is no number or less than 0, by which its sum would be lost for good", () => {
    const histogram = new Histogram([1]);
    for (const value of [Number.NaN, -1, Number.NEGATIVE_INFINITY, 0.5]) histogram.observe(value);
    expect(histogram.cumulated()).toEqual([1, 1]);
    expect(histogram.sum).toBe(0.5);
  });
});
