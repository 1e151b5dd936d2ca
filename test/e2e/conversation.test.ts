import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { fleet, health, loads, metric, type PolicyChoice, serve, until, worker } from "./fleet.js";

const guard: PolicyChoice = {
  type: "soft-affinity-load-guard",
  parameters: { max_active_requests: 0, move_margin: 2, ties: "random" },
};

type Message = { role: "user" | "assistant"; content: string };

function openai(url: string, session?: string): OpenAI {
  return new OpenAI({
    baseURL: `${url}/v1`,
    apiKey: "unused",
    maxRetries: 0,
    ...(session && { defaultHeaders: { "x-session-id": session } }),
  });
}

function anthropic(url: string, session: string): Anthropic {
  return new Anthropic({
    baseURL: url,
    apiKey: "unused",
    maxRetries: 0,
    defaultHeaders: { "x-claude-code-session-id": session },
  });
}

/** Opens a stream of `count` tokens on a session and leaves it open. */
async function hold(url: string, session: string, count = 4_000) {
  const { data, response } = await openai(url, session)
    .chat.completions.create({
      model: "sim",
      stream: true,
      max_tokens: count,
      messages: [{ role: "user", content: session }],
    })
    .withResponse();
  return { worker: response.headers.get("x-hawser-worker")!, abort: () => data.controller.abort() };
}

/** One turn; which worker took it, and why. */
async function turn(url: string, session: string): Promise<[worker: string, decision: string]> {
  const { response } = await openai(url, session)
    .chat.completions.create({ model: "sim", max_tokens: 2, messages: [{ role: "user", content: "hello" }] })
    .withResponse();
  return [response.headers.get("x-hawser-worker")!, response.headers.get("x-hawser-decision")!];
}

describe("a conversation of ten turns", () => {
  it.each([false, true])(
    "stays on one worker and finds more in its cache every turn (openai, stream: %s)",
    async (stream) => {
      const { gateway } = await fleet(3, guard);
      const client = openai(gateway.url, "s1");
      const messages: Message[] = [{ role: "user", content: "word ".repeat(40) }];
      const seen: { worker: string; policy: string; decision: string; cached: number }[] = [];
      for (let i = 0; i < 10; i++) {
        const request = { model: "sim", max_tokens: 40, messages };
        let content = "";
        let cached = 0;
        let headers: Headers;
        if (stream) {
          const { data, response } = await client.chat.completions
            .create({ ...request, stream: true, stream_options: { include_usage: true } })
            .withResponse();
          headers = response.headers;
          for await (const chunk of data) {
            content += chunk.choices[0]?.delta.content ?? "";
            cached = chunk.usage?.prompt_tokens_details?.cached_tokens ?? cached;
          }
        } else {
          const { data, response } = await client.chat.completions.create(request).withResponse();
          headers = response.headers;
          content = data.choices[0]!.message.content!;
          cached = data.usage!.prompt_tokens_details!.cached_tokens!;
        }
        const header = (name: string) => headers.get(`x-hawser-${name}`)!;
        seen.push({
          worker: header("worker"),
          policy: header("policy"),
          decision: header("decision"),
          cached,
        });
        messages.push({ role: "assistant", content }, { role: "user", content: `and then ${i}` });
      }
      expect(new Set(seen.map(({ worker }) => worker)).size).toBe(1);
      expect(seen.map(({ decision }) => decision)).toEqual(["place", ...Array(9).fill("keep")]);
      expect(seen[0]).toMatchObject({ policy: "chosen", cached: 0 });
      for (let i = 1; i < 10; i++) expect(seen[i]!.cached).toBeGreaterThan(seen[i - 1]!.cached);
      expect(await health(gateway.url)).toMatchObject({ affinity_kept: 9, affinity_broken: 0, bindings: 1 });
    },
  );

  it.each([false, true])("does so over /v1/messages too (Anthropic's SDK, stream: %s)", async (stream) => {
    const { gateway } = await fleet(2, guard);
    const client = anthropic(gateway.url, "c1");
    const messages: Message[] = [{ role: "user", content: "word ".repeat(40) }];
    const cached: number[] = [];
    const workers = new Set<string>();
    for (let i = 0; i < 10; i++) {
      const request = { model: "sim", max_tokens: 40, messages };
      const { data, response } = stream
        ? await client.messages.stream(request).withResponse()
        : await client.messages.create(request).withResponse();
      workers.add(response.headers.get("x-hawser-worker")!);
      const answer = "finalMessage" in data ? await data.finalMessage() : data;
      cached.push(answer.usage.cache_read_input_tokens ?? 0);
      const content = answer.content.map((block) => (block.type === "text" ? block.text : "")).join("");
      messages.push({ role: "assistant", content }, { role: "user", content: `and then ${i}` });
    }
    expect(workers.size).toBe(1);
    expect(cached[0]).toBe(0);
    for (let i = 1; i < 10; i++) expect(cached[i]).toBeGreaterThan(cached[i - 1]!);
  });

  it("works on every other endpoint", async () => {
    const { gateway } = await fleet(2, guard);
    const client = openai(gateway.url, "s");
    const reply = await client.responses.create({ model: "sim", input: "hello there", max_output_tokens: 5 });
    expect(reply.output_text.split(" ").length).toBe(5);
    let events = 0;
    for await (const event of await client.responses.create({
      model: "sim",
      input: "x",
      max_output_tokens: 3,
      stream: true,
    })) {
      if (event.type === "response.output_text.delta") events++;
    }
    expect(events).toBe(3);
    const completion = await client.completions.create({
      model: "sim",
      prompt: "hello there",
      max_tokens: 3,
    });
    expect(completion.choices[0]!.text).not.toBe("");
    const embedding = await client.embeddings.create({ model: "sim", input: "hello" });
    expect(embedding.data[0]!.embedding.length).toBeGreaterThan(0);
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(["sim"]);
    expect(await loads(gateway.url)).toEqual([0, 0]);
  });
});

