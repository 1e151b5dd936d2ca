// The client's side of a request: what of an answer waits for a reader that takes nothing, how it is held, and that it comes whole.
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { Reply } from "../../host/gateway/reply.js";
import { text } from "./client.js";
import { until } from "./fixture.js";
import { memory } from "./memory.js";

const KIB = 1_024;
const MIB = 1_024 * KIB;
const READ = 64 * KIB;
const SLOW = { status: 502, code: "client_too_slow", message: "the client reads too slowly" };
const EVENT = '\n\ndata: {"error":{"message":"the client reads too slowly",';

/** A server in this process whose answers a test writes, in the order of the requests. */
async function server(): Promise<{ port: number; responses: ServerResponse[] }> {
  const responses: ServerResponse[] = [];
  const running = createServer((_request, response) => void responses.push(response));
  await new Promise<void>((resolve) => running.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    running.closeAllConnections();
    running.close();
  });
  return { port: (running.address() as AddressInfo).port, responses };
}

function begin(response: ServerResponse, isEventStream = true): Reply {
  const reply = new Reply(response, "openai");
  reply.begin({ status: 200, message: undefined, headers: [], isEventStream });
  return reply;
}

/** An answer whose client has its head, and reads nothing of it. */
async function unread(isEventStream = true) {
  const { port, responses } = await server();
  const sent = request({ port, agent: false }).end();
  const opened = once(sent, "response");
  await until(() => responses.length === 1);
  const reply = begin(responses[0]!, isEventStream);
  const [message] = (await opened) as [IncomingMessage];
  return { message, reply, response: responses[0]! };
}

