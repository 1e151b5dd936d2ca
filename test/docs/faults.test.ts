// docs/faults.md names the tests of every fault, and every fault that a test names is in it.
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ROOT } from "./blocks.js";

const lines = [
  ...readFileSync(`${ROOT}docs/faults.md`, "utf8").matchAll(/^\| ([A-H]\d+) \|.*\| ([^|]+) \|$/gm),
];
const rows = lines.flatMap(([, id, files]) => files!.split(", ").map((file) => [id!, file] as const));

/** Fault ids in the names of a test file's tests: `... (ID, ID)`. */
function idsIn(file: string): string[] {
  const names = [...readFileSync(file, "utf8").matchAll(/\(([A-H]\d+(?:, [A-H]\d+)*)\)["`]/g)];
  return names.flatMap(([, ids]) => ids!.split(", "));
}

describe("docs/faults.md", () => {
  it.each(rows)("%s is proved in %s", (id, file) => {
    expect(idsIn(`${ROOT}test/${file}.test.ts`)).toContain(id);
  });

  it("lists every fault that a test names", () => {
    const listed = rows.map(([id, file]) => `${id} ${file}`);
    const files = readdirSync(`${ROOT}test`, { recursive: true, encoding: "utf8" }).filter((name) =>
      name.endsWith(".test.ts"),
    );
    const named = files.flatMap((name) =>
      idsIn(`${ROOT}test/${name}`).map((id) => `${id} ${name.slice(0, -".test.ts".length)}`),
    );
    expect(named.filter((name) => !listed.includes(name))).toEqual([]);
    expect(named.length).toBeGreaterThanOrEqual(rows.length);
  });
});
