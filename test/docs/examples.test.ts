// The worked examples: one rule in four languages, each built by the kit and held against the shipped policy.
import { cpSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadPolicyFile } from "../../host/policy/catalog.js";
import { hawser } from "../cli/hawser.js";
import { HAS_CLANG, HAS_RUST } from "../fixtures/compilers.js";
import { directoryOf } from "../fixtures/directory.js";
import { ROOT } from "./blocks.js";

const SHIPPED = "affinity-break-margin";
const languages = [
  { language: "assemblyscript", needs: "nothing", skipped: false },
  { language: "wat", needs: "nothing", skipped: false },
  { language: "c", needs: "clang and wasm-ld", skipped: !HAS_CLANG },
  ...(HAS_RUST ? [{ language: "rust", needs: "rustc with wasm32-unknown-unknown", skipped: false }] : []),
];

function build(language: string) {
  const directory = directoryOf({});
  cpSync(`${ROOT}docs/examples/margin-${language}`, directory, {
    recursive: true,
    filter: (name) => !name.endsWith(".wasm"),
  });
  return { directory, ended: hawser(directory, ["policy", "build"]), name: `margin-${language}` };
}

describe.each(languages)("margin-$language (needs $needs)", ({ language, skipped }) => {
  it.skipIf(skipped)("builds, passes its table, and decides as the shipped policy does", () => {
    const { directory, ended, name } = build(language);
    expect(ended).toMatchObject({ status: 0, stderr: "" });
    expect(ended.stdout).toContain("7 passed, 0 failed\n");
    for (const parameters of ["{}", '{"affinity_break_margin":0}', '{"affinity_break_margin":3}']) {
      const flags = ["--parameters", parameters, "--against-parameters", parameters];
      const tested = hawser(directory, [
        "policy",
        "test",
        `${name}.yaml`,
        "--fuzz",
        "500",
        "--against",
        SHIPPED,
        ...flags,
      ]);
      expect(tested.status, tested.stdout).toBe(0);
      expect(tested.stdout).toContain(`ok    500 random cases, seed 0, decided as ${SHIPPED} decides\n`);
    }
    expect(hawser(directory, ["policy", "inspect", `${name}.wasm`]).stdout).toMatch(/\nadmitted\n$/);
  });

  it.skipIf(skipped)("has room for the largest pool", () => {
    const { directory, name } = build(language);
    const loads = Array.from({ length: 16_384 }, (_, row) => 16_384 - row);
    const run = ["policy", "run", `${name}.wasm`, "--capacity", "16384"];
    expect(hawser(directory, run, JSON.stringify({ loads })).stdout).toBe('{"row":16383,"reason":"place"}\n');
    expect(loadPolicyFile(join(directory, `${name}.wasm`)).mistakes).toEqual([]);
  });
});

// Rust's target comes in no package that CI could install: without it the build has to say what is missing.
if (!HAS_RUST) {
  it("margin-rust, where it cannot be built, names what is missing", () => {
    const { ended } = build("rust");
    expect(ended.status).toBe(1);
    expect(ended.stderr).toContain("wasm32-unknown-unknown");
  });
}
