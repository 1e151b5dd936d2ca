// Bodies of requests on their way in: how long their next byte is waited for, how much of them is held, and until when.
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { RequestReader } from "../../host/session/request-reader.js";
import { post } from "./client.js";
import { dataPlaneOf, untilDataPlane } from "./data-plane.js";
import { type GatewayFixture, gateway, inFlight, until, upstream } from "./fixture.js";
import { memory } from "./memory.js";
import { VirtualClock } from "./virtual-clock.js";

const CHAT = "/v1/chat/completions";
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** Between two beats where the deadlines are those of the defaults; one may be kept two of them late. */
const BEAT = SECOND;

/** A gateway whose time the test moves, over a worker that answers when it is told to. */
async function withWorker(options: Partial<GatewayFixture> = {}) {
  const clock = new VirtualClock();
  const waiting: ServerResponse[] = [];
  const bodies: Buffer[] = [];
  const worker = await upstream((_request, response, body) => {
    bodies.push(body);
    waiting.push(response);
  });
  const running = await gateway({ urls: [worker.url], clock, health: { intervalMs: HOUR }, ...options });
  return { clock, waiting, bodies, ...running };
}

/** A bare connection, and all that has come on it. */
class Client {
  seen = "";
  readonly closed: Promise<unknown>;
  readonly #url: string;
  readonly #socket: Socket;

