// The keys of the data plane: limits, timeouts, retries, streams, the request log, and what goes to workers.
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { CREDENTIALS } from "../../host/gateway/options.js";
import { formatMistake } from "../../host/yaml/mistake.js";
import { directoryOf } from "../fixtures/directory.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]";
const MIB = 1_048_576;

/** What a config with these lines below its workers comes to, and what was found in it, line 2 being the first of them. */
function read(more: string) {
  const { config, mistakes, warnings } = parseConfig(`${W}\n${more}\n`, "hawser.yaml", {});
  return {
    options: config?.dataPlane,
    lines: mistakes.map(formatMistake),
    warnings: warnings.map(formatMistake),
  };
}

/** The same of one that is taken without a word. */
function good(more: string) {
  const { options, lines, warnings } = read(more);
  expect([...lines, ...warnings]).toEqual([]);
  return options!;
}

describe("the data plane", () => {
  test("has defaults for all of it", () => {
    expect(good("")).toEqual({
      limits: {
        ...{ bodyBytes: 64 * MIB, bodyTotalBytes: 1_024 * MIB },
        ...{ streamBufferBytes: MIB, answerBufferBytes: 64 * MIB, bufferedTotalBytes: 256 * MIB },
      },
      timeouts: {
        ...{ connectMs: 2_000, uploadMs: 60_000, firstByteMs: 1_800_000, idleMs: 600_000 },
        totalMs: Number.POSITIVE_INFINITY,
      },
      retries: {
        ...{ attempts: 3, connect: true, reset: true, statuses: [429, 502, 503] },
        ...{ budget: 0.5, stateful: false },
      },
      streams: { peek: false, keepAliveMs: Number.POSITIVE_INFINITY },
      log: { requests: "sampled", sample: 0.01 },
      forwardCredentials: [],
    });
  });

  test("has the same where its groups are empty", () => {
    const empty = "limits: {}\ntimeouts: {}\nretries: {}\nstreams: {}\nlog: {}\nforward_credentials: []";
    expect(good(empty)).toEqual(good(""));
  });

  test("is read in full", () => {
    const full = `limits: { body: 1KB, body_total: 2MB, stream_buffer: 3KiB, answer_buffer: 4MiB, buffered_total: 5GB }
timeouts: { connect: 1ms, upload: 2s, first_byte: 3m, idle: 4h, total: 5h }
retries: { attempts: 16, on: [504, reset, 500], budget: 0.25, stateful: true }
streams: { peek: true, keep_alive: 15s }
log: { requests: sampled, sample: 1 }
forward_credentials: [cookie, authorization]`;
    expect(good(full)).toEqual({
      limits: {
        ...{ bodyBytes: 1_000, bodyTotalBytes: 2_000_000 },
        ...{ streamBufferBytes: 3_072, answerBufferBytes: 4 * MIB, bufferedTotalBytes: 5_000_000_000 },
      },
      timeouts: {
        ...{ connectMs: 1, uploadMs: 2_000, firstByteMs: 180_000, idleMs: 14_400_000, totalMs: 18_000_000 },
      },
      retries: {
        ...{ attempts: 16, connect: false, reset: true, statuses: [504, 500], budget: 0.25, stateful: true },
      },
      streams: { peek: true, keepAliveMs: 15_000 },
      log: { requests: "sampled", sample: 1 },
      forwardCredentials: ["cookie", "authorization"],
    });
  });

  test("leaves what a group does not say at its default", () => {
    const options = good("timeouts: { idle: 5s }\nlimits: { body: 1MiB }\nretries: { on: [connect] }");
    expect(options.timeouts).toEqual({ ...good("").timeouts, idleMs: 5_000 });
    expect(options.limits).toEqual({ ...good("").limits, bodyBytes: MIB });
    expect(options.retries).toEqual({ ...good("").retries, reset: false, statuses: [] });
  });

  test.each([
    ["1KB", 1_000],
    ["1KiB", 1_024],
    ["20MB", 20_000_000],
    ["20MiB", 20 * MIB],
    ["1GB", 1_000_000_000],
    ["1GiB", 1_024 * MIB],
  ])("takes a body of %s as %d bytes", (size, bytes) => {
    expect(good(`limits: { body: ${size} }`).limits.bodyBytes).toBe(bytes);
  });

  test("counts the largest size exactly", () => {
    const { bufferedTotalBytes } = good("limits: { buffered_total: 999999GiB }").limits;
    expect(bufferedTotalBytes).toBe(999_999 * 2 ** 30);
    expect(Number.isSafeInteger(bufferedTotalBytes)).toBe(true);
  });

  test("takes durations of months where they are counted, and of weeks where a timer runs", () => {
    const { timeouts, streams } = good(
      "timeouts: { connect: 596h, idle: 9999h, total: 9999h }\nstreams: { keep_alive: 9999h }\nshutdown: { deadline: 35760m }",
    );
    expect(timeouts.connectMs).toBeLessThan(2 ** 31);
    expect([timeouts.idleMs, timeouts.totalMs, streams.keepAliveMs]).toEqual(
      Array(3).fill(9_999 * 3_600_000),
    );
  });

  test("takes off for no timeout", () => {
    const { timeouts } = good("timeouts: { upload: off, first_byte: off, idle: off, total: off }");
    const never = Number.POSITIVE_INFINITY;
    expect(timeouts).toEqual({
      ...{ connectMs: 2_000, uploadMs: never, firstByteMs: never, idleMs: never, totalMs: never },
    });
  });

  test("takes nothing to retry on, no budget and no other worker", () => {
    expect(good("retries: { on: [], budget: 0 }").retries).toMatchObject({
      ...{ connect: false, reset: false, statuses: [], budget: 0 },
    });
    expect(good("retries: { attempts: 1 }").retries.attempts).toBe(1);
    expect(good("retries: { budget: 1 }").retries.budget).toBe(1);
  });

  test("forwards whichever credentials the gateway knows", () => {
    expect(good(`forward_credentials: [${CREDENTIALS.join(", ")}]`).forwardCredentials).toEqual(CREDENTIALS);
  });

  test("takes limits that are as large as those of all together", () => {
    good("limits: { body: 1MiB, body_total: 1MiB, answer_buffer: 2MiB, buffered_total: 2MiB }");
    good("limits: { body_total: 64MiB, buffered_total: 64MiB }");
    good("limits: { stream_buffer: 256MiB, answer_buffer: 256MiB }");
  });
});

