import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Usage, UsageReader } from "../../host/session/usage.js";

const SEED = 20_261_130;
const RUNS = 300;

/** What a reader makes of an answer that comes in pieces of the lengths given, the last of them for the rest. */
function usageOf(answer: string | Buffer, ...lengths: number[]): Usage | undefined {
  const bytes = Buffer.from(answer);
  const reader = new UsageReader();
  let at = 0;
  for (const length of [...lengths, bytes.length]) {
    // A worker's bytes come in one buffer for all: what is pushed is overwritten afterwards.
    const chunk = Buffer.from(bytes.subarray(at, at + length));
    reader.push(chunk);
    chunk.fill("x");
    at += length;
  }
  return reader.read();
}

const usage = (promptTokens?: number, completionTokens?: number, cachedTokens?: number): Usage => ({
  ...{ promptTokens, completionTokens, cachedTokens },
});

const event = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`;
const named = (type: string, data: object) => `event: ${type}\n${event({ type, ...data })}`;

/** Text that looks like what is sought, in every way in which a string can hold it. */
const BAIT = [
  '"usage":{"prompt_tokens":1,"completion_tokens":1}',
  '\\"usage\\":{"input_tokens":2}',
  '\\\\"usage":{"output_tokens":3}}}',
  'data: {"usage":{"prompt_tokens":4}}\n\n',
  '"}]}],"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":5}}}',
  "usage",
  "\\",
  '"',
  "é\u2028{[",
];

/** The counts that an answer is to say, and its text. */
interface Said {
  readonly text: string;
  readonly prompt: number;
  readonly completion: number;
  readonly cached: number;
}

const chatUsage = ({ prompt, completion, cached }: Said) => ({
  prompt_tokens: prompt,
  total_tokens: prompt + completion,
  completion_tokens: completion,
  prompt_tokens_details: { cached_tokens: cached, audio_tokens: 0 },
  completion_tokens_details: { usage: { prompt_tokens: 9 } },
});

const responsesUsage = ({ prompt, completion, cached }: Said) => ({
  input_tokens: prompt,
  input_tokens_details: { cached_tokens: cached },
  output_tokens: completion,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: prompt + completion,
});

const anthropicUsage = ({ prompt, cached }: Said, outputTokens: number) => ({
  input_tokens: prompt - cached - Math.floor((prompt - cached) / 2),
  cache_creation_input_tokens: Math.floor((prompt - cached) / 2),
  cache_read_input_tokens: cached,
  output_tokens: outputTokens,
});

/** A tool's schema and a call of it, whose members have the very names. */
const TOOL = { parameters: { properties: { usage: { prompt_tokens: 7, input_tokens: 8 } } } };

const responsesAnswer = (said: Said) => ({
  ...{ id: "resp_1", object: "response", output: [{ content: [{ type: "output_text", text: said.text }] }] },
  ...{ tools: [TOOL], usage: responsesUsage(said), user: said.text.slice(0, 64) },
  metadata: { usage: said.text.slice(0, 512) },
});

const FORMS: Readonly<Record<string, (said: Said) => string>> = {
  "a chat completion": (said) =>
    JSON.stringify({
      id: "c1",
      choices: [{ message: { content: said.text, tool_calls: [TOOL] } }],
      usage: chatUsage(said),
      prompt_logprobs: null,
    }),
  "a chat completion with spacing": (said) =>
    `\n${JSON.stringify({ choices: [{ text: said.text, ...TOOL }], usage: chatUsage(said) }, null, 2)}\n`,
  "a list whose usage comes first": (said) =>
    JSON.stringify({ model: "m", usage: chatUsage(said), data: [{ ...TOOL, text: said.text }] }),
  "a chat stream": (said) =>
    [
      ": ping\n\n",
      event({ choices: [{ delta: { role: "assistant" } }], usage: null }),
      event({
        choices: [{ delta: { content: said.text } }],
        usage: { prompt_tokens: 1, completion_tokens: 0 },
      }),
      event({ choices: [], usage: chatUsage(said) }),
      "data: [DONE]\n\n",
    ].join(""),
  "a chat stream with other line ends": (said) =>
    `data:${JSON.stringify({ choices: [{ text: said.text }] })}\r\n\r\ndata: {"choices":[],\r\ndata: "usage":${JSON.stringify(chatUsage(said))}}\r\n\r\n`,
  "an answer of /v1/responses": (said) => JSON.stringify(responsesAnswer(said)),
  "a stream of /v1/responses": (said) =>
    [
      named("response.created", { response: { id: "resp_1", usage: null, tools: [TOOL] } }),
      named("response.output_text.delta", { delta: said.text }),
      named("response.completed", { response: responsesAnswer(said) }),
    ].join(""),
  "a message": (said) =>
    JSON.stringify({
      ...{
        type: "message",
        content: [{ text: said.text }, { type: "tool_use", input: { ...TOOL, usage: TOOL } }],
      },
      ...{ stop_reason: "end_turn", usage: anthropicUsage(said, said.completion) },
    }),
  "a stream of a message": (said) =>
    [
      named("message_start", { message: { content: [], usage: anthropicUsage(said, 1) } }),
      named("content_block_start", {
        content_block: { type: "tool_use", input: { usage: { input_tokens: 6 } } },
      }),
      named("content_block_delta", { delta: { type: "text_delta", text: said.text } }),
      named("message_delta", { delta: {}, usage: { output_tokens: said.completion } }),
      named("message_stop", {}),
    ].join(""),
};

const piece = fc.oneof(fc.constantFrom(...BAIT), fc.string({ unit: "binary", maxLength: 6 }));
/** Short, and longer than all that is kept; the long ones with bait all over. */
const text = fc
  .tuple(fc.array(piece, { maxLength: 12 }), fc.constantFrom(1, 1, 40, 400))
  .map(([pieces, times]) => pieces.join("").repeat(times));
const said: fc.Arbitrary<Said> = fc
  .record({ text, prompt: fc.nat(200_000), completion: fc.nat(9_999), part: fc.nat(100) })
  .map(({ part, ...rest }) => ({ ...rest, cached: Math.floor((rest.prompt * part) / 100) }));
const lengths = fc.array(fc.oneof(fc.nat(40), fc.nat(3_000), fc.nat(60_000)), { maxLength: 40 });

describe.each(Object.entries(FORMS))("the usage of %s", (_name, write) => {
  it("is found whatever the text, however it is cut", () => {
    let longest = 0;
    fc.assert(
      fc.property(said, lengths, (said, list) => {
        const answer = write(said);
        longest = Math.max(longest, answer.length);
        expect(usageOf(answer, ...list)).toEqual(usage(said.prompt, said.completion, said.cached));
      }),
      { seed: SEED, numRuns: RUNS },
    );
    expect(longest).toBeGreaterThan(60_000);
  });

  it("is found byte for byte", () => {
    const said = { text: BAIT.join(""), prompt: 70, completion: 8, cached: 32 };
    const answer = write(said);
    expect(usageOf(answer, ...new Array(Buffer.byteLength(answer)).fill(1))).toEqual(usage(70, 8, 32));
  });

  it("is not made up where the answer does not come to its usage", () => {
    const without = (said: Said) =>
      write(said).replaceAll(/"usage":\s*\{\s*"(prompt|input)_tokens":/g, '"other":{"total":');
    fc.assert(
      fc.property(text, lengths, (text, list) => {
        const answer = without({
          text: text.replaceAll("usage", "usagd"),
          prompt: 5,
          completion: 5,
          cached: 5,
        });
        const found = usageOf(answer, ...list);
        // The one thing that is left of any is the last event of a message.
        if (found) expect(found).toEqual(usage(undefined, 5, undefined));
      }),
      { seed: SEED, numRuns: 50 },
    );
  });
});

describe("a usage", () => {
  it.each<[string, string, Usage | undefined]>([
    ["nothing", "", undefined],
    ["no JSON", "<html>", undefined],
    ["null", '{"usage":null}', undefined],
    ["no counts in it", '{"usage":{"seconds":3,"type":"duration"}}', undefined],
    ["counts that are none", '{"usage":{"prompt_tokens":"7","completion_tokens":1.5}}', undefined],
    ["details that are null", '{"usage":{"prompt_tokens":7,"prompt_tokens_details":null}}', usage(7)],
    ["embeddings", '{"data":[[1,2]],"usage":{"prompt_tokens":8,"total_tokens":8}}', usage(8)],
    ["no end", '{"a":1,"usage":{"prompt_tokens":7', undefined],
    ["a deeper one alone", '{"a":{"usage":{"prompt_tokens":7}}}', undefined],
    ["a deeper one behind it", '{"usage":{"prompt_tokens":7},"a":{"usage":{"prompt_tokens":8}}}', usage(7)],
    ["a longer name", '{"a\\"usage":{"prompt_tokens":7}}', undefined],
    ["a longer name that ends in backslashes", '{"\\\\\\"usage":{"prompt_tokens":7}}', undefined],
    ["white space around it", '{"usage" \n:\t{"prompt_tokens" : 7}}', usage(7)],
    [
      "an event that is not whole",
      `${event({ usage: { prompt_tokens: 7 } })}data: {"usage":{"prompt_tokens":8}}`,
      usage(7),
    ],
    [
      "one that every chunk repeats",
      event({ usage: { prompt_tokens: 7, completion_tokens: 1 } }) +
        event({ usage: { prompt_tokens: 7, completion_tokens: 2 } }),
      usage(7, 2),
    ],
    [
      "other counts at its end",
      named("message_start", {
        message: { usage: { input_tokens: 1, cache_read_input_tokens: 64, output_tokens: 0 } },
      }) +
        named("message_delta", {
          usage: { input_tokens: 9, cache_read_input_tokens: null, output_tokens: 3 },
        }),
      usage(73, 3, 64),
    ],
    [
      "a stream that broke off after its start",
      named("message_start", { message: { usage: { input_tokens: 5, output_tokens: 1 } } }) +
        "event: content",
      usage(5, 1),
    ],
  ])("with %s", (_name, answer, expected) => {
    expect(usageOf(answer)).toEqual(expected);
    expect(usageOf(answer, ...new Array(answer.length).fill(1))).toEqual(expected);
  });

  it.each([
    ["a longer name", '"a\\"usage"'],
    ["a longer name with backslashes", '"a\\\\\\"usage"'],
  ])("is not taken for %s, far behind the beginning", (_name, name) => {
    const long = JSON.stringify("x".repeat(50_000));
    const answer = (name: string) => `{"a":${long},${name}:{"prompt_tokens":7}}`;
    for (const write of [answer, (name: string) => `data: ${answer(name)}\n\n`]) {
      JSON.parse(answer(name));
      expect(usageOf(write(name))).toBeUndefined();
      expect(usageOf(write('"usage"'))).toEqual(usage(7));
    }
  });

  it("is not read where a cut has left no more than the end of a name", () => {
    const rest = '"usage":{"prompt_tokens":7}}'.padEnd(16_384);
    const text = `{"${"x".repeat(50_000)}\\${rest}`;
    expect(JSON.parse(text)).toBeTypeOf("object");
    expect(usageOf(text)).toBeUndefined();
  });

  it("is known while the stream goes on", () => {
    const reader = new UsageReader();
    reader.push(Buffer.from(event({ usage: { prompt_tokens: 7, completion_tokens: 1 } })));
    expect(reader.read()).toEqual(usage(7, 1));
    reader.push(Buffer.from(event({ usage: { prompt_tokens: 7, completion_tokens: 2 } })));
    expect(reader.read()).toEqual(usage(7, 2));
  });
});

