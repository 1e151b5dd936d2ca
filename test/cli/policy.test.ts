import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ROOT } from "../docs/blocks.js";
import { MAIN } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";
import { hawser } from "./hawser.js";

const manifest = { abi: 1, type: "own", version: "1.0.0", summary: "Always row 0.", module: "own.wasm" };
const yaml = (extra = "") =>
  `abi: 1\ntype: own\nversion: 1.0.0\nsummary: Always row 0.\nmodule: own.wasm\n${extra}`;

const run = (input: string, args: string[], directory = ROOT) =>
  hawser(directory, ["policy", "run", ...args], input);

describe("hawser policy run", () => {
  it("writes a decision for every case, state kept from one to the next", () => {
    const cases =
      '{"loads":[0,0]}\n{"loads":[0,0]}\n\n{"loads":[0,0],"bound":1}\n{"loads":[0],"eligible":[0]}\n';
    expect(run(cases, ["round-robin"])).toEqual({
      status: 0,
      stdout:
        '{"row":0,"reason":"place"}\n{"row":1,"reason":"place"}\n{"row":0,"reason":"move_load"}\n{"row":null,"reason":"none"}\n',
      stderr: "",
    });
  });

  it("takes every field and column of the ABI", () => {
    const input =
      '{"loads":[7,0], "eligible":[1,1], "bound":0, "request":{"prompt_blocks":10}, "columns":{"cached_blocks":[0,6]}}';
    expect(run(input, ["dynamo-soft-affinity-load-guard"]).stdout).toBe('{"row":0,"reason":"keep"}\n');
  });

  it("takes parameters by name and refuses what the policy does not take", () => {
    const guard = (json: string) =>
      run('{"loads":[8,6],"bound":0}\n', ["soft-affinity-load-guard", "--parameters", json]);
    expect(guard('{"max_active_requests":7}').stdout).toBe('{"row":1,"reason":"move_load"}\n');
    expect(guard('{"move_margin":0}')).toMatchObject({
      status: 1,
      stderr: "error: --parameters: move_margin must be an integer of at least 1, found 0\n",
    });
    expect(guard("[1]").status).toBe(1);
    expect(run("", ["soft-pin-repin"]).stderr).toContain('the parameter "max_active_requests" is required');
  });

  it("repeats itself for a seed and differs for another", () => {
    const cases = '{"loads":[0,0,0,0,0,0,0,0]}\n'.repeat(20);
    const draws = (seed: string) => run(cases, ["random", "--seed", seed]).stdout;
    expect(draws("7")).toBe(draws("7"));
    expect(draws("7")).not.toBe(draws("8"));
    expect(run(cases, ["random"]).stdout).toBe(draws("0"));
  });

  it("stops at a broken line with its number, after the decisions before it", () => {
    const first = '{"loads":[1,0]}\n';
    const decided = '{"row":1,"reason":"place"}\n';
    expect(run(`${first}\n{"loads":[1,0],"bond":0}\n${first}`, ["sticky"])).toEqual({
      status: 1,
      stdout: decided,
      stderr:
        'error: line 3: a case has an unknown key "bond", allowed are loads, eligible, bound, request, columns\n',
    });
    const broken = run(`${first}{"loads":`, ["sticky"]);
    expect([broken.status, broken.stdout]).toEqual([1, decided]);
    expect(broken.stderr).toMatch(/^error: line 2: not valid JSON: /);
  });

  it("has 4,096 rows unless told otherwise", () => {
    const rows = (count: number) => `{"loads":[${Array(count).fill(1).join()}]}\n`;
    expect(run(rows(4_096), ["sticky"]).status).toBe(0);
    expect(run(rows(4_097), ["sticky"]).stderr).toBe(
      'error: line 1: "loads" has 4097 rows, the capacity is 4096\n',
    );
    expect(run(rows(9_000), ["sticky", "--capacity", "16384"]).status).toBe(0);
    expect(run(rows(5), ["sticky", "--capacity", "4"]).status).toBe(1);
    expect(run("", ["sticky", "--capacity", "16385"]).status).toBe(1);
  });

  it("takes a manifest, a module with its manifest beside it, and a module that carries its own", () => {
    const module = encodeModule({ answer: 5 << 16 });
    const directory = directoryOf({
      "own.yaml": yaml(),
      "own.wasm": module,
      "alone/own.wasm": encodeModule({ manifest, answer: 5 << 16 }),
      "bare/own.wasm": module,
    });
    for (const file of ["own.yaml", "./own.wasm", "alone/own.wasm"]) {
      expect(run('{"loads":[9,0]}', [file], directory)).toMatchObject({
        status: 0,
        stdout: '{"row":0,"reason":"place"}\n',
      });
    }
    expect(run('{"loads":[9,0]}', ["own", "--path", "."], directory).status).toBe(0);
    const bare = run("", ["bare/own.wasm"], directory);
    expect([bare.status, bare.stdout]).toEqual([1, ""]);
    expect(bare.stderr).toContain("the module has no manifest: neither inside it nor in own.yaml beside it");
  });

  it("shows the built-in rule's row and the failure where the policy fails", () => {
    const directory = directoryOf({
      "own.yaml": yaml(),
      "own.wasm": encodeModule({ answer: 3 | (5 << 16) }),
    });
    expect(
      run('{"loads":[9,0]}\n{"loads":[9,0,0,0],"eligible":[1,1,1,0]}', ["own.yaml"], directory).stdout,
    ).toBe(
      '{"row":1,"reason":"fallback","failure":"bad_row"}\n{"row":1,"reason":"fallback","failure":"not_eligible"}\n',
    );
  });

  it("names the policies there are where there is none of a name", () => {
    expect(run("", ["stiky"]).stderr).toMatch(
      /^error: there is no policy type "stiky", did you mean "sticky"\? \(known: aff/,
    );
  });

  it("says why where the address space is limited (G6)", () => {
    const command = `ulimit -v 8000000; echo '{"loads":[0]}' | ${process.execPath} ${MAIN} policy run sticky`;
    const { status, stderr } = spawnSync("bash", ["-c", command], { encoding: "utf8" });
    expect(status).toBe(1);
    expect(stderr).toMatch(
      /^error: the module cannot be instantiated: .*; an instance reserves about 10 GB of address space, see ulimit -v$/m,
    );
  });

  it("names what it cannot spell out", () => {
    const deep = `${"[".repeat(8_000)}${"]".repeat(8_000)}`;
    expect(run(`{"loads":[${deep}]}`, ["sticky"]).stderr).toBe(
      'error: line 1: "loads"[0] must be an integer from 0 to 2147483647, found a list\n',
    );
    expect(run('{"loads":[1e400]}', ["sticky"]).stderr).toContain("found Infinity");
  });

  it("decides 100,000 cases in one go", () => {
    const cases = Array.from(
      { length: 100_000 },
      (_, i) => `{"loads":[${i % 7},${i % 5},3],"bound":${(i % 4) - 1}}`,
    );
    const { status, stdout } = run(cases.join("\n"), [
      "affinity-break-margin",
      "--parameters",
      '{"affinity_break_margin":2}',
    ]);
    const lines = stdout.trimEnd().split("\n");
    expect([status, lines.length]).toEqual([0, 100_000]);
    expect(lines.at(-1)).toBe('{"row":2,"reason":"keep"}');
  });
});

describe("hawser policy test", () => {
  const test = (name: string, directory = ROOT) => hawser(directory, ["policy", "test", name]);

  it("runs a shipped policy's decision table", () => {
    expect(test("round-robin")).toMatchObject({ status: 0, stderr: "" });
    expect(test("round-robin").stdout).toMatch(
      /^ok {4}each once, then the first again\n[\s\S]*\n9 passed, 0 failed\n$/,
    );
  });

  it("shows what was expected and what was found, and exits with 1", () => {
    const examples = `examples:
  - { loads: [0, 1], expect: { row: 0, reason: place } }
  - { loads: [0, 1], expect: { row: 1, reason: keep } }
  - { loads: [0, 1], eligible: [0, 0], expect: { row: null, reason: none } }
`;
    const directory = directoryOf({ "own.yaml": yaml(examples), "own.wasm": encodeModule() });
    expect(test("own.yaml", directory)).toMatchObject({
      status: 1,
      stdout: `ok    loads [0,1]
FAIL  loads [0,1]
      expected row 1, reason keep; found row 0, reason place
ok    loads [0,1], eligible [0,0]
2 passed, 1 failed
`,
    });
  });

  it("is no success without a table, or with a module that cannot be used", () => {
    const directory = directoryOf({
      "own.yaml": yaml(),
      "own.wasm": encodeModule(),
      "no.yaml": yaml().replace("own.wasm", "x.wasm"),
    });
    expect(test("own.yaml", directory)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("no examples to test"),
    });
    expect(test("no.yaml", directory)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^error: no\.yaml:5:9: /),
    });
  });
});

it("every shipped manifest has at least eight examples", () => {
  const types = JSON.parse(hawser(ROOT, ["policy", "list", "--json"]).stdout) as {
    type: string;
    file: string;
  }[];
  expect(types.length).toBe(9);
  for (const { type } of types) {
    const table = readFileSync(join(ROOT, "policies", `${type}.yaml`), "utf8").split("examples:")[1]!;
    expect(table.match(/^ {2}- /gm)!.length, type).toBeGreaterThanOrEqual(8);
  }
});
