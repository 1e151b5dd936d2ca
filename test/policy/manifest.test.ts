import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SHIPPED_POLICIES } from "../../host/policy/catalog.js";
import { parseManifest, parseManifestJson } from "../../host/policy/manifest.js";
import { formatMistake } from "../../host/yaml/mistake.js";

const GOOD = `abi: 1
type: spill-over
aliases: [spill]
version: 1.2.3
summary: Keep a session until its worker is full.
module: spill-over.wasm
reads: [seed, slots]
stateful: true
parameters:
  limit: { type: integer, minimum: 1, default: 4, description: How many. }
  ties: { type: enum, values: [first, random], default: first }
reasons: { 256: spilled }
examples:
  - { name: full, loads: [5, 0], bound: 0, parameters: { limit: 5 }, expect: { row: [0, 1], reason: spilled } }
  - steps:
      - { loads: [0], expect: { row: 0, reason: place } }
      - { loads: [0], eligible: [0], expect: { row: null, reason: none } }
      - { loads: [0], expect: { row: 0, reason: fallback, failure: trap } }
`;
const lines = GOOD.split("\n");

const problems = (text: string) => parseManifest(text, "p.yaml").mistakes.map(formatMistake);
/** The good manifest with some of its lines (from 1) replaced. */
function withLines(replaced: Readonly<Record<number, string>>): string {
  return lines.map((line, index) => replaced[index + 1] ?? line).join("\n");
}

test("a manifest is read", () => {
  const { manifest, mistakes } = parseManifest(GOOD, "p.yaml");
  expect(mistakes).toEqual([]);
  expect(manifest).toMatchObject({
    ...{ abi: 1, type: "spill-over", aliases: ["spill"], version: "1.2.3", module: "spill-over.wasm" },
    ...{ summary: "Keep a session until its worker is full.", reads: ["seed", "slots"], stateful: true },
    reasons: new Map([[256, "spilled"]]),
  });
  expect(manifest?.parameters).toEqual([
    { name: "limit", type: "integer", minimum: 1, default: 4, nullable: false, description: "How many." },
    { name: "ties", type: "enum", values: ["first", "random"], default: "first", nullable: false },
  ]);
});

test("an example without steps is one step; the case is kept as written", () => {
  const [single, several] = parseManifest(GOOD, "p.yaml").manifest!.examples;
  expect(single).toEqual({
    ...{ name: "full", parameters: { limit: 5 }, line: 14 },
    steps: [{ case: { loads: [5, 0], bound: 0 }, expect: { row: [0, 1], reason: "spilled" } }],
  });
  expect(several.line).toBe(15);
  expect(several.steps.map((step) => step.expect.reason)).toEqual(["place", "none", "fallback"]);
  expect(several.steps[1].case).toEqual({ loads: [0], eligible: [0] });
});

test("what may be left out has its default", () => {
  const { manifest } = parseManifest(
    "abi: 1\ntype: t\nversion: 1.0.0\nsummary: S.\nmodule: t.wasm\n",
    "p.yaml",
  );
  expect(manifest).toMatchObject({ aliases: [], reads: [], stateful: false, parameters: [], examples: [] });
});

