import Type from "typebox";
import { expect, test } from "vitest";
import { compileCheck } from "../../host/yaml/check.js";
import { formatMistake, sortMistakes } from "../../host/yaml/mistake.js";
import { parseYaml } from "../../host/yaml/parse.js";

const strict = { additionalProperties: false };
const check = compileCheck(
  Type.Object(
    {
      id: Type.String(),
      size: Type.Optional(Type.Integer({ minimum: 1, maximum: 9 })),
      share: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
      on: Type.Optional(Type.Boolean()),
      kind: Type.Optional(Type.Enum(["first", "random"])),
      wait: Type.Optional(Type.String({ pattern: "^\\d+s$", allowed: "a duration such as 3s" })),
      key: Type.Optional(Type.Object({ env: Type.Optional(Type.String()) }, { ...strict, secret: true })),
      parts: Type.Optional(
        Type.Array(Type.Object({ url: Type.String({ minLength: 1 }) }, strict), { minItems: 1 }),
      ),
    },
    strict,
  ),
  "the file",
);

function problems(text: string): string[] {
  return sortMistakes(check(parseYaml(text, "f.yaml")), "f.yaml").map(formatMistake);
}

test.each([
  ["id: x\nsize: 0", "f.yaml:2:7: size must be an integer from 1 to 9, found 0"],
  ["id: x\nsize: 1.5", "f.yaml:2:7: size must be an integer from 1 to 9, found 1.5"],
  ["id: x\nsize: big", 'f.yaml:2:7: size must be an integer from 1 to 9, found "big"'],
  ["id: x\nshare: 0", "f.yaml:2:8: share must be a number above 0 and at most 1, found 0"],
  ["id: x\nshare: .nan", "f.yaml:2:8: share must be a number above 0 and at most 1, found NaN"],
  ["id: x\non: yes", 'f.yaml:2:5: on must be true or false, found "yes", which is text in YAML 1.2'],
  ["id: x\non: OFF", 'f.yaml:2:5: on must be true or false, found "OFF", which is text in YAML 1.2'],
  ["id: x\non: yesterday", 'f.yaml:2:5: on must be true or false, found "yesterday"'],
  ["id: x\nsize: yes", 'f.yaml:2:7: size must be an integer from 1 to 9, found "yes"'],
  ["id: x\nkey: { hunter2 }", "f.yaml:2:8: unknown key in key (allowed: env)"],
  ["id: x\nkey: { envv: a }", 'f.yaml:2:8: unknown key in key, did you mean "env"? (allowed: env)'],
  ["{id: x, key:hunter2}", 'f.yaml:1:9: unknown key, a space must follow the colon of "key:"'],
  [
    "id: x\nkind: randon",
    'f.yaml:2:7: kind must be one of first, random, found "randon", did you mean "random"?',
  ],
  ["id: x\nwait: 3", "f.yaml:2:7: wait must be a duration such as 3s, found 3"],
  ["id: x\nparts:", "f.yaml:2:1: parts must be a list of at least 1, found nothing"],
  ["id: x\nparts: []", "f.yaml:2:8: parts must be a list of at least 1, found an empty list"],
  ["id: x\nparts:\n  - url: ''", 'f.yaml:3:10: parts[0].url must be text that is not empty, found ""'],
  ["id: x\nparts:\n  - {}", 'f.yaml:3:5: parts[0] needs the key "url"'],
  ["id: 7", 'f.yaml:1:5: id must be text, found 7 (in quotes it is text: "7")'],
  ["id: [a]", "f.yaml:1:5: id must be text, found a list"],
  [
    "id: x\nsise: 2",
    'f.yaml:2:1: unknown key "sise", did you mean "size"? (allowed: id, size, share, on, kind, wait, key, parts)',
  ],
  [
    "id: x\nzzzzzzzz: 2",
    'f.yaml:2:1: unknown key "zzzzzzzz" (allowed: id, size, share, on, kind, wait, key, parts)',
  ],
  [
    "id: x\n__proto__: 2",
    'f.yaml:2:1: unknown key "__proto__" (allowed: id, size, share, on, kind, wait, key, parts)',
  ],
  ["{id: x, size:2}", 'f.yaml:1:9: unknown key "size:2", a space must follow the colon of "size:"'],
  ["id: x\nparts: [{ url: a, x/y~z: 1 }]", 'f.yaml:2:19: unknown key "x/y~z" in parts[0] (allowed: url)'],
  ["- id", "f.yaml:1:1: the file must be a mapping, found a list"],
  ["", "f.yaml:1:1: the file must be a mapping, found nothing"],
])("%j", (text, expected) => {
  expect(problems(text)).toEqual([expected]);
});

test("a good file has no mistakes", () => {
  expect(problems("id: x\nsize: 9\nparts: [{ url: a }]")).toEqual([]);
});

test("a misspelt key is not told again as missing", () => {
  expect(problems("idd: x")).toEqual([expect.stringContaining('unknown key "idd", did you mean "id"?')]);
  expect(problems("other: x")).toHaveLength(2);
});

test("all mistakes are told, each place once", () => {
  expect(
    problems("size: 0\nshare: 7\nextra: 1\nparts: [1, { url: 2 }]").map((line) => line.split(" ")[0]),
  ).toEqual(["f.yaml:1:1:", "f.yaml:1:7:", "f.yaml:2:8:", "f.yaml:3:1:", "f.yaml:4:9:", "f.yaml:4:19:"]);
});
