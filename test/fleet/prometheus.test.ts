// The Prometheus text format: what is read of it, what is passed over, and that no text makes trouble.
import fc from "fast-check";
import { expect, it } from "vitest";
import { visitSamples } from "../../host/fleet/prometheus.js";

type Sample = readonly [name: string, labels: Record<string, string>, value: number];

function samplesOf(text: string, ...wanted: string[]): Sample[] {
  const samples: Sample[] = [];
  const names = new Set(wanted.length > 0 ? wanted : ["a"]);
  visitSamples(text, names, (name, labels, value) => samples.push([name, Object.fromEntries(labels), value]));
  return samples;
}

it("visits the wanted metrics alone, in their order", () => {
  const text = [
    "# HELP a:x What a is. a:x 5",
    "# TYPE a:x gauge",
    'a:x{rank="0"} 1',
    'a:x{rank="1"} 2.0',
    "a:xy 3",
    "a: 4",
    "_b 5",
    "a:x_total 6",
    "A:x 7",
    'a:x{rank="2"} 8',
    "",
  ].join("\n");
  expect(samplesOf(text, "a:x", "_b")).toEqual([
    ["a:x", { rank: "0" }, 1],
    ["a:x", { rank: "1" }, 2],
    ["_b", {}, 5],
    ["a:x", { rank: "2" }, 8],
  ]);
});

it.each([
  ["a 1", 1],
  ["a\t\t1", 1],
  [" \ta 1 \t", 1],
  ["a 1.5e+06", 1_500_000],
  ["a -2.5E-1", -0.25],
  ["a +3", 3],
  ["a .5", 0.5],
  ["a 7.", 7],
  ["a NaN", Number.NaN],
  ["a nan", Number.NaN],
  ["a +Inf", Infinity],
  ["a -Inf", -Infinity],
  ["a Inf", Infinity],
  ["a infinity", Infinity],
  ["a 1 1718000000000", 1],
  ["a 1 -5", 1],
  ["a 1 1718000000.123", 1],
  ['a 1 # {trace_id="x"} 0.5 1718000000.1', 1],
  ['a 1 1718000000 # {trace_id="#"} 0.5', 1],
  ["a{} 1", 1],
  ["a{}1", 1],
  ["a { } 1", 1],
])("reads the value of %j", (line, value) => {
  expect(samplesOf(line)).toEqual([["a", {}, value]]);
});

it.each([
  ['a{x="y"} 1', { x: "y" }],
  ['a{x="y",} 1', { x: "y" }],
  ['a { x = "y" , z = "" , } 1', { x: "y", z: "" }],
  ['a{x="a b,c}d{e=f # g"} 1', { x: "a b,c}d{e=f # g" }],
  ['a{x="\\\\\\"\\n"} 1', { x: '\\"\n' }],
  ['a{x="C:\\\\new\\dir"} 1', { x: "C:\\new\\dir" }],
  ['a{x="\u2028\r\u00e9\u{1f600}"} 1', { x: "\u2028\r\u00e9\u{1f600}" }],
  ['a{x="1",x="2"} 1', { x: "2" }],
  ['a{__proto__x="1"} 1', { __proto__x: "1" }],
])("reads the labels of %j", (line, labels) => {
  expect(samplesOf(line)).toEqual([["a", labels, 1]]);
});

it.each([
  "a",
  "a ",
  "a{",
  "a{}",
  'a{x="y"}',
  "a b",
  "a 0x10",
  "a 1_000",
  "a 1,5",
  "a --1",
  "a 1e",
  "a .",
  "a 1 2 3",
  "a 1 later",
  "a 1 {",
  "a+1",
  "a-1",
  "a=1",
  "a{x=y} 1",
  'a{x="y} 1',
  'a{x="y\\"} 1',
  'a{x="y"z="1"} 1',
  "a{,} 1",
  'a{,x="y"} 1',
  'a{x="y",,} 1',
  'a{="y"} 1',
  'a{1x="y"} 1',
  'a{x="y"]1',
  '{"a",x="y"} 1',
  "#a 1",
  "<html>a 1</html>",
  `a{x="${"y".repeat(70_000)}"} 1`,
])("passes over %.40j and goes on behind it", (line) => {
  expect(samplesOf(`a 1\n${line}\na 2`).map(([, , value]) => value)).toEqual([1, 2]);
});