const SIZE = "must be a size above zero with its unit (KB, MB, GB, KiB, MiB or GiB), such as 64KB or 64MiB";
const DURATION = "a duration above zero with its unit, such as 500ms, 30s, 30m or 2h";
const OFF_OR = `must be off, or ${DURATION}`;
const CAUSES = "connect, reset, 429, 500, 502, 503, 504";

describe("one mistake, one line", () => {
  test.each<[string, string, string[]]>([
    ["a size that is bare", "limits: { body: 67108864 }", [`2:17: limits.body ${SIZE}, found 67108864`]],
    ["a size in quotes", 'limits: { body_total: "5" }', [`2:23: limits.body_total ${SIZE}, found "5"`]],
    [
      "a size of nothing",
      "limits: { stream_buffer: 0MiB }",
      [`2:26: limits.stream_buffer ${SIZE}, found "0MiB"`],
    ],
    ["a size below zero", "limits: { body: -1MiB }", [`2:17: limits.body ${SIZE}, found "-1MiB"`]],
    [
      "a size with a fraction",
      "limits: { answer_buffer: 1.5GiB }",
      [`2:26: limits.answer_buffer ${SIZE}, found "1.5GiB"`],
    ],
    [
      "a size of another unit",
      "limits: { buffered_total: 64mb }",
      [`2:27: limits.buffered_total ${SIZE}, found "64mb"`],
    ],
    ["a size in bits", "limits: { body: 64Mb }", [`2:17: limits.body ${SIZE}, found "64Mb"`]],
    ["a size with a space", "limits: { body: 64 MiB }", [`2:17: limits.body ${SIZE}, found "64 MiB"`]],
    [
      "a size beyond what is exact",
      "limits: { body: 1000000GiB }",
      [`2:17: limits.body ${SIZE}, found "1000000GiB"`],
    ],
    ["a size that is off", "limits: { body: off }", [`2:17: limits.body ${SIZE}, found "off"`]],
    ["a size that is left empty", "limits: { body: }", [`2:11: limits.body ${SIZE}, found nothing`]],
    [
      "a limit that is unknown",
      "limits: { body_totl: 1MiB }",
      [
        '2:11: unknown key "body_totl" in limits, did you mean "body_total"? (allowed: body, body_total, stream_buffer, answer_buffer, buffered_total)',
      ],
    ],
    ["limits that are a size", "limits: 64MiB", ['2:9: limits must be a mapping, found "64MiB"']],
    [
      "a body above the one that can be read",
      "limits: { body: 1025MiB, body_total: 1TB }",
      [
        '2:17: limits.body must be at most 1GiB, found "1025MiB"',
        `2:38: limits.body_total ${SIZE}, found "1TB"`,
      ],
    ],
    [
      "a body above that one and above all bodies",
      "limits: { body: 2GiB }",
      ['2:17: limits.body must be at most 1GiB, found "2GiB"'],
    ],
    [
      "a body above all bodies",
      "limits: { body: 2MiB, body_total: 2MB }",
      ['2:17: limits.body must not be above limits.body_total, which is 2MB, found "2MiB"'],
    ],
    [
      "all bodies below one by default",
      "limits: { body_total: 63MiB }",
      ['2:23: limits.body_total must not be below limits.body, which is 64MiB by default, found "63MiB"'],
    ],
    [
      "a stream's buffer above that of all by default",
      "limits: { stream_buffer: 257MiB }",
      [
        '2:26: limits.stream_buffer must not be above limits.buffered_total, which is 256MiB by default, found "257MiB"',
      ],
    ],
    [
      "an answer's buffer above that of all by default",
      "limits: { answer_buffer: 1GB }",
      [
        '2:26: limits.answer_buffer must not be above limits.buffered_total, which is 256MiB by default, found "1GB"',
      ],
    ],
    [
      "both buffers above that of all",
      "limits: { stream_buffer: 2KiB, answer_buffer: 2KB, buffered_total: 1KB }",
      [
        '2:26: limits.stream_buffer must not be above limits.buffered_total, which is 1KB, found "2KiB"',
        '2:47: limits.answer_buffer must not be above limits.buffered_total, which is 1KB, found "2KB"',
      ],
    ],
    [
      "the buffer of all below both by default, told of the larger",
      "limits: { buffered_total: 1KB }",
      [
        '2:27: limits.buffered_total must not be below limits.answer_buffer, which is 64MiB by default, found "1KB"',
      ],
    ],
    [
      "the buffer of all below that of a stream by default",
      "limits: { answer_buffer: 1KB, buffered_total: 1MB }",
      [
        '2:47: limits.buffered_total must not be below limits.stream_buffer, which is 1MiB by default, found "1MB"',
      ],
    ],

    ["a timeout that is bare", "timeouts: { idle: 30 }", [`2:19: timeouts.idle ${OFF_OR}, found 30`]],
    ["a timeout of nothing", "timeouts: { total: 0s }", [`2:20: timeouts.total ${OFF_OR}, found "0s"`]],
    [
      "a timeout that is false",
      "timeouts: { upload: false }",
      [`2:21: timeouts.upload ${OFF_OR}, found false`],
    ],
    [
      "a timeout that is nearly off",
      "timeouts: { first_byte: Off }",
      [`2:25: timeouts.first_byte ${OFF_OR}, found "Off"`],
    ],
    [
      "no timeout to connect",
      "timeouts: { connect: off }",
      [`2:22: timeouts.connect must be ${DURATION}, found "off"`],
    ],
    [
      "a timeout that is unknown",
      "timeouts: { firstbyte: 1s }",
      [
        '2:13: unknown key "firstbyte" in timeouts, did you mean "first_byte"? (allowed: connect, upload, first_byte, idle, total)',
      ],
    ],
    [
      "a timeout that no timer runs",
      "timeouts: { connect: 597h }",
      ['2:22: timeouts.connect must be at most 596h, found "597h"'],
    ],
    [
      "a timeout beyond what is exact",
      "timeouts: { idle: 2147483648ms }",
      [`2:19: timeouts.idle ${OFF_OR}, found "2147483648ms"`],
    ],
    [
      "a deadline that no timer runs",
      "shutdown: { deadline: 35761m }",
      ['2:23: shutdown.deadline must be at most 596h, found "35761m"'],
    ],

    [
      "no attempt",
      "retries: { attempts: 0 }",
      ["2:22: retries.attempts must be an integer from 1 to 16, found 0"],
    ],
    [
      "too many attempts",
      "retries: { attempts: 17 }",
      ["2:22: retries.attempts must be an integer from 1 to 16, found 17"],
    ],
    [
      "one cause that is no list",
      "retries: { on: connect }",
      [`2:16: retries.on must be a list of distinct items of ${CAUSES}, found "connect"`],
    ],
    [
      "a cause that is misspelt",
      "retries: { on: [conect] }",
      [`2:17: retries.on[0] must be one of ${CAUSES}, found "conect", did you mean "connect"?`],
    ],
    [
      "a cause that is unknown",
      "retries: { on: [connect, 5xx] }",
      [`2:26: retries.on[1] must be one of ${CAUSES}, found "5xx"`],
    ],
    [
      "a status that is not retried",
      "retries: { on: [404, 503] }",
      [`2:17: retries.on[0] must be one of ${CAUSES}, found 404`],
    ],
    [
      "a status in quotes",
      'retries: { on: ["503"] }',
      [`2:17: retries.on[0] must be one of ${CAUSES}, found "503" (without quotes it is a number: 503)`],
    ],
    [
      "causes that are neither words nor statuses",
      "retries: { on: [true, null, [429], 429.5, .nan] }",
      [
        `2:17: retries.on[0] must be one of ${CAUSES}, found true`,
        `2:23: retries.on[1] must be one of ${CAUSES}, found nothing`,
        `2:29: retries.on[2] must be one of ${CAUSES}, found a list`,
        `2:36: retries.on[3] must be one of ${CAUSES}, found 429.5`,
        `2:43: retries.on[4] must be one of ${CAUSES}, found NaN`,
      ],
    ],
    [
      "causes that are repeated",
      "retries:\n  on:\n    - reset\n    - 502\n    - reset\n    - 502",
      [
        '6:7: retries.on[2] repeats "reset", first at line 4',
        "7:7: retries.on[3] repeats 502, first at line 5",
      ],
    ],
    [
      "a budget in percent",
      "retries: { budget: 50 }",
      ["2:20: retries.budget must be a number from 0 to 1, found 50"],
    ],
    [
      "a budget below zero",
      "retries: { budget: -0.1 }",
      ["2:20: retries.budget must be a number from 0 to 1, found -0.1"],
    ],
    [
      "stateful in YAML 1.1",
      "retries: { stateful: yes }",
      ['2:22: retries.stateful must be true or false, found "yes", which is text in YAML 1.2'],
    ],
    [
      "peek that is off",
      "streams: { peek: off }",
      ['2:18: streams.peek must be true or false, found "off", which is text in YAML 1.2'],
    ],
    [
      "a keep-alive that is true",
      "streams: { keep_alive: true }",
      [`2:24: streams.keep_alive ${OFF_OR}, found true`],
    ],

    [
      "a log that is misspelt",
      "log: { requests: sample }",
      ['2:18: log.requests must be one of errors, sampled, all, found "sample", did you mean "sampled"?'],
    ],
    [
      "a sample of nothing",
      "log: { sample: 0 }",
      ["2:16: log.sample must be a number above 0 and at most 1, found 0"],
    ],
    [
      "a sample in percent",
      "log: { sample: 5 }",
      ["2:16: log.sample must be a number above 0 and at most 1, found 5"],
    ],

    [
      "one credential that is no list",
      "forward_credentials: cookie",
      [
        '2:22: forward_credentials must be a list of distinct items of authorization, x-api-key, cookie, found "cookie"',
      ],
    ],
    [
      "a credential in another case",
      "forward_credentials: [Authorization]",
      [
        '2:23: forward_credentials[0] must be one of authorization, x-api-key, cookie, found "Authorization", did you mean "authorization"?',
      ],
    ],
    [
      "a header that is no credential",
      "forward_credentials: [x-tenant]",
      ['2:23: forward_credentials[0] must be one of authorization, x-api-key, cookie, found "x-tenant"'],
    ],
    [
      "a credential that is repeated",
      "forward_credentials: [cookie, cookie]",
      ['2:31: forward_credentials[1] repeats "cookie", first at line 2'],
    ],
  ])("%s", (_, more, expected) => {
    const { options, lines } = read(more);
    expect(options).toBeUndefined();
    expect(lines).toEqual(expected.map((line) => `hawser.yaml:${line}`));
  });
});

