// The scanner against JSON.parse: whatever bytes come in, both must give the same verdict and the same value.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { JsonPaths, type JsonScan } from "../../host/session/json-scan.js";

const KEY = "model";
const SEED = 20_240_611;

/** What the scanner says of one top-level member; `other` where there is none or it is no string. */
type Scan =
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "other" | "not_object" | "invalid" };

function topLevelString(body: Buffer, key: string): Scan {
  const paths = new JsonPaths();
  const slot = paths.slot([key]);
  const scan = paths.scan(body);
  if (typeof scan === "string") return { kind: scan };
  const value = scan.string(slot);
  return value === undefined ? { kind: "other" } : { kind: "string", value };
}

/** What the scanner has to say, from a parser that builds the tree. */
function expected(body: Buffer, key = KEY): Scan {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    return { kind: "invalid" };
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return { kind: "not_object" };
  const value = Object.getOwnPropertyDescriptor(parsed, key)?.value;
  return typeof value === "string" ? { kind: "string", value } : { kind: "other" };
}

function expectAgreement(body: Buffer, key = KEY): Scan {
  const scan = topLevelString(body, key);
  // toEqual would build a message of the whole body for every one of thousands of runs.
  const wanted = expected(body, key);
  if (scan.kind !== wanted.kind || value(scan) !== value(wanted))
    expect({ body: body.toString("latin1"), scan }).toEqual({ body: body.toString("latin1"), scan: wanted });
  return scan;
}

function value(scan: Scan): string | null {
  return scan.kind === "string" ? scan.value : null;
}

/** Counts the verdicts of a property's runs, to show that it has reached all the cases it is there for. */
class Tally {
  readonly #counts = new Map<Scan["kind"], number>();

  add(scan: Scan): void {
    this.#counts.set(scan.kind, this.of(scan.kind) + 1);
  }

  of(kind: Scan["kind"]): number {
    return this.#counts.get(kind) ?? 0;
  }
}

const space = fc.string({ unit: fc.constantFrom(" ", "\t", "\n", "\r"), maxLength: 2 });
const hex4 = fc.integer({ min: 0, max: 0xffff }).map((unit) => unit.toString(16).padStart(4, "0"));

/** One character of a JSON string, as it stands in the text. */
const character = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 }).map(quoteFree) },
  { weight: 2, arbitrary: fc.constantFrom('\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t") },
  { weight: 1, arbitrary: hex4.map((digits) => `\\u${digits}`) },
  { weight: 1, arbitrary: hex4.map((digits) => `\\u${digits.toUpperCase()}`) },
  { weight: 1, arbitrary: fc.constantFrom("\\ud83d", "\\ude00", "\u007f", "\u2028", "{", "]", ",", ":") },
);

function quoteFree(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

const stringText = fc.array(character, { maxLength: 12 }).map((parts) => `"${parts.join("")}"`);

/** The key, each of its letters plain or escaped. */
const keyText = fc
  .array(fc.constantFrom("plain", "lower", "upper"), { minLength: KEY.length, maxLength: KEY.length })
  .map((styles) => `"${styles.map((style, index) => letterText(KEY[index]!, style)).join("")}"`);

function letterText(letter: string, style: string): string {
  const digits = letter.charCodeAt(0).toString(16).padStart(4, "0");
  if (style === "plain") return letter;
  return `\\u${style === "lower" ? digits : digits.toUpperCase()}`;
}

const nameText = fc.oneof(
  { weight: 4, arbitrary: keyText },
  { weight: 2, arbitrary: stringText },
  {
    weight: 1,
    arbitrary: fc.constantFrom('"mode"', '"models"', '"Model"', '""', '"__proto__"', '"mod\\u0000el"'),
  },
);

const numberText = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => JSON.stringify(number)),
  fc.constantFrom("-0", "0.10", "1e5", "1E+05", "-1.5e-300", "1e999", "123456789012345678901234567890"),
);

interface Texts {
  value: string;
  array: string;
  object: string;
}

function listText(item: fc.Arbitrary<string>, open: string, close: string): fc.Arbitrary<string> {
  const spaced = fc.tuple(space, item, space).map((parts) => parts.join(""));
  const filled = fc.array(spaced, { minLength: 1, maxLength: 5 }).map((items) => items.join(","));
  return fc
    .oneof({ weight: 1, arbitrary: space }, { weight: 5, arbitrary: filled })
    .map((s) => open + s + close);
}

