// Growing conversations through the real SDK clients: what is cached grows as the history does.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type RunningWorker, startWorker } from "../../host/worker/server.js";

vi.setConfig({ testTimeout: 60_000 });

const BLOCK = 16;
const ANSWER = 24;
const SYSTEM = "You are the harbour master. ".repeat(10);

let worker: RunningWorker;
let openai: OpenAI;
let anthropic: Anthropic;

beforeEach(async () => {
  worker = await startWorker({ tpotMs: 0, blockSize: BLOCK });
  openai = new OpenAI({ baseURL: `${worker.url}/v1`, apiKey: "none", maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: worker.url, apiKey: "none", maxRetries: 0 });
});

afterEach(() => worker.close());

interface Usage {
  readonly prompt: number;
  readonly cached: number;
  readonly output: number;
}

interface Exchange {
  readonly text: string;
  readonly usage: Usage;
}

interface Message {
  readonly role: "user" | "assistant";
  readonly content: string;
}

type Ask = (history: Message[]) => Promise<Exchange>;

/** Five turns; every one but the first finds all whole blocks of the history before it. */
async function converse(ask: Ask): Promise<Exchange[]> {
  const history: Message[] = [];
  const exchanges: Exchange[] = [];
  for (let turn = 0; turn < 5; turn++) {
    history.push({ role: "user", content: `Turn ${turn}: where does the ferry berth today, and why there?` });
    const exchange = await ask(history);
    history.push({ role: "assistant", content: exchange.text });
    exchanges.push(exchange);
  }
  return exchanges;
}

async function expectHonestGrowth(ask: Ask): Promise<void> {
  const exchanges = await converse(ask);
  const usages = exchanges.map((exchange) => exchange.usage);
  expect(usages[0].cached).toBe(0);
  for (const [turn, usage] of usages.entries()) {
    expect(usage.output).toBe(ANSWER);
    if (turn === 0) continue;
    const known = usages[turn - 1].prompt + ANSWER;
    expect(usage.prompt).toBeGreaterThan(known);
    expect(usage.cached).toBe(Math.floor(known / BLOCK) * BLOCK);
  }
  expect(exchanges.map(({ text }) => text.split(" ").length)).toEqual(Array(5).fill(ANSWER));
}

function openaiUsage(usage: OpenAI.CompletionUsage | null | undefined): Usage {
  return {
    prompt: usage!.prompt_tokens,
    cached: usage!.prompt_tokens_details!.cached_tokens!,
    output: usage!.completion_tokens,
  };
}

function responsesUsage({ usage }: OpenAI.Responses.Response): Usage {
  const { input_tokens, input_tokens_details, output_tokens } = usage!;
  return { prompt: input_tokens, cached: input_tokens_details.cached_tokens, output: output_tokens };
}

function anthropicUsage(usage: Anthropic.Usage): Usage {
  const cached = usage.cache_read_input_tokens!;
  return { prompt: usage.input_tokens + cached, cached, output: usage.output_tokens };
}

describe("chat completions", () => {
  const request = (history: Message[]) => ({
    model: "sim",
    max_completion_tokens: ANSWER,
    messages: [{ role: "system" as const, content: SYSTEM }, ...history],
  });

  it("grows, in one piece", async () => {
    await expectHonestGrowth(async (history) => {
      const answer = await openai.chat.completions.create(request(history));
      expect(answer.choices[0].finish_reason).toBe("stop");
      return { text: answer.choices[0].message.content!, usage: openaiUsage(answer.usage) };
    });
  });

  it("grows, streamed with usage", async () => {
    await expectHonestGrowth(async (history) => {
      const stream = openai.chat.completions.stream({
        ...request(history),
        stream_options: { include_usage: true },
      });
      const answer = await stream.finalChatCompletion();
      return { text: answer.choices[0].message.content!, usage: openaiUsage(answer.usage) };
    });
  });

  it("gives usage in a stream only where asked for, and only at its end", async () => {
    const plain = await openai.chat.completions.create({ ...request([]), stream: true });
    for await (const chunk of plain) expect(chunk.usage).toBeUndefined();
    const options = { stream: true, stream_options: { include_usage: true } } as const;
    const chunks = [];
    for await (const chunk of await openai.chat.completions.create({ ...request([]), ...options })) {
      chunks.push(chunk);
    }
    const last = chunks.pop();
    expect(last?.choices).toEqual([]);
    expect(last?.usage?.completion_tokens).toBe(ANSWER);
    expect(chunks.every((chunk) => chunk.usage === null)).toBe(true);
  });

  it("shares the cache between turns that are streamed and turns that are not", async () => {
    const history: Message[] = [{ role: "user", content: SYSTEM }];
    const first = await openai.chat.completions.create(request(history));
    const second = await openai.chat.completions.stream(request(history)).finalChatCompletion();
    expect(second.choices[0].message.content).toBe(first.choices[0].message.content);
  });
});