describe("a warning", () => {
  test("tells of keys of retries where no other worker is tried", () => {
    const cause = "has no effect: retries.attempts is 1, and no other worker is tried";
    const { lines, warnings } = read("retries: { attempts: 1, on: [reset], budget: 0.1, stateful: true }");
    expect(lines).toEqual([]);
    expect(warnings).toEqual([
      `hawser.yaml:2:25: retries.on ${cause}`,
      `hawser.yaml:2:38: retries.budget ${cause}`,
      `hawser.yaml:2:51: retries.stateful ${cause}`,
    ]);
  });

  test("tells of a first byte that is waited for longer than the whole request", () => {
    expect(read("timeouts: { first_byte: 11m, total: 10m }").warnings).toEqual([
      "hawser.yaml:2:13: timeouts.first_byte has no effect: it is longer than timeouts.total, which is 10m",
    ]);
    for (const quiet of [
      "first_byte: 600s, total: 10m",
      "total: 10m",
      "first_byte: 31m",
      "first_byte: off, total: 1m",
    ])
      expect(read(`timeouts: { ${quiet} }`)).toMatchObject({ lines: [], warnings: [] });
  });

  test.each(["errors", "all"])("tells of a sample where the log takes %s", (requests) => {
    expect(read(`log: { sample: 0.5, requests: ${requests} }`).warnings).toEqual([
      `hawser.yaml:2:8: log.sample has no effect: log.requests is ${requests}`,
    ]);
  });
});

