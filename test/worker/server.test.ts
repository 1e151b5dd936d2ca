// The worker over HTTP: aborts at every stage, refusals in each API's shape, health and metrics.
import { once } from "node:events";
import { connect } from "node:net";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  MAX_BODY_BYTES,
  MAX_OUTPUT_TOKENS,
  startWorker,
  type WorkerOptions,
} from "../../host/worker/server.js";
import { chat, metricsReach, post, scrape } from "./http.js";

vi.setConfig({ testTimeout: 60_000 });

const closers: Array<() => Promise<void>> = [];

async function start(options: Partial<WorkerOptions> = {}): Promise<string> {
  const worker = await startWorker({ tpotMs: 0, ...options });
  closers.push(worker.close);
  return worker.url;
}

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

const RUNNING = "vllm:num_requests_running";
const WAITING = "vllm:num_requests_waiting";
const ABORTED = 'vllm:request_success_total{finished_reason="abort"}';
const STOPPED = 'vllm:request_success_total{finished_reason="stop"}';
const USAGE = "vllm:kv_cache_usage_perc";

// One token in 1,000 seconds: whoever is in prefill stays there until aborted.
const STUCK = { prefillRate: 0.001 };

function abortable(url: string, path: string, body: object) {
  const controller = new AbortController();
  const gone = post(url, path, body, controller.signal)
    .then((response) => response.text())
    .then(
      () => "answered",
      () => "gone",
    );
  return { abort: () => controller.abort(), gone };
}

const PROMPT = "word ".repeat(40);
const KINDS: Array<[string, object]> = [
  ["/v1/chat/completions", chat(PROMPT)],
  ["/v1/chat/completions", chat(PROMPT, { stream: true })],
  ["/v1/completions", { model: "sim", prompt: PROMPT }],
  ["/v1/responses", { model: "sim", input: PROMPT, stream: true }],
  ["/v1/messages", chat(PROMPT, { stream: true })],
  ["/v1/embeddings", { model: "sim", input: PROMPT }],
];

describe("abort", () => {
  it.each(KINDS)("frees everything in prefill: %s %j", async (path, body) => {
    const url = await start(STUCK);
    const request = abortable(url, path, body);
    await metricsReach(url, { [RUNNING]: 1 });
    expect((await scrape(url))[USAGE]).toBeGreaterThan(0);
    request.abort();
    expect(await request.gone).toBe("gone");
    await metricsReach(url, { [RUNNING]: 0, [USAGE]: 0, [ABORTED]: 1 });
  });

  it.each(KINDS)("leaves the queue: %s %j", async (path, body) => {
    const url = await start({ ...STUCK, maxNumSeqs: 1 });
    const first = abortable(url, "/v1/chat/completions", chat("first"));
    await metricsReach(url, { [RUNNING]: 1 });
    const second = abortable(url, path, body);
    await metricsReach(url, { [WAITING]: 1 });
    second.abort();
    await metricsReach(url, { [RUNNING]: 1, [WAITING]: 0, [ABORTED]: 1 });
    first.abort();
    await metricsReach(url, { [RUNNING]: 0, [WAITING]: 0, [ABORTED]: 2 });
  });

  it.each([
    ["/v1/chat/completions", chat("go", { stream: true })],
    ["/v1/responses", { model: "sim", input: "go", stream: true }],
    ["/v1/messages", chat("go", { stream: true })],
  ])("stops decoding: %s", async (path, body) => {
    const url = await start({ tpotMs: 1e6 });
    const controller = new AbortController();
    const response = await post(url, path, body, controller.signal);
    await response.body!.getReader().read();
    await metricsReach(url, { [RUNNING]: 1, "vllm:generation_tokens_total": 1 });
    controller.abort();
    await metricsReach(url, { [RUNNING]: 0, [USAGE]: 0, [ABORTED]: 1, [STOPPED]: 0 });
  });

  it("remembers no answer that was not finished", async () => {
    const url = await start({ tpotMs: 1e6 });
    const body = { model: "sim", input: "go", stream: true };
    const controller = new AbortController();
    const response = await post(url, "/v1/responses", body, controller.signal);
    const { value } = await response.body!.getReader().read();
    const id = /"id":"(resp_\w+)"/.exec(new TextDecoder().decode(value))![1];
    controller.abort();
    await metricsReach(url, { [RUNNING]: 0, [ABORTED]: 1 });
    expect((await post(url, "/v1/responses", { ...body, previous_response_id: id })).status).toBe(404);
  });

  it("counts each prompt of a batch, and lets those behind it run", async () => {
    const url = await start({ ...STUCK, maxNumSeqs: 2 });
    const batch = abortable(url, "/v1/completions", { model: "sim", prompt: Array(20).fill("x") });
    await metricsReach(url, { [RUNNING]: 2, [WAITING]: 18 });
    const next = abortable(url, "/v1/completions", { model: "sim", prompt: "x" });
    await metricsReach(url, { [WAITING]: 19 });
    batch.abort();
    await metricsReach(url, { [RUNNING]: 1, [WAITING]: 0, [ABORTED]: 20 });
    next.abort();
    await metricsReach(url, { [RUNNING]: 0 });
  });

  it("is no abort when the client hangs up after the whole answer", async () => {
    const url = await start();
    const request = { method: "POST", headers: { connection: "close" }, body: JSON.stringify(chat("go")) };
    await (await fetch(`${url}/v1/chat/completions`, request)).text();
    await metricsReach(url, { [RUNNING]: 0, [STOPPED]: 1, [ABORTED]: 0 });
  });

  it("survives a client that goes in the middle of its body", async () => {
    const url = await start();
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.write(
      "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n",
    );
    await once(socket, "data");
    socket.write("{");
    socket.resetAndDestroy();
    await once(socket, "close");
    const answer = await post(url, "/v1/chat/completions", chat("go"));
    expect(answer.status).toBe(200);
    expect(await scrape(url)).toMatchObject({ [RUNNING]: 0, [ABORTED]: 0 });
  });

  it("sends the head of a stream before the prefill is done", async () => {
    const url = await start(STUCK);
    const controller = new AbortController();
    const body = chat("go", { stream: true });
    const response = await post(url, "/v1/chat/completions", body, controller.signal);
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(await scrape(url)).toMatchObject({ [RUNNING]: 1, "vllm:prompt_tokens_total": 0 });
    controller.abort();
    await metricsReach(url, { [RUNNING]: 0 });
  });
});

