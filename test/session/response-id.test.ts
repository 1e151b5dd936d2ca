import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ResponseIdReader } from "../../host/session/response-id.js";

const JSON_TYPE = "application/json";
const EVENTS = "text/event-stream";
const SEED = 20_240_611;

/** The id that a reader finds in an answer that comes in pieces of the lengths given, the last of them for the rest. */
function idOf(type: string | undefined, answer: string | Buffer, ...lengths: number[]): string | undefined {
  const bytes = Buffer.from(answer);
  const reader = new ResponseIdReader(type);
  let at = 0;
  let id: string | undefined;
  for (const length of [...lengths, bytes.length]) {
    const next = reader.push(bytes.subarray(at, at + length));
    if (id !== undefined) expect(next).toBe(id);
    id = next;
    at += length;
  }
  expect(reader.push(Buffer.alloc(0))).toBe(id);
  return id;
}

function event(data: unknown, type = "response.created"): string {
  return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}

const ANSWER = {
  object: "response",
  output: [
    { id: "msg_1", type: "message", content: [{ type: "output_text", text: '{"id":"no"} "id":"no" é\\' }] },
  ],
  metadata: { id: "no", response: { id: "no" } },
  type: "id",
  id: "resp_é1",
  error: null,
};

const STREAM = [
  ": a comment with data: {}\r\n\r\n",
  "event: ping\r\ndata\r\n\r\n",
  event({ type: "ping", id: "no", item: { id: "no", response: { id: "no" } } }),
  `id: 7\r\ndata:{"type":"response.created",\r\ndata: "response":{"output":[{"id":"no"}],"usage":null,\rdata: "id":"resp_é1"}}\r\r`,
  event({ response: { id: "resp_2" } }),
  "data: [DONE]\n\n",
].join("");

describe.each([
  ["JSON", JSON_TYPE, JSON.stringify(ANSWER)],
  ["JSON with spacing", "Application/JSON; charset=utf-8", JSON.stringify(ANSWER, null, 2)],
  ["a stream of events", EVENTS, STREAM],
])("the id of an answer in %s", (_name, type, answer) => {
  const length = Buffer.byteLength(answer);

  it("is found wherever the answer is cut in two", () => {
    for (let cut = 0; cut <= length; cut++) expect(idOf(type, answer, cut)).toBe("resp_é1");
  });

  it("is found byte for byte, and in chunks of any lengths", () => {
    expect(idOf(type, answer, ...new Array(length).fill(1))).toBe("resp_é1");
    const lengths = fc.array(fc.nat({ max: 40 }), { maxLength: 60 });
    fc.assert(
      fc.property(lengths, (list) => idOf(type, answer, ...list) === "resp_é1"),
      { seed: SEED, numRuns: 500 },
    );
  });

  it("is known as soon as its closing quote is there, though the rest is missing", () => {
    const bytes = Buffer.from(answer);
    const known = bytes.indexOf('resp_é1"') + Buffer.byteLength('resp_é1"');
    for (let end = 0; end <= known; end++)
      expect(idOf(type, bytes.subarray(0, end))).toBe(end < known ? undefined : "resp_é1");
  });

  it("leaves the chunks as they are", () => {
    const bytes = Buffer.from(answer);
    new ResponseIdReader(type).push(bytes);
    expect(bytes.toString()).toBe(answer);
  });
});

