// How checks make a worker up and down: by sequences, and for any sequence by its last run.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Health, type HealthState } from "../../host/fleet/health.js";

const THRESHOLDS = { unhealthyAfter: 3, healthyAfter: 2 };

/** Gives a worker's health one check a second: `p` passed, `f` failed, `d` no connection. Returns the states it changed to. */
function run(health: Health, checks: string, begin = 0): string[] {
  return [...checks].flatMap((check, index) => {
    const now = begin + (index + 1) * 1_000;
    const before = health.state;
    const hasChanged = give(health, check, now);
    expect(hasChanged).toBe(health.state !== before);
    return hasChanged ? [`${health.state} at ${now}: ${health.reason}`] : [];
  });
}

function give(health: Health, check: string, now: number): boolean {
  if (check === "p") return health.passed(now);
  return check === "f"
    ? health.failed(now, `status 500 at ${now}`)
    : health.disconnected(now, `no one at ${now}`);
}

describe("a worker", () => {
  it("is starting until it answers, or has not often enough, and keeps why", () => {
    const health = new Health(THRESHOLDS, 7);
    expect([health.state, health.since, health.reason]).toEqual(["starting", 7, "not asked yet"]);
    expect(run(health, "fd")).toEqual([]);
    expect([health.state, health.since, health.reason]).toEqual(["starting", 7, "no one at 2000"]);
    expect(run(health, "fd", 2_000)).toEqual(["down at 3000: status 500 at 3000"]);
  });

  it.each([
    ["one pass makes one that starts up", "p", ["up at 1000: it answers"]],
    ["also after failures", "ffffp", ["down at 3000: status 500 at 3000", "up at 5000: it answers"]],
    [
      "only the first time",
      "fffpfffp",
      [expect.anything(), "up at 4000: it answers", "down at 7000: status 500 at 7000"],
    ],
    ["too few failures leave it up", "pffpff", ["up at 1000: it answers"]],
    ["enough in a row do not", "pfff", ["up at 1000: it answers", "down at 4000: status 500 at 4000"]],
    ["a connect error is one of them", "pffd", ["up at 1000: it answers", "down at 4000: no one at 4000"]],
    ["as are several", "pddd", ["up at 1000: it answers", "down at 4000: no one at 4000"]],
    ["failures from its start do not count once it is up", "ffpff", ["up at 3000: it answers"]],
    [
      "one pass does not bring it back",
      "pfffpfp",
      ["up at 1000: it answers", "down at 4000: status 500 at 4000"],
    ],
    [
      "a connect error begins the passes anew",
      "pfffpdpp",
      [expect.anything(), expect.anything(), "up at 8000: it answers"],
    ],
  ])("%s: %s", (_, checks, changes) => {
    expect(run(new Health(THRESHOLDS, 0), checks)).toEqual(changes);
  });

  it("that is down keeps since when, and tells of its latest failure", () => {
    const health = new Health(THRESHOLDS, 0);
    run(health, "pfffffpf");
    expect([health.state, health.since, health.reason]).toEqual(["down", 4_000, "status 500 at 8000"]);
    run(health, "p", 8_000);
    expect([health.state, health.reason]).toEqual(["down", "status 500 at 8000"]);
  });

  it("that is up is so for one reason, whatever failed once", () => {
    const health = new Health(THRESHOLDS, 0);
    run(health, "ppff");
    expect([health.state, health.since, health.reason]).toEqual(["up", 1_000, "it answers"]);
  });

  it("changes at every check where one is enough", () => {
    const changes = run(new Health({ unhealthyAfter: 1, healthyAfter: 1 }, 0), "pfpdp");
    expect(changes.map((change) => change.split(" ")[0])).toEqual(["up", "down", "up", "down", "up"]);
  });
});

/** The state by definition: what the last checks of a kind, so many in a row, make of the state before. */
function expected(
  before: HealthState,
  checks: string,
  unhealthyAfter: number,
  healthyAfter: number,
): HealthState {
  const passes = /p*$/.exec(checks)![0].length;
  const failures = /[fd]*$/.exec(checks)![0].length;
  // The first pass of all is enough.
  const enough = checks.slice(0, checks.length - passes).includes("p") ? healthyAfter : 1;
  if (before !== "up" && passes >= enough) return "up";
  return failures >= unhealthyAfter ? "down" : before;
}

it("any sequence of checks leads where its last ones say", () => {
  const check = fc.oneof({ weight: 3, arbitrary: fc.constant("p") }, fc.constantFrom("f", "d"));
  const count = fc.integer({ min: 1, max: 4 });
  const seen = new Set<string>();
  fc.assert(
    fc.property(fc.array(check, { maxLength: 60 }), count, count, (checks, unhealthyAfter, healthyAfter) => {
      const health = new Health({ unhealthyAfter, healthyAfter }, 0);
      let state: HealthState = "starting";
      let since = 0;
      checks.forEach((each, index) => {
        const now = (index + 1) * 10;
        const next = expected(state, checks.slice(0, index + 1).join(""), unhealthyAfter, healthyAfter);
        if (next !== state) since = now;
        expect(give(health, each, now)).toBe(next !== state);
        expect([health.state, health.since]).toEqual([next, since]);
        seen.add(`${state} ${next}`);
        state = next;
      });
    }),
    { seed: 3, numRuns: 500 },
  );
  expect([...seen].sort()).toEqual([
    ...["down down", "down up", "starting down", "starting starting", "starting up", "up down", "up up"],
  ]);
});