describe("sessions and load", () => {
  it("spreads sessions over an idle fleet", async () => {
    const { gateway } = await fleet(2, guard);
    const workers = new Set<string>();
    for (let i = 0; i < 40 && workers.size < 2; i++) workers.add((await turn(gateway.url, `s${i}`))[0]);
    expect(workers.size).toBe(2);
  });

  it("leaves a busy worker exactly when the guard says so", async () => {
    const { gateway } = await fleet(2, {
      type: "soft-affinity-load-guard",
      parameters: { max_active_requests: 2, move_margin: 3 },
    });
    const { url } = gateway;
    const [home] = await turn(url, "s");
    const keep = async (decision: string) => expect(await turn(url, "s")).toEqual([home, decision]);
    const held = [await hold(url, "s"), await hold(url, "s")];
    await keep("keep");
    // Each further stream of the session itself goes where its turns go.
    held.push(await hold(url, "s"));
    expect(await loads(url)).toEqual([3, 0]);
    expect(await turn(url, "s")).toEqual(["b", "move_load"]);
    expect(await turn(url, "s")).toEqual(["b", "keep"]);
    for (const { abort } of held) abort();
    await until(async () => (await loads(url)).every((load) => load === 0));
    expect(await health(url)).toMatchObject({ affinity_broken: 1 });
  });

  it("stays over the threshold while nobody is better by the margin", async () => {
    const { gateway } = await fleet(2, {
      type: "soft-affinity-load-guard",
      parameters: { max_active_requests: 0, move_margin: 2 },
    });
    await turn(gateway.url, "s");
    const held = await hold(gateway.url, "s");
    expect(await turn(gateway.url, "s")).toEqual([held.worker, "keep_margin"]);
    held.abort();
  });

  it("leaves a busy worker exactly when the margin says so", async () => {
    const { gateway } = await fleet(2, {
      type: "affinity-break-margin",
      parameters: { affinity_break_margin: 1 },
    });
    const { url } = gateway;
    await turn(url, "s");
    const held = [await hold(url, "s")];
    expect(await turn(url, "s")).toEqual(["a", "keep"]);
    held.push(await hold(url, "s"));
    expect(await loads(url)).toEqual([2, 0]);
    expect(await turn(url, "s")).toEqual(["b", "move_load"]);
    for (const { abort } of held) abort();
  });

  it("leaves a worker exactly when the gate says so", async () => {
    const { gateway } = await fleet(2, { type: "imbalance-gate", parameters: { balance_abs_threshold: 2 } });
    const { url } = gateway;
    await turn(url, "s");
    const held = [await hold(url, "s"), await hold(url, "s")];
    expect(await turn(url, "s")).toEqual(["a", "keep"]);
    held.push(await hold(url, "s"));
    expect(await turn(url, "s")).toEqual(["b", "move_load"]);
    for (const { abort } of held) abort();
  });
});