/** Characters that are looked at one by one, or parsed, while `read` runs; it fails above `most`. */
function stepsOf(read: () => void, most: number): number {
  const { charCodeAt } = String.prototype;
  const { parse } = JSON;
  let steps = 0;
  const count = (more: number) => {
    steps += more;
    if (steps > most) throw new Error(`more than ${most} steps`);
  };
  String.prototype.charCodeAt = function (index) {
    count(1);
    return charCodeAt.call(this, index);
  };
  JSON.parse = (text: string) => {
    count(text.length);
    return parse(text);
  };
  try {
    read();
  } finally {
    String.prototype.charCodeAt = charCodeAt;
    JSON.parse = parse;
  }
  return steps;
}

/** All of which is kept, and of which the two ends are. */
describe.each([32_000, 60_000])(
  "names of a usage that a client has the worker repeat, %d bytes",
  (length) => {
    const fill = (piece: string) => piece.repeat(Math.floor(length / piece.length));
    const tools = (list: string) =>
      `{"tools":[{"parameters":{"enum":[${list}{}]}}],"usage":{"input_tokens":7}}`;
    const nested = (end: string) => {
      const levels = Math.floor(length / '"usage":{}'.length);
      return `{${'"usage":{'.repeat(levels)}"input_tokens":7${"}".repeat(levels)}${end}`;
    };

    it.each<[string, string]>([
      ["in a list", tools(fill('{"usage":{}},'))],
      ["in a list, all of it in an event", `data: ${tools(fill('{"usage":{}},'))}\n\n`],
      ["side by side", `{${fill('"usage":{},')}"usage":{"input_tokens":7}}`],
      [
        "side by side in an event",
        `data: {"response":{${fill('"usage":{},')}"usage":{"input_tokens":7}}}\n\n`,
      ],
      ["in each other", nested("}")],
      ["in each other in an event", `data: ${nested("}")}\n\n`],
      ["in each other without an end", nested("")],
      ["with white space", tools(fill(`{"usage"${" ".repeat(500)}:{}},`))],
      ["in a string", tools(`${JSON.stringify(fill('"usage":{'))},`)],
      ["between quotes that are in no JSON", `data: ${fill('"usage":{x"usage":{\\"x')}"}}\n\n`],
    ])("are passed in one go: %s", (_name, answer) => {
      const reader = new UsageReader();
      for (let at = 0; at < answer.length; at += 9_000)
        reader.push(Buffer.from(answer.slice(at, at + 9_000)));
      expect(stepsOf(() => reader.read(), 4 * 36_864)).toBeGreaterThan(0);
    });

    it("do not hide the usage behind them", () => {
      expect(usageOf(tools(fill('{"usage":{}},')))).toEqual(usage(7));
      expect(usageOf(nested("}"))).toBeUndefined();
    });
  },
);
