// How `hawser serve` ends under an orchestrator's signals, and what its clients see of it.
import { once } from "node:events";
import OpenAI from "openai";
import { expect, it } from "vitest";
import { stringify } from "yaml";
import { directoryOf } from "../fixtures/directory.js";
import { loads, type Running, start, until, worker } from "./fleet.js";

async function gateway(deadline?: string): Promise<Running> {
  const { url } = await worker();
  const config = {
    ...{ listen: { port: 0 }, admin: { port: 0 }, workers: [{ id: "a", url }] },
    ...(deadline && { shutdown: { deadline } }),
  };
  return start(["serve"], directoryOf({ "hawser.yaml": stringify(config) }));
}

/** A stream of `count` tokens; resolves to how it ended, once it has. */
async function stream(url: string, count: number): Promise<{ ended: Promise<string> }> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
  const events = await client.chat.completions.create({
    ...{ model: "sim", stream: true, max_tokens: count },
    messages: [{ role: "user", content: "Hello" }],
  });
  const read = async () => {
    let last = "nothing";
    for await (const { choices } of events) last = choices[0]?.finish_reason ?? last;
    return last;
  };
  return { ended: read().catch((error: Error) => error.message) };
}

it("exits with 0 when what was under way has finished", async () => {
  const { url, child } = await gateway();
  const { ended } = await stream(url, 300);
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  expect(await ended).toMatch(/^(stop|length)$/);
  expect(await exit).toEqual([0, null]);
});

it("exits with 3 where the deadline cut something, whose client was told", async () => {
  const { url, child } = await gateway("1ms");
  const { ended } = await stream(url, 100_000);
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  expect(await ended).toContain("the gateway is shutting down");
  expect(await exit).toEqual([3, null]);
});

it("exits with 4 where a second signal did", async () => {
  const { url, child } = await gateway("2h");
  const { ended } = await stream(url, 100_000);
  await until(async () => (await loads(url))[0] === 1);
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  // It has heard the first when it is not ready, which it says on a connection that is open already, or accepts no new one.
  await until(async () => (await fetch(`${url}/health`).catch(() => null))?.status !== 200);
  child.kill("SIGINT");
  expect(await ended).toContain("the gateway is shutting down");
  expect(await exit).toEqual([4, null]);
});
