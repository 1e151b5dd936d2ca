// The first event of a stream, however its bytes are split.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type FirstEvent, FirstEventReader, HeldStream } from "../../host/gateway/first-event.js";

/** The most that is looked at. */
const MOST = 65_536;

const LETTER = Buffer.from("a");

/** What a reader makes of chunks: the first answer that is not `incomplete`, and after how many bytes it came. */
function read(...chunks: (string | Buffer)[]): { first: FirstEvent; at: number } {
  const reader = new FirstEventReader();
  let at = 0;
  for (const chunk of chunks) {
    const bytes = Buffer.from(chunk as string);
    at += bytes.length;
    const first = reader.push(bytes);
    if (first !== "incomplete") return { first, at };
  }
  return { first: "incomplete", at };
}

/** What it makes of a whole stream. */
function verdict(stream: string | Buffer): FirstEvent {
  return read(stream).first;
}

const ERROR = '{"error":{"message":"out of blocks","code":503}}';

describe("the first event", () => {
  it.each<[name: string, stream: string, FirstEvent]>([
    ["of a chat", 'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', "good"],
    ["of Anthropic's API", 'event: message_start\ndata: {"type":"message_start"}\n\n', "good"],
    ["of the Responses API", 'event: response.created\ndata: {"type":"response.created"}\n\n', "good"],
    ["that ends the stream", "data: [DONE]\n\n", "good"],
    ["with no JSON", "data: {\n\n", "good"],
    ["with a number", "data: 5\n\n", "good"],
    ["with null", "data: null\n\n", "good"],
    ["with an empty text", "data:\n\n", "good"],
    ["with a list", 'data: [{"error":{}}]\n\n', "good"],
    ["whose error is null, as the Responses API has it", 'data: {"error":null,"response":{}}\n\n', "good"],
    ["whose response has no error", 'data: {"response":{"error":null}}\n\n', "good"],
    ["that speaks of an error", 'data: {"choices":[{"text":"\\"error\\": {}"}]}\n\n', "good"],
    ["whose name only begins like an error's", "event: errors\ndata: {}\n\n", "good"],
  ])("%s is good", (_name, stream, expected) => {
    expect(verdict(stream)).toBe(expected);
  });

  it.each<[name: string, stream: string, FirstEvent]>([
    ["of OpenAI's shape", `data: ${ERROR}\n\n`, 503],
    ["without the space", `data:${ERROR}\n\n`, 503],
    ["whose code is text", 'data: {"error":{"code":"429"}}\n\n', 429],
    ["whose code is a word", 'data: {"error":{"code":"rate_limit_exceeded"}}\n\n', 500],
    ["whose code is null", 'data: {"error":{"code":null}}\n\n', 500],
    ["without a code", 'data: {"error":{"message":"no"}}\n\n', 500],
    ["that is a text", 'data: {"error":"no"}\n\n', 500],
    ["of the client's making", 'data: {"error":{"code":400}}\n\n', 400],
    ["whose code is the last of them", 'data: {"error":{"code":599}}\n\n', 599],
    ["whose code is no error's status", 'data: {"error":{"code":200}}\n\n', 500],
    ["whose code is too large", 'data: {"error":{"code":600}}\n\n', 500],
    [
      "of Anthropic's API",
      'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no"}}\n\n',
      500,
    ],
    ["known by its name alone", "event: error\ndata: no\n\n", 500],
    ["known by its type alone", 'data: {"type":"error","code":"server_error"}\n\n', 500],
    [
      "of the Responses API",
      'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"server_error"}}}\n\n',
      500,
    ],
    [
      "of the Responses API with a status",
      'data: {"type":"response.failed","response":{"error":{"code":429}}}\n\n',
      429,
    ],
    ["with its data before its name", `data: ${ERROR}\nevent: error\n\n`, 503],
    ["whose data have several lines", 'data: {"error":\ndata: {"code":\ndata: 502}}\n\n', 502],
    ["with an id and a time", `id: 1\nretry: 5\ndata: ${ERROR}\n\n`, 503],
    ["with letters beyond ASCII", 'data: {"error":{"message":"zu viele Schlüssel 鍵","code":503}}\n\n', 503],
  ])("an error %s", (_name, stream, expected) => {
    expect(verdict(stream)).toBe(expected);
  });

  it("is not told before it is whole", () => {
    for (const stream of ["", "data: ", `data: ${ERROR}`, `data: ${ERROR}\n`, `data: ${ERROR}\r\n\r`])
      expect(verdict(stream)).toBe("incomplete");
  });

  it("alone counts, not an error behind it", () => {
    expect(verdict(`data: {}\n\ndata: ${ERROR}\n\n`)).toBe("good");
    expect(verdict(`data: ${ERROR}\n\ndata: {}\n\n`)).toBe(503);
  });
});