describe("close", () => {
  it("cuts requests in flight and frees the port", async () => {
    const worker = await startWorker(STUCK);
    const request = abortable(worker.url, "/v1/chat/completions", chat("go"));
    await metricsReach(worker.url, { [RUNNING]: 1 });
    await worker.close();
    expect(await request.gone).toBe("gone");
    const again = await startWorker({ port: Number(new URL(worker.url).port) });
    await again.close();
  });
});

describe("output length", () => {
  it("defaults to 16 and is cut at the cap with reason length", async () => {
    const url = await start();
    const ask = async (more: object) => {
      const body = await (await post(url, "/v1/chat/completions", chat("go", more))).json();
      return [body.usage.completion_tokens, body.choices[0].finish_reason];
    };
    expect(await ask({})).toEqual([16, "stop"]);
    expect(await ask({ max_tokens: 7 })).toEqual([7, "stop"]);
    expect(await ask({ max_tokens: 7, max_completion_tokens: 9 })).toEqual([9, "stop"]);
    expect(await ask({ max_tokens: MAX_OUTPUT_TOKENS + 1 })).toEqual([MAX_OUTPUT_TOKENS, "length"]);
    const reason = 'vllm:request_success_total{finished_reason="length"}';
    expect((await scrape(url))[reason]).toBe(1);
  });

  it("says so in the words of responses and messages", async () => {
    const url = await start();
    const much = MAX_OUTPUT_TOKENS + 1;
    const response = await post(url, "/v1/responses", { model: "sim", input: "go", max_output_tokens: much });
    expect(await response.json()).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
    });
    const message = await post(url, "/v1/messages", chat("go", { max_tokens: much }));
    expect(await message.json()).toMatchObject({ stop_reason: "max_tokens" });
  });
});

