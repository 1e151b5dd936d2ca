import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { MAIN } from "../e2e/fleet.js";
import { HAS_CLANG } from "../fixtures/compilers.js";
import { directoryOf } from "../fixtures/directory.js";
import { hawser } from "./hawser.js";

const yaml = (extra = "") => `abi: 1
type: own
version: 1.0.0
summary: Always row 0.
module: own.wasm
${extra}examples:
  - { loads: [3, 1], expect: { row: 0, reason: place } }
`;
const wat = (answer = 5 << 16) => `(module (memory (export "memory") 16)
  (func (export "init") (param i32) (result i32) (i32.const 64))
  (func (export "select") (param i32 i32) (result i32) (i32.const ${answer})))
`;
const ts = (body = "return answer(0, PLACE);") => `import { answer, PLACE } from "hawser/assembly";
export { init } from "hawser/assembly";
export function select(n: i32, bound: i32): i32 {
  ${body}
}
`;
const build = (directory: string, ...args: string[]) => hawser(directory, ["policy", "build", ...args]);

describe("hawser policy build", () => {
  it("writes a module that can travel alone, and tells its size and fuel", () => {
    const directory = directoryOf({ "own/own.yaml": yaml(), "own/own.wat": wat() });
    const { status, stdout, stderr } = build(directory, "own");
    expect([status, stderr]).toEqual([0, ""]);
    const bytes = readFileSync(join(directory, "own/own.wasm")).length;
    expect(stdout).toBe(
      `ok    loads [3,1]\n1 passed, 0 failed\nown/own.wasm: ${bytes} bytes, fuel 2 of 94000 units at most with up to 64 rows\n`,
    );
    mkdirSync(join(directory, "else"));
    copyFileSync(join(directory, "own/own.wasm"), join(directory, "else/any.wasm"));
    expect(hawser(directory, ["policy", "test", "else/any.wasm"])).toMatchObject({ status: 0, stderr: "" });
    expect(readdirSync(join(directory, "own")).sort()).toEqual(["own.wasm", "own.wat", "own.yaml"]);
  });

  it("keeps the compiler's words with file and line, and the module that was there", () => {
    const directory = directoryOf({
      "own/own.yaml": yaml(),
      "own/own.ts": ts("return anser(0, PLACE);"),
      "own/own.wasm": "old",
    });
    const { status, stderr } = build(directory, "own");
    expect(status).toBe(1);
    expect(stderr).toContain("Cannot find name 'anser'");
    expect(stderr).toContain("in own/own.ts(4,10)");
    expect(readFileSync(join(directory, "own/own.wasm"), "utf8")).toBe("old");
    rmSync(join(directory, "own/own.ts"));
    writeFileSync(join(directory, "own/own.wat"), "(module\n  (func (local.get 0)))");
    expect(build(directory, "own")).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^error: own\/own\.wat:2:20: error: /),
    });
  });

  it.skipIf(!HAS_CLANG)("keeps what clang says (needs clang and wasm-ld)", () => {
    const directory = directoryOf({
      "own.yaml": yaml(),
      "own.c": '#include "hawser.h"\nint init(int c) { return d; }\n',
    });
    expect(build(directory)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^error: own\.c:2:26: error: /),
    });
  });

  it("says in one sentence that a compiler is not installed", () => {
    const directory = directoryOf({ "own.yaml": yaml(), "own.c": "" });
    const path = process.env.PATH;
    onTestFinished(() => {
      process.env.PATH = path;
    });
    process.env.PATH = directory;
    expect(build(directory)).toMatchObject({
      status: 1,
      stderr:
        "error: own.c: the policy is written in C, which needs clang and lld (Debian: apt-get install clang lld)\n",
    });
  });

  it("fails with the table, with a policy that fails, and with one that no gateway takes", () => {
    const wrong = directoryOf({ "own.yaml": yaml(), "own.wat": wat(1 | (5 << 16)) });
    expect(build(wrong)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining("0 passed, 1 failed\n"),
      stderr: "error: select fails with 1 rows and bound -1: bad_row\n",
    });
    const traced = directoryOf({ "own.yaml": yaml(), "own.ts": ts("trace('x'); return answer(0, PLACE);") });
    expect(build(traced)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(
        /^error: own\.ts: the module is refused: .*"env\.trace", a policy may import nothing\n$/,
      ),
    });
    expect(existsSync(join(traced, "own.wasm"))).toBe(false);
    const bare = directoryOf({ "own.yaml": yaml().split("examples")[0]!, "own.wat": wat() });
    expect(build(bare)).toMatchObject({ status: 1, stderr: expect.stringContaining("no examples to test") });
  });

  it("warns of what this gateway cannot fill", () => {
    const directory = directoryOf({ "own.yaml": yaml("reads: [service_ms]\n"), "own.wat": wat() });
    expect(build(directory)).toMatchObject({
      status: 0,
      stderr: "warning: the policy own reads service_ms, which this host cannot fill\n",
    });
  });

  it.each([
    [
      "no manifest",
      { "own.wat": wat() },
      'there must be one manifest, a .yaml file with "abi"; found no manifest',
    ],
    ["two manifests", { "a.yaml": yaml(), "b.yaml": yaml() }, "found 2 manifests"],
    [
      "no source",
      { "own.yaml": yaml(), "other.ts": "" },
      "one source file of own.ts, own.c, own.rs, own.wat; found none",
    ],
    ["two sources", { "own.yaml": yaml(), "own.wat": "", "own.c": "" }, "found own.c, own.wat"],
    [
      "a broken manifest",
      { "own.yaml": yaml().replace("1.0.0", "one"), "own.wat": wat() },
      "own.yaml:3:10: version must be",
    ],
  ])("refuses a folder with %s", (_, files, message) => {
    expect(build(directoryOf(files))).toMatchObject({
      status: 1,
      stdout: "",
      stderr: expect.stringContaining(message),
    });
  });

  it("takes other YAML in the folder for what it is", () => {
    const directory = directoryOf({ "own.yaml": yaml(), "own.wat": wat(), "hawser.yaml": "workers: []\n" });
    expect(build(directory).status).toBe(0);
  });
});

