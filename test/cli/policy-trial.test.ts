// `hawser policy test --fuzz` and `--against`, and `policy run --debug`.
import { describe, expect, it } from "vitest";
import { ROOT } from "../docs/blocks.js";
import { compileAssembly } from "../fixtures/assembly.js";
import { directoryOf } from "../fixtures/directory.js";
import { hawser } from "./hawser.js";

const yaml = (extra = "") =>
  `abi: 1\ntype: own\nversion: 1.0.0\nsummary: Broken.\nmodule: own.wasm\n${extra}`;

async function policyOf(select: string, extra = ""): Promise<string> {
  const text = `import { activeRequests, answer, isEligible, leastLoaded, KEEP, PLACE, MOVE_LOAD, param, seed, slots } from "../../../assembly/sdk";
export { init } from "../../../assembly/sdk";
let calls = 0;
export function select(n: i32, bound: i32): i32 { ${select} }`;
  return directoryOf({ "own.yaml": yaml(extra), "own.wasm": await compileAssembly({ text }) });
}

const test = (directory: string, ...args: string[]) => hawser(directory, ["policy", "test", ...args]);
const fuzz = (directory: string, ...more: string[]) => test(directory, "own.yaml", "--fuzz", "3000", ...more);
const casesIn = (text: string) => text.split("\n").filter((line) => line.startsWith("{"));