describe("the id of a JSON answer", () => {
  it.each<[string, string, string | undefined]>([
    ["escapes", '{"\\u0069d":"r\\u00e9\\"1"}', 'ré"1'],
    ["white space around it", '{"id":" r1\\t"}', "r1"],
    ["a number", '{"id":7}', undefined],
    ["null", '{"id":null}', undefined],
    ["an object", '{"id":{"id":"no"}}', undefined],
    ["a list", '{"id":["no"]}', undefined],
    ["an empty string", '{"id":""}', undefined],
    ["a lone surrogate", '{"id":"\\ud800"}', undefined],
    ["an unknown escape", '{"id":"\\x"}', undefined],
    ["a line end in it", '{"id":"a\nb"}', undefined],
    ["a list around it", '[{"id":"no"}]', undefined],
    ["a member that ends like it", '{"\\"id":"no","xid":"no","id ":"no"}', undefined],
    ["the name as a value", '{"a":"id","b":"no"}', undefined],
    ["another one after an object", '{"a":{"id":"no"},"id":"r1"}', "r1"],
    ["another one after an empty object", '{"a":{},"id":"r1"}', "r1"],
    ["another one after lists", '{"a":[[],[{"id":"no"},"id"]],"id":"r1"}', "r1"],
    ["256 bytes", `{"id":"${"é".repeat(128)}"}`, "é".repeat(128)],
    ["257 bytes", `{"id":"${"r".repeat(257)}"}`, undefined],
    ["256 bytes, all escaped", `{"id":"${"\\u0072".repeat(256)}"}`, "r".repeat(256)],
    ["a name and an id without end", `{"${"n".repeat(9_000)}":1,"id":"${"r".repeat(9_000)}`, undefined],
    ["no JSON", "<html>", undefined],
    ["nothing", "", undefined],
    ["brackets that were never opened", '}}]{"id":"no"}', undefined],
  ])("with %s", (_name, answer, id) => {
    expect(idOf(JSON_TYPE, answer)).toBe(id);
  });

  it("agrees with JSON.parse on any object without duplicates", () => {
    let found = 0;
    const inner = fc.jsonValue({ maxDepth: 3 });
    const shape = fc.record({
      a: inner,
      b: inner,
      id: fc.oneof(fc.string({ minLength: 1 }), inner),
      response: inner,
    });
    const property = fc.property(shape, fc.constantFrom(undefined, 1), (value, indent) => {
      const { id } = JSON.parse(JSON.stringify(value));
      const trimmed = typeof id === "string" ? id.replace(/^[ \t]+|[ \t]+$/g, "") : "";
      if (trimmed !== "") found++;
      expect(idOf(JSON_TYPE, JSON.stringify(value, null, indent))).toBe(trimmed || undefined);
    });
    fc.assert(property, { seed: SEED, numRuns: 2_000 });
    expect(found).toBeGreaterThan(500);
  });
});

describe("the id of a stream of events", () => {
  it.each<[string, string, string | undefined]>([
    ["data without a space", 'data:{"response":{"id":"r1"}}\n\n', "r1"],
    ["an event without data before it", `event: x\n\n${event({ response: { id: "r1" } })}`, "r1"],
    [
      "an event that is no JSON before it",
      `data: {"response":{"id\n\n${event({ response: { id: "r1" } })}`,
      "r1",
    ],
    ["an event whose response has none", event({ response: {} }) + event({ response: { id: "r1" } }), "r1"],
    ["a top-level id alone", event({ id: "no" }), undefined],
    ["a response that is a list", event({ response: [{ id: "no" }] }), undefined],
    ["a response deeper within", event({ a: { response: { id: "no" } } }), undefined],
    ["an id deeper within", event({ response: { a: { id: "no" } } }), undefined],
    ["an id after the response", event({ response: {}, id: "no" }), undefined],
    ["a response after another one", '{"response":{"id":1}}', undefined],
    ["other fields", 'dat: {"response":{"id":"no"}}\ndatax: {"response":{"id":"no"}}\n\n', undefined],
    ["halves of two events", 'data: {"response":{\n\ndata: "id":"no"}}\n\n', undefined],
    ["a comment between its lines", 'data: {"response":\n: x\nid: 3\ndata: {"id":"r1"}}\n\n', "r1"],
    ["an id of 257 bytes", event({ response: { id: "r".repeat(257) } }), undefined],
  ])("with %s", (_name, answer, id) => {
    expect(idOf(EVENTS, answer)).toBe(id);
    expect(idOf(EVENTS, answer.replaceAll("\n", "\r\n"))).toBe(id);
    expect(idOf(EVENTS, answer.replaceAll("\n", "\r"))).toBe(id);
  });
});

describe("a reader", () => {
  it("looks through the first 64 KiB of an answer", () => {
    const answer = (length: number) => `{"a":"${"x".repeat(length)}","id":"r1"}`;
    const most = 65_536 - answer(0).length + 1;
    expect(idOf(JSON_TYPE, answer(most), 1, 65_000)).toBe("r1");
    expect(idOf(JSON_TYPE, answer(most + 1), 1, 65_000)).toBeUndefined();
    expect(idOf(JSON_TYPE, answer(most), ...new Array(65_536).fill(1))).toBe("r1");
  });

  it("looks at no byte once it is done", () => {
    const reader = new ResponseIdReader(JSON_TYPE);
    expect(reader.push(Buffer.from('{"id":"r1"'))).toBe("r1");
    const untouchable = new Proxy(Buffer.alloc(9), {
      get: () => {
        throw new Error("it was looked at");
      },
    });
    expect(reader.push(untouchable)).toBe("r1");
    expect(reader.push(Buffer.alloc(0))).toBe("r1");
    expect(new ResponseIdReader("text/plain").push(untouchable)).toBeUndefined();
  });

  it.each([undefined, "", "text/html", "application/json-seq"])("of %s finds none", (type) => {
    expect(idOf(type, '{"id":"r1"}')).toBeUndefined();
  });
});
