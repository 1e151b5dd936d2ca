import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { describe, expect, it } from "vitest";
import { ROOT } from "../docs/blocks.js";
import { MAIN, start } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { hawser } from "./hawser.js";

const WORKERS = "workers: [{ id: a, url: http://127.0.0.1:9 }]\n";
const ADMIN = "admin: { port: 0 }\n";

/** Says when V8 is given a flag and when a module is compiled. */
const SPY = `
const v8 = require("node:v8");
const { setFlagsFromString } = v8;
v8.setFlagsFromString = (flag) => {
  console.error("spy: " + flag);
  setFlagsFromString(flag);
};
require("node:module").syncBuiltinESMExports();
WebAssembly.Module = class extends WebAssembly.Module {
  constructor(bytes) {
    console.error("spy: compiles");
    super(bytes);
  }
};
`;

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

describe("hawser serve", () => {
  it("reads ./hawser.yaml, listens although no worker answers, and exits with 0 on SIGTERM", async () => {
    const directory = directoryOf({ "hawser.yaml": `${WORKERS}${ADMIN}listen: { port: 0 }\n` });
    const { url, child } = await start(["serve"], directory);
    const response = await fetch(`${url}/health`);
    expect(response.status).toBe(503);
    const exit = once(child, "exit");
    child.kill("SIGTERM");
    expect(await exit).toEqual([0, null]);
  });

  it("shows every mistake, starts nothing and exits with 1", () => {
    const directory = directoryOf({ "bad.yaml": `${WORKERS}lisen: {}\nsession: { ttl: 5 }\n` });
    const { status, stdout, stderr } = hawser(directory, ["serve", "-c", "bad.yaml"]);
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr.trimEnd().split("\n").length).toBe(2);
    expect(stderr).toMatch(/^bad\.yaml:2:1: unknown key "lisen", did you mean "listen"\?/);
  });

  it("says so where the port is taken, and exits with 1", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    const directory = directoryOf({ "hawser.yaml": `${WORKERS}${ADMIN}listen: { port: ${port} }\n` });
    const { status, stderr } = hawser(directory, ["serve"]);
    taken.close();
    expect(status).toBe(1);
    expect(stderr).toMatch(new RegExp(`error: cannot listen on 127\\.0\\.0\\.1, port ${port}: .*EADDRINUSE`));
  });

  it("says that it is open to the network where it is, on both addresses", async () => {
    const token = "{ file: token }";
    const directory = directoryOf({
      "hawser.yaml": `${WORKERS}listen: { host: 0.0.0.0, port: 0 }\nadmin: { host: 0.0.0.0, port: 0, token: ${token} }\n`,
      token: "sixteen-characters\n",
    });
    const { url, admin } = await start(["serve"], directory);
    expect([url, await admin()]).toEqual(Array(2).fill(expect.stringMatching(/^http:\/\/0\.0\.0\.0:\d+$/)));
  });

  it("tells V8 to compile policies as a whole before it compiles the first", () => {
    const directory = directoryOf({
      "hawser.yaml": `${WORKERS}${ADMIN}listen: { host: 203.0.113.1 }\n`,
      "spy.cjs": SPY,
    });
    const spied = [MAIN, "serve"];
    const { stderr } = spawnSync(process.execPath, ["--require", "./spy.cjs", ...spied], {
      cwd: directory,
      encoding: "utf8",
    });
    const seen = stderr.split("\n").filter((line) => line.startsWith("spy: "));
    expect(seen.slice(0, 2)).toEqual(["spy: --no-wasm-lazy-compilation", "spy: compiles"]);
  });
});

it("goes on when whoever read its log has left", async () => {
  const directory = directoryOf({ "hawser.yaml": `${WORKERS}${ADMIN}listen: { port: 0 }\n` });
  const { url, child } = await start(["serve"], directory);
  child.stderr!.destroy();
  child.stdout!.destroy();
  // Every failed request writes a line.
  for (let i = 0; i < 3; i++) expect((await fetch(`${url}/health`)).status).toBe(503);
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  expect(await exit).toEqual([0, null]);
});

it("goes on when nobody ever read its log", async () => {
  const port = await freePort();
  const directory = directoryOf({ "hawser.yaml": `${WORKERS}${ADMIN}listen: { port: ${port} }\n` });
  const child = spawn(process.execPath, [MAIN, "serve"], {
    cwd: directory,
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.destroy();
  child.stderr.destroy();
  const answer = async () => (await fetch(`http://127.0.0.1:${port}/health`).catch(() => null))?.status;
  while ((await answer()) !== 503) await new Promise((resolve) => setTimeout(resolve, 50));
  // Longer than the first question to the worker takes: its failure is logged in between.
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(await answer()).toBe(503);
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  expect(await exit).toEqual([0, null]);
});

it("may be executed as it was built: npx links to it, and asks nobody to make it so", () => {
  expect(statSync(MAIN).mode & 0o111).toBe(0o111);
});

it("tells its version", () => {
  const { stdout } = hawser(ROOT, ["--version"]);
  expect(stdout).toBe(`${JSON.parse(readFileSync(`${ROOT}package.json`, "utf8")).version}\n`);
});

describe("hawser demo", () => {
  it("starts no worker elsewhere than on this machine", () => {
    const directory = directoryOf({ "hawser.yaml": "workers: [{ id: a, url: http://10.0.0.1:9001 }]\n" });
    expect(hawser(directory, ["demo"])).toMatchObject({
      status: 1,
      stderr: 'error: worker "a" is at http://10.0.0.1:9001: the demo starts workers on this machine only\n',
    });
  });
});
