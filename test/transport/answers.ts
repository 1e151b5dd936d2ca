// Answers as bytes, with what a reader must find in them; and readers to compare.
import { type IncomingMessage, request } from "node:http";
import { Duplex } from "node:stream";
import fc from "fast-check";
import { type AnswerHead, MalformedAnswer } from "../../host/transport/answer.js";
import { AnswerParser } from "../../host/transport/answer-parser.js";

/** What was read of an answer. */
export interface Reading {
  readonly status: number;
  readonly message: string;
  readonly fields: readonly string[];
  readonly body: string;
  /** Whether it came to its end. */
  readonly isWhole: boolean;
  /** Bytes behind it. */
  readonly excess: number;
  /** For how long the other side keeps the connection. */
  readonly keepMs: number;
  /** Why it is none; empty where it is one. */
  readonly fault: string;
}

/** Reads the pieces of an answer one after another, and then the end of the connection where it `ends`. */
export function readPieces(pieces: readonly Buffer[], ends: boolean): Reading {
  const heads: AnswerHead[] = [];
  let body = "";
  const parser = new AnswerParser({
    onHead: (head) => void heads.push(head),
    onBody: (bytes, from, to) => {
      body += bytes.toString("latin1", from, to);
    },
  });
  parser.begin();
  let excess = 0;
  let fault = "";
  try {
    for (const piece of pieces) {
      // Others would go on to be written into; and what is behind a piece is not to be looked at.
      const bytes = Buffer.alloc(piece.length + 3, "\r\n0");
      piece.copy(bytes);
      const used = parser.isDone ? 0 : parser.read(bytes, piece.length);
      excess += piece.length - used;
    }
    if (ends) parser.end();
  } catch (error) {
    if (!(error instanceof MalformedAnswer)) throw error;
    fault = error.message;
  }
  if (heads.length > 1) throw new Error("the answer has two heads");
  const { status, message, fields } = heads[0] ?? { status: 0, message: "", fields: [] };
  const isWhole = parser.isDone;
  return { status, message, fields, body, isWhole, excess, keepMs: isWhole ? parser.keepMs : 0, fault };
}

/** Cuts bytes at places given as shares of their length. */
export function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [...new Set([0, ...places.map((place) => Math.floor(place * bytes.length)), bytes.length])];
  at.sort((a, b) => a - b);
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}

/** What Node's own client reads of an answer, null where it takes it for none. */
export function readByNode(bytes: Buffer): Promise<Pick<Reading, "status" | "fields" | "body"> | null> {
  const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const createConnection = () => socket as never;
  return new Promise((resolve) => {
    const sent = request({ method: "POST", createConnection, headers: { "content-length": 0 } });
    sent.on("error", () => resolve(null));
    sent.on("upgrade", () => resolve(null));
    sent.on("response", (message: IncomingMessage) => {
      const { statusCode, rawHeaders } = message;
      let body = "";
      message.setEncoding("latin1").on("data", (text) => {
        body += text;
      });
      message.on("error", () => {});
      message.on("close", () =>
        resolve(message.complete ? { status: statusCode!, fields: rawHeaders, body } : null),
      );
    });
    sent.end();
    socket.push(bytes);
    socket.push(null);
  });
}

/** An answer, and what is in it. */
export interface Sample {
  readonly bytes: Buffer;
  readonly reading: Reading;
}

const anyToken = fc.string({
  unit: fc.constantFrom(..."!#$%&'*+-.^_`|~09AZaz"),
  minLength: 1,
  maxLength: 12,
});
const anyVisible = fc.string({ unit: fc.constantFrom(...'!:;,="aZ09~\x80\xff'), maxLength: 8 });
const anyValue = fc.array(anyVisible, { maxLength: 3 }).map((words) => words.join(" ").trim());
const anyBlank = fc.constantFrom("", " ", "\t", " \t ");
const isFree = (name: string): boolean =>
  !["connection", "keep-alive", "content-length", "transfer-encoding", "upgrade"].includes(
    name.toLowerCase(),
  );
/** Fields that say nothing of the framing: name, value, and blanks around the value. */
const anyFields = fc.array(fc.tuple(anyToken.filter(isFree), anyValue, anyBlank, anyBlank), { maxLength: 6 });
const anyBytes = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes).toString("latin1"));
const anyCase = fc.constantFrom(
  (text: string) => text,
  (text: string) => text.toUpperCase(),
  (text: string) => text.replace(/\b[a-z]/g, (letter) => letter.toUpperCase()),
);
const anyExtension = fc.constantFrom("", ";a", ";a=b", ';a="b c"');
const anyTrailer = fc.array(fc.tuple(anyToken.filter(isFree), anyValue), { maxLength: 2 });