describe("what comes before it", () => {
  it.each([
    ["a comment", ": keep-alive\n\n"],
    ["a comment with a colon in it", ":data: {}\n\n"],
    ["pings as comments", ": ping - 2026-01-01\r\n\r\n: ping - 2026-01-02\r\n\r\n"],
    ["an event without data", "event: ping\n\n"],
    ["a ping with data", 'event: ping\ndata: {"type":"ping"}\n\n'],
    ["an id and a time", "id: 1\nretry: 3000\n\n"],
    ["fields of other names", "database: {}\ndat: {}\n\n"],
    ["empty lines", "\n\n\n\n"],
  ])("is passed over: %s", (_name, before) => {
    expect(verdict(before)).toBe("incomplete");
    expect(verdict(`${before}data: ${ERROR}\n\n`)).toBe(503);
    expect(verdict(`${before}data: {}\n\n`)).toBe("good");
    expect(verdict(`${before}${before}data: ${ERROR}\n\n`)).toBe(503);
  });

  it("is passed over on the lines of the event, too", () => {
    expect(verdict(`: keep-alive\ndata: ${ERROR}\n: more\n\n`)).toBe(503);
  });
});

describe("ends of lines", () => {
  it.each([
    ["LF", "\n"],
    ["CRLF", "\r\n"],
    ["CR", "\r"],
  ])("%s", (_name, end) => {
    const lines = [": ping", "", "event: error", 'data: {"error":', 'data: {"code":502}}', "", ""];
    expect(verdict(lines.join(end))).toBe(502);
    expect(verdict(lines.slice(0, -2).join(end))).toBe("incomplete");
  });

  it("of both kinds in one stream", () => {
    expect(verdict(`: ping\r\n\r\n: ping\n\nevent: error\r\ndata: ${ERROR}\n\n`)).toBe(503);
  });

  it("of both kinds at the end of one event", () => {
    expect(verdict(`data: ${ERROR}\n\r\n`)).toBe(503);
    expect(verdict(`data: ${ERROR}\r\n\n`)).toBe(503);
  });
});

