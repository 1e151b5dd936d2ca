// The commands by which docs/gateway.md has the gateway run as a service: each starts it, and hears every signal itself.
import { describe, expect, it } from "vitest";
import { stringify } from "yaml";
import { until, worker } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { blocksOf, ROOT } from "./blocks.js";
import { endlessStream, type Service, service } from "./service.js";

const CONFIG = "/etc/hawser/hawser.yaml";
/** Where the docs have a checkout. */
const CHECKOUT = "/opt/hawser/";

const blocks = blocksOf("docs/gateway.md");

function block(language: string): string {
  return blocks.find((candidate) => candidate.language === language)!.text;
}

const unit = /^ExecStart=(.*)$/m.exec(block("ini"))![1]!.split(" ");
const container = JSON.parse(/^CMD (.*)$/m.exec(block("dockerfile"))![1]!) as string[];

/** Starts a command of the docs, with this checkout, this Node and a config of ours in the places of theirs. */
async function run(command: readonly string[], deadline = "25s"): Promise<Service> {
  const { url } = await worker();
  const config = {
    ...{ listen: { port: 0 }, admin: { port: 0 }, shutdown: { deadline } },
    workers: [{ id: "a", url }],
  };
  const file = `${directoryOf({ "hawser.yaml": stringify(config) })}/hawser.yaml`;
  const [node, ...args] = command.map((word) => word.replace(CHECKOUT, ROOT).replace(CONFIG, file));
  expect(node).toMatch(/^(\/usr\/bin\/)?node$/);
  return service(process.execPath, args, ROOT);
}

describe.each([
  ["systemd's unit", unit],
  ["the container", container],
])("the command of %s", (_, command) => {
  it.each(["SIGTERM", "SIGINT"] as const)("ends with 0 on %s", async (signal) => {
    const { child, exit } = await run(command);
    child.kill(signal);
    expect(await exit).toEqual([0, null]);
  });

  it("ends with 3 where the deadline cut something", async () => {
    const { child, exit, url } = await run(command, "1ms");
    await endlessStream(url);
    child.kill("SIGTERM");
    expect(await exit).toEqual([3, null]);
  });

  it("reads its config again on SIGHUP, and serves on", async () => {
    const { child, url } = await run(command);
    const stream = await endlessStream(url);
    child.kill("SIGHUP");
    const generation = async () => {
      const { config } = (await (await fetch(`${url}/health`)).json()) as { config: { generation: number } };
      return config.generation;
    };
    await until(async () => (await generation()) === 2);
    expect((await stream.read()).done).toBe(false);
    expect(child.exitCode).toBeNull();
  });
});

it("systemd takes the other exit codes of an end that was asked for as good", () => {
  expect(block("ini")).toMatch(/^SuccessExitStatus=3 4$/m);
});

it("systemd has it read its config again by the signal for that", () => {
  expect(block("ini")).toMatch(/^ExecReload=\/bin\/kill -HUP \$MAINPID$/m);
});

it("systemd waits longer than the default deadline", () => {
  expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(block("ini"))![1])).toBeGreaterThan(25 + 1);
});