  constructor(url: string) {
    this.#url = url;
    this.#socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", noDelay: true });
    this.#socket
      .on("error", () => {})
      .on("data", (bytes: Buffer) => {
        this.seen += bytes;
      });
    this.closed = once(this.#socket, "close");
    onTestFinished(() => void this.#socket.destroy());
  }

  /** Sends the head of a request, with a line that says how its body comes. */
  head(framing: string | number, path = CHAT): void {
    const line = typeof framing === "number" ? `content-length: ${framing}` : framing;
    this.#socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\n${line}\r\n\r\n`);
  }

  send(bytes: string | Buffer): void {
    this.#socket.write(bytes);
  }

  /** Sends a part of a body, and waits until the gateway holds it. */
  async upload(part: string): Promise<void> {
    const { body_bytes: before } = await dataPlaneOf(this.#url);
    this.send(part);
    await untilDataPlane(this.#url, ({ body_bytes }) => body_bytes >= before + part.length);
  }

  /** The first answer, whole. */
  async answer(): Promise<{ status: number; head: string; body: string }> {
    const whole = /^HTTP\/1\.1 (\d+) [\s\S]*?content-length: (\d+)[\s\S]*?\r\n\r\n/i;
    const body = () => {
      const match = whole.exec(this.seen);
      return match && this.seen.length >= match[0].length + Number(match[2]) ? match : null;
    };
    await until(() => body() !== null);
    const [head, status, length] = body()!;
    return {
      ...{ status: Number(status), head },
      body: this.seen.slice(head.length, head.length + Number(length)),
    };
  }

  leave(): void {
    this.#socket.destroy();
  }
}

const CHUNKED = "transfer-encoding: chunked";

/** Bytes of a body as a chunk. */
function chunk(size: number): string {
  return `${size.toString(16)}\r\n${" ".repeat(size)}\r\n`;
}

/** A request of so many bytes. */
function bodyOf(size: number): string {
  return '{"model":"m"}'.padEnd(size);
}

describe("the next byte of a body", () => {
  it.each([
    [CHAT, /"code":"upload_timeout"/],
    ["/v1/responses", /"code":"upload_timeout"/],
    ["/v1/messages", /^\{"type":"error","error":\{"type":"invalid_request_error","message":"the body/],
  ])("is waited for a minute and no less: 408, and the connection is closed: %s", async (path, body) => {
    const { clock, url, waiting } = await withWorker();
    const client = new Client(url);
    client.head(100, path);
    await client.upload('{"model"');
    clock.advance(MINUTE);
    expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: 1, body_bytes: 8 });
    clock.advance(2 * BEAT);
    const answer = await client.answer();
    expect([answer.status, answer.head]).toEqual([408, expect.stringMatching(/connection: close/i)]);
    expect(answer.body).toMatch(body);
    await client.closed;
    expect(await dataPlaneOf(url)).toEqual(
      expect.objectContaining({ requests_in_flight: 0, body_bytes: 0, outcomes: { upload_timeout: 1 } }),
    );
    expect(waiting).toEqual([]);
  });

  it("is waited for from the head on", async () => {
    const { clock, url } = await withWorker();
    const client = new Client(url);
    client.head(100);
    await untilDataPlane(url, ({ requests_in_flight }) => requests_in_flight === 1);
    clock.advance(MINUTE + BEAT);
    expect((await client.answer()).status).toBe(408);
  });

  it("may come every 59 seconds, for hours", async () => {
    const { clock, url, waiting, bodies } = await withWorker();
    const client = new Client(url);
    const body = bodyOf(200);
    client.head(body.length);
    for (const byte of body.slice(0, -1)) {
      await client.upload(byte);
      clock.advance(59 * SECOND);
    }
    client.send(body.slice(-1));
    await until(() => waiting.length === 1);
    waiting[0]!.setHeader("content-length", 2).end("{}");
    expect(await client.answer()).toMatchObject({ status: 200, body: "{}" });
    expect(bodies[0]!.toString()).toBe(body);
  });

  it("is not waited for where that is turned off: a day", async () => {
    const { clock, url, waiting } = await withWorker({ timeouts: { uploadMs: Infinity } });
    const client = new Client(url);
    const body = bodyOf(20);
    client.head(body.length);
    await client.upload(body.slice(0, 10));
    clock.advance(24 * HOUR);
    client.send(body.slice(10));
    await until(() => waiting.length === 1);
    waiting[0]!.setHeader("content-length", 2).end("{}");
    expect((await client.answer()).status).toBe(200);
  });

  it("has nothing to do with others", async () => {
    const { clock, url, router, waiting } = await withWorker();
    const stalled = new Client(url);
    stalled.head(100);
    await stalled.upload("{");
    const reply = post(url + CHAT, { model: "m" });
    await until(() => waiting.length === 1);
    clock.advance(MINUTE + 2 * BEAT);
    await stalled.closed;
    expect(inFlight(router)).toBe(1);
    waiting[0]!.end("{}");
    expect((await reply).status).toBe(200);
  });
});

describe("a body over the limit", () => {
  const limits = { bodyBytes: 1_000 };

  it.each([
    [CHAT, /"code":"body_too_large"/],
    ["/v1/responses", /"code":"body_too_large"/],
    ["/v1/messages", /"type":"request_too_large"/],
  ])("is refused by its length, before any of it has come: %s", async (path, body) => {
    const { url, waiting } = await withWorker({ limits });
    const client = new Client(url);
    client.head(1_001, path);
    const answer = await client.answer();
    expect([answer.status, answer.body]).toEqual([413, expect.stringMatching(body)]);
    // What comes all the same is read, and not held.
    for (let i = 0; i < 10; i++) {
      client.send(" ".repeat(100));
      expect((await dataPlaneOf(url)).body_bytes).toBe(0);
    }
    client.send(" ");
    client.head(bodyOf(1_000).length);
    client.send(bodyOf(1_000));
    await until(() => waiting.length === 1);
    expect((await dataPlaneOf(url)).outcomes).toEqual({ body_too_large: 1 });
  });

  it("is refused in chunks as soon as it is over, and held no longer", async () => {
    const { url, waiting } = await withWorker({ limits });
    const client = new Client(url);
    client.head(CHUNKED);
    client.send(chunk(1_000));
    await untilDataPlane(url, ({ body_bytes }) => body_bytes === 1_000);
    client.send(chunk(1));
    expect((await client.answer()).status).toBe(413);
    expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: 0, body_bytes: 0 });
    expect(waiting).toEqual([]);
  });

  it("that goes on coming costs its client the connection after 5 seconds, and no sooner", async () => {
    const { url } = await withWorker({ limits });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const client = new Client(url);
    let isClosed = false;
    void client.closed.then(() => {
      isClosed = true;
    });
    client.head(1_000_000);
    while (!client.seen.includes("body_too_large")) await turn();
    client.send(" ");
    vi.advanceTimersByTime(4_999);
    await dataPlaneOf(url);
    expect(isClosed).toBe(false);
    vi.advanceTimersByTime(1);
    await client.closed;
  });
});

describe("the bodies of all requests", () => {
  const limits = { bodyTotalBytes: 1_000 };

  it.each([
    [CHAT, /"code":"too_many_bytes"/],
    ["/v1/responses", /"code":"too_many_bytes"/],
    ["/v1/messages", /^\{"type":"error","error":\{"type":"api_error","message":"the bodies/],
  ])("leave no room for one that says its length: 503, before any of it has come: %s", async (path, body) => {
    const { url } = await withWorker({ limits });
    const holding = new Client(url);
    holding.head(800);
    await holding.upload(" ".repeat(700));
    const client = new Client(url);
    client.head(301, path);
    const answer = await client.answer();
    expect([answer.status, answer.head]).toEqual([503, expect.stringMatching(/retry-after: 1\r\n/i)]);
    expect(answer.body).toMatch(body);
    expect(await dataPlaneOf(url)).toMatchObject({ body_bytes: 700, outcomes: { too_many_bytes: 1 } });
    // What fits is taken.
    const other = new Client(url);
    other.head(300);
    await other.upload(" ".repeat(299));
    expect((await dataPlaneOf(url)).body_bytes).toBe(999);
  });

  it.each([
    ["in chunks", CHUNKED, chunk(300), chunk(1)],
    ["with a length, its room taken meanwhile", 400, " ".repeat(300), " "],
  ])("leave no room for more of one that comes %s: 503", async (_name, framing, part, more) => {
    const { url, router } = await withWorker({ limits });
    const client = new Client(url);
    client.head(framing);
    client.send(part);
    await untilDataPlane(url, ({ body_bytes }) => body_bytes === 300);
    const holding = new Client(url);
    holding.head(700);
    await holding.upload(" ".repeat(699));
    client.send(more);
    await untilDataPlane(url, ({ body_bytes }) => body_bytes === 1_000);
    client.send(more);
    const answer = await client.answer();
    expect([answer.status, answer.head]).toEqual([503, expect.stringMatching(/retry-after: 1\r\n/i)]);
    expect(answer.body).toContain("too_many_bytes");
    expect((await dataPlaneOf(url)).body_bytes).toBe(699);
    expect(inFlight(router)).toBe(0);
  });

  it("hold their room until their requests end, and give it back: complete, in mid-upload, refused, timed out", async () => {
    const { clock, url, router, waiting } = await withWorker({ limits: { ...limits, bodyBytes: 900 } });
    const isFree = () =>
      untilDataPlane(url, ({ body_bytes, requests_in_flight }) => body_bytes + requests_in_flight === 0);
    // Each needs all the room there is.
    const body = bodyOf(900);
    const start = async (path = CHAT): Promise<Client> => {
      const before = waiting.length;
      const client = new Client(url);
      client.head(900, path);
      client.send(body);
      await until(() => waiting.length > before);
      expect((await dataPlaneOf(url)).body_bytes).toBe(900);
      return client;
    };
    const complete = await start();
    waiting.at(-1)!.setHeader("content-length", 4).write("{");
    expect((await dataPlaneOf(url)).body_bytes).toBe(900);
    waiting.at(-1)!.end("   ");
    expect((await complete.answer()).status).toBe(200);
    await isFree();

    const gone = await start();
    gone.leave();
    await isFree();

    const failed = await start();
    waiting.at(-1)!.destroy();
    expect((await failed.answer()).status).toBe(502);
    await isFree();

    const silent = await start();
    clock.advance(31 * MINUTE);
    expect((await silent.answer()).status).toBe(504);
    await isFree();

    const inUpload = new Client(url);
    inUpload.head(900);
    await inUpload.upload(" ".repeat(899));
    inUpload.leave();
    await isFree();

    const halted = new Client(url);
    halted.head(900);
    await halted.upload(" ".repeat(899));
    clock.advance(MINUTE + 2 * BEAT);
    expect((await halted.answer()).status).toBe(408);
    await isFree();

    const large = new Client(url);
    large.head(CHUNKED);
    large.send(chunk(900));
    await untilDataPlane(url, ({ body_bytes }) => body_bytes === 900);
    large.send(chunk(1));
    expect((await large.answer()).status).toBe(413);
    await isFree();

    const wrong = new Client(url);
    wrong.head(900);
    wrong.send(" ".repeat(900));
    expect((await wrong.answer()).status).toBe(400);
    await isFree();

    await start();
    expect(inFlight(router)).toBe(1);
  });
});

describe("a body in single bytes", () => {
  it.each([20_000, 200_000])(
    "%i of them cost little more memory than they are, and reach the worker",
    async (size) => {
      const { url, bodies, waiting } = await withWorker();
      const client = new Client(url);
      const body = bodyOf(size);
      const chunks = [...body].map((byte) => `1\r\n${byte}\r\n`);
      const blocks: Buffer[] = [];
      for (let at = 0; at < size; at += 10_000)
        blocks.push(Buffer.from(chunks.slice(at, at + 10_000).join("")));
      chunks.length = 0;
      client.head(CHUNKED);
      await untilDataPlane(url, ({ requests_in_flight }) => requests_in_flight === 1);
      const before = memory();
      for (const block of blocks) client.send(block);
      await untilDataPlane(url, ({ body_bytes }) => body_bytes === size);
      // One by one they took 370 bytes each.
      expect(memory() - before).toBeLessThan(20 * size + 4_000_000);
      client.send("0\r\n\r\n");
      await until(() => waiting.length === 1);
      expect(bodies[0]!.toString()).toBe(body);
      waiting[0]!.end("{}");
    },
  );
});

describe("a body of 1.2 MB with 200 messages", () => {
  it("passes, is read once, and reaches its worker byte for byte (D13)", async () => {
    let reads = 0;
    class Counting extends RequestReader {
      override read(...request: Parameters<RequestReader["read"]>) {
        reads++;
        return super.read(...request);
      }
    }
    const { url, waiting, bodies } = await withWorker({ reader: new Counting() });
    const messages = Array.from({ length: 200 }, (_, i) => ({
      role: i % 2 ? "assistant" : "user",
      content: `${i} `.padEnd(6_000, "x"),
    }));
    const body = JSON.stringify({ model: "m", prompt_cache_key: "k", messages });
    expect(body.length).toBeGreaterThan(1_200_000);
    const parse = vi.spyOn(JSON, "parse");
    onTestFinished(() => parse.mockRestore());
    const reply = post(url + CHAT, body);
    await until(() => waiting.length === 1);
    waiting[0]!.end("{}");
    expect((await reply).status).toBe(200);
    expect(reads).toBe(1);
    expect(parse.mock.calls.filter(([text]) => String(text).length > 6_000)).toEqual([]);
    expect(bodies[0]!.toString()).toBe(body);
  });
});