describe("a worker's API key", () => {
  const KEY = "sk-s3cret-0123";

  /** Two workers, the second with this key. */
  function readKey(
    value: string,
    environment: Record<string, string> = {},
    files: Record<string, string> = {},
  ) {
    const directory = directoryOf(files);
    const text = `workers:\n  - { id: a, url: http://a }\n  - { id: b, url: http://b, api_key: ${value} }\n`;
    const { config, mistakes } = parseConfig(text, join(directory, "hawser.yaml"), environment);
    const lines = mistakes.map((mistake) => formatMistake(mistake).replaceAll(`${directory}/`, ""));
    return { keys: config?.workers.map(({ apiKey }) => apiKey), lines };
  }

  test.each<[string, string]>([
    ["a variable", "{ env: K }"],
    ["a file", "{ file: keys/k }"],
    ["a file with a newline", "{ file: keys/line }"],
  ])("is read from %s", (_, value) => {
    const { keys, lines } = readKey(value, { K: KEY }, { "keys/k": KEY, "keys/line": `${KEY}\n` });
    expect(lines).toEqual([]);
    expect(keys).toEqual([undefined, KEY]);
  });

  test("may be that of two workers, and as short as one character", () => {
    const worker = (id: string) => `{ id: ${id}, url: "http://${id}", api_key: { env: K } }`;
    const text = `workers: [${worker("a")}, ${worker("b")}]\n`;
    const { config, mistakes } = parseConfig(text, "hawser.yaml", { K: "k" });
    expect(mistakes).toEqual([]);
    expect(config!.workers.map(({ apiKey }) => apiKey)).toEqual(["k", "k"]);
  });

  const forms = "workers[1].api_key must be { env: NAME } or { file: PATH }";
  const form = "must be printable ASCII characters without spaces, since it becomes a header";
  test.each<[string, string, string]>([
    ["a literal", KEY, `38: ${forms}, found a literal: the config holds no secret itself`],
    ["a list", `[${KEY}]`, `38: ${forms}, found a list`],
    ["a key", `{ ${KEY} }`, "40: unknown key in workers[1].api_key (allowed: env, file)"],
    [
      "both",
      "{ env: K, file: k }",
      "38: workers[1].api_key must be either { env: NAME } or { file: PATH }, found both",
    ],
    [
      "a variable that is not set",
      "{ env: NONE }",
      "45: workers[1].api_key.env names the environment variable NONE, which is not set",
    ],
    [
      "a file that is empty",
      "{ file: empty }",
      '46: workers[1].api_key.file names the file "empty", which is empty',
    ],
    [
      "a variable with a space",
      "{ env: SPACED }",
      `45: the API key in the environment variable SPACED ${form}, but contains a space`,
    ],
    [
      "a file with lines",
      "{ file: lines }",
      `46: the API key in the file "lines" ${form}, but contains a line break`,
    ],
    [
      "a file of another script",
      "{ file: foreign }",
      `46: the API key in the file "foreign" ${form}, but contains a character that is not printable ASCII`,
    ],
  ])("as %s is a mistake that does not tell it", (_, value, expected) => {
    const { keys, lines } = readKey(
      value,
      { K: KEY, SPACED: `Bearer ${KEY}` },
      { empty: "\n", lines: `${KEY}\nx-evil: 1\n`, foreign: `${KEY}é` },
    );
    expect(keys).toBeUndefined();
    expect(lines).toEqual([`hawser.yaml:3:${expected}`]);
    expect(lines.join()).not.toMatch(/s3cret/);
  });

  test("glued to its name is not told", () => {
    const text = `workers: [{ id: a, url: http://a, "api_key:${KEY}" }]\n`;
    const { mistakes } = parseConfig(text, "hawser.yaml", {});
    expect(mistakes.map(formatMistake)).toEqual([
      'hawser.yaml:1:35: unknown key in workers[0], a space must follow the colon of "api_key:"',
    ]);
  });
});