/** The lines that a process has printed, and waits for more. */
class Printed {
  text = "";
  readonly #child: ChildProcess;

  constructor(child: ChildProcess) {
    this.#child = child;
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding("utf8").on("data", (chunk: string) => {
        this.text += chunk;
        child.emit("printed");
      });
    }
  }

  /** Waits until what is printed from now on matches, with a round's end behind it. */
  async round(change: () => void, pattern: RegExp): Promise<void> {
    const before = this.text.length;
    change();
    while (!pattern.test(this.text.slice(before))) await once(this.#child, "printed");
  }
}

describe("hawser policy build --watch", () => {
  it("builds at every change and outlives a broken source and a broken manifest", async () => {
    const directory = directoryOf({ "own.yaml": yaml(), "own.wat": wat() });
    const child = spawn(process.execPath, [MAIN, "policy", "build", "--watch"], { cwd: directory });
    onTestFinished(() => void child.kill("SIGKILL"));
    const printed = new Printed(child);
    const put = (name: string, text: string) => () => writeFileSync(join(directory, name), text);
    await printed.round(() => {}, /1 passed, 0 failed[\s\S]*watching \.\n/);
    await printed.round(put("own.wat", "(module"), /error: [\s\S]*watching \.\n/);
    await printed.round(put("own.wat", wat()), /1 passed, 0 failed[\s\S]*watching \.\n/);
    await printed.round(put("own.yaml", "abi: [\n"), /error: own\.yaml:[\s\S]*watching \.\n/);
    await printed.round(
      put("own.yaml", yaml().replace("row: 0", "row: 1")),
      /0 passed, 1 failed[\s\S]*watching \.\n/,
    );
    await printed.round(put("own.yaml", yaml()), /1 passed, 0 failed[\s\S]*watching \.\n/);
    expect(child.exitCode).toBe(null);
  });
});