describe("hawser policy test --fuzz", () => {
  const broken: [what: string, select: string, finding: RegExp, cases: readonly object[]][] = [
    [
      "traps",
      "if (n > 2) { if (activeRequests(2) >= 1000) unreachable(); } return answer(leastLoaded(n, false), PLACE);",
      /: trap$/m,
      [{ loads: [0, 0, 1000] }],
    ],
    [
      "keeps without asking whether it may",
      "return answer(bound < 0 ? leastLoaded(n, false) : bound, KEEP);",
      /: not_eligible$/m,
      [{ loads: [0, 0], bound: 1, eligible: [1, 0] }],
    ],
    ["answers a row that is not there", "return answer(n, PLACE);", /: bad_row$/m, [{ loads: [0] }]],
    [
      "gives a reason that is not named",
      "return answer(leastLoaded(n, false), 300);",
      /: bad_reason$/m,
      [{ loads: [0] }],
    ],
    [
      "has no choice",
      "return n > 4 ? -1 : answer(leastLoaded(n, false), PLACE);",
      /: no_choice$/m,
      [{ loads: [0, 0, 0, 0, 0] }],
    ],
    [
      "remembers, though it does not say so",
      "return answer(leastLoaded(n, false), calls++ & 1 ? KEEP : PLACE);",
      /: two answers to the same case/m,
      [{ loads: [0] }],
    ],
    [
      "never ends",
      "if (n === 6) while (true) {} return answer(leastLoaded(n, false), PLACE);",
      /: fuel$/m,
      [{ loads: [0, 0, 0, 0, 0, 0] }],
    ],
  ];
  it.each(broken)("finds a policy that %s, by its smallest case", async (_, select, finding, cases) => {
    const directory = await policyOf(select);
    const { status, stdout } = fuzz(directory);
    expect(status).toBe(1);
    expect(stdout).toMatch(finding);
    expect(casesIn(stdout).map((line) => JSON.parse(line))).toEqual(cases);
    const [, command, decision] = /^ {6}policy run own\.yaml (.*): (\{.*\})$/m.exec(stdout)!;
    const again = hawser(
      directory,
      ["policy", "run", "own.yaml", ...command!.split(" ")],
      casesIn(stdout).join("\n"),
    );
    expect(again.stdout.trimEnd().split("\n").at(-1)).toBe(decision);
  });

  it("finds one that uses more than an honest policy does, with what it used", async () => {
    const directory = await policyOf(
      "let x = 0; for (let i = 0; i < (n > 64 ? 0 : n * 36); i++) x ^= i * activeRequests(x & 7); return answer(leastLoaded(n, false), x === 77 ? KEEP : PLACE);",
    );
    const { status, stdout } = fuzz(directory);
    expect(status).toBe(1);
    const [, used, budget] = /too much fuel: (\d+) of (\d+) units/.exec(stdout)!;
    expect(Number(used)).toBeGreaterThan(0.75 * Number(budget));
    expect(Number(used)).toBeLessThan(0.8 * Number(budget));
  });

  it("shows the cases that lead a stateful policy to where it fails", async () => {
    const directory = await policyOf(
      "if (++calls === 4) unreachable(); return answer(leastLoaded(n, false), PLACE);",
      "stateful: true\n",
    );
    const { status, stdout } = fuzz(directory);
    expect(status).toBe(1);
    expect(casesIn(stdout)).toEqual(Array(4).fill('{"loads":[0]}'));
  });

  it("takes parameters and required ones, and shows what it took", async () => {
    const select = "if (param(0) === 7) unreachable(); return answer(leastLoaded(n, false), PLACE);";
    const directory = await policyOf(select, "parameters:\n  limit: { type: integer, minimum: 3 }\n");
    expect(fuzz(directory)).toMatchObject({ status: 0, stderr: "" });
    const { status, stdout } = fuzz(directory, "--parameters", '{"limit":7}');
    expect([status, stdout]).toEqual([
      1,
      expect.stringContaining(`--capacity 64 --parameters '{"limit":7}': `),
    ]);
    expect(fuzz(directory, "--parameters", '{"limit":1}')).toMatchObject({
      status: 1,
      stderr: "error: --parameters: limit must be an integer of at least 3, found 1\n",
    });
  });

  it("gives what is read: seeds stay in a case that needs them", async () => {
    const select =
      "if (<u32>seed() > 0x7fffffff) { if (slots(0) > 9) unreachable(); } return answer(leastLoaded(n, false), PLACE);";
    const directory = await policyOf(select, "reads: [seed, slots]\n");
    const [found] = casesIn(fuzz(directory).stdout).map((line) => JSON.parse(line));
    expect(found).toEqual({
      loads: [0],
      request: { seed: expect.stringMatching(/^0x/) },
      columns: { slots: [10] },
    });
  });

  it("finds nothing in any shipped policy, and says the same for the same seed", () => {
    const types = [
      "affinity-break-margin",
      "imbalance-gate",
      "least-loaded",
      "power-of-two",
      "random",
      "round-robin",
    ];
    for (const type of [...types, "soft-affinity-load-guard", "soft-pin-repin", "sticky"]) {
      const { status, stdout } = test(ROOT, type, "--fuzz", "1500");
      expect([type, status]).toEqual([type, 0]);
      expect(stdout).toMatch(/^ok {4}1500 random cases, seed 0, fuel \d+ of \d+ units at most$/m);
    }
    expect(test(ROOT, "sticky", "--fuzz", "300", "--seed", "9").stdout).toBe(
      test(ROOT, "sticky", "--fuzz", "300", "--seed", "9").stdout,
    );
  });
});

describe("hawser policy test --against", () => {
  it("shows the smallest case and both answers", () => {
    const flags = [
      "--parameters",
      '{"affinity_break_margin":5}',
      "--against-parameters",
      '{"affinity_break_margin":7}',
    ];
    const { status, stdout } = test(
      ROOT,
      "affinity-break-margin",
      "--against",
      "affinity-break-margin",
      ...flags,
    );
    expect(status).toBe(1);
    expect(casesIn(stdout)).toEqual(['{"loads":[0,6],"bound":1,"request":{"seed":"0x0"}}']);
    expect(stdout).toContain(`'{"affinity_break_margin":5}': {"row":0,"reason":"move_load"}\n`);
    expect(stdout).toContain(`'{"affinity_break_margin":7}': {"row":1,"reason":"keep"}\n`);
  });

  it("takes a file, and is content with two that agree", async () => {
    const directory = await policyOf("return answer(isEligible(bound) ? bound : leastLoaded(n, false), 0);");
    const table = "examples:\n  - { loads: [1], expect: { row: 0, reason: unspecified } }\n";
    const same = await policyOf(
      "return answer(isEligible(bound) ? bound : leastLoaded(n, true), 0);",
      `reads: [seed]\n${table}`,
    );
    const flags = ["--fuzz", "500", "--against"];
    expect(test(directory, "own.yaml", ...flags, "./own.wasm")).toMatchObject({ status: 0, stderr: "" });
    const { status, stdout } = test(directory, "own.yaml", ...flags, `${same}/own.yaml`);
    expect(status).toBe(1);
    expect(JSON.parse(casesIn(stdout)[0]!)).toEqual({
      loads: [0, 0],
      request: { seed: "0xffffffffffffffff" },
    });
  });

  it("shows the cases that lead two stateful policies apart", () => {
    const { stdout } = test(
      ROOT,
      "sticky",
      "--against",
      "round-robin",
      "--parameters",
      '{"placement":"least-loaded"}',
    );
    expect(casesIn(stdout).length).toBeGreaterThanOrEqual(1);
    expect(test(ROOT, "sticky", "--against", "stiky")).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("did you mean"),
    });
  });
});

