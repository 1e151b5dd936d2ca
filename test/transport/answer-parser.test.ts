// Answers in any pieces are read as they are, and alike however they are cut; what is in doubt is refused. `HAWSER_FUZZ=N`
// tries N damaged ones.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AnswerParser } from "../../host/transport/answer-parser.js";
import { MAX_EXTENSION_BYTES } from "../../host/transport/chunked-body.js";
import { MAX_FIELDS, MAX_HEAD_BYTES } from "../../host/transport/head-reader.js";
import { anyAnswer, anyDamaged, anyPlaces, cut, readByNode, readPieces } from "./answers.js";

const RUNS = Number(process.env.HAWSER_FUZZ ?? 1_500);
const LIMIT_MS = 120_000 + RUNS * 100;

const bytesOf = (text: string): Buffer => Buffer.from(text, "latin1");
const each = (bytes: Buffer): Buffer[] => [...bytes].map((byte) => Buffer.of(byte));
const fill = (length: number): string => "x".repeat(length);

describe("a good answer", () => {
  it("is read as it is, however it is cut", { timeout: LIMIT_MS }, () => {
    fc.assert(
      fc.property(anyAnswer, anyPlaces, ({ bytes, reading }, places) => {
        expect(readPieces(cut(bytes, places), true)).toEqual(reading);
      }),
      { numRuns: 1_000 },
    );
  });

  it("is read alike in one piece, in two of any lengths, and byte by byte", { timeout: LIMIT_MS }, () => {
    fc.assert(
      fc.property(anyAnswer, ({ bytes, reading }) => {
        expect(readPieces([bytes], true)).toEqual(reading);
        expect(readPieces(each(bytes), true)).toEqual(reading);
        for (let at = 1; at < bytes.length; at++)
          expect(readPieces([bytes.subarray(0, at), bytes.subarray(at)], true)).toEqual(reading);
      }),
      { numRuns: 60 },
    );
  });

  it("is read as Node's own client reads it", { timeout: LIMIT_MS }, async () => {
    await fc.assert(
      fc.asyncProperty(anyAnswer, async ({ bytes, reading }) => {
        const { status, fields, body, excess } = reading;
        const whole = bytes.subarray(0, bytes.length - excess);
        expect(await readByNode(whole)).toEqual({ status, fields, body });
      }),
      { numRuns: 300 },
    );
  });

  it("is not whole before its last byte", { timeout: LIMIT_MS }, () => {
    fc.assert(
      fc.property(anyAnswer, ({ bytes, reading }) => {
        const isOpen = reading.isWhole && !readPieces([bytes], false).isWhole;
        const end = bytes.length - reading.excess;
        for (let at = 0; at < end; at++)
          expect(readPieces([bytes.subarray(0, at)], false).isWhole).toBe(false);
        if (!isOpen) expect(readPieces([bytes.subarray(0, end)], false).isWhole).toBe(true);
      }),
      { numRuns: 100 },
    );
  });

  it("may follow another one on the same parser", () => {
    const bodies: string[] = [];
    const parser = new AnswerParser({
      onHead: () => {},
      onBody: (bytes, from, to) => void bodies.push(bytes.toString("latin1", from, to)),
    });
    for (const [text, body] of [
      ["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nt: 1\r\n\r\n", "ab"],
      ["HTTP/1.1 204\r\n\r\n", undefined],
      ["HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nc", "c"],
      ["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nd\r\n0\r\n\r\n", "d"],
    ]) {
      parser.begin();
      parser.read(bytesOf(text!), text!.length);
      expect([parser.isDone, bodies.pop()]).toEqual([true, body]);
    }
  });

  it("tells nothing more to one who has stopped it, at a head or at a body", () => {
    const answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nzz";
    for (const stopAt of ["head", "body"]) {
      const heard: string[] = [];
      const hear = (what: string): void => {
        heard.push(what);
        if (what === stopAt) parser.stop();
      };
      const parser = new AnswerParser({ onHead: () => hear("head"), onBody: () => hear("body") });
      parser.begin();
      parser.read(bytesOf(answer), answer.length);
      expect([heard.at(-1), parser.isDone, parser.end()]).toEqual([stopAt, false, false]);
    }
  });
});

