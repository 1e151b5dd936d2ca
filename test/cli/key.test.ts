import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { start } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { hawser } from "./hawser.js";

const WORKERS = "workers: [{ id: a, url: http://127.0.0.1:9, models: [m] }]\n";
const GIVEN = "sk-given-0123456789";
const FORM = "error: the key on stdin must be 16 to 256 printable ASCII characters without spaces, but it";
const directory = () => directoryOf({});

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** The two lines of a new key. */
function made(...args: string[]): { key: string; line: string } {
  const { status, stdout, stderr } = hawser(directory(), ["key", ...args]);
  expect([status, stderr]).toEqual([0, ""]);
  const [key, line, ...more] = stdout.split("\n");
  expect(more).toEqual([""]);
  return { key: key!, line: line! };
}

/** The keys of a config that has these lines. */
function keysOf(...lines: string[]) {
  const text = `${WORKERS}access:\n  keys:\n${lines.map((line) => `    ${line}\n`).join("")}`;
  const { config, mistakes } = parseConfig(text, "hawser.yaml", {});
  expect(mistakes).toEqual([]);
  return config!.access!.keys;
}

describe("hawser key", () => {
  it("makes a key of 32 random bytes, and the line that takes it", () => {
    const { key, line } = made("team-a");
    expect(key).toMatch(/^hwsr_[A-Za-z0-9_-]{43}$/);
    expect(line).toBe(`- { name: "team-a", sha256: "${sha256(key)}" }`);
    expect(made("team-a").key).not.toBe(key);
  });

  it("prints lines that the config takes as they stand, whatever YAML makes of their names", () => {
    const [first, second] = [made(), made("1e3")];
    expect(keysOf(first.line, second.line)).toMatchObject([
      { name: "client", sha256: sha256(first.key) },
      { name: "1e3", sha256: sha256(second.key) },
    ]);
  });

  it.each(["", "a/b", "n".repeat(65)])("refuses the name %j", (name) => {
    const { status, stdout, stderr } = hawser(directory(), ["key", name]);
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr).toContain("1 to 64 letters, digits, dots, dashes or underscores");
  });

  it("makes a key with which a client of the gateway is served, and no other", async () => {
    const { key, line } = made("team-a");
    const text = `${WORKERS}listen: { port: 0 }\nadmin: { port: 0 }\naccess:\n  keys:\n    ${line}\n`;
    const { url } = await start(["serve"], directoryOf({ "hawser.yaml": text }));
    const asked = [{}, { authorization: `Bearer ${key}` }, { "x-api-key": key }, { "x-api-key": `${key}0` }];
    const answers = asked.map((headers: Record<string, string>) => fetch(`${url}/v1/models`, { headers }));
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([401, 200, 200, 401]);
    expect((await fetch(`${url}/health`)).status).toBe(503);
  });
});

describe("hawser key --hash", () => {
  it.each([
    ["", GIVEN],
    ["a newline", `${GIVEN}\n`],
    ["Windows' newline", `${GIVEN}\r\n`],
  ])("prints the line of the key on stdin alone, which may end with %s", (_, input) => {
    expect(hawser(directory(), ["key", "--hash", "team-a"], input)).toEqual({
      ...{ status: 0, stderr: "" },
      stdout: `- { name: "team-a", sha256: "${sha256(GIVEN)}" }\n`,
    });
  });

  it("takes 16 to 256 characters", () => {
    for (const length of [16, 256]) {
      const { status, stdout } = hawser(directory(), ["key", "--hash"], "~".repeat(length));
      expect([status, stdout]).toEqual([
        0,
        `- { name: "client", sha256: "${sha256("~".repeat(length))}" }\n`,
      ]);
    }
  });

  it.each([
    ["nothing", "", "is empty"],
    ["15 characters", `${"secret-and-more"}\n`, "has 15"],
    ["257 characters", "secret".padEnd(257, "x"), "is longer"],
    ["ten million", "secret".padEnd(10_000_000, "x"), "is longer"],
    ["a space", "secret key of somebody", "contains a space"],
    ["an umlaut", "secret-schlüssel-von", "contains a character that is not printable ASCII"],
  ])("refuses %s, and does not repeat it", (_, input, breach) => {
    expect(hawser(directory(), ["key", "--hash"], input)).toEqual({
      ...{ status: 1, stdout: "" },
      stderr: `${FORM} ${breach}\n`,
    });
  });
});