describe("a client that hangs up mid-stream", () => {
  it("frees its worker at once: the count is back and the worker sees the abort", async () => {
    const { gateway, workers } = await fleet(1, guard);
    const held = await hold(gateway.url, "s");
    expect(await loads(gateway.url)).toEqual([1]);
    expect(await metric(workers[0]!.url, "vllm:num_requests_running")).toBe(1);
    held.abort();
    await until(async () => (await loads(gateway.url))[0] === 0);
    await until(
      async () =>
        (await metric(
          workers[0]!.url,
          'vllm:request_success_total{model_name="sim",finished_reason="abort"',
        )) === 1,
    );
    expect(await metric(workers[0]!.url, "vllm:num_requests_running")).toBe(0);
  });
});

describe("errors that a user meets", () => {
  it("come in the shape that each SDK understands", async () => {
    const { gateway } = await fleet(1, guard);
    const client = openai(gateway.url, "s");
    await expect(client.chat.completions.create({ model: "nope", messages: [] })).rejects.toMatchObject({
      constructor: OpenAI.NotFoundError,
      status: 404,
      code: "model_not_found",
    });
    await expect(
      anthropic(gateway.url, "s").messages.create({ model: "nope", max_tokens: 1, messages: [] }),
    ).rejects.toMatchObject({
      constructor: Anthropic.NotFoundError,
      error: { error: { type: "not_found_error" } },
    });
  });

  it("a worker that dies in mid-stream ends it in an error that each SDK throws, or tells as a failed response (D7, D10)", async () => {
    const { gateway, workers } = await fleet(3, { type: "round-robin" });
    const openaiStream = await openai(gateway.url).chat.completions.create({
      ...{ model: "sim", stream: true, max_tokens: 100_000 },
      messages: [{ role: "user", content: "hello" }],
    });
    const anthropicStream = anthropic(gateway.url, "s").messages.stream({
      ...{ model: "sim", max_tokens: 100_000 },
      messages: [{ role: "user", content: "hello" }],
    });
    const responses = await openai(gateway.url).responses.create({
      ...{ model: "sim", stream: true, max_output_tokens: 100_000 },
      input: "hello",
    });
    await until(async () => (await loads(gateway.url)).every((count) => count === 1));
    const ended = Promise.allSettled([
      (async () => {
        for await (const _ of openaiStream);
      })(),
      (async () => {
        for await (const _ of anthropicStream);
      })(),
      (async () => {
        for await (const event of responses)
          if (event.type === "response.failed") return event.response.error?.message;
        return "finished";
      })(),
    ]);
    for (const { child } of workers) child.kill("SIGKILL");
    const broke = /worker "[abc]" broke off in the middle of its answer/;
    const [chat, messages, response] = await ended;
    expect(chat).toMatchObject({ status: "rejected", reason: { message: expect.stringMatching(broke) } });
    expect(messages).toMatchObject({
      status: "rejected",
      reason: { type: "api_error", error: { error: { message: expect.stringMatching(broke) } } },
    });
    expect(response).toMatchObject({ status: "fulfilled", value: expect.stringMatching(broke) });
    await until(async () => (await loads(gateway.url)).every((count) => count === 0));
  });

  it("a worker that dies costs its sessions nothing: they go elsewhere in the same request, and stay there (C15)", async () => {
    const { gateway, workers } = await fleet(2, { type: "sticky" });
    expect(await turn(gateway.url, "s")).toEqual(["a", "place"]);
    workers[0]!.child.kill("SIGKILL");
    expect(await turn(gateway.url, "s")).toEqual(["b", "move_gone"]);
    await until(async () => !(await health(gateway.url)).workers[0]!.eligible);
    expect(await turn(gateway.url, "s")).toEqual(["b", "keep"]);
    workers[1]!.child.kill("SIGKILL");
    await expect(turn(gateway.url, "s")).rejects.toMatchObject({ status: 502 });
    await until(async () => (await fetch(`${gateway.url}/health`)).status === 503);
    await expect(turn(gateway.url, "s")).rejects.toMatchObject({ status: 503, code: "no_worker_eligible" });
  });
});

it("keeps a session's worker under full determinism, in every gateway alike, whatever the load (B15)", async () => {
  const workers = await Promise.all([worker(), worker(), worker()]);
  const urls = workers.map(({ url }) => url);
  const one = await serve(urls, { type: "least-loaded" }, { full_determinism: true });
  const two = await serve(urls, { type: "round-robin" }, { full_determinism: true });
  const [home, decision] = await turn(one.url, "s");
  expect(decision).toBe("deterministic");
  const held = await hold(one.url, "s");
  expect(held.worker).toBe(home);
  expect(await turn(two.url, "s")).toEqual([home, "deterministic"]);
  held.abort();
});