const { object: objectText, value: valueText } = fc.letrec((tie: fc.LetrecTypedTie<Texts>) => ({
  value: fc.oneof(
    { maxDepth: 5, depthSize: "medium" },
    { weight: 4, arbitrary: stringText },
    { weight: 1, arbitrary: fc.oneof(numberText, fc.constantFrom("true", "false", "null")) },
    { weight: 1, arbitrary: tie("array") },
    { weight: 2, arbitrary: tie("object") },
  ),
  array: listText(tie("value"), "[", "]"),
  object: listText(
    fc.tuple(nameText, space, fc.constant(":"), space, tie("value")).map((parts) => parts.join("")),
    "{",
    "}",
  ),
}));

const documentText = fc
  .tuple(space, fc.oneof({ weight: 5, arbitrary: objectText }, { weight: 1, arbitrary: valueText }), space)
  .map((parts) => parts.join(""));

type Change = {
  readonly where: number;
  readonly how: "flip" | "cut" | "insert" | "remove";
  readonly byte: number;
};

/** Bytes that matter to the grammar come up often, all the others now and then. */
const byte = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...Buffer.from('{}[]",:\\u0123456789+-.eE \ttrfn\0\x1f')) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 255 }) },
);

const change: fc.Arbitrary<Change> = fc.record({
  where: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
  how: fc.constantFrom("flip" as const, "insert" as const, "remove" as const, "cut" as const),
  byte,
});

function changed(body: Buffer, { where, how, byte }: Change): Buffer {
  const at = Math.floor(where * body.length);
  const [before, after] = [body.subarray(0, at), body.subarray(at)];
  if (how === "cut") return before;
  if (how === "insert") return Buffer.concat([before, Buffer.of(byte), after]);
  if (how === "remove") return Buffer.concat([before, after.subarray(1)]);
  return Buffer.concat([before, Buffer.of(byte), after.subarray(1)]);
}

describe("any text, against JSON.parse", () => {
  it("agrees on valid texts with any spacing, escapes, duplicates and nesting", () => {
    const tally = new Tally();
    const property = fc.property(documentText, (text) => {
      const scan = expectAgreement(Buffer.from(text));
      expect(scan.kind).not.toBe("invalid");
      tally.add(scan);
    });
    fc.assert(property, { seed: SEED, numRuns: 4_000 });
    for (const kind of ["string", "other", "not_object"] as const)
      expect(tally.of(kind)).toBeGreaterThan(200);
  });

  it("agrees on texts with bytes changed, inserted, removed or cut off", () => {
    const tally = new Tally();
    const changes = fc.array(change, { minLength: 1, maxLength: 3 });
    const property = fc.property(documentText, changes, (text, list) => {
      tally.add(expectAgreement(list.reduce(changed, Buffer.from(text))));
    });
    fc.assert(property, { seed: SEED, numRuns: 8_000 });
    for (const kind of ["string", "other", "not_object", "invalid"] as const)
      expect(tally.of(kind)).toBeGreaterThan(100);
  });

  it("agrees on every text of a few tokens", () => {
    const tokens = [
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      '"model"',
      '"',
      "-",
      "0",
      "1",
      ".",
      "e",
      "+",
      "true",
      " ",
      "\\",
    ];
    const property = fc.property(fc.array(fc.constantFrom(...tokens), { maxLength: 7 }), (list) => {
      expectAgreement(Buffer.from(list.join("")));
    });
    fc.assert(property, { seed: SEED, numRuns: 8_000 });
  });

  it("agrees on arbitrary bytes in a value, in a name and outside of strings", () => {
    const property = fc.property(fc.uint8Array({ maxLength: 9 }), (bytes) => {
      for (const [before, after] of [
        ['{"model":"', '"}'],
        ['{"', '":1,"model":"m"}'],
        ['{"model":"m"', "}"],
      ])
        expectAgreement(Buffer.concat([Buffer.from(before!), bytes, Buffer.from(after!)]));
    });
    fc.assert(property, { seed: SEED, numRuns: 3_000 });
  });

  it("agrees on every prefix of a text, wherever the buffer starts in memory", () => {
    const text = Buffer.from(
      '{"a":[1.5e+3,-0,true,false,null,"x\\u00e9\\n\u00fc"],"model":"sim \\"1\\"","b":{"model":{}}}',
    );
    for (let shift = 0; shift < 4; shift++) {
      const memory = Buffer.concat([Buffer.alloc(shift), text, Buffer.from('"}')]);
      for (let length = 0; length <= text.length; length++)
        expectAgreement(memory.subarray(shift, shift + length));
    }
  });

  it("agrees on every byte, alone, in a string, after a backslash and as a hex digit", () => {
    for (let code = 0; code < 256; code++) {
      const byte = Buffer.of(code);
      for (const [before, after] of [
        ["", ""],
        ["", "{}"],
        ["{}", ""],
        ['{"model":"', '"}'],
        ['{"model":"a', 'bcdefgh"}'],
        ['{"model":"\\', '"}'],
        ['{"model":"\\u00', '0"}'],
        ['{"model":1', "}"],
      ])
        expectAgreement(Buffer.concat([Buffer.from(before!), byte, Buffer.from(after!)]));
    }
  });
});