describe("hawser policy run --debug", () => {
  const source = `import { activeRequests, answer, leastLoaded, PLACE } from "hawser/assembly";
export { init } from "hawser/assembly";
export function select(n: i32, bound: i32): i32 {
  trace("first load", 2, activeRequests(0), n);
  assert(activeRequests(0) < 100, "too much");
  if (n === 5) unreachable();
  return answer(leastLoaded(n, false), n === 4 ? 77 : PLACE);
}
`;
  const debug = (directory: string, input: string, file = "own.ts") =>
    hawser(directory, ["policy", "run", "--debug", file], input);

  it("prints what is traced and asserted, with file, line and message, beside the decisions", () => {
    const directory = directoryOf({ "own.yaml": yaml(), "own.ts": source });
    const cases = [
      { loads: [9, 0] },
      { loads: [100, 0] },
      { loads: [0, 0, 0, 0, 0] },
      { loads: [0, 0, 0, 0] },
      { loads: [1, 7], eligible: [0, 1] },
    ];
    const { status, stdout, stderr } = debug(directory, cases.map((one) => JSON.stringify(one)).join("\n"));
    expect(status).toBe(0);
    expect(stdout.trimEnd().split("\n")).toEqual([
      '{"row":1,"reason":"place"}',
      '{"row":1,"reason":"fallback","failure":"trap"}',
      '{"row":0,"reason":"fallback","failure":"trap"}',
      '{"row":0,"reason":"fallback","failure":"bad_reason"}',
      '{"row":1,"reason":"place"}',
    ]);
    expect(stderr.trimEnd().split("\n")).toEqual([
      "trace: first load 9 2",
      "trace: first load 100 2",
      "abort: too much in own.ts:5:3",
      "trace: first load 0 5",
      expect.stringMatching(/^trap: unreachable in .*select/),
      "trace: first load 0 4",
      "trace: first load 1 2",
    ]);
  });

  it("decides as the module in the gateway does", () => {
    const margin = `${ROOT}docs/examples/margin-assemblyscript/margin-assemblyscript.ts`;
    const cases = Array.from(
      { length: 200 },
      (_, i) => `{"loads":[${i % 7},${i % 5},3],"bound":${(i % 4) - 1}}`,
    ).join("\n");
    const flags = ["--parameters", '{"affinity_break_margin":2}'];
    const debugged = hawser(ROOT, ["policy", "run", "--debug", margin, ...flags], cases);
    expect(debugged.stderr).toBe("");
    expect(debugged.stdout).toBe(
      hawser(ROOT, ["policy", "run", "affinity-break-margin", ...flags], cases).stdout,
    );
  });

  it("refuses what is no source, has no manifest, or does not compile", () => {
    const directory = directoryOf({ "own.yaml": yaml(), "own.ts": "let", "lone.ts": source });
    expect(debug(directory, "", "own.yaml")).toMatchObject({
      status: 1,
      stderr: "error: own.yaml: --debug runs an AssemblyScript source, a .ts file\n",
    });
    expect(debug(directory, "", "lone.ts").stderr).toBe(
      "error: lone.ts: there is no manifest lone.yaml beside it\n",
    );
    expect(debug(directory, "")).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("in own.ts(1,"),
    });
  });
});
