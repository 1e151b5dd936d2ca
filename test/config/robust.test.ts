import fc from "fast-check";
import { expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";

const VALID = `listen: { host: 127.0.0.1, port: 8080 }
policies: { path: [] }
workers:
  - { id: a, url: http://127.0.0.1:9001, models: [sim], weight: 100, max_num_seqs: 256 }
  - { id: b, url: http://127.0.0.1:9002 }
session: { mode: soft, full_determinism: false, ttl: 30m, max_bindings: 65536 }
worker_selection:
  aggregated: guard
  prefill: default
  instances:
    - { name: guard, type: soft-affinity-load-guard, parameters: { max_active_requests: 32, move_margin: 2 } }
`;

/** Whatever the text, there is a config or at least one mistake that has a place and a sentence. */
function isAnswered(text: string): void {
  const { config, mistakes, warnings } = parseConfig(text, "hawser.yaml");
  expect(config === undefined).toBe(mistakes.length > 0);
  for (const { line, column, message } of [...mistakes, ...warnings]) {
    expect(line).toBeGreaterThanOrEqual(1);
    expect(line).toBeLessThanOrEqual(text.split("\n").length);
    expect(column).toBeGreaterThanOrEqual(1);
    expect(message).toMatch(/\S/);
  }
}

const place = fc.nat({ max: VALID.length });
const piece = fc.oneof(
  fc.string({ maxLength: 8 }),
  fc.constantFrom(
    "\n",
    " ",
    ":",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!x ",
    "'",
    '"',
    "null",
    "-1",
    "1e999",
    ".nan",
    "#",
    "\t",
    "__proto__: 1\n",
  ),
);

test("the config these tests start from is good", () => {
  expect(parseConfig(VALID, "hawser.yaml").mistakes).toEqual([]);
});

test("no text makes it throw", { timeout: 60_000 }, () => {
  fc.assert(fc.property(fc.string({ unit: "binary" }), isAnswered), { numRuns: 300 });
});

test("no edit of a good config makes it throw", { timeout: 60_000 }, () => {
  const edits = fc.array(fc.tuple(place, fc.nat({ max: 20 }), piece), { minLength: 1, maxLength: 4 });
  const apply = (text: string, [at, cut, inserted]: [number, number, string]) =>
    text.slice(0, at) + inserted + text.slice(at + cut);
  fc.assert(
    fc.property(edits, (list) => isAnswered(list.reduce(apply, VALID))),
    { numRuns: 500 },
  );
});

test("no value in place of another makes it throw", { timeout: 60_000 }, () => {
  const keys = VALID.match(/[a-z_]+(?=: )/g)!;
  fc.assert(
    fc.property(fc.constantFrom(...keys), fc.jsonValue(), (key, value) => {
      isAnswered(VALID.replace(new RegExp(`\\b${key}: [^,}\\n]*`), () => `${key}: ${JSON.stringify(value)}`));
    }),
    { numRuns: 500 },
  );
});