/** What the scanner looks at at a time: a step in a window. */
const STEP = 16;
const WINDOW = 65_536;

/** A text in which a string goes on for `length` bytes before `contents`, which may or may not be part of it. */
function behind(length: number, contents: Buffer): Buffer {
  const rest = Buffer.from('","x":["\\n",1],"model":"m \\"1\\""}');
  return Buffer.concat([Buffer.from('{"model":"'), Buffer.alloc(length, "a"), contents, rest]);
}

describe("strings, wherever they stand", () => {
  it("agree for any row of backslashes, quotes and what may follow them, in and across steps", () => {
    const tally = new Tally();
    const letter = fc.constantFrom(...Buffer.from('\\\\\\\\\\""bfnrtu/0aAfFgxU \n\x1f\0\xe9', "latin1"));
    const row = fc.oneof(
      fc.array(letter, { maxLength: 2 * STEP }).map((bytes) => Buffer.from(bytes)),
      fc.array(character, { maxLength: STEP }).map((parts) => Buffer.from(parts.join(""))),
    );
    const property = fc.property(fc.nat({ max: STEP }), row, (length, contents) => {
      tally.add(expectAgreement(behind(length, contents)));
    });
    fc.assert(property, { seed: SEED, numRuns: 8_000 });
    for (const kind of ["string", "invalid"] as const) expect(tally.of(kind)).toBeGreaterThan(2_000);
  });

  it.each([
    ...[
      '"',
      "\\n",
      '\\\\"',
      '\\\\\\"\\\\\\\\"',
      "\\u00e9",
      "\\ud83d\\ude00",
      "模型",
      "\n",
      "\\x",
      "\\u00g9",
      "\\",
      "\0",
      "",
    ],
  ])("agree where %j stands at the end of a window", (piece) => {
    for (const windows of [1, 2])
      for (let before = 0; before <= STEP + 12; before++)
        expectAgreement(behind(windows * WINDOW - before, Buffer.from(piece)));
  });

  it("agree on texts that are cut off at the end of a window", () => {
    const text = behind(WINDOW - 20, Buffer.from("\\u00e9\\\\\\n"));
    for (let length = WINDOW - 30; length <= text.length; length++) expectAgreement(text.subarray(0, length));
  });

  it("agree on any text, whole or changed, across the end of a window", () => {
    const tally = new Tally();
    const changes = fc.array(change, { maxLength: 1 });
    const property = fc.property(fc.nat({ max: 400 }), objectText, changes, (before, text, list) => {
      const start = Buffer.from(`{"pad":"${"a".repeat(WINDOW - before)}","x":`);
      const value = list.reduce(changed, Buffer.from(text));
      tally.add(expectAgreement(Buffer.concat([start, value, Buffer.from(',"model":"m"}')])));
    });
    fc.assert(property, { seed: SEED, numRuns: 1_000 });
    for (const kind of ["string", "invalid"] as const) expect(tally.of(kind)).toBeGreaterThan(100);
  });

  it("are found again after another text was looked at, and in any order", () => {
    const paths = new JsonPaths();
    const [a, b] = [paths.slot(["a"]), paths.slot(["b"])];
    const text = (letter: string) => ({
      a: letter.repeat(40),
      pad: letter.repeat(3 * WINDOW),
      b: `${letter}\n`,
    });
    const texts = ["x", "y"].map((letter) => text(letter));
    const scans = texts.map((each) => paths.scan(Buffer.from(JSON.stringify(each))) as JsonScan);
    for (let round = 0; round < 2; round++) {
      scans.forEach((scan, i) => {
        expect([scan.string(b), scan.string(a)]).toEqual([texts[i]!.b, texts[i]!.a]);
      });
    }
  });
});

const invalid: Scan = { kind: "invalid" };
const other: Scan = { kind: "other" };
const notObject: Scan = { kind: "not_object" };
const found = (text: string): Scan => ({ kind: "string", value: text });