describe("what is no answer", () => {
  const ok = "HTTP/1.1 200 OK\r\n";
  const chunked = `${ok}transfer-encoding: chunked\r\n\r\n`;
  it.each([
    ["another protocol", "SSH-2.0", /status line/],
    ["another version", "HTTP/2.0 200 OK\r\n\r\n", /status line/],
    ["an empty line first", `\r\n${ok}\r\n`, /status line/],
    ["a status of two digits", "HTTP/1.1 20 OK\r\n\r\n", /status line/],
    ["a status that begins with 0", "HTTP/1.1 020 OK\r\n\r\n", /status line/],
    ["a phrase with a control character", "HTTP/1.1 200 \x01\r\n\r\n", /status line/],
    ["a switch of protocols", "HTTP/1.1 101 X\r\n\r\n", /switches/],
    ["a status line in bare LF", "HTTP/1.1 200 OK\n", /bare LF/],
    ["a field in bare LF", `${ok}a: b\nc: d\r\n\r\n`, /bare LF/],
    ["an end in bare LF", `${ok}content-length: 0\r\n\n`, /bare LF/],
    ["a bare CR", `${ok}a: b\rc: d\r\n\r\n`, /control character/],
    ["a NUL", `${ok}a: b\0\r\n\r\n`, /control character/],
    ["a folded value", `${ok}a: b\r\n c\r\n\r\n`, /no field/],
    ["a folded value after a tab", `${ok}a: b\r\n\tc: d\r\n\r\n`, /no field/],
    ["a space before the colon", `${ok}a : b\r\n\r\n`, /no field/],
    ["a field without a name", `${ok}: b\r\n\r\n`, /no field/],
    ["a field without a colon", `${ok}abc\r\n\r\n`, /no field/],
    ["a name that is no token", `${ok}a(: b\r\n\r\n`, /no field/],
    ["two lengths", `${ok}content-length: 1\r\ncontent-length: 2\r\n\r\n`, /more than one/],
    ["a length twice", `${ok}content-length: 1\r\nContent-Length: 1\r\n\r\n`, /more than one/],
    ["two lengths in a line", `${ok}content-length: 1, 1\r\n\r\n`, /no number/],
    ["an empty length", `${ok}content-length:\r\n\r\n`, /no number/],
    ["a length with a sign", `${ok}content-length: +1\r\n\r\n`, /no number/],
    ["a length of too many digits", `${ok}content-length: ${"1".repeat(16)}\r\n\r\n`, /no number/],
    ["a length in hexadecimal", `${ok}content-length: 0x1\r\n\r\n`, /no number/],
    ["a length and chunks", `${ok}content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n`, /both/],
    ["chunks and a length", `${ok}transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n`, /both/],
    ["another coding", `${ok}transfer-encoding: gzip\r\n\r\n`, /coding/],
    ["two codings", `${ok}transfer-encoding: gzip, chunked\r\n\r\n`, /coding/],
    ["chunks twice", `${ok}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n`, /coding/],
    ["chunks, almost", `${ok}transfer-encoding: xchunked\r\n\r\n`, /coding/],
    ["a size that is none", `${chunked}g\r\n`, /no number/],
    ["no size", `${chunked}\r\n`, /no number/],
    ["a size with a sign", `${chunked}-1\r\n`, /no number/],
    ["a size with a prefix", `${chunked}0x1\r\n`, /no number/],
    ["a size before a space", `${chunked}1 \r\n`, /no number/],
    ["a size of too many digits", `${chunked}${"0".repeat(17)}\r\n`, /counter/],
    ["a size beyond any counter", `${chunked}${"f".repeat(14)}\r\n`, /counter/],
    ["a size in bare LF", `${chunked}1\na\r\n`, /no number/],
    ["a size that ends in CR alone", `${chunked}1\ra\r\n`, /CR LF/],
    ["an extension with a LF", `${chunked}1;a\na\r\n`, /control character/],
    ["an extension without end", `${chunked}1;${fill(MAX_EXTENSION_BYTES + 1)}`, /too long/],
    ["a chunk longer than its size", `${chunked}1\r\nab\r\n`, /behind the end/],
    ["a chunk that ends in LF", `${chunked}1\r\na\n`, /behind the end/],
    ["a chunk that ends in CR alone", `${chunked}1\r\na\rb`, /behind the end/],
    ["a trailer that is none", `${chunked}0\r\nabc\r\n\r\n`, /no field/],
    ["a trailer without end", `${chunked}0\r\na: ${fill(MAX_HEAD_BYTES)}`, /more than/],
    ["a head without end", `${ok}a: ${fill(MAX_HEAD_BYTES)}`, /more than/],
    ["a status line without end", `HTTP/1.1 200 ${fill(MAX_HEAD_BYTES)}`, /more than/],
    ["a head in too many lines", ok + "a: b\r\n".repeat(MAX_FIELDS + 1), /more than/],
  ])("is refused: %s", (_name, text, fault) => {
    const reading = readPieces([bytesOf(text)], false);
    expect([reading.fault, reading.isWhole]).toEqual([expect.stringMatching(fault), false]);
    expect(readPieces(each(bytesOf(text)), false).fault).toBe(reading.fault);
  });

  it("is not seen in a head of just the size that is allowed, in as many fields as are", () => {
    const most = "a:b\r\n".repeat(MAX_FIELDS - 2);
    const start = `${ok}${most}content-length: 0\r\nx:`;
    const whole = `${start}${fill(MAX_HEAD_BYTES - start.length - 4)}\r\n\r\n`;
    expect(readPieces([bytesOf(whole)], false)).toMatchObject({ fault: "", isWhole: true });
    expect(readPieces([bytesOf(whole.replace("\r\nx:", "\r\nx:x"))], false).fault).toMatch(/more than/);
  });

  it("is cut short where the connection ends before it does", () => {
    for (const text of [
      "",
      "HTT",
      ok,
      `${ok}content-length: 2\r\n\r\na`,
      `${chunked}1\r\na\r\n`,
      `${chunked}0\r\n`,
    ])
      expect(readPieces([bytesOf(text)], true)).toMatchObject({ fault: "", isWhole: false });
  });

  it("of damaged answers is the same however they are cut, and no other than to Node", {
    timeout: LIMIT_MS,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(anyDamaged, anyPlaces, async (bytes, places) => {
        const { body, ...reading } = readPieces([bytes], true);
        for (const pieces of [cut(bytes, places), each(bytes)]) {
          const { body: other, ...rest } = readPieces(pieces, true);
          // Behind a fault nothing counts.
          if (reading.fault === "") expect(rest).toEqual(reading);
          else expect(rest.fault).not.toBe("");
          expect(other).toBe(body);
        }
        if (!reading.isWhole || reading.fault !== "") return;
        const node = await readByNode(bytes.subarray(0, bytes.length - reading.excess));
        const { status, fields } = reading;
        if (node) expect({ status, fields, body }).toEqual(node);
      }),
      { numRuns: RUNS },
    );
  });
});
