// Every command of docs/write-a-policy.md, one after the other in an empty folder; and its tables against the frame.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { COLUMNS, FIELDS } from "../../host/abi/frame.js";
import { CLANG_FLAGS, RUSTC_FLAGS } from "../../host/kit/compile.js";
import { FILLED } from "../../host/policy/filled.js";
import { pack, STRANGER } from "../fixtures/packed.js";
import { blocksOf, ROOT } from "./blocks.js";

const FILE = "docs/write-a-policy.md";
const MINUTES = 60_000;
const text = readFileSync(`${ROOT}${FILE}`, "utf8");
const commands = blocksOf(FILE).filter(({ language }) => language === "sh");

let home: string;
let tarball: string;
/** A reader's shell stays where a command left it. */
let directory: string;
const groups: number[] = [];

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "hawser-author-"));
  tarball = pack(home);
  directory = join(home, "empty");
  mkdirSync(directory);
}, 2 * MINUTES);

afterAll(() => {
  for (const group of groups) endGroup(group);
  rmSync(home, { recursive: true, force: true });
});

function endGroup(group: number): void {
  try {
    process.kill(-group, "SIGKILL");
  } catch {
    // It has ended already.
  }
}

/** Runs a command to its end. What it leaves running ends with the tests. */
async function run(command: string): Promise<string> {
  const place = join(home, "pwd");
  const script = `${command}\npwd > "${place}"`;
  const env = { ...STRANGER, HAWSER: tarball };
  const shell = spawn("bash", ["-euo", "pipefail", "-c", script], {
    ...{ cwd: directory, env, detached: true },
    stdio: ["ignore", "pipe", "inherit"],
  });
  groups.push(shell.pid!);
  let found = "";
  shell.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    found += chunk;
  });
  const [status] = await once(shell, "close");
  if (status !== 0) throw new Error(`ended with ${status}: ${found}`);
  directory = readFileSync(place, "utf8").trim();
  return found;
}

describe("the commands, in an empty folder", () => {
  it.each(commands)(
    "$text",
    async ({ text: command, output }) => {
      const found = await run(command);
      if (output !== undefined) expect(found).toBe(output);
      if (command.includes("policy test") || command.includes("policy build")) results.push(found);
    },
    2 * MINUTES,
  );

  const results: string[] = [];

  it("show what the text around them says", () => {
    const ends = results.map((found) => found.match(/^(not yet|they differ|\d+ passed, \d+ failed)$/gm));
    expect(ends).toEqual([
      ["6 passed, 0 failed"],
      ["6 passed, 1 failed", "not yet"],
      ["7 passed, 0 failed"],
      ["7 passed, 0 failed"],
      ["7 passed, 0 failed", "they differ"],
    ]);
    expect(existsSync(join(directory, "my-policy.wasm"))).toBe(true);
  });

  it("leave a folder that an editor's TypeScript understands", () => {
    const { status, stdout } = spawnSync(
      process.execPath,
      [`${ROOT}node_modules/typescript/bin/tsc`, "--noEmit"],
      {
        cwd: directory,
        encoding: "utf8",
      },
    );
    expect([stdout, status]).toEqual(["", 0]);
  });
});

describe("the tables of the frame", () => {
  const rows = [...text.matchAll(/^\| ([^|]+) \| (\S+) \| `(\w+)` \| `(\w+)[^|]*\| [^|]+ \| ?(yes)? ?\|$/gm)];
  const listed = rows.map(([, offset, type, name, , filled]) => [name, type, offset, filled === "yes"]);

  it("list every field and column, its place, and whether the gateway fills it", () => {
    const fields = FIELDS.map(({ name, type, offset }) => [name, type, `${offset}`, FILLED.has(name)]);
    const columns = COLUMNS.map(({ name, type, perRow }) => {
      return [name, type, `448${perRow === 0 ? "" : ` + ${perRow === 1 ? "" : perRow}S`}`, FILLED.has(name)];
    });
    expect(listed).toEqual([...fields, ...columns]);
  });

  it("name what the SDK exports", () => {
    const sdk = ["candidates", "frame"]
      .map((file) => readFileSync(`${ROOT}assembly/sdk/${file}.ts`, "utf8"))
      .join();
    for (const [, , , , name] of rows) expect(sdk).toContain(`export function ${name}(`);
  });
});

it("the compilers' lines are those that build runs", () => {
  expect(text).toContain(`$ clang ${CLANG_FLAGS.join(" ")} -I `);
  expect(text).toContain(`$ rustc ${RUSTC_FLAGS.join(" ")} -o `);
});
