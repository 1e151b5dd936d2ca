import fc from "fast-check";
import { expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";

const VALID = `listen: { host: 127.0.0.1, port: 8080 }
admin: { host: 0.0.0.0, port: 8081, token: { env: TOKEN } }
policies: { path: [] }
workers:
  - { id: a, url: http://127.0.0.1:9001, models: [sim], weight: 100, max_num_seqs: 256 }
  - { id: b, url: http://127.0.0.1:9002, api_key: { env: TOKEN } }
session:
  mode: soft
  full_determinism: false
  ttl: 30m
  max_bindings: 65536
  when_full: evict-idle
  binding: session
  first_placement: policy
  sources: [{ header: x-chat-id, parent: x-parent-chat-id }, { body: chat.id }, default, prefix]
  tenant: { header: x-tenant }
  model_suffixes: ["-thinking"]
  allow_pin: false
  allow_affinity_header: false
worker_selection:
  aggregated: guard
  prefill: default
  instances:
    - { name: guard, type: soft-affinity-load-guard, parameters: { max_active_requests: 32, move_margin: 2 } }
limits: { body: 1MiB, body_total: 2MiB, stream_buffer: 1KB, answer_buffer: 1MB, buffered_total: 1GB }
timeouts: { connect: 1s, upload: off, first_byte: 30m, idle: 1h, total: 500ms }
retries: { attempts: 2, on: [connect, 503], budget: 0.25, stateful: true }
streams: { peek: true, keep_alive: 15s }
log: { requests: sampled, sample: 0.5 }
forward_credentials: [authorization]
`;

const ENVIRONMENT = { TOKEN: "0123456789abcdef" };

/** Whatever the text, there is a config or at least one mistake that has a place and a sentence. */
function isAnswered(text: string): void {
  const { config, mistakes, warnings } = parseConfig(text, "hawser.yaml", ENVIRONMENT);
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
  expect(parseConfig(VALID, "hawser.yaml", ENVIRONMENT).mistakes).toEqual([]);
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

/** Mostly the words that the keys know, in shapes that they do not. */
const odd = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom<unknown>(
      ...[
        "default",
        "prefix",
        "codex",
        "x-chat-id",
        "Authorization",
        "x-request-id",
        "x-hawser-pin",
        "a.b",
        "a..b",
      ],
      ...["id", "", "TOKEN", "constructor", "/dev/zero", "/", "\0", "::1", "soft", "hard", "off", "parent"],
      ...[null, true, false, 0, -1, 8080, 1e300],
    ),
    fc.string({ unit: "binary", maxLength: 6 }),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(
      fc.constantFrom("header", "body", "parent", "prefix", "env", "file", "__proto__", "x"),
      tie("value"),
      { maxKeys: 3 },
    ),
  ),
})).value;

test("no odd shape under admin or session makes it throw", { timeout: 60_000 }, () => {
  const under = (...keys: string[]) => fc.oneof(odd, fc.dictionary(fc.constantFrom(...keys), odd));
  const admin = under("host", "port", "token");
  const session = under(
    ...[
      "mode",
      "full_determinism",
      "ttl",
      "max_bindings",
      "when_full",
      "binding",
      "first_placement",
      "sources",
      "tenant",
    ],
    ...["model_suffixes", "allow_pin", "allow_affinity_header"],
  );
  fc.assert(
    fc.property(admin, session, (admin, session) => {
      isAnswered(JSON.stringify({ workers: [{ id: "a", url: "http://a" }], admin, session }));
    }),
    { numRuns: 1_000 },
  );
});

test("no odd shape under the keys of the data plane makes it throw", { timeout: 60_000 }, () => {
  const value = fc.oneof(
    odd,
    fc.constantFrom<unknown>(
      "1MiB",
      "9GiB",
      "off",
      "30s",
      "999h",
      "connect",
      429,
      "429",
      "cookie",
      "sampled",
    ),
    fc.array(fc.constantFrom<unknown>("connect", "reset", 429, 429.5, "cookie", null), { maxLength: 4 }),
  );
  const group = (...keys: string[]) => fc.oneof(value, fc.dictionary(fc.constantFrom(...keys), value));
  const dataPlane = fc.record({
    limits: group("body", "body_total", "stream_buffer", "answer_buffer", "buffered_total"),
    timeouts: group("connect", "upload", "first_byte", "idle", "total"),
    retries: group("attempts", "on", "budget", "stateful"),
    streams: group("peek", "keep_alive"),
    log: group("requests", "sample"),
    forward_credentials: value,
  });
  fc.assert(
    fc.property(dataPlane, value, (dataPlane, api_key) => {
      isAnswered(JSON.stringify({ workers: [{ id: "a", url: "http://a", api_key }], ...dataPlane }));
    }),
    { numRuns: 1_000 },
  );
});
