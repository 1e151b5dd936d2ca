// The decision tables: every example of every shipped manifest, and the tables of the systems the rules come from.
import { describe, expect, test } from "vitest";
import { CaseRunner } from "../../host/policy/case.js";
import { Catalog, PolicyFile } from "../../host/policy/catalog.js";
import { runExample, runExamples, titleOf } from "../../host/policy/examples.js";
import type { Example } from "../../host/policy/manifest.js";
import { resolveParameters } from "../../host/policy/parameters.js";

const catalog = Catalog.open([]);
const shipped = catalog.list();

const TYPES = [
  ...["affinity-break-margin", "imbalance-gate", "least-loaded", "power-of-two", "random"],
  ...["round-robin", "soft-affinity-load-guard", "soft-pin-repin", "sticky"],
];

test("every rule is shipped, without mistakes", () => {
  expect(catalog.mistakes).toEqual([]);
  expect(shipped.map(({ manifest }) => manifest.type)).toEqual(expect.arrayContaining(TYPES));
});

describe.each(shipped.map((policy) => [policy.manifest.type, policy] as const))("%s", (_, policy) => {
  const { examples } = policy.manifest;

  test("has a table of at least eight rows, no two the same", () => {
    expect(examples.length).toBeGreaterThanOrEqual(8);
    expect(new Set(examples.map(titleOf)).size).toBe(examples.length);
  });

  test.each(examples.map((example) => [example.line, titleOf(example), example] as const))(
    "line %i: %s",
    (_line, _title, example) => {
      expect(runExample(policy, example).failures).toEqual([]);
    },
  );
});

interface Row {
  readonly loads: readonly number[];
  readonly eligible?: readonly number[];
  readonly bound?: number;
}

/** Rows and the row or rows that may be chosen. */
type Table = readonly (readonly [given: Row, parameters: Record<string, unknown>, row: number | number[]])[];

const MARGIN = 9_007_199_254_740_991;

function guard(max_active_requests: number, move_margin: number) {
  return { max_active_requests, move_margin };
}

