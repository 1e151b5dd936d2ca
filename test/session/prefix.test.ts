import { describe, expect, it } from "vitest";
import { RequestReader } from "../../host/session/request-reader.js";

const reader = new RequestReader({ sources: ["prefix"] });

function keyOf(body: unknown): string | undefined {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const identity = reader.read({}, Buffer.from(text));
  if (typeof identity === "string") throw new Error(`the body is ${identity}`);
  return identity.key;
}

const user = (content: unknown) => ({ role: "user", content });
const assistant = (content: unknown) => ({ role: "assistant", content });
const system = (content: unknown) => ({ role: "system", content });
const text = (value: string, more = {}) => ({ type: "text", text: value, ...more });
const CACHED = { cache_control: { type: "ephemeral" } };

/** The same conversation in every wire format: its system prompt, and what its users and assistants say in turn. */
const FORMATS: [string, (prompt: string, ...said: string[]) => unknown][] = [
  ["chat", (prompt, ...said) => ({ messages: [system(prompt), ...turns(said)] })],
  [
    "chat with a developer's message",
    (prompt, ...said) => ({ messages: [{ role: "developer", content: prompt }, ...turns(said)] }),
  ],
  ["messages", (prompt, ...said) => ({ system: prompt, max_tokens: 9, messages: turns(said) })],
  [
    "messages with blocks",
    (prompt, ...said) => ({ system: [text(prompt)], messages: turns(said, (s) => [text(s)]) }),
  ],
  ["responses", (prompt, ...said) => ({ instructions: prompt, input: turns(said) })],
  [
    "responses with items",
    (prompt, ...said) => ({
      instructions: prompt,
      input: turns(said, (s) => [{ type: "input_text", text: s }]).map((item) => ({
        type: "message",
        ...item,
      })),
    }),
  ],
];

function turns(said: string[], content: (text: string) => unknown = (text) => text) {
  return said.map((text, index) => (index % 2 === 0 ? user(content(text)) : assistant(content(text))));
}

describe.each(FORMATS)("a prefix of %s", (_name, request) => {
  it("is the same in every turn of a conversation (B8)", () => {
    const first = keyOf(request("be brief", "hello"));
    expect(first).toMatch(/^prefix:[0-9a-f]{32}$/);
    expect(keyOf(request("be brief", "hello", "hi", "what is 1 + 1?"))).toBe(first);
    expect(keyOf(request("be brief", "hello", "hi", "what is 1 + 1?", "2", "thanks"))).toBe(first);
  });

  it("is another for another beginning", () => {
    const keys = [
      request("be brief", "hello"),
      request("be brief", "hello "),
      request("be brief", "hallo"),
      request("be verbose", "hello"),
      request("be briefhello", "hello"),
      request("be brie", "fhello"),
      request("hello", "be brief"),
    ].map(keyOf);
    expect(new Set(keys).size).toBe(keys.length);
  });
});