describe("one mistake, one line", () => {
  test.each<[Record<number, string>, string]>([
    [{ 1: "abi: 2" }, "p.yaml:1:6: abi must be 1, the only ABI that this host speaks, found 2"],
    [{ 1: "" }, 'p.yaml:2:1: the manifest needs the key "abi"'],
    [
      { 2: "type: Spill_Over" },
      'p.yaml:2:7: type must be lower-case words joined by dashes, at most 64 characters, found "Spill_Over"',
    ],
    [{ 2: "type: default" }, 'p.yaml:2:7: type must not be "default", which means the built-in choice'],
    [{ 3: "aliases: [spill-over]" }, 'p.yaml:3:11: aliases[0] repeats the name "spill-over"'],
    [{ 4: "version: 1.0" }, "p.yaml:4:10: version must be a version such as 1.0.0, found 1"],
    [{ 5: "summary:" }, "p.yaml:5:1: summary must be one line of text, found nothing"],
    [
      { 6: "module: ../x.wasm" },
      'p.yaml:6:9: module must be the plain name of a .wasm file, without a directory, found "../x.wasm"',
    ],
    [{ 6: "" }, 'p.yaml:1:1: the manifest needs the key "module"'],
    [{ 6: "modul: x.wasm" }, 'p.yaml:6:1: unknown key "modul", did you mean "module"?'],
    [
      { 7: "reads: [seeed]" },
      'p.yaml:7:9: reads[0] names "seeed", which no frame has, did you mean "seed"? (allowed: now, ',
    ],
    [{ 7: "reads: [seed, seed]" }, 'p.yaml:7:15: reads[1] repeats "seed"'],
    [
      { 8: "stateful: yes" },
      'p.yaml:8:11: stateful must be true or false, found "yes", which is text in YAML 1.2',
    ],
    [
      { 10: "  limit: { type: int }" },
      'p.yaml:10:18: parameters.limit.type must be one of integer, number, boolean, enum, found "int"',
    ],
    [
      { 10: "  limit: { type: integer, min: 1, default: 4 }" },
      'p.yaml:10:27: unknown key "min" in parameters.limit',
    ],
    [
      { 10: "  limit: { type: integer, minimum: 1, default: 0 }" },
      "p.yaml:10:48: parameters.limit.default must be an integer of at least 1, found 0",
    ],
    [
      { 10: "  limit: { type: integer, default: null }" },
      "p.yaml:10:36: parameters.limit.default must be an integer of at least 0, found null",
    ],
    [
      { 10: "  limit: { type: integer, minimum: 5, maximum: 4 }" },
      "p.yaml:10:48: parameters.limit.maximum must be at least 5, found 4",
    ],
    [
      { 10: "  limit: { type: integer, minimum: 1, exclusiveMinimum: 0, default: 4 }" },
      "p.yaml:10:39: parameters.limit.exclusiveMinimum stands beside minimum, one of the two is allowed",
    ],
    [
      { 10: "  limit: { type: integer, minimum: 0.5, default: 4 }" },
      "p.yaml:10:36: parameters.limit.minimum must be an integer between -2^53 and 2^53, found 0.5",
    ],
    [
      { 10: "  limit: { type: boolean, minimum: 1, default: true }" },
      "p.yaml:10:27: parameters.limit.minimum is for integer and number, the type is boolean",
    ],
    [
      { 10: "  Limit: { type: integer, default: 4 }" },
      "p.yaml:10:3: parameters.Limit must be a name of lower-case letters, digits and _",
    ],
    [
      { 10: "  ties.limit: { type: integer, default: 4 }" },
      "p.yaml:10:3: parameters.ties.limit makes ties a mapping: as a parameter, ties must be a boolean without default",
    ],
    [
      { 11: "  ties: { type: enum, default: first }" },
      'p.yaml:11:3: parameters.ties is an enum and needs the key "values"',
    ],
    [
      { 11: "  ties: { type: integer, values: [first], default: 1 }" },
      "p.yaml:11:26: parameters.ties.values is for enum, the type is integer",
    ],
    [
      { 11: "  ties: { type: enum, values: [first, first], default: first }" },
      'p.yaml:11:39: parameters.ties.values[1] repeats "first"',
    ],
    [
      { 11: "  ties: { type: enum, values: [first, random], default: frist }" },
      'p.yaml:11:57: parameters.ties.default must be one of first, random, found "frist"',
    ],
    [{ 12: "reasons: { 255: spilled }" }, "p.yaml:12:12: reasons.255 must be a number from 256 to 32767"],
    [{ 12: "reasons: { 32768: spilled }" }, "p.yaml:12:12: reasons.32768 must be a number from 256 to 32767"],
    [
      { 12: "reasons: { 256: keep }" },
      'p.yaml:12:17: reasons.256 must be a name of its own, "keep" is taken',
    ],
    [
      { 12: "reasons: { 256: fallback }" },
      'p.yaml:12:17: reasons.256 must be a name of its own, "fallback" is taken',
    ],
    [
      { 12: "reasons: { 256: a, 257: a }" },
      'p.yaml:12:25: reasons.257 must be a name of its own, "a" is taken',
    ],
    [
      { 12: "reasons: { 256: Spilled }" },
      'p.yaml:12:17: reasons.256 must be a name of lower-case letters, digits and _, found "Spilled"',
    ],
    [{ 14: "  - { loads: [5, 0] }" }, 'p.yaml:14:5: examples[0] needs the key "expect"'],
    [
      { 14: "  - { loads: [5], expect: { reason: keep } }" },
      'p.yaml:14:27: examples[0].expect needs the key "row"',
    ],
    [
      { 14: "  - { loads: [5], expect: { row: -1, reason: keep } }" },
      "p.yaml:14:34: examples[0].expect.row must be a row from 0 to 16383, a list of rows, or null, found -1",
    ],
    [
      { 14: "  - { loads: [5], expect: { row: [0, x], reason: keep } }" },
      'p.yaml:14:38: examples[0].expect.row[1] must be a row from 0 to 16383, found "x"',
    ],
    [
      { 14: "  - { loads: [5], expect: { row: 0, reason: kep } }" },
      'p.yaml:14:45: examples[0].expect.reason is the unknown reason "kep", did you mean "keep"?',
    ],
    [
      { 14: "  - { loads: [5], expect: { row: 0, reason: keep, failure: traps } }" },
      'p.yaml:14:60: examples[0].expect.failure must be one of trap, fuel, bad_row, not_eligible, bad_reason, no_choice, found "traps"',
    ],
    [
      { 14: "  - { loads: [5], parameters: { limit: 0 }, expect: { row: 0, reason: keep } }" },
      "p.yaml:14:40: examples[0].parameters: limit must be an integer of at least 1, found 0",
    ],
    [
      { 15: "  - loads: [1]\n    steps:" },
      "p.yaml:15:5: examples[1].loads stands beside steps, it belongs into a step",
    ],
    [
      { 16: "      - { loads: [0], expect: { row: 0, reason: plaice } }" },
      'p.yaml:16:49: examples[1].steps[0].expect.reason is the unknown reason "plaice", did you mean "place"?',
    ],
    [
      { 15: "  - steps: []", 16: "", 17: "", 18: "" },
      "p.yaml:15:12: examples[1].steps must be a list of at least 1, found an empty list",
    ],
  ])("%j", (replaced, expected) => {
    const found = problems(withLines(replaced));
    expect(found).toHaveLength(1);
    expect(found[0].slice(0, expected.length)).toBe(expected);
  });

  test("33 parameters are one too many", () => {
    const parameters = Array.from(
      { length: 33 },
      (_, i) => `  p${i}: { type: boolean, default: false }`,
    ).join("\n");
    const text = `abi: 1\ntype: t\nversion: 1.0.0\nsummary: S.\nmodule: t.wasm\nparameters:\n${parameters}\n`;
    expect(problems(text)).toEqual(["p.yaml:6:1: parameters must be at most 32, found 33"]);
  });

  test("an example must give the required parameters", () => {
    const found = problems(
      withLines({
        10: "  limit: { type: integer }",
        14: "  - { loads: [5], expect: { row: 0, reason: keep } }",
      }),
    );
    expect(found[0]).toBe(
      'p.yaml:14:5: examples[0].parameters: the parameter "limit" is required, it must be an integer of at least 0',
    );
  });
});