const cases: [string, string, Scan][] = [
  ["nothing", "", invalid],
  ["only space", " \n", invalid],
  ["all four kinds of space", ' \t\r\n{ \t\r\n"model" \t\r\n: \t\r\n"m" \t\r\n} \t\r\n', found("m")],
  ["a no-break space", '{\u00a0"model":"m"}', invalid],
  ["a form feed", '{\f"model":"m"}', invalid],
  ["a byte order mark", '\ufeff{"model":"m"}', invalid],
  ["NUL after the end", '{"model":"m"}\0', invalid],
  ["an array", '["model","m"]', notObject],
  ["a string", '"model"', notObject],
  ["a number", "-12.5e3", notObject],
  ["null", "null", notObject],
  ["an array that is cut off", '[{"model":"m"}', invalid],
  ["an empty object", "{}", other],
  ["an empty string", '{"model":""}', found("")],
  ["no such member", '{"models":"a","mode":"b","Model":"c"," model":"d"}', other],
  ["the name as a value", '{"a":"model","b":"m"}', other],
  ["a value that is a number", '{"model":1}', other],
  ["a value that is null", '{"model":null}', other],
  ["a value that is an object", '{"model":{"model":"m"}}', other],
  ["a value that is an array", '{"model":["m"]}', other],
  ["nested members", '{"a":{"model":"x"},"model":"m","b":[{"model":"y"}]}', found("m")],
  ["an escaped name", '{"\\u006dodel":"m"}', found("m")],
  ["a name escaped throughout", '{"\\u006D\\u006f\\u0064\\u0065\\u006C":"m"}', found("m")],
  ["a name with an escape that is not of it", '{"\\u016dodel":"m"}', other],
  ["a name that goes on after the key", '{"model\\u0000":"m"}', other],
  ["duplicates", '{"model":"a","model":"b"}', found("b")],
  ["duplicates, one escaped", '{"model":"a","mode\\u006c":"b"}', found("b")],
  ["duplicates, the last not a string", '{"model":"a","model":1}', other],
  ["duplicates, the first not a string", '{"model":[],"model":"b"}', found("b")],
  ["a later nested one", '{"model":"a","x":{"model":1}}', found("a")],
  ["escapes in the value", '{"model":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9"}', found('"\\/\b\f\n\r\t\u00e9')],
  ["a surrogate pair", '{"model":"\\ud83d\\ude00"}', found("\u{1f600}")],
  ["a lone surrogate", '{"model":"\\ude00x"}', found("\ude00x")],
  ["letters beyond ASCII", '{"model":"模型 \u{1f600}"}', found("模型 \u{1f600}")],
  ["DEL and line separators in a string", '{"model":"\u007f\u2028\u2029"}', found("\u007f\u2028\u2029")],
  ["a newline in a string", '{"model":"a\nb"}', invalid],
  ["a tab in a name", '{"mo\tdel":"m"}', invalid],
  ["an unknown escape", '{"model":"\\x41"}', invalid],
  ["an escape of three digits", '{"model":"\\u004"}', invalid],
  ["an upper-case \\U", '{"model":"\\U0041"}', invalid],
  ["an escaped closing quote", '{"model":"m\\"}', invalid],
  ["single quotes", "{'model':'m'}", invalid],
  ["a name without quotes", '{model:"m"}', invalid],
  ["a trailing comma in an object", '{"model":"m",}', invalid],
  ["a trailing comma in an array", '{"model":"m","x":[1,]}', invalid],
  ["a leading comma", '{,"model":"m"}', invalid],
  ["a missing comma", '{"a":1 "model":"m"}', invalid],
  ["a missing colon", '{"model" "m"}', invalid],
  ["a missing value", '{"model":}', invalid],
  ["a name alone", '{"model"}', invalid],
  ["a colon in an array", '["model":"m"]', invalid],
  ["a number as a name", '{1:"m"}', invalid],
  ["brackets that cross", '{"model":"m","x":[{]}}', invalid],
  ["one bracket too many", '{"model":"m"}}', invalid],
  ["a second text", '{"model":"m"}{}', invalid],
  ["a comment", '{"model":"m"/**/}', invalid],
  ["numbers of every form", '{"model":"m","x":[0,-0,10,0.5,1e1,1E+1,1e-1,-1.25E10]}', found("m")],
  ...["01", "+1", "-", "1.", ".5", "1e", "1e+", "0x1", "--1", "1.e1", "1_0", "NaN", "-Infinity", "-01"].map(
    (number): [string, string, Scan] => [`the number ${number}`, `{"model":"m","x":${number}}`, invalid],
  ),
  ...["True", "tru", "nul", "falsey", "undefined", "truefalse", "tr\\u0075e"].map(
    (literal): [string, string, Scan] => [`the literal ${literal}`, `{"model":"m","x":${literal}}`, invalid],
  ),
  ["a literal cut off by the end", "tru", invalid],
];

