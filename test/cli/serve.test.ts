import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { describe, expect, it } from "vitest";
import { start } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { hawser } from "./hawser.js";

const WORKERS = "workers: [{ id: a, url: http://127.0.0.1:9 }]\n";

describe("hawser serve", () => {
  it("reads ./hawser.yaml, listens although no worker answers, and exits with 0 on SIGTERM", async () => {
    const directory = directoryOf({ "hawser.yaml": `${WORKERS}listen: { port: 0 }\n` });
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
    const directory = directoryOf({ "hawser.yaml": `${WORKERS}listen: { port: ${port} }\n` });
    const { status, stderr } = hawser(directory, ["serve"]);
    taken.close();
    expect(status).toBe(1);
    expect(stderr).toMatch(new RegExp(`error: cannot listen on 127\\.0\\.0\\.1, port ${port}: .*EADDRINUSE`));
  });
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
