// The bench runs to its end and prints its tables, and its arms choose alike. What the figures are is not tested.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { Catalog } from "../../host/policy/catalog.js";
import type { LivePolicy } from "../../host/policy/live.js";
import { SIZES, titleOf } from "./decision.js";
import { fuelOf } from "./fuel.js";
import { metered, unmetered } from "./instance.js";
import { ARMS, run, Scene } from "./scene.js";
import { quantile, spread, table } from "./stats.js";
import { guard, load, SUBJECTS, type Subject } from "./subjects.js";
import { commandOf } from "./tools.js";

const execute = promisify(execFile);
const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));

/** What a quick run prints, one entry per line. */
async function quickRun(part: string, path = process.env.PATH): Promise<string[]> {
  const env = { ...process.env, PATH: path };
  const { stdout } = await execute(process.execPath, ["--import", "tsx", MAIN, part, "--quick"], { env });
  return stdout.split("\n");
}

/** The first cell of every row, or one further on, of the table whose heading begins so. */
function firstCells(lines: readonly string[], heading: string, at = 0): string[] {
  const start = lines.findIndex((line) => line.startsWith(heading));
  expect(start, `${heading} is printed`).toBeGreaterThanOrEqual(0);
  const rows = lines.slice(start + 2, lines.indexOf("", start));
  return rows.map((row) => row.trim().split(/ {2,}/)[at]!);
}

/** That the tables of the gateway's part have a row of each of these for each load. */
function expectTargets(lines: readonly string[], targets: readonly string[]): void {
  const sizes = ["1 KB", "8 KB", "60 KB"];
  const requests = "Gateway: requests";
  expect(firstCells(lines, requests)).toEqual(sizes.flatMap((size) => targets.map(() => size)));
  expect(firstCells(lines, requests, 1)).toEqual(sizes.flatMap(() => targets));
  expect(firstCells(lines, "Gateway: one event stream", 1)).toEqual([...targets, ...targets]);
  expect(firstCells(lines, "Gateway: event streams", 1)).toEqual(targets);
}

describe("bench", () => {
  it("prints the cost of a decision and of a request", { timeout: 120_000 }, async () => {
    const lines = await quickRun("decision");
    expect(firstCells(lines, "Decision of")).toEqual(["2", "64", "8", "64"]);
    expect(firstCells(lines, "Request of")).toEqual(["2"]);
    for (const subject of SUBJECTS) {
      const kinds = subject.paths.flatMap(({ kind }) => [kind, kind]);
      expect(firstCells(lines, titleOf(subject))).toEqual(kinds);
    }
    expect(firstCells(lines, "Decisions of 64 workers")).toEqual(["20"]);
  });

  it("prints the cost of bindings", { timeout: 60_000 }, async () => {
    expect(firstCells(await quickRun("bindings"), "Bindings:")).toEqual(["1000"]);
  });

  it("prints the cost of requests and streams, beside the peers that are installed", {
    timeout: 240_000,
  }, async () => {
    const peers = ["HAProxy", "nginx"].filter((name) => commandOf(name.toLowerCase()));
    expectTargets(await quickRun("gateway"), ["direct", ...peers, "Hawser"]);
  });

  it("prints the cost of requests and streams where no other program is installed", {
    timeout: 240_000,
  }, async () => {
    const lines = await quickRun("gateway", "");
    expect(lines.slice(0, 3)).toEqual([
      "load: requests by Node, for want of wrk (its own cost limits requests/s); streams by Node, for want of a C compiler",
      "upstream: Node, for want of a C compiler",
      "peers: HAProxy: no haproxy on the PATH, left out; nginx: no nginx on the PATH, left out",
    ]);
    expectTargets(lines, ["direct", "Hawser"]);
  });

  it("prints what reloads cost, and that nothing is lost by them", { timeout: 60_000 }, async () => {
    const lines = await quickRun("reload");
    expect([0, 1, 2, 4, 5, 6].map((at) => firstCells(lines, "Reloads under streams", at))).toEqual([
      ["8"],
      ["6"],
      ["2"],
      ["0"],
      ["8"],
      ["0"],
    ]);
  });

  it("refuses a part that it does not have", { timeout: 60_000 }, async () => {
    await expect(quickRun("decisions")).rejects.toThrow(
      /no part "decisions", known are decision, bindings, gateway, reload/,
    );
  });
});

describe("the arms of a decision", () => {
  const cases = [...SUBJECTS, guard("random")].flatMap((subject) =>
    [2, 8, 64, 300].map((size): [string, number, Subject] => [titleOf(subject), size, subject]),
  );

  it.each(cases)("choose alike: %s, %i workers", (_, size, subject) => {
    const loaded = load(subject);
    const instances = { metered: metered(loaded), unmetered: unmetered(loaded) };
    for (const { kind, bound } of subject.paths) {
      const sums = ARMS.map((arm) => {
        const scene = new Scene(size, instances[arm === "unmetered" ? arm : "metered"], arm);
        return run([scene], bound, 2_000);
      });
      expect(new Set(sums.slice(0, -1)).size, `${kind}: ${sums}`).toBe(1);
      if (kind === "keep" || kind === "stay") expect(sums.at(-1), "every session stays").toBe(sums[0]);
      if (kind === "search") expect(sums.at(-1), "sessions move").not.toBe(sums[0]);
    }
  });

  it.each(cases)("decide without a failure: %s, %i workers", (_, size, subject) => {
    const scene = new Scene(size, metered(load(subject)), "metered");
    const policy = scene.decider as LivePolicy;
    for (const { kind, bound } of subject.paths) {
      const reasons = new Set<string>();
      for (let i = 0; i < 500; i++) {
        policy.decide(scene.turn, scene.prepare(i, scene.deck.bounds[bound]));
        reasons.add(policy.reason);
        expect(policy.failure).toBeUndefined();
        scene.deck.step(i);
      }
      if (kind === "keep" || kind === "stay") expect([...reasons]).toEqual(["keep"]);
      if (kind === "search" && bound === "busy") expect([...reasons]).toEqual(["move_load"]);
    }
  });

  it.each([...SUBJECTS, guard("random")])(
    "use under three quarters of their fuel: $type $given",
    (subject) => {
      const used = SIZES.flatMap((size) => fuelOf(load(subject), size));
      expect(used.length).toBe(SIZES.length * subject.paths.length);
      for (const { units, share, size } of used) {
        expect(units).toBeGreaterThan(0);
        expect(share, `${units} units at ${size} workers`).toBeLessThan(0.75);
      }
    },
  );

  it("are measured of every shipped policy", () => {
    const shipped = Catalog.open([])
      .list()
      .map(({ manifest }) => manifest.type);
    expect([...new Set(SUBJECTS.map(({ type }) => type))].sort()).toEqual(shipped);
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