describe("a body", () => {
  it.each(cases)("with %s", (_what, text, scan) => {
    const body = Buffer.from(text);
    expect(topLevelString(body, KEY)).toEqual(scan);
    expectAgreement(body);
  });

  it("with bytes that are not UTF-8, which become replacement characters in strings only", () => {
    const bytes = Buffer.of(0xff, 0xc3, 0x41, 0xed, 0xa0, 0x80, 0xf0, 0x9f);
    const body = Buffer.concat([Buffer.from('{"model":"'), bytes, Buffer.from('"}')]);
    expect(topLevelString(body, KEY)).toEqual(found(bytes.toString()));
    expectAgreement(body);
    expect(topLevelString(Buffer.concat([body, Buffer.of(0x80)]), KEY)).toEqual(invalid);
  });

  it("with members that an object inherits: only its own count", () => {
    for (const key of ["__proto__", "constructor", "toString"]) {
      expect(expectAgreement(Buffer.from(`{"${key}":"m"}`), key)).toEqual(found("m"));
      expect(expectAgreement(Buffer.from('{"__proto__":{"model":"m"}}'), "model")).toEqual(other);
      expect(expectAgreement(Buffer.from("{}"), key)).toEqual(other);
    }
  });

  it("with an empty key", () => {
    expect(topLevelString(Buffer.from('{"a":"x","":"m"}'), "")).toEqual(found("m"));
  });
});

describe("deep nesting", () => {
  const DEPTH = 1_000_000;
  const nested = (open: string, middle: string, close: string): Buffer =>
    Buffer.from(`{"model":"m","x":${open.repeat(DEPTH)}${middle}${close.repeat(DEPTH)}}`);

  it("is followed to the end", () => {
    expect(topLevelString(nested("[", "", "]"), KEY)).toEqual(found("m"));
    expect(topLevelString(nested('{"model":', "1", "}"), KEY)).toEqual(found("m"));
    expect(topLevelString(nested('[{"model":', '"x"', "}]"), KEY)).toEqual(found("m"));
  });

  it("that does not close as it opened is invalid", () => {
    expect(topLevelString(Buffer.alloc(DEPTH, "["), KEY)).toEqual(invalid);
    expect(topLevelString(Buffer.from('{"a":'.repeat(DEPTH)), KEY)).toEqual(invalid);
    const one = nested('[{"a":', "1", "}]");
    expect(topLevelString(one.subarray(0, -1), KEY)).toEqual(invalid);
    expect(topLevelString(Buffer.concat([one, Buffer.from("]")]), KEY)).toEqual(invalid);
    const crossed = Buffer.from(one);
    crossed.write("]}", one.lastIndexOf("1") + 1 + DEPTH);
    expect(topLevelString(crossed, KEY)).toEqual(invalid);
  });

  it("of thirty million levels does not overflow anything", () => {
    expect(topLevelString(Buffer.alloc(30_000_000, "["), KEY)).toEqual(invalid);
  });
});

/** Paths that begin with, contain and cross one another. */
const PATHS = [
  ["a"],
  ["a", "b"],
  ["a", "b", "a"],
  ["b"],
  ["b", "é"],
  ["模", "a"],
  ["a", "é", "b"],
  [""],
  ["__proto__", "a"],
];

function scanAll(body: Buffer): JsonScan | "invalid" | "not_object" {
  const paths = new JsonPaths();
  expect(PATHS.map((path) => paths.slot(path))).toEqual(PATHS.map((_, index) => index));
  return paths.scan(body);
}

/** What JSON.parse has at a path, through objects only. */
function valueAt(body: Buffer, path: readonly string[]): unknown {
  let value: unknown = JSON.parse(body.toString());
  for (const name of path) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
    value = Object.getOwnPropertyDescriptor(value, name)?.value;
  }
  return value;
}