it("takes either end of a line, and a last line without one", () => {
  expect(samplesOf('a 1\r\n\r\n# EOF\r\na{x="y"} 2\r\na 3\n\n\na 4').map(([, , value]) => value)).toEqual([
    1, 2, 3, 4,
  ]);
});

it("reads nothing of an empty text", () => {
  expect(samplesOf("")).toEqual([]);
});

// Were the time quadratic, each of these would take hours.
it.each([
  ["one line of names", "a".repeat(4e6)],
  ["one line of blanks", " ".repeat(4e6)],
  ["many open labels", 'a{x="'.repeat(8e5)],
  ["many lines with an open label", 'a{x="\n'.repeat(8e5)],
  ["long lines with an open label", `a{x="${"\\\\".repeat(30_000)}\n`.repeat(60)],
  ["long lines of labels", `a{${'x="y",'.repeat(9_000)}\n`.repeat(60)],
  ["long lines of digits", `a ${"1".repeat(60_000)}x\n`.repeat(60)],
  ["long lines of blanks", `a{x${" ".repeat(60_000)}\n`.repeat(60)],
  ["long lines of blanks behind a value", `a 1${" ".repeat(60_000)}x y\n`.repeat(60)],
  ["long lines of a label's name", `a{${"x".repeat(60_000)}\n`.repeat(60)],
  ["empty lines", "\n".repeat(4e6)],
])(
  "takes time in proportion to the text: %s",
  (_, text) => {
    expect(samplesOf(`${text}\na 1`).at(-1)).toEqual(["a", {}, 1]);
  },
  60_000,
);

const bytes = fc.uint8Array({ maxLength: 200 }).map((raw) => Buffer.from(raw).toString());
const junk = fc
  .array(
    fc.constantFrom(
      "a",
      "b",
      "{",
      "}",
      '"',
      "\\",
      "=",
      ",",
      " ",
      "\t",
      "\r",
      "\n",
      "#",
      "1",
      "e",
      "NaN",
      "x",
    ),
  )
  .map((parts) => parts.join(""));

it("throws for no text, and visits wanted names alone", () => {
  fc.assert(
    fc.property(fc.oneof(bytes, junk), (text) => {
      for (const [name, , value] of samplesOf(text, "a", "b")) {
        expect(["a", "b"]).toContain(name);
        expect(value).toBeTypeOf("number");
      }
    }),
    { numRuns: 2_000 },
  );
});

const labelName = fc.stringMatching(/^[a-zA-Z_][a-zA-Z0-9_]{0,9}$/);
const labels = fc.dictionary(labelName, fc.string({ unit: "binary", maxLength: 20 }), { maxKeys: 6 });
const sample = fc.record({ name: fc.constantFrom("a", "b:c"), labels, value: fc.double() });
const style = fc.record({
  end: fc.constantFrom("\n", "\r\n"),
  blank: fc.constantFrom(" ", "\t", "  "),
  comma: fc.boolean(),
  tail: fc.constantFrom("", " 1718000000000", ' # {id="x"} 1'),
  between: fc.constantFrom("", "# HELP a b", "other{} 1", 'a{x="', "junk"),
});

it("reads what was written, whatever the labels and values", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(sample, style), { maxLength: 8 }), (written) => {
      const text = written.map(([{ name, labels, value }, { end, blank, comma, tail, between }]) => {
        const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escaped(text)}"`);
        const last = comma && pairs.length > 0 ? "," : "";
        return `${name}{${pairs.join(",")}${last}}${blank}${numberText(value)}${tail}${end}${between}${end}`;
      });
      const expected = written.map(([{ name, labels, value }]) => [name, { ...labels }, value]);
      expect(samplesOf(text.join(""), "a", "b:c")).toEqual(expected);
    }),
    { numRuns: 500 },
  );
});

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

/** As Go and Python write it. */
function numberText(value: number): string {
  if (Number.isFinite(value)) return Object.is(value, -0) ? "-0" : `${value}`;
  return Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}