const TABLES: Record<string, Table> = {
  "soft-affinity-load-guard": [
    [{ loads: [2, 0] }, guard(0, 1), 1],
    [{ loads: [0, 4], bound: 1 }, guard(4, 1), 1],
    [{ loads: [0, 5], bound: 1 }, guard(4, 1), 0],
    [{ loads: [1, 1], bound: 1 }, guard(0, 1), 1],
    [{ loads: [1, 0, 1], bound: 0 }, guard(0, 2), 0],
    [{ loads: [1, 1, 0], bound: 0 }, guard(0, 2), 0],
    [{ loads: [3, 0, 1], bound: 0 }, guard(0, 2), 1],
    [{ loads: [3, 1], bound: 0 }, guard(0, MARGIN), 0],
    [{ loads: [9], bound: 0 }, guard(0, 1), 0],
    [{ loads: [3, 1, 0], eligible: [1, 0, 1], bound: 1 }, guard(0, 1), 2],
    [{ loads: [0, 32], bound: 1 }, {}, 1],
    [{ loads: [0, 33], bound: 1 }, {}, 0],
    [{ loads: [32, 33], bound: 1 }, {}, 1],
    [{ loads: [31, 33], bound: 1 }, {}, 0],
    [{ loads: [40, 38, 38], bound: 0 }, {}, 1],
    [{ loads: [0, 0, 0] }, {}, 0],
  ],
  "soft-pin-repin": [
    [{ loads: [0, 2] }, { max_active_requests: 0 }, 0],
    [{ loads: [0, 0], bound: 0 }, { max_active_requests: 0 }, 0],
    [{ loads: [1, 0], bound: 0 }, { max_active_requests: 0 }, 1],
    [{ loads: [1], bound: 0 }, { max_active_requests: 0 }, 0],
    [{ loads: [3, 9], bound: 0 }, { max_active_requests: 2 }, 1],
    [{ loads: [2, 0], bound: 0 }, { max_active_requests: 2 }, 0],
    [{ loads: [5, 1, 0], eligible: [1, 1, 0], bound: 2 }, { max_active_requests: 0 }, 1],
  ],
  "affinity-break-margin": [
    [{ loads: [11, 0, 0], bound: 0 }, { affinity_break_margin: 2 }, 1],
    [{ loads: [5, 0, 0], bound: 0 }, { affinity_break_margin: 5 }, 0],
    [{ loads: [3, 0, 0], bound: 0 }, { affinity_break_margin: 3 }, 0],
    [{ loads: [5, 0, 0], bound: 0 }, { affinity_break_margin: 3 }, 1],
    [{ loads: [50, 0, 50], bound: 0 }, { affinity_break_margin: 0 }, 1],
    [{ loads: [50, 0, 50], bound: 1 }, { affinity_break_margin: 0 }, 1],
    [{ loads: [0, 0, 0], bound: 1 }, { affinity_break_margin: 2 }, 1],
    [{ loads: [1, 0, 0], bound: 0 }, { affinity_break_margin: 2 }, 0],
    [{ loads: [1, 0, 0], bound: 0 }, { affinity_break_margin: 0 }, 1],
    [{ loads: [1000, 0, 0], bound: 0 }, { affinity_break_margin: null }, 0],
  ],
  "imbalance-gate": [
    [{ loads: [9, 0, 0], bound: 0 }, { balance_abs_threshold: 0, balance_rel_threshold: 1.5 }, 0],
    [{ loads: [9, 0, 0], bound: 0 }, { balance_abs_threshold: 4, balance_rel_threshold: 1.5 }, 1],
    [{ loads: [4, 0, 0], bound: 0 }, { balance_abs_threshold: 4, balance_rel_threshold: 1.5 }, 0],
    [{ loads: [30, 24, 24], bound: 0 }, { balance_abs_threshold: 4, balance_rel_threshold: 1.5 }, 0],
    [{ loads: [9, 0, 1], bound: 2 }, { balance_abs_threshold: 4, balance_rel_threshold: 1.5 }, 1],
    [{ loads: [40, 24, 24], bound: 0 }, { balance_abs_threshold: 4, balance_rel_threshold: 1.5 }, 1],
  ],
  "least-loaded": [
    [{ loads: [3, 1, 2] }, {}, 1],
    [{ loads: [0, 0, 0] }, { ties: "random" }, [0, 1, 2]],
    [{ loads: [1, 0, 0] }, { ties: "random" }, [1, 2]],
    [{ loads: [2, 1, 2] }, { ties: "random" }, 1],
    [{ loads: [3, 3] }, { ties: "random" }, [0, 1]],
    [{ loads: [1, 1] }, { ties: "random" }, [0, 1]],
  ],
  sticky: [
    [{ loads: [0, 0, 0] }, {}, 0],
    [{ loads: [1, 0, 0] }, {}, 1],
    [{ loads: [1, 1, 0] }, {}, 2],
    [{ loads: [3, 1, 0], bound: 0 }, {}, 0],
    [{ loads: [1001, 0, 0], bound: 0 }, {}, 0],
    [{ loads: [0, 1], eligible: [1, 0], bound: 1 }, {}, 0],
    [{ loads: [9, 0], bound: 0 }, { ties: "random" }, 0],
  ],
  "power-of-two": [[{ loads: [5, 1] }, {}, 1]],
};

describe.each(Object.entries(TABLES))("%s as its origin has it", (type, table) => {
  const policy = policyOf(type);
  test.each(
    table.map(([given, parameters, row]) => [textOf(given, parameters), given, parameters, row] as const),
  )("%s", (_, given, parameters, row) => {
    const decision = runnerOf(policy, parameters).run(given);
    expect([row].flat()).toContain(decision.row);
    expect(decision.failure).toBeUndefined();
  });
});

describe("whether a session on the first row stays, rule by rule", () => {
  const rules: [type: string, parameters: Record<string, unknown>, stays: string][] = [
    ["soft-affinity-load-guard", guard(32, 2), "yyyynyn"],
    ["soft-pin-repin", { max_active_requests: 2 }, "yynnnnn"],
    ["affinity-break-margin", { affinity_break_margin: 2 }, "yynynyy"],
    ["imbalance-gate", { balance_abs_threshold: 4 }, "yyyynyy"],
    ["sticky", {}, "yyyyyyy"],
  ];
  const loads = [
    [0, 0, 0],
    [1, 0, 0],
    [3, 0, 0],
    [5, 4, 4],
    [33, 0, 0],
    [33, 32, 32],
    [40, 38, 39],
  ];

  test.each(rules)("%s %j", (type, parameters, stays) => {
    const runner = runnerOf(policyOf(type), parameters);
    const rows = loads.map((loads) => runner.run({ loads, bound: 0 }).row);
    expect(rows.map((row) => (row === 0 ? "y" : "n")).join("")).toBe(stays);
  });
});

