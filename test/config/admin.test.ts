import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadConfig, parseConfig } from "../../host/config/config.js";
import { formatMistake } from "../../host/yaml/mistake.js";
import { directoryOf } from "../fixtures/directory.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]";
const TOKEN = "s3cret-0123456789";
/** Fifteen characters, and one that no header can carry. */
const SHORT = TOKEN.slice(0, 15);
const SPACED = "s3cret 0123456789";

type Files = Record<string, string | Uint8Array>;

/** A config with these lines below its workers, and what was found in it, the directory left out. */
function read(more: string, environment: Record<string, string> = {}, files: Files = {}) {
  const directory = directoryOf(files);
  const found = parseConfig(`${W}\n${more}\n`, join(directory, "hawser.yaml"), environment);
  const lines = found.mistakes.map((mistake) => formatMistake(mistake).replaceAll(`${directory}/`, ""));
  return { admin: found.config?.admin, lines, warnings: found.warnings };
}

describe("admin", () => {
  test.each<[string, string, Record<string, string>, Files, unknown]>([
    ["an address", "admin: { host: '::1', port: 0 }", {}, {}, { host: "::1", port: 0, token: undefined }],
    ["nothing", "admin: {}", {}, {}, { host: "127.0.0.1", port: 8081, token: undefined }],
    ["a token of a variable", "admin: { token: { env: T } }", { T: TOKEN }, {}, { token: TOKEN }],
    ["a token of a file", "admin: { token: { file: keys/t } }", {}, { "keys/t": TOKEN }, { token: TOKEN }],
    ["a file with a newline", "admin: { token: { file: t } }", {}, { t: `${TOKEN}\n` }, { token: TOKEN }],
    [
      "a file with Windows' newline",
      "admin: { token: { file: t } }",
      {},
      { t: `${TOKEN}\r\n` },
      { token: TOKEN },
    ],
    ["the default variable", "", { HAWSER_ADMIN_TOKEN: TOKEN }, {}, { token: TOKEN }],
    [
      "another variable before the default one",
      "admin: { token: { env: T } }",
      { T: TOKEN, HAWSER_ADMIN_TOKEN: SHORT },
      {},
      { token: TOKEN },
    ],
    ["an empty default variable", "", { HAWSER_ADMIN_TOKEN: "" }, {}, { token: undefined }],
    [
      "all addresses with a token",
      "admin: { host: 0.0.0.0 }",
      { HAWSER_ADMIN_TOKEN: TOKEN },
      {},
      { host: "0.0.0.0", token: TOKEN },
    ],
    ["sixteen characters", "", { HAWSER_ADMIN_TOKEN: TOKEN.slice(0, 16) }, {}, { token: TOKEN.slice(0, 16) }],
    ["the port of listen on another host", "admin: { host: 127.0.0.2, port: 8080 }", {}, {}, { port: 8080 }],
    [
      "the port of listen, which is on all addresses, but another one",
      "listen: { host: 0.0.0.0, port: 9 }",
      {},
      {},
      { port: 8081 },
    ],
    [
      "any free port for both, one on all addresses",
      "listen: { host: '::', port: 0 }\nadmin: { port: 0 }",
      {},
      {},
      { port: 0 },
    ],
    ["any free port for both", "listen: { port: 0 }\nadmin: { port: 0 }", {}, {}, { port: 0 }],
  ])("%s is taken", (_, more, environment, files, expected) => {
    const { admin, lines, warnings } = read(more, environment, files);
    expect(lines).toEqual([]);
    expect(warnings).toEqual([]);
    expect(admin).toMatchObject(expected as object);
  });

  test.each(["127.0.0.1", "127.255.0.9", "'::1'", "'0:0:0:0:0:0:0:1'", "localhost", "LOCALHOST"])(
    "%s needs no token",
    (host) => {
      expect(read(`admin: { host: ${host} }`).lines).toEqual([]);
    },
  );

  test.each(["0.0.0.0", "'::'", "10.0.0.1", "128.0.0.1", "gateway", "127.evil.example", "localhost.example"])(
    "%s needs a token, and the mistake names the variable",
    (host) => {
      const name = host.replaceAll("'", "");
      expect(read(`admin: { host: ${host} }`).lines).toEqual([
        `hawser.yaml:2:16: admin.host "${name}" is not loopback, so that it takes a token: set admin.token, or the environment variable HAWSER_ADMIN_TOKEN`,
      ]);
    },
  );

  test.each<[string, string, string[]]>([
    [
      "the address of listen",
      "listen: { port: 9 }\nadmin: { port: 9 }",
      [
        'hawser.yaml:3:16: admin.port must not be 9: listen and admin would both be on host "127.0.0.1", port 9',
      ],
    ],
    [
      "the address that listen has by default",
      "admin: { port: 8080 }",
      [
        'hawser.yaml:2:16: admin.port must not be 8080: listen and admin would both be on host "127.0.0.1", port 8080',
      ],
    ],
    [
      "the default address, which listen has",
      "listen: { port: 8081 }",
      [
        'hawser.yaml:2:17: listen.port must not be 8081: listen and admin would both be on host "127.0.0.1", port 8081',
      ],
    ],
    [
      "the host of listen in another case",
      "listen: { host: localhost, port: 9 }\nadmin: { host: LocalHost, port: 9 }",
      [
        'hawser.yaml:3:33: admin.port must not be 9: listen and admin would both be on host "localhost", port 9',
      ],
    ],
    [
      "the default address where listen is on all",
      "listen: { host: 0.0.0.0, port: 8081 }",
      [
        'hawser.yaml:2:32: listen.port must not be 8081: listen and admin would both be on port 8081, since the host "0.0.0.0" is every address',
      ],
    ],
    [
      "the port of listen where that is on all of IPv6",
      "listen: { host: '::', port: 9 }\nadmin: { host: localhost, port: 9 }",
      [
        'hawser.yaml:3:33: admin.port must not be 9: listen and admin would both be on port 9, since the host "::" is every address',
      ],
    ],
    [
      "all addresses, of which listen has one",
      "admin: { host: '0:0:0:0:0:0:0:0', port: 8080, token: { env: T } }",
      [
        'hawser.yaml:2:41: admin.port must not be 8080: listen and admin would both be on port 8080, since the host "0:0:0:0:0:0:0:0" is every address',
      ],
    ],
    [
      "all addresses twice",
      "listen: { host: '::', port: 9 }\nadmin: { host: 0.0.0.0, port: 9, token: { env: T } }",
      [
        'hawser.yaml:3:31: admin.port must not be 9: listen and admin would both be on port 9, since the host "::" is every address',
      ],
    ],
    [
      "a token glued to its key, which is not told",
      `admin: { "token:${TOKEN}" }`,
      ['hawser.yaml:2:10: unknown key in admin, a space must follow the colon of "token:"'],
    ],
    [
      "an unknown key",
      "admin: { tokn: { env: T } }",
      ['hawser.yaml:2:10: unknown key "tokn" in admin, did you mean "token"? (allowed: host, port, token)'],
    ],
    [
      "a host that is none, told once",
      "admin: { host: a b }",
      ['hawser.yaml:2:16: admin.host must be a host name or an IP address, found "a b"'],
    ],
    [
      "a port that is none",
      "admin: { port: 65536 }",
      ["hawser.yaml:2:16: admin.port must be a port from 1 to 65535, or 0 for any that is free, found 65536"],
    ],
  ])("%s is a mistake", (_, more, expected) => {
    expect(read(more, { T: TOKEN }).lines).toEqual(expected);
  });
});