/** One behind another in a pipeline, whose turn does not come until the other has ended. */
async function behind() {
  const { port, responses } = await server();
  const socket = connect(port, "127.0.0.1");
  socket.write("GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  await until(() => responses.length === 2);
  return { socket, first: responses[0]!, reply: begin(responses[1]!), response: responses[1]! };
}

/** Entries that Node holds for an answer, in its connection or until it has one. */
function entries(response: ServerResponse): number {
  const { outputData, socket } = response as unknown as {
    outputData: readonly unknown[];
    socket: { _writableState: { getBuffer(): readonly unknown[] } } | null;
  };
  return outputData.length + (socket?._writableState.getBuffer().length ?? 0);
}

/** Sends blocks until the kernel takes no more. Resolves to what was sent. */
async function fill(reply: Reply): Promise<number> {
  let sent = 0;
  for (; reply.buffered < READ; sent += READ) {
    reply.write(Buffer.alloc(READ, "x"));
    for (let i = 0; i < 20; i++) await turn();
  }
  return sent;
}

/** Writes single bytes, some in a turn. */
async function drip(reply: Reply, count: number, inTurn = 1_000): Promise<string> {
  let all = "";
  for (let i = 0; i < count; i++) {
    const byte = String.fromCharCode(97 + (i % 26));
    all += byte;
    reply.write(Buffer.from(byte));
    if (i % inTurn === 0) await turn();
  }
  return all;
}

describe("an answer in single bytes", () => {
  it.each([3_000, 30_000])("%i of them, unread, are held in few pieces, and come whole", async (count) => {
    const { message, reply, response } = await unread();
    const filled = await fill(reply);
    const sent = await drip(reply, count);
    expect(entries(response)).toBeLessThanOrEqual(100);
    expect(reply.buffered).toBeGreaterThanOrEqual(count);
    expect(reply.buffered).toBeLessThanOrEqual(filled + 2 * count);
    reply.end();
    const seen = await text(message);
    expect([seen.length, seen.slice(filled)]).toEqual([filled + count, sent]);
    expect(reply.buffered).toBe(0);
  });

  it.each([3_000, 30_000])("%i of them, behind another answer, are held in few pieces", async (count) => {
    const { socket, first, reply, response } = await behind();
    const sent = await drip(reply, count);
    reply.end();
    expect(entries(response)).toBeLessThanOrEqual(100);
    expect(reply.buffered).toBeGreaterThanOrEqual(count);
    expect(reply.buffered).toBeLessThanOrEqual(2 * count);
    first.end();
    const seen = (await text(socket as unknown as IncomingMessage))
      .split("\r\n\r\n")
      .slice(2)
      .join("\r\n\r\n");
    expect(unchunked(seen)).toBe(sent);
  });

  it("to a client that reads is held in few pieces, too, where all come in one turn", async () => {
    const { message, reply, response } = await unread();
    const seen = text(message);
    let sent = "";
    for (let round = 0; round < 20; round++) {
      for (let i = 0; i < 1_000; i++) {
        reply.write(Buffer.from("y"));
        sent += "y";
      }
      expect(entries(response)).toBeLessThanOrEqual(100);
      await turn();
    }
    reply.end();
    expect(await seen).toBe(sent);
  });

  it("costs no more memory than a small part beyond its bytes", async () => {
    const { reply } = await unread(false);
    await fill(reply);
    const before = memory();
    const byte = Buffer.from("y");
    for (let i = 0; i < 200_000; i++) {
      reply.write(byte);
      if (i % 1_000 === 0) await turn();
    }
    // One by one they were 60 MB.
    await until(() => memory() - before < 6 * MIB);
    reply.destroy();
    expect(reply.buffered).toBe(0);
  });
});

describe("a byte out of a large read", () => {
  it("does not keep all of that while it waits", async () => {
    const { reply } = await unread();
    await fill(reply);
    const before = memory();
    for (let i = 0; i < 1_000; i++) {
      reply.write(Buffer.alloc(READ, "z").subarray(5, 6));
      if (i % 10 === 0) await turn();
    }
    // The reads were 64 MB.
    await until(() => memory() - before < 6 * MIB);
  });
});

describe("an answer that waits", () => {
  it("goes to a connection that takes all at once without waiting for anything", async () => {
    const { message, reply, response } = await unread();
    const seen = text(message);
    for (let i = 0; i < 50; i++) {
      reply.write(Buffer.from(`data: ${i}\n\n`));
      expect(reply.buffered).toBe(response.writableLength);
      await turn();
    }
    reply.end();
    expect(await seen).toBe(Array.from({ length: 50 }, (_, i) => `data: ${i}\n\n`).join(""));
  });

  it("comes before the event by which its stream ends in an error", async () => {
    const { message, reply } = await unread();
    const filled = await fill(reply);
    const sent = await drip(reply, 5_000);
    reply.fail(SLOW);
    const chunks: Buffer[] = [];
    message.on("data", (chunk: Buffer) => chunks.push(chunk));
    await once(message, "error");
    const seen = Buffer.concat(chunks).toString().slice(filled);
    expect(seen.slice(0, sent.length)).toBe(sent);
    expect(seen.slice(sent.length)).toMatch(new RegExp(`^${EVENT.replace(/[{[]/g, "\\$&")}`));
  });

  it("falls, as its reader takes of it, in steps", async () => {
    const { message, reply } = await unread();
    await fill(reply);
    for (let i = 0; i < 256; i++) reply.write(Buffer.alloc(READ, "z"));
    reply.end();
    let { waiting } = reply;
    let steps = 0;
    message.on("data", () => {
      if (reply.waiting < waiting) steps++;
      expect(reply.waiting).toBeLessThanOrEqual(waiting);
      waiting = reply.waiting;
    });
    await once(message, "end");
    expect(steps).toBeGreaterThan(3);
    expect(reply.waiting).toBe(0);
  });

  it("is let go of when its client leaves", async () => {
    const { message, reply } = await unread();
    await fill(reply);
    await drip(reply, 5_000);
    message.destroy();
    await until(() => reply.buffered === 0);
  });
});

/** The bytes of a body in chunks. */
function unchunked(body: string): string {
  let all = "";
  for (let at = 0; ; ) {
    const end = body.indexOf("\r\n", at);
    const size = Number.parseInt(body.slice(at, end), 16);
    if (size === 0) return all;
    all += body.slice(end + 2, end + 2 + size);
    at = end + 2 + size + 2;
  }
}