describe("responses", () => {
  const request = (history: Message[]) => ({
    model: "sim",
    instructions: SYSTEM,
    max_output_tokens: ANSWER,
    input: history,
  });

  it("grows, in one piece", async () => {
    await expectHonestGrowth(async (history) => {
      const response = await openai.responses.create(request(history));
      expect(response.status).toBe("completed");
      return { text: response.output_text, usage: responsesUsage(response) };
    });
  });

  it("grows, streamed", async () => {
    await expectHonestGrowth(async (history) => {
      const response = await openai.responses.stream(request(history)).finalResponse();
      return { text: response.output_text, usage: responsesUsage(response) };
    });
  });

  it("grows where the client sends the answer's own items back", async () => {
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: SYSTEM }];
    const first = await openai.responses.create({ model: "sim", input, max_output_tokens: ANSWER });
    const items = first.output as OpenAI.Responses.ResponseOutputMessage[];
    input.push(...items, { role: "user", content: [{ type: "input_text", text: "And then?" }] });
    const second = await openai.responses.create({ model: "sim", input });
    const known = first.usage!.input_tokens + ANSWER;
    expect(responsesUsage(second).cached).toBe(Math.floor(known / BLOCK) * BLOCK);
  });

  it("takes a string for one user message", async () => {
    const text = await openai.responses.create({ model: "sim", input: SYSTEM });
    const items = await openai.responses.create({ model: "sim", input: [{ role: "user", content: SYSTEM }] });
    expect(items.output_text).toBe(text.output_text);
    expect(responsesUsage(items).cached).toBeGreaterThan(0);
  });

  it("streams its events in order and numbers them without a gap", async () => {
    const events: OpenAI.Responses.ResponseStreamEvent[] = [];
    const stream = await openai.responses.create({ model: "sim", input: "Go", stream: true });
    for await (const event of stream) events.push(event);
    expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
    const deltas = Array(16).fill("response.output_text.delta");
    expect(events.map((event) => event.type)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      ...deltas,
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
  });

  it.each([false, true])("grows by previous_response_id alone, streaming: %s", async (stream) => {
    let previous_response_id: string | null = null;
    await expectHonestGrowth(async (history) => {
      const body = { ...request(history.slice(-1)), previous_response_id };
      const response: OpenAI.Responses.Response = stream
        ? await openai.responses.stream(body).finalResponse()
        : await openai.responses.create(body);
      expect(response).toMatchObject({ previous_response_id, store: true });
      previous_response_id = response.id;
      return { text: response.output_text, usage: responsesUsage(response) };
    });
  });

  it("continues the whole conversation but for earlier instructions, as often as asked", async () => {
    const history: Message[] = [{ role: "user", content: "First" }];
    const first = await openai.responses.create(request(history));
    history.push({ role: "assistant", content: first.output_text }, { role: "user", content: "Second" });
    for (const instructions of [null, SYSTEM, "Be brief."]) {
      const next = { model: "sim", instructions, max_output_tokens: ANSWER };
      const chained = await openai.responses.create({
        ...next,
        input: "Second",
        previous_response_id: first.id,
      });
      const whole = await openai.responses.create({ ...next, input: history });
      expect(chained.output_text).toBe(whole.output_text);
      expect(chained.usage!.input_tokens).toBe(whole.usage!.input_tokens);
    }
  });

  it("does not know what it was told not to store, another worker's answers, or an id made up", async () => {
    const other = await startWorker({ tpotMs: 0 });
    const elsewhere = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: "none" });
    const unstored = await openai.responses.create({ model: "sim", input: "Go", store: false });
    const foreign = await elsewhere.responses.create({ model: "sim", input: "Go" });
    await other.close();
    expect(unstored).toHaveProperty("store", false);
    for (const previous_response_id of [unstored.id, foreign.id, "resp_1"]) {
      const asked = openai.responses.create({ model: "sim", input: "Go", previous_response_id });
      await expect(asked).rejects.toMatchObject({
        status: 404,
        code: "previous_response_not_found",
        param: "previous_response_id",
        message: expect.stringContaining(`this worker has no response "${previous_response_id}".`),
      });
    }
  });
});

