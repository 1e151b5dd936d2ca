import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { admit } from "../../host/sandbox/admit.js";
import { ROOT } from "../docs/blocks.js";
import { compileAssembly } from "../fixtures/assembly.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule, type ModuleParts } from "../fixtures/wasm.js";
import { hawser } from "./hawser.js";

const manifest = { abi: 1, type: "own", version: "1.0.0", summary: "Always row 0." };
const inspect = (directory: string, ...args: string[]) => hawser(directory, ["policy", "inspect", ...args]);
const lastLine = (text: string) => text.trimEnd().split("\n").at(-1)!;

describe("hawser policy inspect", () => {
  it("shows sizes, exports, memory, code, the manifest, a metered dry run, and the verdict", () => {
    const { status, stdout, stderr } = inspect(ROOT, "build/affinity-break-margin.wasm");
    expect([status, stderr]).toEqual([0, ""]);
    const { report } = admit(readFileSync(`${ROOT}build/affinity-break-margin.wasm`));
    const { bytes, meteredBytes, functions, loops, instructions, chargePoints } = report;
    expect(stdout).toContain(`module      ${bytes} bytes, ${meteredBytes} with the meter in it\n`);
    expect(stdout).toContain(
      `functions ${functions}, loops ${loops}, instructions ${instructions}, charge points ${chargePoints}\n`,
    );
    expect(stdout).toMatch(/^exports {5}.*\bmemory\b/m);
    expect(stdout).toContain("memory      16 pages of 64 KiB\n");
    expect(stdout).toContain("manifest    affinity-break-margin 1.0.0, ABI 1, from ");
    expect(stdout).toContain(
      "parameter   affinity_break_margin: an integer of at least 0, or null; default null\n",
    );
    expect(
      stdout.match(/^dry run {5}rows 4, bound (-1|[0-3]): row [0-3], (place|keep), fuel \d+$/gm)?.length,
    ).toBe(5);
    expect(stdout).toMatch(/^fuel {8}\d+ of 94000 units at most, with up to 64 rows$/m);
    expect(lastLine(stdout)).toBe("admitted");
  });

  it("says the same as JSON", () => {
    const { status, stdout } = inspect(ROOT, "build/soft-pin-repin.wasm", "--json");
    const found = JSON.parse(stdout);
    expect(status).toBe(0);
    expect(found).toMatchObject({ verdict: "admitted", refusals: [], manifest: { type: "soft-pin-repin" } });
    expect(found.module).toEqual(admit(readFileSync(`${ROOT}build/soft-pin-repin.wasm`)).report);
    expect(found.dry_run.decisions.length).toBe(2 + 5 + 65);
    const fuels = found.dry_run.decisions.map(({ fuel }: { fuel: number }) => fuel);
    expect(Math.min(...fuels)).toBeGreaterThan(0);
    expect(found.dry_run.mostFuel).toBe(Math.max(...fuels));
  });

  const refused: [what: string, parts: ModuleParts, verdict: string][] = [
    ["has no manifest", {}, "the module has no manifest"],
    ["has a manifest that is not JSON", { manifest: "{" }, "the embedded manifest is not JSON"],
    [
      "has an invalid manifest",
      { manifest: { ...manifest, version: "one" } },
      "version must be a version such as 1.0.0",
    ],
    [
      "is of another ABI",
      { manifest: { ...manifest, abi: 2 } },
      "abi must be 1, the only ABI that this host speaks",
    ],
    [
      "reads an unknown column",
      { manifest: { ...manifest, reads: ["wieght"] } },
      'names "wieght", which no frame has',
    ],
    [
      "reads what the host cannot fill",
      { manifest: { ...manifest, reads: ["service_ms"] } },
      "reads service_ms, which this host",
    ],
    [
      "imports",
      { manifest, importing: { module: "env", name: "abort" } },
      'imports the function "env.abort"',
    ],
    ["lacks an export", { manifest, without: ["init"] }, 'must export a function "init"'],
    ["answers a bad row", { manifest, answer: 2 | (5 << 16) }, "with 1 rows and bound -1: bad_row"],
  ];
  it.each(refused)("refuses a module that %s", (_, parts, verdict) => {
    const directory = directoryOf({ "own.wasm": encodeModule(parts) });
    const { status, stdout } = inspect(directory, "own.wasm");
    expect(status).toBe(1);
    expect(lastLine(stdout)).toMatch(/^refused: /);
    expect(lastLine(stdout)).toContain(verdict);
    expect(JSON.parse(inspect(directory, "own.wasm", "--json").stdout).verdict).toBe("refused");
  });

  it("refuses one whose init does not take the capacity, or whose select never ends, and what is not there", async () => {
    const text = async (source: string) => await compileAssembly({ text: source });
    const directory = directoryOf({
      "own.yaml": `abi: 1\ntype: own\nversion: 1.0.0\nsummary: No.\nmodule: own.wasm\n`,
      "own.wasm": await text(
        "export function init(c: i32): i32 { return -7 } export function select(n: i32, b: i32): i32 { return 0 }",
      ),
      "endless/own.yaml": `abi: 1\ntype: own\nversion: 1.0.0\nsummary: No.\nmodule: own.wasm\n`,
      "endless/own.wasm": await text(
        'export { init } from "../../../assembly/sdk"; export function select(n: i32, b: i32): i32 { while (true) {} return 0 }',
      ),
    });
    expect(lastLine(inspect(directory, "own.wasm").stdout)).toBe(
      "refused: init refuses a capacity of 64: it answers -7",
    );
    expect(lastLine(inspect(directory, "endless/own.yaml").stdout)).toMatch(
      /^refused: select fails .*: fuel$/,
    );
    expect(inspect(directory, "none.wasm")).toMatchObject({ status: 1, stderr: "" });
  });
});
