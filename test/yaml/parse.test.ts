import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { formatMistake } from "../../host/yaml/mistake.js";
import { parseYaml } from "../../host/yaml/parse.js";

const problems = (text: string) => parseYaml(text, "f.yaml").mistakes.map(formatMistake);

describe("values", () => {
  test("are plain data of the core schema", () => {
    const { value, mistakes } = parseYaml("a: 0x10\nb: off\nc: ~\nd: 1.5\ne: [x, true]\n256: y\n", "f.yaml");
    expect(mistakes).toEqual([]);
    expect(value).toEqual({ a: 16, b: "off", c: null, d: 1.5, e: ["x", true], "256": "y" });
  });

  test("of an empty text are null", () => {
    expect(parseYaml("# nothing\n", "f.yaml").value).toBeNull();
  });

  test("spell aliases out", () => {
    expect(parseYaml("a: &m [x]\nb: *m\n", "f.yaml").value).toEqual({ a: ["x"], b: ["x"] });
  });

  test("take an alias for the last anchor before it", () => {
    expect(parseYaml("a: &m 1\nb: *m\nc: &m 2\nd: *m\n", "f.yaml").value).toEqual({ a: 1, b: 1, c: 2, d: 2 });
  });

  test("keep the key __proto__ as a key", () => {
    const { value } = parseYaml("__proto__: { x: 1 }\n", "f.yaml");
    expect(Object.keys(value as object)).toEqual(["__proto__"]);
    expect((value as { x?: number }).x).toBeUndefined();
  });
});

describe("positions", () => {
  const text = "a:\n  - b: 1\n    c: { d: [2, 3] }\ne:\nf: &x { g: 1 }\nh: *x\n";
  test.each([
    [["a"], "key", [1, 1]],
    [["a"], "value", [2, 3]],
    [["a", 0, "b"], "key", [2, 5]],
    [["a", 0, "b"], "value", [2, 8]],
    [["a", 0, "c", "d", 1], "value", [3, 17]],
    [["e"], "value", [4, 1]],
    [["h", "g"], "value", [5, 12]],
    [["a", 0, "missing"], "key", [2, 5]],
    [["a", 7], "value", [2, 3]],
    [["nowhere", "at", "all"], "value", [1, 1]],
    [[], "value", [1, 1]],
  ] as const)("%j %s", (path, where, [line, column]) => {
    expect(parseYaml(text, "f.yaml").positionOf(path, where)).toEqual({ line, column });
  });
});

test.each([
  ["a tab", "a:\n\tb: 1\n", "f.yaml:2:1: broken YAML: a tab indents this line, YAML allows spaces only"],
  [
    "an open list",
    "a: [1, 2\nb: 3\n",
    'f.yaml:2:1: broken YAML: a list opened with "[" is not closed with "]" before this place',
  ],
  [
    "an open mapping",
    "a: {b: 1",
    'f.yaml:1:9: broken YAML: a mapping opened with "{" is not closed with "}" before this place',
  ],
  [
    "a variable in a mapping",
    `a: { b: \${B_2} }\n`,
    `f.yaml:1:10: broken YAML: \${B_2} is not replaced by the value of a variable; a secret is written { env: B_2 }`,
  ],
  [
    "a variable in a list",
    `a: [x, \${B}]\n`,
    `f.yaml:1:9: broken YAML: \${B} is not replaced by the value of a variable; a secret is written { env: B }`,
  ],
  [
    "a variable with a default",
    `a: { b: \${B:-secret} }\n`,
    `f.yaml:1:10: broken YAML: \${...} is not replaced by the value of a variable; a secret is written { env: NAME }`,
  ],
  ["an open quote", "a: 'x", "f.yaml:1:6: broken YAML: a quoted text is not closed"],
  [
    "two pairs on a line",
    "a: b: c",
    'f.yaml:1:4: broken YAML: this value is followed by another "key: value"; check the indentation, or quote the value',
  ],
  [
    "a second document",
    "a: 1\n---\nb: 2\n",
    "f.yaml:2:1: broken YAML: a second YAML document starts here, the file must hold one",
  ],
  ["a repeated key", "a: 1\nb: 2\na: 3\n", 'f.yaml:3:1: the key "a" is repeated, first at line 1'],
  ["a number repeated as text", '1: x\n"1": y\n', 'f.yaml:2:1: the key "1" is repeated, first at line 1'],
  ["a tag", "a: !secret x\n", 'f.yaml:1:4: unknown YAML tag "!secret", only plain data is allowed'],
  ["a binary", "a: !!binary aGk=\n", 'f.yaml:1:4: unknown YAML tag "!!binary", only plain data is allowed'],
  ["an alias to nothing", "a: *b\n", "f.yaml:1:4: the alias *b follows no anchor &b"],
  ["an alias in itself", "a: &x [1, *x]\n", "f.yaml:1:11: the alias *x contains itself"],
  ["a mapping as a key", "? {a: 1}\n: 2\n", "f.yaml:1:3: a key must be a word or a number"],
])("%s is a mistake", (_, text, expected) => {
  expect(problems(text)).toEqual([expected]);
});

test("a repeated key leaves the first value readable", () => {
  expect(parseYaml("a: 1\na: 2\n", "f.yaml").value).toEqual({ a: 1 });
});

test("YAML 1.1 is read by the rules of 1.2", () => {
  expect(parseYaml("%YAML 1.1\n---\na: yes\n<<: { b: 1 }\n", "f.yaml").value).toEqual({
    a: "yes",
    "<<": { b: 1 },
  });
});

test("an alias bomb is bounded", () => {
  const level = (name: string, of: string) => `${name}: &${name} [${Array(10).fill(of).join(", ")}]`;
  const names = ["a", "b", "c", "d", "e", "f", "g", "h"];
  const bomb = names.map((name, i) => level(name, i === 0 ? "x" : `*${names[i - 1]}`)).join("\n");
  expect(problems(bomb)).toEqual([
    expect.stringContaining("aliases make the file hold more than 1000000 values"),
  ]);
});

test.each([
  ["lists", "[".repeat(100_000)],
  ["mappings", "{a: ".repeat(100_000)],
  ["dashes", "- ".repeat(100_000)],
  ["question marks", "? ".repeat(100_000)],
])("100,000 nested %s are a mistake and not the end of the process", (_, text) => {
  expect(problems(text)).toEqual([
    expect.stringMatching(/^f.yaml:1:\d+: broken YAML: .* nested too deeply here$/),
  ]);
});

test("no text makes it throw, and every mistake has a place", () => {
  const piece = fc.constantFrom(
    "a",
    ":",
    " ",
    "\n",
    "-",
    "[",
    "]",
    "{",
    "}",
    "&x",
    "*x",
    "!",
    "'",
    '"',
    "#",
    "|",
    "?",
    "\t",
    "1",
    "---",
    "%",
    "<<",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(piece).map((pieces) => pieces.join("")),
      ),
      (text) => {
        const { value, mistakes, positionOf } = parseYaml(text, "f.yaml");
        for (const { line, column } of [...mistakes, positionOf(["a", 0], "key")]) {
          expect(Math.min(line, column)).toBeGreaterThanOrEqual(1);
        }
        if (value === undefined) expect(mistakes).toHaveLength(1);
      },
    ),
    { numRuns: 2000 },
  );
});