describe("a prefix", () => {
  it("is of the prompt of a completion, and of a bare input", () => {
    expect(keyOf({ prompt: "hello" })).toMatch(/^prefix:/);
    expect(keyOf({ prompt: "hello" })).not.toBe(keyOf({ prompt: "hallo" }));
    expect(keyOf({ instructions: "be brief", input: "hello" })).toBe(
      keyOf({ instructions: "be brief", input: [user("hello"), assistant("hi"), user("more")] }),
    );
  });

  it("does not change where a client adds or moves cache_control", () => {
    const plain = keyOf({ system: [text("be brief")], messages: [user([text("a"), text("b")])] });
    const image = { type: "image", source: { type: "url", url: "u" } };
    expect(keyOf({ system: [text("be brief", CACHED)], messages: [user([text("a"), text("b")])] })).toBe(
      plain,
    );
    expect(keyOf({ system: [text("be brief")], messages: [user([text("a", CACHED), text("b")])] })).toBe(
      plain,
    );
    expect(keyOf({ messages: [user([{ ...image, ...CACHED }])] })).toBe(keyOf({ messages: [user([image])] }));
    expect(keyOf({ messages: [user([{ ...CACHED, ...image }])] })).toBe(keyOf({ messages: [user([image])] }));
  });

  it("is the same for a string and for one block of that text", () => {
    expect(keyOf({ system: [text("s")], messages: [user([text("a")])] })).toBe(
      keyOf({ system: "s", messages: [user("a")] }),
    );
    expect(keyOf({ messages: [user([{ text: "a", type: "input_text", extra: [1, {}] }])] })).toBe(
      keyOf({ messages: [user("a")] }),
    );
  });

  it("is of text, however it is escaped", () => {
    const escaped = '{"mess\\u0061ges":[{"r\\u006fle":"\\u0075ser","content":"\\u00e9\\n\\ud83d\\ude00"}]}';
    expect(keyOf(escaped)).toBe(keyOf({ messages: [user("é\n\u{1f600}")] }));
  });

  it("tells blocks without text by their bytes", () => {
    const image = (url: string) => ({ type: "image_url", image_url: { url } });
    const keys = [
      [image("a")],
      [image("b")],
      [image("a"), text("x")],
      [text("x"), image("a")],
      [{ ...image("a"), text: null }],
      ["a"],
      [1],
      [text("a")],
    ].map((content) => keyOf({ messages: [user(content)] }));
    expect(new Set(keys).size).toBe(keys.length);
  });

  it("keeps parts apart", () => {
    const keys = [
      { messages: [user([text("ab"), text("c")])] },
      { messages: [user([text("a"), text("bc")])] },
      { messages: [user("abc")] },
      { messages: [user("text 1;ab")] },
      { messages: [system("a"), system("b"), user("c")] },
      { messages: [system("a"), user("b")] },
      { messages: [system([text("a"), text("b")]), user("c")] },
      { messages: [system("ab"), user("c")] },
      { messages: [user([{ a: 1 }, { b: 2 }])] },
      { messages: [user([{ a: 1, b: 2 }])] },
    ].map(keyOf);
    expect(new Set(keys).size).toBe(keys.length);
  });

  it("is of what stands before the first user message and of that", () => {
    const first = keyOf({ messages: [system("s"), user("a")] });
    expect(keyOf({ messages: [system("s"), assistant("hi"), user("a")] })).toBe(first);
    expect(keyOf({ messages: [system("s"), user("a"), system("t"), user("b")] })).toBe(first);
    expect(keyOf({ messages: [system("s"), system("t"), user("a")] })).not.toBe(first);
    expect(keyOf({ system: null, instructions: null, messages: [system("s"), user("a")] })).toBe(first);
  });

  it("goes by the last list of messages, and within it by the first of duplicate members", () => {
    const plain = keyOf({ messages: [user("a")] });
    expect(
      keyOf('{"messages":[],"messages":[{"role":"user","role":"system","content":"a","content":"b"}]}'),
    ).toBe(plain);
    expect(keyOf('{"messages":[{"role":"user","content":[{"text":"a","text":"b"}]}]}')).toBe(plain);
    expect(keyOf('{"messages":[{"role":"assistant","role":"user","content":"a"}]}')).toBeUndefined();
  });

  it.each<[string, unknown]>([
    ["no conversation", { model: "m" }],
    ["no messages", { messages: [] }],
    ["no user message", { messages: [system("s"), assistant("a")] }],
    ["a user message without content", { messages: [{ role: "user" }, user("a")] }],
    ["a user message of null", { messages: [user(null)] }],
    ["a user message of an object", { messages: [user({ text: "a" })] }],
    ["an empty user message", { messages: [user("")] }],
    ["a user message of no blocks", { messages: [user([])] }],
    ["a user message of an empty block", { messages: [user([text("")])] }],
    ["messages that are no objects", { messages: ["user", 1, null, ["role", "user"]] }],
    ["roles that are no strings", { messages: [{ role: ["user"], content: "a" }] }],
    ["messages that are no list", { messages: { role: "user", content: "a" } }],
    ["several prompts", { prompt: ["a", "b"] }],
    ["a prompt of tokens", { prompt: [1, 2] }],
    ["an empty prompt", { prompt: "" }],
    ["several inputs", { input: ["a", "b"] }],
  ])("is missing with %s", (_name, body) => {
    expect(keyOf(body)).toBeUndefined();
  });

  it("is found in bodies of odd spacing, long texts and deep nesting", () => {
    const long = 'x"\\\n'.repeat(100_000);
    const body = { tools: [{ messages: [user("b")] }], messages: [system(long), user(long)], n: 1 };
    expect(keyOf(JSON.stringify(body, null, 3))).toBe(keyOf(body));
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    const nested = (end: string) =>
      keyOf(`{"messages":[{"role":"tool","content":${deep}},{"content":[${deep},${end}],"role":"user"}]}`);
    expect(nested("1")).toMatch(/^prefix:/);
    expect(nested("1")).not.toBe(nested("2"));
  });

  it("counts a thousand parts of a message, and as many of the system prompt", () => {
    const many = (count: number, end: string, last = "hello") =>
      keyOf({
        system: [...new Array(count).fill(text("s")), text(end)],
        messages: [user([...new Array(count).fill(text("u")), text(last)])],
      });
    const systems = (count: number, last: string) =>
      keyOf({ messages: [...new Array(count).fill(system("s")), user(last)] });
    expect(new Set([many(1_000, "a"), many(1_000, "b"), many(1_000, "a", "hallo")]).size).toBe(3);
    expect(many(2_000, "b", "hallo")).toBe(many(2_000, "a"));
    expect(systems(1_000, "hello")).not.toBe(systems(1_000, "hallo"));
    expect(systems(1_000, "hello")).not.toBeUndefined();
    expect(systems(1_024, "hello")).toBeUndefined();
  });

  it("passes over as many parts as a body can hold", () => {
    const many = (part: string) =>
      keyOf(`{"messages":[{"role":"user","content":[${`${part},`.repeat(200_000)}1]}]}`);
    const keys = ['{"text":"\\u0061"}', '{"text":"b"}', '{"a":1,"b":2}', "1"].map(many);
    expect(new Set(keys).size).toBe(4);
  });
});
