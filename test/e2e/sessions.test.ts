// Sessions as an operator and his clients see them: real processes, the real clients, the config file, the admin listener.
import OpenAI from "openai";
import { expect, it } from "vitest";
import type { BindingView } from "../../host/index.js";
import { directoryOf } from "../fixtures/directory.js";
import { fleet, health, loads, type Running, serve, start, until, worker } from "./fleet.js";

function client(url: string, headers: Record<string, string>): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0, defaultHeaders: headers });
}

const messages = [{ role: "user" as const, content: "Hello" }];

/** One turn: `a place`. */
async function turn(url: string, headers: Record<string, string>): Promise<string> {
  const asked = client(url, headers).chat.completions.create({ model: "sim", max_tokens: 2, messages });
  const { response } = await asked.withResponse();
  return `${response.headers.get("x-hawser-worker")} ${response.headers.get("x-hawser-decision")}`;
}

it.each([false, true])(
  "gives fifty parallel first requests one worker, half of them cancelled, streaming: %s (B19)",
  async (stream) => {
    const { gateway } = await fleet(3, { type: "sticky" });
    const admin = await gateway.admin();
    const openai = client(gateway.url, { "x-session-id": "s" });
    const aborts = Array.from({ length: 50 }, () => new AbortController());
    const asked = aborts.map(async ({ signal }, i) => {
      // Every other one has no end of its own.
      const body = { model: "sim", max_tokens: i % 2 === 0 ? 100_000 : 300, stream, messages };
      const { data, response } = await openai.chat.completions.create(body, { signal }).withResponse();
      if (Symbol.asyncIterator in data) for await (const _ of data);
      return response.headers.get("x-hawser-worker");
    });
    const ended = Promise.allSettled(asked);
    await until(async () => (await loads(gateway.url)).reduce((a, b) => a + b) >= 25);
    for (const [i, abort] of aborts.entries()) if (i % 2 === 0) abort.abort();
    const served = (await ended).flatMap((each, i) =>
      i % 2 === 1 && each.status === "fulfilled" ? [each.value] : [],
    );
    expect(served.length).toBe(25);
    expect(new Set(served).size).toBe(1);
    await until(async () => (await loads(gateway.url)).every((count) => count === 0));
    const { sessions } = (await (await fetch(`${admin}/admin/sessions?key=s`)).json()) as {
      sessions: BindingView[];
    };
    expect(sessions).toMatchObject([{ worker: served[0], leases: 0, moves: 0, why: "place" }]);
  },
);

it("mode hard: a worker that dies costs the client nothing, and its sessions stay where they went", async () => {
  const { gateway, workers } = await fleet(2, { type: "least-loaded" }, { mode: "hard" });
  const session = { "x-session-id": "s" };
  expect(await turn(gateway.url, session)).toBe("a place");
  expect(await turn(gateway.url, session)).toBe("a hard");
  workers[0]!.child.kill("SIGKILL");
  expect(await turn(gateway.url, session)).toBe("b place");
  expect(await turn(gateway.url, session)).toBe("b hard");
});

it("parent groups: the agents of one Claude Code session share a worker under any load", async () => {
  const { gateway } = await fleet(3, { type: "sticky" }, { binding: "parent-group" });
  const agent = (name: string, of = "c") =>
    turn(gateway.url, { "x-claude-code-session-id": of, "x-claude-code-agent-id": name });
  const [first, ...others] = await Promise.all(["a1", "a2", "a3", "a4"].map((name) => agent(name)));
  expect(others.map((each) => each[0])).toEqual(Array(3).fill(first![0]));
  expect(await agent("a5")).toBe(`${first![0]} keep`);
  expect((await health(gateway.url)).bindings).toBe(1);
  expect(await turn(gateway.url, { "x-claude-code-session-id": "c" })).toMatch(/place$/);
  expect((await health(gateway.url)).bindings).toBe(2);
});

it("takes sources, tenant, pin and affinity from the config file", async () => {
  const workers = [await worker(), await worker()];
  const gateway = await serve(
    workers.map(({ url }) => url),
    { type: "round-robin" },
    {
      ...{ sources: [{ header: "x-chat-id" }, "default"], tenant: { header: "x-tenant" } },
      ...{ allow_pin: true, allow_affinity_header: true },
    },
  );
  const sticky = { "x-chat-id": "1", "x-session-id": "other", "x-hawser-affinity": "session" };
  const first = await turn(gateway.url, { ...sticky, "x-tenant": "t" });
  expect(await turn(gateway.url, { ...sticky, "x-tenant": "t" })).toBe(first.replace("place", "hard"));
  expect(await turn(gateway.url, { ...sticky, "x-tenant": "u" })).toMatch(/place$/);
  expect(await turn(gateway.url, { "x-chat-id": "2", "x-hawser-pin": "b" })).toBe("b explicit");
});

it("keeps the admin listener for who has the token", async () => {
  const { url } = await worker();
  const previous = process.env.HAWSER_ADMIN_TOKEN;
  process.env.HAWSER_ADMIN_TOKEN = "sixteen-characters";
  let gateway: Running;
  try {
    gateway = await serve([url], { type: "sticky" });
  } finally {
    if (previous === undefined) delete process.env.HAWSER_ADMIN_TOKEN;
    else process.env.HAWSER_ADMIN_TOKEN = previous;
  }
  const admin = await gateway.admin();
  const as = async (authorization: string) =>
    (await fetch(`${admin}/admin/workers`, { headers: { authorization } })).status;
  expect([await as("Bearer wrong"), await as("Bearer sixteen-characters")]).toEqual([401, 200]);
});

it("says so where the admin address is taken, and exits with 1", async () => {
  const [{ url }, other] = [await worker(), await worker()];
  const { port } = new URL(other.url);
  const directory = directoryOf({
    "hawser.yaml": `workers: [{ id: a, url: "${url}" }]\nlisten: { port: 0 }\nadmin: { port: ${port} }\n`,
  });
  await expect(start(["serve"], directory)).rejects.toThrow(`cannot listen on 127.0.0.1, port ${port}: `);
});

it("keeps a chain of previous_response_id on the worker that has its answers", async () => {
  const { gateway } = await fleet(3, { type: "sticky" });
  const openai = client(gateway.url, {});
  const ask = (input: string, previous_response_id: string | null) =>
    openai.responses.create({ model: "sim", input, previous_response_id }).withResponse();
  const turns: string[] = [];
  const cached: number[] = [];
  let previous: string | null = null;
  for (let i = 0; i < 4; i++) {
    const { data, response } = await ask(`Turn ${i}: ${"word ".repeat(40)}`, previous);
    previous = data.id;
    const [worker, decision] = ["worker", "decision"].map((name) => response.headers.get(`x-hawser-${name}`));
    turns.push(`${response.status} ${worker} ${decision}`);
    cached.push(data.usage!.input_tokens_details.cached_tokens);
  }
  const [first] = turns;
  expect(first).toMatch(/^200 [abc] place$/);
  expect(turns.slice(1)).toEqual(Array(3).fill(first!.replace("place", "keep")));
  expect(cached[0]).toBe(0);
  for (let i = 1; i < 4; i++) expect(cached[i]).toBeGreaterThan(cached[i - 1]!);
});