describe("a secret", () => {
  const forms = "admin.token must be { env: NAME } or { file: PATH }";
  const literal = `${forms}, found a literal: the config holds no secret itself`;
  const variable =
    "admin.token.env must be the name of an environment variable, made of letters, digits and underscores";
  const length = "must be at least 16 printable ASCII characters without spaces";

  test.each<[string, string, string]>([
    ["a text", TOKEN, `17: ${literal}`],
    ["a variable as shells write it", `"\${NAME}"`, `17: ${literal} (write { env: NAME })`],
    ["what only begins as one", `"\${${TOKEN}}"`, `17: ${literal}`],
    ["a number", "3141592653589793", `17: ${literal}`],
    ["a list", "[]", `17: ${forms}, found an empty list`],
    ["nothing", "", `10: ${forms}, found nothing`],
    ["an empty mapping", "{}", `17: ${forms}, found an empty mapping`],
    [
      "both",
      "{ env: T, file: t }",
      "17: admin.token must be either { env: NAME } or { file: PATH }, found both",
    ],
    [
      "an unknown key",
      `{ envv: ${TOKEN} }`,
      '19: unknown key in admin.token, did you mean "env"? (allowed: env, file)',
    ],
    ["a key", `{ ${TOKEN} }`, "19: unknown key in admin.token (allowed: env, file)"],
    ["a key beside another", `{ env: T, ${TOKEN} }`, "27: unknown key in admin.token (allowed: env, file)"],
    [
      "a part of a key",
      `{ "env:${TOKEN}" }`,
      '19: unknown key in admin.token, a space must follow the colon of "env:"',
    ],
    ["a secret for a variable's name", `{ env: ${TOKEN} }`, `24: ${variable}`],
    ["a number for a variable's name", "{ env: 3141592653589793 }", `24: ${variable}`],
    ["no variable's name", "{ env: '' }", `24: ${variable}, found ""`],
    [
      "a list for a variable's name",
      "{ env: [a] }",
      "24: admin.token.env must be the name of an environment variable, found a list",
    ],
    [
      "a variable that is not set",
      "{ env: NONE }",
      "24: admin.token.env names the environment variable NONE, which is not set",
    ],
    [
      "a variable that every object has",
      "{ env: constructor }",
      "24: admin.token.env names the environment variable constructor, which is not set",
    ],
    [
      "a variable that is empty",
      "{ env: EMPTY }",
      "24: admin.token.env names the environment variable EMPTY, which is empty",
    ],
    [
      "a variable with a space",
      "{ env: SPACED }",
      `24: the admin token in the environment variable SPACED ${length}, but contains a space`,
    ],
    [
      "a short variable",
      "{ env: SHORT }",
      `24: the admin token in the environment variable SHORT ${length}, but has 15 characters`,
    ],
    [
      "a very short file",
      "{ file: keys/one }",
      `25: the admin token in the file "keys/one" ${length}, but has 1 character`,
    ],
    [
      "a file with a letter of another script",
      "{ file: keys/foreign }",
      `25: the admin token in the file "keys/foreign" ${length}, but contains a character that is not printable ASCII`,
    ],
    ["no file name", "{ file: '' }", '25: admin.token.file must be the path of a file, found ""'],
    [
      "a file that is not there",
      "{ file: none }",
      '25: admin.token.file names the file "none", which cannot be read: it does not exist',
    ],
    [
      "a directory",
      "{ file: keys }",
      '25: admin.token.file names the file "keys", which cannot be read: it is a directory',
    ],
    [
      "a device that never ends",
      "{ file: /dev/zero }",
      '25: admin.token.file names the file "/dev/zero", which cannot be read: it is not a regular file',
    ],
    [
      "a large file",
      "{ file: keys/large }",
      '25: admin.token.file names the file "keys/large", which cannot be read: it has more than 65536 bytes',
    ],
    [
      "a binary file",
      "{ file: keys/binary }",
      '25: admin.token.file names the file "keys/binary", which cannot be read: it is not UTF-8 text',
    ],
    [
      "an empty file",
      "{ file: keys/empty }",
      '25: admin.token.file names the file "keys/empty", which is empty',
    ],
    [
      "a file with a second newline",
      "{ file: keys/lines }",
      `25: the admin token in the file "keys/lines" ${length}, but contains a line break`,
    ],
  ])("as %s is a mistake that does not tell it", (_, value, expected) => {
    const environment = { T: TOKEN, EMPTY: "", SPACED, SHORT, HAWSER_ADMIN_TOKEN: TOKEN };
    const { lines } = read(`admin: { token: ${value} }`, environment, {
      "keys/empty": "\n",
      "keys/large": TOKEN.repeat(4_000),
      "keys/binary": Uint8Array.of(0xff, 0xfe),
      "keys/lines": `${TOKEN}\n\n`,
      "keys/one": "s",
      "keys/foreign": `${TOKEN} é`,
    });
    expect(lines).toEqual([`hawser.yaml:2:${expected}`]);
    expect(lines.join()).not.toMatch(/s3cret|31415/);
  });

  test("as a pipe is a mistake, and nobody waits for its writer", () => {
    const directory = directoryOf({ "hawser.yaml": `${W}\nadmin: { token: { file: pipe } }\n` });
    execFileSync("mkfifo", [join(directory, "pipe")]);
    expect(loadConfig(join(directory, "hawser.yaml"), {}).mistakes).toMatchObject([
      { line: 2, column: 25, message: expect.stringMatching(/: it is not a regular file$/) },
    ]);
  });

  test("of the default variable that is too short is a mistake at admin, or at the start of the file", () => {
    const sentence = `the admin token in the environment variable HAWSER_ADMIN_TOKEN ${length}, but has 15 characters`;
    const environment = { HAWSER_ADMIN_TOKEN: SHORT };
    expect(read("admin: { host: 0.0.0.0 }", environment).lines).toEqual([`hawser.yaml:2:8: ${sentence}`]);
    expect(read("", environment).lines).toEqual([`hawser.yaml:1:1: ${sentence}`]);
  });

  test("is looked for in the process's own variables unless others are handed in", () => {
    const name = Object.keys(process.env).find((name) => /^[A-Z]+$/.test(name) && process.env[name])!;
    const { mistakes } = parseConfig(`${W}\nadmin: { token: { env: ${name} } }\n`, "hawser.yaml");
    expect(mistakes.map(({ message }) => message).join()).not.toContain("is not set");
    const handedIn = parseConfig(`${W}\nadmin: { token: { env: ${name} } }\n`, "hawser.yaml", {});
    expect(handedIn.mistakes.map(({ message }) => message).join()).toContain("is not set");
  });
});
