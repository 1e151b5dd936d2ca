import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { ROOT } from "../docs/blocks.js";
import { HAS_CLANG } from "../fixtures/compilers.js";
import { directoryOf } from "../fixtures/directory.js";
import { hawser } from "./hawser.js";

describe("hawser policy new", () => {
  it("makes a folder that builds and passes its table at once", () => {
    const directory = directoryOf({});
    expect(hawser(directory, ["policy", "new", "my-policy"])).toMatchObject({ status: 0, stderr: "" });
    const folder = join(directory, "my-policy");
    expect(readdirSync(folder).sort()).toEqual([
      ...["README.md", "my-policy.ts", "my-policy.yaml", "package.json", "tsconfig.json"],
    ]);
    for (const name of readdirSync(folder))
      expect(readFileSync(join(folder, name), "utf8")).not.toMatch(/@[A-Z]+@/);
    const built = hawser(folder, ["policy", "build"]);
    expect(built).toMatchObject({ status: 0, stderr: "" });
    expect(built.stdout).toMatch(
      /^6 passed, 0 failed\nmy-policy\.wasm: \d+ bytes, fuel \d+ of 94000 units at most/m,
    );
    expect(hawser(folder, ["policy", "test", "my-policy.yaml", "--fuzz", "500"]).status).toBe(0);
  });

  it("never asks a registry for this package", () => {
    const directory = directoryOf({});
    hawser(directory, ["policy", "new", "a/b/deep"]);
    const folder = join(directory, "a/b/deep");
    const { hawser: spec } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).devDependencies;
    expect(spec).toMatch(/^file:/);
    expect(resolve(folder, spec.slice("file:".length))).toBe(resolve(ROOT));
  });

  it.skipIf(!HAS_CLANG)("does so in C (needs clang and wasm-ld)", () => {
    const directory = directoryOf({});
    hawser(directory, ["policy", "new", "in-c", "--language", "c"]);
    const built = hawser(directory, ["policy", "build", "in-c"]);
    expect(built).toMatchObject({ status: 0, stderr: "" });
    expect(built.stdout).toMatch(/^6 passed, 0 failed\nin-c\/in-c\.wasm: /m);
    expect(hawser(directory, ["policy", "test", "in-c/in-c.yaml", "--fuzz", "500"]).status).toBe(0);
  });

  it("never overwrites, and writes nothing where it would", () => {
    const directory = directoryOf({ "mine/README.md": "mine" });
    expect(hawser(directory, ["policy", "new", "mine"])).toMatchObject({
      status: 1,
      stderr: "error: mine/README.md is there already, nothing was written\n",
    });
    expect(readdirSync(join(directory, "mine"))).toEqual(["README.md"]);
    expect(readFileSync(join(directory, "mine/README.md"), "utf8")).toBe("mine");
  });

  it.each(["My", "a_b", "default", "-a", "x".repeat(65)])("refuses the name %s", (name) => {
    const directory = directoryOf({});
    expect(hawser(directory, ["policy", "new", "--", name])).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("a policy's name is lower-case words joined by dashes"),
    });
    expect(existsSync(join(directory, name))).toBe(false);
  });
});