describe("sequences", () => {
  const idle = { loads: [0, 0, 0] };

  test("round-robin: four turns on three workers", () => {
    const runner = runnerOf(policyOf("round-robin"), {});
    expect([1, 2, 3, 4].map(() => runner.run(idle).row)).toEqual([0, 1, 2, 0]);
  });

  test("sticky by round-robin: a bound turn does not move the cursor", () => {
    const runner = runnerOf(policyOf("sticky"), { placement: "round-robin" });
    const bound = [-1, 2, -1, -1, -1];
    expect(bound.map((bound) => runner.run({ ...idle, bound }).row)).toEqual([0, 2, 1, 2, 0]);
  });

  test("least-loaded with random ties: 200 turns of an idle fleet of four reach all four", () => {
    const runner = runnerOf(policyOf("least-loaded"), { ties: "random" });
    const rows = Array.from({ length: 200 }, () => runner.run({ loads: [0, 0, 0, 0] }).row);
    expect([...new Set(rows)].sort()).toEqual([0, 1, 2, 3]);
  });

  test("soft-pin-repin at threshold 0: A, then B while A is busy, then B again", () => {
    const runner = runnerOf(policyOf("soft-pin-repin"), { max_active_requests: 0 });
    const turns = [{ loads: [0, 0] }, { loads: [1, 0], bound: 0 }, { loads: [0, 0], bound: 1 }];
    expect(turns.map((turn) => runner.run(turn).row)).toEqual([0, 1, 1]);
  });
});

describe("runExamples", () => {
  const policy = policyOf("round-robin");

  function withExamples(...examples: Omit<Example, "line">[]): PolicyFile {
    const manifest = { ...policy.manifest, examples: examples.map((example) => ({ ...example, line: 1 })) };
    return new PolicyFile(manifest, policy.file, policy.modulePath, { line: 1, column: 1 }, policy.admitted);
  }

  function failuresOf(...steps: Example["steps"]): readonly string[] {
    return runExamples(withExamples({ steps }))[0].failures;
  }

  test("runs every example on an instance of its own", () => {
    const first = { steps: [{ case: { loads: [0, 0] }, expect: { row: 0, reason: "place" } }] };
    const results = runExamples(withExamples(first, first, first));
    expect(results.map(({ failures }) => failures)).toEqual([[], [], []]);
  });

  test.each([
    [{ row: 1, reason: "place" }, "expected row 1, reason place; found row 0, reason place"],
    [{ row: [1, 2], reason: "place" }, "expected row 1 or 2, reason place; found row 0, reason place"],
    [{ row: null, reason: "none" }, "expected no row, reason none; found row 0, reason place"],
    [{ row: 0, reason: "keep" }, "expected row 0, reason keep; found row 0, reason place"],
    [
      { row: 0, reason: "place", failure: "trap" },
      "expected row 0, reason place, failure trap; found row 0, reason place",
    ],
  ])("says what was found where %j was expected", (expect_, message) => {
    expect(failuresOf({ case: { loads: [0, 0, 0] }, expect: expect_ })).toEqual([message]);
  });

  test("accepts one of several rows, and no row", () => {
    expect(failuresOf({ case: { loads: [0, 0] }, expect: { row: [1, 0], reason: "place" } })).toEqual([]);
    const none = { case: { loads: [0], eligible: [0] }, expect: { row: null, reason: "none" } };
    expect(failuresOf(none)).toEqual([]);
    expect(failuresOf({ ...none, expect: { row: [0], reason: "none" } })).toEqual([
      "expected row 0, reason none; found no row, reason none",
    ]);
  });

  test("names the step that went wrong, and goes on with the next", () => {
    const step = (row: number) => ({ case: { loads: [0, 0] }, expect: { row, reason: "place" } });
    expect(failuresOf(step(0), step(0), step(0))).toEqual([
      "step 2: expected row 0, reason place; found row 1, reason place",
    ]);
  });

  test("says what is wrong with a malformed case", () => {
    const expectation = { row: 0, reason: "place" };
    expect(failuresOf({ case: { loads: [0], bound: 3 }, expect: expectation })).toEqual([
      '"bound" must be an integer from -1 to 0, found 3',
    ]);
  });

  test("titles an example by its name, or by its case and parameters", () => {
    const titles = policyOf("soft-affinity-load-guard").manifest.examples.map(titleOf);
    expect(titles[0]).toBe("loads [7,0], bound 0, max_active_requests 7");
    expect(policy.manifest.examples.map(titleOf)[0]).toBe("each once, then the first again");
  });
});

function policyOf(type: string): PolicyFile {
  const policy = catalog.find(type);
  if (!policy) throw new Error(`no policy ${type}`);
  return policy;
}

function runnerOf(policy: PolicyFile, parameters: Record<string, unknown>): CaseRunner {
  const { values, mistakes } = resolveParameters(policy.manifest.parameters, parameters);
  expect(mistakes).toEqual([]);
  return new CaseRunner(policy, values);
}

function textOf(given: Row, parameters: Record<string, unknown>): string {
  return [given, parameters].map((part) => JSON.stringify(part)).join(" ");
}
