// Every command of the README and the docs, run as written in a clean copy of the repository.
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Block, blocksOf, ROOT } from "./blocks.js";

const START = "npm ci && npm start\n";
const TEST = "npm ci && npm test\n";
const MINUTES = 60_000;

/** Its commands are for an empty folder: write-a-policy.test.ts runs them. */
const ELSEWHERE = "docs/write-a-policy.md";

const files = ["README.md", ...readdirSync(`${ROOT}docs`).map((name) => `docs/${name}`)].filter(
  (name) => name.endsWith(".md") && name !== ELSEWHERE,
);
const commands = files
  .flatMap((file) => blocksOf(file).map((block) => ({ file, ...block })))
  .filter(isCommand);

function isCommand({ language }: Block): boolean {
  return language === "sh";
}

let copy: string;
let demo: ChildProcess;
let printed = "";

beforeAll(async () => {
  copy = mkdtempSync(join(tmpdir(), "hawser-readme-"));
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "-z"], {
    cwd: ROOT,
  });
  for (const file of listed.toString().split("\0").filter(Boolean)) {
    cpSync(join(ROOT, file), join(copy, file), { recursive: true, force: true });
  }
  demo = spawn("bash", ["-c", START], { cwd: copy, detached: true, stdio: ["ignore", "pipe", "inherit"] });
  const ready = new Promise<void>((resolve, reject) => {
    demo.stdout!.on("data", (chunk) => {
      printed += chunk;
      if (printed.includes("-d '")) resolve();
    });
    demo.on("exit", () => reject(new Error(`npm start ended: ${printed}`)));
  });
  await ready;
}, 5 * MINUTES);

afterAll(() => {
  if (demo.exitCode === null) process.kill(-demo.pid!, "SIGTERM");
  rmSync(copy, { recursive: true, force: true });
});

async function run(command: string): Promise<string> {
  const { stdout } = await promisify(execFile)("bash", ["-euo", "pipefail", "-c", command], { cwd: copy });
  return stdout;
}

describe("the README's commands", () => {
  it("start the demo and print a curl that shows place, then keep", async () => {
    const curl = /curl -i[\s\S]*'\n/.exec(printed)![0];
    expect(await run(curl)).toMatch(
      /x-hawser-worker: [ab]\r\nx-hawser-policy: guard\r\nx-hawser-decision: place\r\n/,
    );
    expect(await run(curl)).toMatch(/x-hawser-decision: keep\r\n/);
    expect(dirname(copy)).toBe(tmpdir());
  });

  it("test with what CI runs", () => {
    const ci = execFileSync("cat", [`${ROOT}.ci/run`]).toString();
    expect(ci).toContain(TEST);
    expect(commands.map(({ text }) => text)).toContain(TEST);
    expect(commands.map(({ text }) => text)).toContain(START);
  });
});

describe("every other command", () => {
  const others = commands.filter(({ text }) => text !== START && text !== TEST);

  it.each(others)("$file: $text", async ({ text, output }) => {
    const found = await run(text);
    if (output !== undefined) expect(found).toBe(output);
  });

  it("is found at all", () => expect(others.length).toBeGreaterThanOrEqual(6));
});