describe("a stream in pieces", () => {
  const streams: [name: string, stream: string, FirstEvent][] = [
    ["an error in LF", `: ping\n\nevent: error\ndata: ${ERROR}\n\ndata: {}\n\n`, 503],
    ["an error in CRLF", `: ping\r\n\r\nevent: error\r\ndata: ${ERROR}\r\n\r\ndata: {}\r\n\r\n`, 503],
    [
      "a good one in LF",
      ': ping\n\nevent: message_start\ndata: {"a":"ü鍵😀"}\n\nevent: error\ndata: {}\n\n',
      "good",
    ],
    [
      "a good one in CRLF",
      ': ping\r\n\r\ndata: {"a":"ü鍵😀"}\r\n\r\nevent: error\r\ndata: {}\r\n\r\n',
      "good",
    ],
  ];

  /** Where the first event with data ends. */
  function endOf(stream: string): number {
    const end = stream.includes("\r") ? "\r\n\r\n" : "\n\n";
    const at = stream.indexOf(end, stream.indexOf("data:")) + end.length;
    return Buffer.byteLength(stream.slice(0, at));
  }

  it.each(streams)("split at every byte: %s", (_name, stream, expected) => {
    const bytes = Buffer.from(stream);
    for (let i = 0; i <= bytes.length; i++)
      expect(read(bytes.subarray(0, i), bytes.subarray(i)).first).toBe(expected);
  });

  it.each(streams)(
    "byte by byte, and told with the last byte of the event: %s",
    (_name, stream, expected) => {
      const bytes = [...Buffer.from(stream)].map((byte) => Buffer.of(byte));
      expect(read(...bytes)).toEqual({ first: expected, at: endOf(stream) });
    },
  );

  it("is the same however it is split", () => {
    const line = fc.constantFrom(
      ...[": ping", "event: error", "event: ping", "id: 7", "data: x", `data: ${ERROR}`, 'data: {"a":"ü😀"}'],
      ...["data: {}", "data", ""],
    );
    const stream = fc
      .tuple(fc.array(line, { maxLength: 12 }), fc.constantFrom("\n", "\r\n"))
      .map(([lines, end]) => Buffer.from(`${lines.join(end)}${end}`));
    fc.assert(
      fc.property(stream, fc.array(fc.nat(400), { maxLength: 8 }), (bytes, cuts) => {
        const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)), bytes.length].sort((a, b) => a - b);
        const chunks = at.slice(1).map((end, i) => bytes.subarray(at[i], end));
        expect(read(...chunks).first).toBe(read(bytes).first);
      }),
      { numRuns: 500 },
    );
  });

  it("is told in one of three ways, whatever the bytes", () => {
    const bytes = fc.uint8Array({ maxLength: 300 });
    fc.assert(
      fc.property(bytes, bytes, (before, behind) => {
        const { first } = read(Buffer.from(before), Buffer.from(behind));
        expect(first === "incomplete" || first === "good" || (first >= 400 && first < 600)).toBe(true);
      }),
    );
  });
});

describe("a first event that never gets whole", () => {
  it("costs no more for each byte the more have come", () => {
    const cost = (count: number, readers: number): number => {
      const before = process.cpuUsage();
      for (let n = 0; n < readers; n++) {
        const reader = new FirstEventReader();
        for (let i = 0; i < count; i++) reader.push(LETTER);
      }
      const { user, system } = process.cpuUsage(before);
      return user + system;
    };
    cost(6_500, 10);
    // As many bytes in all. Where each byte looks through all before it, these are ten times the work.
    const few = Math.max(...[1, 2, 3].map(() => cost(6_500, 10)));
    const many = Math.min(...[1, 2, 3].map(() => cost(65_000, 1)));
    expect(many).toBeLessThan(4 * few);
  });

  it("is held without the reads that its bytes came in", () => {
    const held = new HeldStream({ status: 200, message: "", fields: [] });
    const read = Buffer.alloc(MOST, "a");
    for (let i = 0; i < MOST; i++) held.push(read.subarray(i, i + 1));
    expect(held.bytes.equals(read)).toBe(true);
    expect(held.bytes.buffer.byteLength).toBeLessThanOrEqual(2 * MOST + 4_096);
  });
});

describe("a stream that is too long to be looked at", () => {
  const event = `data: ${ERROR}\n\n`;
  const comment = (size: number) => `:${"x".repeat(size - 3)}\n\n`;

  it("is good from the byte that is too many, and not before", () => {
    const fits = comment(MOST - event.length);
    expect(verdict(fits + event)).toBe(503);
    expect(verdict(`${comment(MOST - event.length + 1)}${event}`)).toBe("good");
    const reader = new FirstEventReader();
    expect(reader.push(Buffer.from("d".repeat(MOST)))).toBe("incomplete");
    expect(reader.push(Buffer.from("d"))).toBe("good");
  });

  it("is good where one event is that long, though it is an error", () => {
    const long = `data: {"error":{"code":503,"message":"${"x".repeat(MOST)}"}}\n\n`;
    expect(verdict(long)).toBe("good");
    const half = long.slice(0, 40_000);
    expect(read(half, long.slice(40_000))).toEqual({ first: "good", at: long.length });
  });

  it("counts what was passed over", () => {
    const pings = Array.from({ length: 9 }, () => comment(8_000));
    expect(read(...pings, event)).toEqual({ first: "good", at: 72_000 });
  });
});
