import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";
import { hawser } from "./hawser.js";

function list(...args: string[]) {
  return hawser(tmpdir(), ["policy", "list", ...args]);
}

const OWN = `abi: 1
type: own
aliases: [mine]
version: 1.2.3
summary: Do as I say.
module: own.wasm
parameters:
  limit: { type: integer, minimum: 1, default: 4, description: How many. }
  mode: { type: enum, values: [a, b] }
`;

test("each policy is shown with its parameters, aliases and file", () => {
  const directory = directoryOf({ "own.yaml": OWN, "own.wasm": encodeModule() });
  const { status, stdout, stderr } = list("--path", directory);
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toContain(
    [
      "own 1.2.3",
      "  Do as I say.",
      "  aliases: mine",
      "  - limit (an integer of at least 1; default 4): How many.",
      "  - mode (one of a, b; required)",
      `  from ${join(directory, "own.yaml")}`,
      "",
    ].join("\n"),
  );
});

test("JSON holds the same, sorted by type", () => {
  const directory = directoryOf({ "own.yaml": OWN, "own.wasm": encodeModule() });
  const { status, stdout } = list("--json", "--path", directory);
  const policies: { type: string }[] = JSON.parse(stdout);
  const types = policies.map(({ type }) => type);
  expect(status).toBe(0);
  expect(types).toEqual([...types].sort());
  expect(types).toContain("soft-affinity-load-guard");
  expect(policies.find(({ type }) => type === "own")).toMatchObject({
    ...{
      aliases: ["mine"],
      version: "1.2.3",
      file: join(directory, "own.yaml"),
      module: join(directory, "own.wasm"),
    },
    parameters: [
      { name: "limit", type: "integer", minimum: 1, default: 4 },
      { name: "mode", type: "enum", values: ["a", "b"] },
    ],
  });
});

test("broken ones are told on stderr, with exit code 1, and the others are listed", () => {
  const directory = directoryOf({ "own.yaml": OWN, "z.yaml": "abi: 1\ntype: Z\n" });
  const { status, stdout, stderr } = list("--path", directory);
  expect(status).toBe(1);
  expect(stdout).toContain("soft-affinity-load-guard");
  expect(stdout).not.toContain("own 1.2.3");
  expect(stderr.replaceAll(`${directory}/`, "").trim().split("\n").sort()).toEqual([
    "own.yaml:6:9: cannot use the module own.wasm: it does not exist",
    'z.yaml:1:1: the manifest needs the key "summary"',
    'z.yaml:1:1: the manifest needs the key "version"',
    expect.stringContaining("z.yaml:2:7: type must be lower-case words joined by dashes"),
  ]);
});