describe("an embedded manifest", () => {
  const content = { abi: 1, type: "t", version: "1.0.0", summary: "S." };

  test("needs no module", () => {
    expect(parseManifestJson(JSON.stringify(content), "t.wasm").manifest).toMatchObject({
      type: "t",
      module: undefined,
    });
  });

  test.each([
    ["{", /^t.wasm:1:1: the embedded manifest is not JSON: /],
    ["[]", /^t.wasm:1:1: in the embedded manifest: the manifest must be a mapping, found an empty list$/],
    [
      JSON.stringify({ ...content, abi: 2 }),
      /^t.wasm:1:1: in the embedded manifest: abi must be 1, .*, found 2$/,
    ],
    [
      JSON.stringify({ ...content, reads: ["x"] }),
      /^t.wasm:1:1: in the embedded manifest: reads\[0\] names "x"/,
    ],
  ])("%s", (json, expected) => {
    expect(parseManifestJson(json, "t.wasm").mistakes.map(formatMistake)).toEqual([
      expect.stringMatching(expected),
    ]);
  });

  test("of any JSON makes nothing throw", () => {
    const value = fc.record(
      {
        ...{
          abi: fc.constant(1),
          type: fc.constant("t"),
          version: fc.constant("1.0.0"),
          summary: fc.constant("s"),
        },
        ...{
          parameters: fc.jsonValue(),
          reasons: fc.jsonValue(),
          examples: fc.jsonValue(),
          reads: fc.jsonValue(),
        },
      },
      { requiredKeys: ["abi", "type", "version", "summary"] },
    );
    fc.assert(
      fc.property(value, (json) => {
        const { manifest, mistakes } = parseManifestJson(JSON.stringify(json), "t.wasm");
        expect(manifest === undefined).toBe(mistakes.length > 0);
      }),
    );
  });
});

test("every shipped manifest is good", () => {
  const files = readdirSync(SHIPPED_POLICIES).filter((name) => name.endsWith(".yaml"));
  expect(files).toContain("soft-affinity-load-guard.yaml");
  for (const file of files) expect(problems(readFileSync(join(SHIPPED_POLICIES, file), "utf8"))).toEqual([]);
});