type Framing = "length" | "chunked" | "close";

const anyBody = fc.record({
  framing: fc.constantFrom<Framing>("length", "chunked", "close"),
  chunks: fc.array(anyBytes, { maxLength: 5 }),
  extension: anyExtension,
  zeros: fc.constantFrom("", "0", "000"),
  trailer: anyTrailer,
});

/** An answer that is good in every way. What follows it is `excess`, where it has an end of its own. */
export const anyAnswer: fc.Arbitrary<Sample> = fc
  .record({
    minor: fc.constantFrom(0, 1, 1, 1),
    status: fc.constantFrom(200, 200, 201, 204, 304, 404, 500, 999),
    message: anyValue,
    fields: anyFields,
    interim: fc.array(fc.tuple(fc.constantFrom(100, 102, 103), anyFields), { maxLength: 2 }),
    body: anyBody,
    keep: fc.constantFrom<"" | "close" | "x, Close" | "5">("", "", "close", "x, Close", "5"),
    caseOf: anyCase,
    excess: fc.constantFrom("", "", "x", "HTTP/1.1 200 OK\r\n\r\n"),
  })
  .map(({ minor, status, message, fields, interim, body, keep, caseOf, excess }) => {
    const lines = fields.map(([name, value, before, after]) => [name, value, `${before}${value}${after}`]);
    const add = (name: string, value: string): void => void lines.push([caseOf(name), value, ` ${value}`]);
    const isBodiless = status === 204 || status === 304;
    const chunks = body.chunks.filter((chunk) => chunk !== "");
    const whole = isBodiless ? "" : chunks.join("");
    if (keep === "5") add("keep-alive", "timeout=5, max=9");
    else if (keep !== "") add("connection", keep);
    if (body.framing === "length") add("content-length", String(whole.length));
    if (body.framing === "chunked" && !isBodiless) add("transfer-encoding", caseOf("chunked"));
    const before = interim.map(([code, own]) =>
      head(
        1,
        code,
        "",
        own.map(([n, v]) => [n, v, v]),
      ),
    );
    const chunked = `${[...chunks, ""]
      .map((chunk) => `${body.zeros}${caseOf(chunk.length.toString(16))}${body.extension}\r\n${chunk}`)
      .join("\r\n")}${body.trailer.map(([name, value]) => `${name}:${value}\r\n`).join("")}\r\n`;
    const isOpen = body.framing === "close" && !isBodiless;
    const text = isBodiless ? "" : body.framing === "chunked" ? chunked : whole;
    const behind = isOpen ? "" : excess;
    const said = keep === "5" ? 5_000 : keep === "" ? Number.POSITIVE_INFINITY : 0;
    return {
      bytes: Buffer.from(before.join("") + head(minor, status, message, lines) + text + behind, "latin1"),
      reading: {
        ...{ status, message, fields: lines.flatMap(([name, value]) => [name!, value!]) },
        ...{ body: whole, isWhole: true, excess: behind.length, fault: "" },
        keepMs: isOpen || minor === 0 ? 0 : said,
      },
    };
  });

function head(minor: number, status: number, message: string, lines: readonly (readonly string[])[]): string {
  const fields = lines.map(([name, , text]) => `${name}:${text}\r\n`).join("");
  return `HTTP/1.${minor} ${status} ${message}\r\n${fields}\r\n`;
}

/** Places at which bytes are cut. */
export const anyPlaces = fc.array(
  fc.nat(999_999).map((millionths) => millionths / 1e6),
  { maxLength: 6 },
);

/** Damage that means something to HTTP. */
const SPLINTERS = [
  ...["\r", "\n", "\r\n", "\0", " ", "\t", ":", ";", "0", "f", "\x7f", "\r\n\r\n", "0\r\n\r\n"],
  ...[
    "content-length: 3\r\n",
    "transfer-encoding: chunked\r\n",
    "HTTP/1.1 200 OK\r\n",
    "connection: close\r\n",
  ],
];

/** A good answer to which something was done at some places. */
export const anyDamaged: fc.Arbitrary<Buffer> = fc
  .tuple(
    anyAnswer,
    fc.array(fc.tuple(fc.nat(999_999), fc.nat(3), fc.constantFrom(...SPLINTERS)), {
      minLength: 1,
      maxLength: 3,
    }),
  )
  .map(([{ bytes }, damages]) => {
    let text = bytes.toString("latin1");
    for (const [place, removed, splinter] of damages) {
      const at = Math.floor((place / 1e6) * text.length);
      text = text.slice(0, at) + splinter + text.slice(at + removed);
    }
    return Buffer.from(text, "latin1");
  });