/** How many values there were to agree on. */
function expectPathsAgree(body: Buffer): number {
  const scan = scanAll(body);
  const whole = expected(body, "a").kind;
  if (typeof scan === "string" || whole === "invalid" || whole === "not_object") {
    expect(scan).toBe(whole);
    return 0;
  }
  const values = PATHS.map((path) => valueAt(body, path));
  const found = PATHS.map((_, slot) => scan.string(slot) ?? Number(scan.integer(slot) ?? Number.NaN));
  expect(found).toEqual(
    values.map((value) => (typeof value === "string" || Number.isInteger(value) ? value : Number.NaN)),
  );
  PATHS.forEach((_, slot) => {
    expect(scan.start(slot) === -1).toBe(values[slot] === undefined);
  });
  return values.filter((value) => value !== undefined).length;
}

const pathName = fc.constantFrom(
  ...[
    '"a"',
    '"b"',
    '"é"',
    '"模"',
    '""',
    '"__proto__"',
    '"\\u0061"',
    '"\\u00e9"',
    '"\\u6A21"',
    '"c"',
    '"aa"',
    '"\\u0062"',
  ],
);
const { object: pathObject } = fc.letrec((tie: fc.LetrecTypedTie<Texts>) => ({
  value: fc.oneof(
    { maxDepth: 6, depthSize: "large" },
    { weight: 2, arbitrary: stringText },
    {
      weight: 2,
      arbitrary: fc.constantFrom("0", "-7", "42", "0.5", "true", "null", "{}", "[]", "{ }", "[{}]"),
    },
    { weight: 1, arbitrary: tie("array") },
    { weight: 6, arbitrary: tie("object") },
  ),
  array: listText(tie("value"), "[", "]"),
  object: listText(
    fc.tuple(pathName, space, fc.constant(":"), space, tie("value")).map((parts) => parts.join("")),
    "{",
    "}",
  ),
}));

describe("several paths, against JSON.parse", () => {
  it("agree on valid texts, with duplicates at every level", () => {
    let values = 0;
    let deep = 0;
    const property = fc.property(pathObject, (text) => {
      const body = Buffer.from(text);
      values += expectPathsAgree(body);
      if (valueAt(body, ["a", "b"]) !== undefined) deep++;
    });
    fc.assert(property, { seed: SEED, numRuns: 5_000 });
    expect(values).toBeGreaterThan(2_000);
    expect(deep).toBeGreaterThan(200);
  });

  it("agree on texts with bytes changed, inserted, removed or cut off", () => {
    const changes = fc.array(change, { minLength: 1, maxLength: 2 });
    const property = fc.property(pathObject, changes, (text, list) => {
      expectPathsAgree(list.reduce(changed, Buffer.from(text)));
    });
    fc.assert(property, { seed: SEED, numRuns: 5_000 });
  });

  it.each([
    ["a later duplicate without the inner member", '{"a":{"b":1},"a":{}}', []],
    ["a later duplicate that is no object", '{"a":{"b":1},"a":2}', [["a"]]],
    ["a later duplicate that is an array", '{"a":{"b":1},"a":[{"b":1}]}', [["a"]]],
    ["a duplicate in the middle", '{"a":{"b":{"a":1},"b":2}}', [["a", "b"]]],
    ["an object in an array", '{"a":[{"b":1}],"b":1}', [["a"], ["b"]]],
    ["objects that are empty on the way", '{"a":{},"b":{ },"模":{"a":1}}', [["模", "a"]]],
  ])("with %s", (_what, text, present) => {
    const body = Buffer.from(text);
    expectPathsAgree(body);
    const scan = scanAll(body) as JsonScan;
    for (const path of present)
      expect(scan.start(PATHS.findIndex((known) => String(known) === String(path)))).not.toBe(-1);
  });

  it("has one number for one path, however often it is added", () => {
    const paths = new JsonPaths();
    expect([["a", "b"], ["a"], ["a", "b"], ["a"]].map((path) => paths.slot(path))).toEqual([0, 1, 0, 1]);
  });
});

describe("an integer", () => {
  it.each([
    ["42", "42"],
    ["-7", "-7"],
    ["0", "0"],
    ["-0", "-0"],
    ["123456789012345678901234567890", "123456789012345678901234567890"],
    ["1.0", undefined],
    ["1e2", undefined],
    ["0.5", undefined],
    ["true", undefined],
    ["null", undefined],
    ['"42"', undefined],
    ["{}", undefined],
    ["[42]", undefined],
  ])("%s is read as %s", (text, expected) => {
    const paths = new JsonPaths();
    const slot = paths.slot(["x"]);
    expect((paths.scan(Buffer.from(`{"x":${text} }`)) as JsonScan).integer(slot)).toBe(expected);
  });
});
