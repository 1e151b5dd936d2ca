// The bench runs to its end and prints its tables, and its arms choose alike. What the figures are is not tested.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { ARMS, type Path, Scene } from "./scene.js";
import { quantile, spread, table } from "./stats.js";

const run = promisify(execFile);
const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));

/** What a quick run prints, one entry per line. */
async function quickRun(part: string): Promise<string[]> {
  const { stdout } = await run(process.execPath, ["--import", "tsx", MAIN, part, "--quick"]);
  return stdout.split("\n");
}

/** The first cells of the table whose heading begins so. */
function firstCells(lines: readonly string[], heading: string): string[] {
  const start = lines.findIndex((line) => line.startsWith(heading));
  expect(start, `${heading} is printed`).toBeGreaterThanOrEqual(0);
  const rows = lines.slice(start + 2, lines.indexOf("", start));
  return rows.map((row) => row.trim().split(/ {2,}/)[0]!);
}

describe("bench", () => {
  it("prints the cost of a decision and of a request", { timeout: 120_000 }, async () => {
    const lines = await quickRun("decision");
    expect(firstCells(lines, "Decision of")).toEqual(["2", "64", "8", "64"]);
    expect(firstCells(lines, "Request of")).toEqual(["2"]);
  });

  it("prints the cost of requests and streams", { timeout: 120_000 }, async () => {
    const lines = await quickRun("gateway");
    expect(firstCells(lines, "Gateway: requests")).toEqual(["1 KB", "8 KB", "60 KB", "8 KB, no gateway"]);
    expect(firstCells(lines, "Gateway: event streams")).toEqual(["8"]);
  });

  it("refuses a part that it does not have", { timeout: 60_000 }, async () => {
    await expect(quickRun("decisions")).rejects.toThrow(/no part "decisions", known are decision, gateway/);
  });
});

describe("the arms of a decision", () => {
  const cases = [2, 8, 64, 300].flatMap((size) =>
    (["first", "random"] as const).flatMap((ties) =>
      (["busy", "calm"] as const).map((path): [number, "first" | "random", Path] => [size, ties, path]),
    ),
  );

  it.each(cases)("choose alike at %i workers, ties %s, %s sessions", (size, ties, path) => {
    const scene = new Scene(size, ties);
    const sums = (["wasm", "and", "nested"] as const).map((arm) => {
      scene.reset();
      return ARMS[arm]([scene], path, 2_000);
    });
    expect(new Set(sums).size).toBe(1);
    scene.reset();
    expect(ARMS.nothing([scene], path, 2_000) === sums[0], "only a calm session stays").toBe(path === "calm");
  });

  it("move every busy session and keep every calm one, without a failure", () => {
    const scene = new Scene(64, "first");
    for (let i = 0; i < 500; i++) {
      scene.decider.decide(scene.turn, scene.prepare(i, scene.deck.busy));
      expect([scene.decider.reason, scene.decider.failure]).toEqual(["move_load", undefined]);
      scene.decider.decide(scene.turn, scene.prepare(i, scene.deck.calm));
      expect([scene.decider.reason, scene.decider.failure]).toEqual(["keep", undefined]);
      scene.deck.step(i);
    }
  });
});

describe("figures", () => {
  it("interpolates quantiles", () => {
    expect([0, 0.25, 0.5, 1].map((at) => quantile([4, 1, 3, 2], at))).toEqual([1, 1.75, 2.5, 4]);
    expect(() => quantile([], 0.5)).toThrow(RangeError);
    expect(spread([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 1)).toBe("2.0-10.0");
  });

  it("aligns a table to the right", () => {
    expect(table("T", ["a", "long"], [["123", "4"]])).toBe("T\n  a  long\n123     4\n");
  });
});
