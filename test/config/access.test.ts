// The keys of clients: what is taken, what is refused, and that no message repeats what may be a key.
import { describe, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { formatMistake } from "../../host/yaml/mistake.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]";
const A = "a".repeat(64);
const B = "b".repeat(64);
const NONE = Number.POSITIVE_INFINITY;
const PLAIN = "hwsr_plain-key-of-somebody";
const FORM =
  "must be the SHA-256 of the key as hawser key --hash prints it, 64 lower-case hex digits, never the key itself";

/** What a config with these lines below its workers comes to, and what was found in it, line 2 being the first of them. */
function read(more: string) {
  const { config, mistakes, warnings } = parseConfig(`${W}\n${more}\n`, "hawser.yaml", {});
  return { config, lines: mistakes.map(formatMistake), warnings: warnings.map(formatMistake) };
}

/** The mistakes of `access`, where it stands, and of its keys one a line below. */
const mistakesOf = (...keys: string[]) =>
  read(`access:\n  keys:\n${keys.map((key) => `    - ${key}`).join("\n")}`).lines;

const hashOf = (index: number) => index.toString(16).padStart(64, "0");
const many = (count: number) =>
  Array.from({ length: count }, (_, i) => `{ name: k${i}, sha256: "${hashOf(i)}" }`);

describe("access", () => {
  test("is absent where the file says nothing of it", () => {
    const { config, lines } = read("");
    expect(lines).toEqual([]);
    expect(config!.access).toBeUndefined();
  });

  test("is read in full, and has no limits but those that it names", () => {
    const { config, lines, warnings } = read(`access:
  keys:
    - { name: team-a, sha256: "${A}", max_in_flight: 20, requests_per_minute: 600 }
    - { name: B.2_c, sha256: ${B} }
    - { name: "1", sha256: "${hashOf(1)}", max_in_flight: 1 }
    - { name: "${"n".repeat(64)}", sha256: "${hashOf(2)}", requests_per_minute: 2147483647 }`);
    expect([...lines, ...warnings]).toEqual([]);
    expect(config!.access).toEqual({
      keys: [
        { name: "team-a", sha256: A, maxInFlight: 20, requestsPerMinute: 600 },
        { name: "B.2_c", sha256: B, maxInFlight: NONE, requestsPerMinute: NONE },
        { name: "1", sha256: hashOf(1), maxInFlight: 1, requestsPerMinute: NONE },
        { name: "n".repeat(64), sha256: hashOf(2), maxInFlight: NONE, requestsPerMinute: 2_147_483_647 },
      ],
    });
  });

  test("takes 256 keys, not one more", () => {
    expect(mistakesOf(...many(256))).toEqual([]);
    expect(mistakesOf(...many(257))).toEqual([
      "hawser.yaml:4:5: access.keys must be a list of 1 to 256 access keys, found a list",
    ]);
  });

  test.each([
    ["access: {}", 'hawser.yaml:2:9: access needs the key "keys"'],
    ["access: []", "hawser.yaml:2:9: access must be a mapping with the list keys, found an empty list"],
    ["access:", "hawser.yaml:2:1: access must be a mapping with the list keys, found nothing"],
    [
      "access: { keys: [] }",
      "hawser.yaml:2:17: access.keys must be a list of 1 to 256 access keys, found an empty list",
    ],
    [
      "access: { keys: {} }",
      "hawser.yaml:2:17: access.keys must be a list of 1 to 256 access keys, found a mapping",
    ],
    [
      `access: { keys: [{ name: a, sha256: "${A}" }], key: 1 }`,
      'hawser.yaml:2:108: unknown key in access, did you mean "keys"? (allowed: keys)',
    ],
  ])("of the wrong form is a mistake: %s", (more, line) => {
    expect(read(more).lines).toEqual([line]);
  });

  test.each([
    [`{ sha256: "${A}" }`, '7: access.keys[0] needs the key "name"'],
    ["{ name: a }", '7: access.keys[0] needs the key "sha256"'],
    [
      `{ name: a b, sha256: "${A}" }`,
      '15: access.keys[0].name must be 1 to 64 letters, digits, dots, dashes or underscores, found "a b"',
    ],
    [
      `{ name: 7, sha256: "${A}" }`,
      '15: access.keys[0].name must be 1 to 64 letters, digits, dots, dashes or underscores, found 7 (in quotes it is text: "7")',
    ],
    [
      `{ name: a, sha256: "${A}", max_in_flight: 0 }`,
      "109: access.keys[0].max_in_flight must be an integer from 1 to 2147483647, found 0",
    ],
    [
      `{ name: a, sha256: "${A}", requests_per_minute: 0.5 }`,
      "115: access.keys[0].requests_per_minute must be an integer from 1 to 2147483647, found 0.5",
    ],
    [
      `{ name: a, sha265: "${A}" }`,
      '18: unknown key in access.keys[0], did you mean "sha256"? (allowed: name, sha256, max_in_flight, requests_per_minute)',
    ],
    [`{ name: a, sha256: "${A.toUpperCase()}" }`, `26: access.keys[0].sha256 ${FORM}, found upper-case ones`],
    [`{ name: a, sha256: "${A.slice(1)}" }`, `26: access.keys[0].sha256 ${FORM}, found 63 other characters`],
    [
      `{ name: a, sha256: "${"g".repeat(64)}" }`,
      `26: access.keys[0].sha256 ${FORM}, found 64 other characters`,
    ],
    [`{ name: a, sha256: ${"1".repeat(64)} }`, `26: access.keys[0].sha256 ${FORM}, found a number`],
    ["{ name: a, sha256: ~ }", `26: access.keys[0].sha256 ${FORM}, found nothing`],
  ])("refuses the key %s", (key, line) => {
    expect(mistakesOf(key)).toEqual([`hawser.yaml:4:${line}`]);
  });

  test("refuses a name or a hash that stands there already", () => {
    const twice = [
      `{ name: a, sha256: "${A}" }`,
      `{ name: a, sha256: "${B}" }`,
      `{ name: b, sha256: "${A}" }`,
    ];
    expect(mistakesOf(...twice)).toEqual([
      'hawser.yaml:5:15: access.keys[1].name repeats "a", first at line 4',
      "hawser.yaml:6:26: access.keys[2].sha256 repeats access.keys[0].sha256, at line 4",
    ]);
    // A name is as it is written.
    expect(mistakesOf(`{ name: a, sha256: "${A}" }`, `{ name: A, sha256: "${B}" }`)).toEqual([]);
  });

  test.each([
    `access: ${PLAIN}`,
    `access: { ${PLAIN}: 1 }`,
    `access: { keys: ${PLAIN} }`,
    `access: { keys: [${PLAIN}] }`,
    `access: { keys: [[${PLAIN}]] }`,
    `access: { keys: [{ name: a, sha256: ${PLAIN} }] }`,
    `access: { keys: [{ name: a, sha256:${PLAIN} }] }`,
    `access: { keys: [{ name: a, sha256: [${PLAIN}] }] }`,
    `access: { keys: [{ name: a, key: ${PLAIN} }] }`,
    `access: { keys: [{ name: a, sha256: "${A}", ${PLAIN} }] }`,
    `access: { keys: [{ name: a, sha256: ${PLAIN} }, { name: b, sha256: ${PLAIN} }] }`,
  ])("tells no key that stands where none belongs: %s", (more) => {
    const { config, lines, warnings } = read(more);
    expect(config).toBeUndefined();
    expect(lines.length).toBeGreaterThan(0);
    expect([...lines, ...warnings].join("\n")).not.toContain("plain");
  });

  test("warns where workers are shown the keys", () => {
    const { config, lines, warnings } = read(
      `access: { keys: [{ name: a, sha256: "${A}" }] }\nforward_credentials: [cookie, x-api-key, authorization]`,
    );
    expect(lines).toEqual([]);
    expect(config!.access!.keys.length).toBe(1);
    expect(warnings).toEqual([
      "hawser.yaml:3:31: forward_credentials[1] shows workers the access keys that clients send as x-api-key",
      "hawser.yaml:3:42: forward_credentials[2] shows workers the access keys that clients send as authorization",
    ]);
    expect(read("forward_credentials: [x-api-key]").warnings).toEqual([]);
  });
});