describe("messages", () => {
  const request = (history: Message[]) => ({
    model: "sim",
    max_tokens: ANSWER,
    system: SYSTEM,
    messages: history,
  });

  it("grows, in one piece", async () => {
    await expectHonestGrowth(async (history) => {
      const message = await anthropic.messages.create(request(history));
      const [block] = message.content;
      expect(message.stop_reason).toBe("end_turn");
      expect(message.usage.cache_creation_input_tokens).toBe(0);
      return { text: block.type === "text" ? block.text : "", usage: anthropicUsage(message.usage) };
    });
  });

  it("grows, streamed, and says so in its first event already", async () => {
    await expectHonestGrowth(async (history) => {
      const stream = anthropic.messages.stream(request(history));
      const early: Usage[] = [];
      stream.on("streamEvent", (event) => {
        if (event.type === "message_start") early.push(anthropicUsage(event.message.usage));
      });
      const message = await stream.finalMessage();
      const usage = anthropicUsage(message.usage);
      expect(early).toEqual([{ ...usage, output: 0 }]);
      return { text: await stream.finalText(), usage };
    });
  });

  it("grows with blocks for system, history and a tool result", async () => {
    const text = (value: string) => [{ type: "text" as const, text: value }];
    const blocks = (history: Message[]) => ({
      ...request([]),
      system: text(SYSTEM),
      messages: history.map(({ role, content }, index) => ({
        role,
        content:
          role === "user" && index > 0
            ? [{ type: "tool_result" as const, tool_use_id: "t", content: text(content) }]
            : text(content),
      })),
    });
    await expectHonestGrowth(async (history) => {
      const message = await anthropic.messages.create(blocks(history));
      const [block] = message.content;
      return { text: block.type === "text" ? block.text : "", usage: anthropicUsage(message.usage) };
    });
  });

  it("streams Anthropic's events in order", async () => {
    const types: string[] = [];
    const response = await fetch(`${worker.url}/v1/messages?beta=true`, {
      method: "POST",
      body: JSON.stringify({ ...request([{ role: "user", content: "Go" }]), max_tokens: 2, stream: true }),
    });
    for (const [, name, data] of (await response.text()).matchAll(/event: (.+)\ndata: (.+)\n\n/g)) {
      expect(JSON.parse(data).type).toBe(name);
      types.push(name);
    }
    expect(types).toEqual([
      "message_start",
      "content_block_start",
      "ping",
      "content_block_delta",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
  });
});

describe("completions", () => {
  it("grows where the answer is put behind the prompt", async () => {
    const request = (prompt: string) => ({ model: "sim", prompt, max_tokens: ANSWER });
    const first = await openai.completions.create(request(SYSTEM.trim()));
    const longer = `${SYSTEM.trim()}${first.choices[0].text} and so on`;
    const second = await openai.completions.create(request(longer));
    const known = first.usage!.prompt_tokens + ANSWER;
    expect(openaiUsage(second.usage).cached).toBe(Math.floor(known / BLOCK) * BLOCK);
  });

  it("streams the same text and usage, a choice for each prompt", async () => {
    const request = { model: "sim", prompt: ["one", "two"], max_tokens: 3 };
    const whole = await openai.completions.create(request);
    const texts = ["", ""];
    let usage: OpenAI.CompletionUsage | null | undefined;
    const options = { stream: true, stream_options: { include_usage: true } } as const;
    for await (const chunk of await openai.completions.create({ ...request, ...options })) {
      for (const choice of chunk.choices) texts[choice.index] += choice.text;
      usage = chunk.usage;
    }
    expect(texts).toEqual(whole.choices.map((choice) => choice.text));
    expect(openaiUsage(usage)).toEqual({ prompt: 2, cached: 0, output: 6 });
  });
});

describe("embeddings", () => {
  it("answers the same vectors in base64, the client's default, and as numbers", async () => {
    const input = ["first text", "second text"];
    const packed = await openai.embeddings.create({ model: "sim", input });
    const plain = await openai.embeddings.create({ model: "sim", input, encoding_format: "float" });
    const vectors = packed.data.map((entry) => Array.from(entry.embedding));
    expect(plain.data.map((entry) => entry.embedding)).toEqual(vectors);
    expect(vectors[0]).toHaveLength(64);
    expect(vectors[0]).not.toEqual(vectors[1]);
    expect(Math.hypot(...vectors[0])).toBeCloseTo(1, 5);
    expect(packed.usage).toMatchObject({ prompt_tokens: 4, total_tokens: 4 });
  });

  it("honours dimensions and takes one string or token ids", async () => {
    const one = await openai.embeddings.create({ model: "sim", input: "text", dimensions: 8 });
    expect(one.data).toHaveLength(1);
    expect(one.data[0].embedding).toHaveLength(8);
    const ids = await openai.embeddings.create({ model: "sim", input: [[1, 2, 3], [4]] });
    expect(ids.data).toHaveLength(2);
    expect(ids.usage.prompt_tokens).toBe(4);
  });
});

describe("models", () => {
  it("lists every name served", async () => {
    const several = await startWorker({ models: ["a", "b"] });
    const client = new OpenAI({ baseURL: `${several.url}/v1`, apiKey: "none" });
    const { data } = await client.models.list();
    expect(data.map(({ id, object, owned_by }) => [id, object, owned_by])).toEqual([
      ["a", "model", "hawser-sim"],
      ["b", "model", "hawser-sim"],
    ]);
    await several.close();
  });
});