describe("refusals", () => {
  const unknown = { ...chat("go"), model: "nope", prompt: "go", input: "go" };
  const refusals: Array<[string, unknown, number, RegExp]> = [
    ["/v1/chat/completions", unknown, 404, /"nope" is not served here; served: sim/],
    ["/v1/completions", unknown, 404, /not served/],
    ["/v1/responses", unknown, 404, /not served/],
    ["/v1/embeddings", unknown, 404, /not served/],
    ["/v1/chat/completions", "{", 400, /not valid JSON/],
    ["/v1/chat/completions", "", 400, /not valid JSON/],
    ["/v1/chat/completions", "[]", 400, /must be a JSON object/],
    ["/v1/chat/completions", { messages: [] }, 400, /model must be a string/],
    ["/v1/chat/completions", { model: "sim", messages: [] }, 400, /messages must be a non-empty array/],
    ["/v1/chat/completions", chat("go", { messages: [{ content: "x" }] }), 400, /messages\[0\]\.role/],
    ["/v1/chat/completions", chat("go", { messages: [{ role: "user", content: 1 }] }), 400, /\[0\]\.content/],
    ["/v1/chat/completions", chat("go", { max_tokens: 0 }), 400, /max_tokens must be a positive integer/],
    ["/v1/chat/completions", chat("go", { stream: "yes" }), 400, /stream must be true or false/],
    ["/v1/completions", { model: "sim", prompt: "" }, 400, /prompt must not be empty/],
    ["/v1/completions", { model: "sim" }, 400, /prompt must be a string/],
    ["/v1/responses", { model: "sim", input: 5 }, 400, /input must be a non-empty array/],
    ["/v1/responses", { model: "sim", input: "x", previous_response_id: 5 }, 400, /must be a string/],
    ["/v1/responses", { model: "sim", input: "x", store: "no" }, 400, /store must be true or false/],
    ["/v1/embeddings", { model: "sim", input: "x", encoding_format: "hex" }, 400, /encoding_format/],
    ["/v1/embeddings", { model: "sim", input: "x", dimensions: 0 }, 400, /dimensions/],
    ["/v1/embeddings", { model: "sim", input: Array(2049).fill("x") }, 400, /2049 entries; at most 2048/],
    ["/v1/nothing", {}, 404, /no such path/],
  ];
  it.each(refusals)("%s with %j is %i", async (path, body, status, message) => {
    const url = await start();
    const response = await post(url, path, body);
    expect(response.status).toBe(status);
    const { error } = await response.json();
    expect(error).toMatchObject({ message: expect.stringMatching(message), type: "invalid_request_error" });
    expect(await scrape(url)).toMatchObject({ [RUNNING]: 0, "vllm:prompt_tokens_total": 0 });
  });

  it.each([
    [unknown, 404, "not_found_error"],
    ["{", 400, "invalid_request_error"],
    [{ model: "sim" }, 400, "invalid_request_error"],
  ])("/v1/messages with %j is %i in Anthropic's shape", async (body, status, type) => {
    const url = await start();
    const response = await post(url, "/v1/messages", body);
    expect(response.status).toBe(status);
    expect(await response.json()).toEqual({ type: "error", error: { type, message: expect.any(String) } });
  });

  it.each([
    ["announced", (bytes: Uint8Array<ArrayBuffer>) => ({ body: bytes })],
    ["chunked", (bytes: Uint8Array<ArrayBuffer>) => ({ body: new Blob([bytes]).stream(), duplex: "half" })],
  ])("refuses a body over the limit, %s", async (_, init) => {
    const url = await start();
    const bytes = new Uint8Array(MAX_BODY_BYTES + 1).fill(97);
    const response = await fetch(`${url}/v1/messages`, { method: "POST", ...init(bytes) } as RequestInit);
    expect(response.status).toBe(413);
    expect((await response.json()).error.type).toBe("request_too_large");
  });

  it("refuses a prompt longer than the model takes", async () => {
    const url = await start();
    const response = await post(url, "/v1/completions", { model: "sim", prompt: "a ".repeat(1_048_576) });
    expect(response.status).toBe(400);
    expect((await response.json()).error.code).toBe("context_length_exceeded");
  });

  it("answers a wrong method with 405 and the right one", async () => {
    const url = await start();
    const response = await fetch(`${url}/v1/completions`);
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
    expect((await post(url, "/health", {})).status).toBe(405);
  });
});

describe("health and metrics", () => {
  it("is healthy and lists its model", async () => {
    const url = await start();
    expect((await fetch(`${url}/health`)).status).toBe(200);
    const { object, data } = await (await fetch(`${url}/v1/models`)).json();
    expect(object).toBe("list");
    expect(data).toEqual([
      {
        id: "sim",
        object: "model",
        created: expect.any(Number),
        owned_by: "hawser-sim",
        max_model_len: 1_048_576,
      },
    ]);
  });

  it("shows vLLM's names with the model's, and what was done", async () => {
    const url = await start({ models: ['a"\\b', "other"], kvBlocks: 64, blockSize: 8 });
    // 20 words and two markers: 22 tokens, of which two blocks of 8 hit the second time.
    const body = { ...chat("word ".repeat(20).trim()), model: "other", max_tokens: 3 };
    await (await post(url, "/v1/chat/completions", body)).text();
    await (await post(url, "/v1/chat/completions", body)).text();
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    const label = 'model_name="a\\"\\\\b"';
    const text = await response.text();
    const samples = text.split("\n").filter((line) => !line.startsWith("#") && !line.startsWith("process_"));
    expect(samples).toEqual([
      `vllm:num_requests_running{${label}} 0`,
      `vllm:num_requests_waiting{${label}} 0`,
      `vllm:kv_cache_usage_perc{${label}} 0`,
      `vllm:prefix_cache_queries_total{${label}} 44`,
      `vllm:prefix_cache_hits_total{${label}} 16`,
      `vllm:prompt_tokens_total{${label}} 44`,
      `vllm:generation_tokens_total{${label}} 6`,
      `vllm:request_success_total{${label},finished_reason="stop"} 2`,
      `vllm:request_success_total{${label},finished_reason="length"} 0`,
      `vllm:request_success_total{${label},finished_reason="abort"} 0`,
      'vllm:cache_config_info{block_size="8",num_gpu_blocks="64"} 1',
      "",
    ]);
    expect(text).toMatch(/^process_start_time_seconds \d+(\.\d+)?$/m);
    for (const name of ["vllm:num_requests_running gauge", "vllm:request_success_total counter"]) {
      expect(text).toContain(`# TYPE ${name}\n`);
    }
  });

  it("shows how much of the cache is in use", async () => {
    const url = await start({ ...STUCK, kvBlocks: 10 });
    const request = abortable(url, "/v1/completions", { model: "sim", prompt: PROMPT.trim() });
    await metricsReach(url, { [RUNNING]: 1, [USAGE]: 0.2 });
    request.abort();
    await metricsReach(url, { [RUNNING]: 0, [USAGE]: 0 });
  });
});
