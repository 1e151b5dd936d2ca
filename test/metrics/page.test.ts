// The page: that it is what prom-client's own metrics would have made of the same.
import { setImmediate as turn } from "node:timers/promises";
import { Counter, Gauge, Histogram as PromHistogram, Registry } from "prom-client";
import { describe, expect, it } from "vitest";
import { alone, counter, gauge, histogram, type Sample } from "../../host/metrics/family.js";
import { Histogram } from "../../host/metrics/histogram.js";
import { Page } from "../../host/metrics/page.js";
import { Exposition } from "./exposition.js";

/** Values that a text must escape, or that look like something else. */
const ODD = ['say "hi"', "a\\b", "two\nlines", "", "{}", "größe 日本", "le"];
const BOUNDS = [0.001, 0.07, 0.5, 1, 10];
const VALUES = [0.0001, 0.07, 0.3, 0.3, 1, 5, 99];

describe("the page", () => {
  it("is the text that prom-client makes of the same counts", async () => {
    const registry = new Registry();
    const count = new Counter({
      name: "c_total",
      help: "Counts",
      labelNames: ["a", "b"],
      registers: [registry],
    });
    const level = new Gauge({ name: "g", help: 'A "level"\nof two lines', registers: [registry] });
    const times = new PromHistogram({
      ...{ name: "h_seconds", help: "Times", labelNames: ["m"], buckets: BOUNDS, registers: [registry] },
    });
    const ours = new Map(ODD.map((model) => [model, new Histogram(BOUNDS)]));
    for (const [i, odd] of ODD.entries()) count.inc({ a: odd, b: "x" }, i);
    level.set(-2.5);
    for (const model of ODD) {
      for (const value of VALUES) {
        times.observe({ m: model }, value);
        ours.get(model)!.observe(value);
      }
    }
    const page = new Page(
      [
        counter("c_total", "Counts", ["a", "b"], () => ODD.map((odd, i): Sample<number> => [[odd, "x"], i])),
        gauge("g", 'A "level"\nof two lines', [], () => alone(-2.5)),
        histogram("h_seconds", "Times", ["m"], function* () {
          for (const [model, one] of ours) yield [[model], one];
        }),
      ],
      false,
    );
    expect(await page.text()).toBe(await registry.metrics());
    expect(page.contentType).toBe(registry.contentType);
    expect(new Exposition(await page.text()).valuesOf("c_total", "a")).toEqual(ODD);
  });

  it("shows a family that has no samples", async () => {
    const page = new Page([gauge("none", "Nothing", ["a"], () => [])], false);
    expect(await page.text()).toBe("# HELP none Nothing\n# TYPE none gauge\n");
  });

  it.each([999, 1_000, 1_001, 2_500])("of %i samples is whole, and made in turns", async (count) => {
    const names = Array.from({ length: count }, (_, i) => `w${i}`);
    const many = gauge("many", "Many", ["w"], () => names.map((name, i): Sample<number> => [[name], i]));
    const page = new Page([many, gauge("last", "Last", [], () => alone(1))], false);
    let turns = 0;
    const text = page.text();
    let isOver = false;
    void text.then(() => {
      isOver = true;
    });
    for (; !isOver; await turn()) turns++;
    const exposition = new Exposition(await text);
    expect(exposition.find("many").map(({ labels, value }) => `${labels.w} ${value}`)).toEqual(
      names.map((name, i) => `${name} ${i}`),
    );
    expect(exposition.value("last")).toBe(1);
    expect(turns).toBeGreaterThanOrEqual(Math.ceil(count / 1_000));
  });

  it("reads what it shows anew each time", async () => {
    let value = 1;
    const page = new Page([gauge("g", "G", [], () => alone(value))], false);
    const first = await page.text();
    value = 2;
    expect([first, await page.text()].map((text) => new Exposition(text).value("g"))).toEqual([1, 2]);
  });

  it("tells of the process where it is asked to", async () => {
    const told = new Exposition(await new Page([gauge("g", "G", [], () => alone(1))], true).text());
    expect(told.value("process_resident_memory_bytes")).toBeGreaterThan(0);
    expect(told.families.has("nodejs_eventloop_lag_p99_seconds")).toBe(true);
    const without = new Exposition(await new Page([gauge("g", "G", [], () => alone(1))], false).text());
    expect([...without.families.keys()]).toEqual(["g"]);
  });
});
