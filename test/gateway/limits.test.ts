// What waits for readers that do not read: how much of it, who is cut, how they are told, and that others do not notice.
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { open, post, text } from "./client.js";
import { type DataPlaneView, dataPlaneOf, untilDataPlane } from "./data-plane.js";
import { type GatewayFixture, gateway, inFlight, until, upstream } from "./fixture.js";
import { collect } from "./memory.js";
import { VirtualClock } from "./virtual-clock.js";

const CHAT = "/v1/chat/completions";
const KIB = 1_024;
const MIB = 1_024 * KIB;
const HOUR = 3_600_000;
/** More than the kernel takes off a gateway whose client reads nothing. */
const MUCH = 24 * MIB;
/** The user whose answer never comes. */
const DAM = "dam";

/** A gateway over one worker, whose answers are found by the `user` of their requests. */
async function withWorker(options: Partial<GatewayFixture> = {}) {
  const clock = new VirtualClock();
  const answers = new Map<string, ServerResponse>();
  /** Users whose requests were aborted, in that order. */
  const aborted: string[] = [];
  const worker = await upstream((_request, response, body) => {
    const { user } = JSON.parse(body.toString());
    if (user !== DAM) response.on("close", () => response.writableFinished || aborted.push(user));
    answers.set(user, response);
  });
  const running = await gateway({ urls: [worker.url], clock, health: { intervalMs: HOUR }, ...options });
  return { clock, answers, aborted, ...running };
}

type Running = Awaited<ReturnType<typeof withWorker>>;

/** Has an answer begin, and resolves when its client has the head. It reads nothing of the body. */
async function begin(
  { url, answers }: Running,
  user: string,
  headers: Record<string, string> = { "content-type": "text/event-stream" },
  path = CHAT,
): Promise<{ message: IncomingMessage; source: ServerResponse }> {
  const opened = open(url + path, { model: "m", user, stream: true });
  await until(() => answers.has(user));
  const source = answers.get(user)!;
  source.writeHead(200, headers).flushHeaders();
  return { source, message: await opened };
}

/** Sends numbered events until all of `size` is sent, or the request is aborted. Resolves to what was sent. */
async function flood(source: ServerResponse, size = Number.POSITIVE_INFINITY): Promise<string> {
  const sent: string[] = [];
  for (let i = 0, length = 0; length < size && !source.destroyed; i++) {
    const event = `data: ${String(i).padStart(8, "0")}${"x".repeat(16 * KIB)}\n\n`;
    sent.push(event);
    length += event.length;
    if (!source.write(event)) await moved(source);
  }
  return sent.join("");
}

/** Resolves when a response takes more, or is closed. */
function moved(source: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      source.off("drain", done).off("close", done);
      resolve();
    };
    source.on("drain", done).on("close", done);
  });
}

/** Reads an answer that breaks off. */
async function broken(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  message.on("data", (chunk: Buffer) => chunks.push(chunk));
  const [error] = await once(message, "error");
  expect((error as Error).message).toBe("aborted");
  return Buffer.concat(chunks).toString();
}

/** Sends 8 MiB to a client that reads, and waits for it every 64 KiB; then ends the answer. */
async function feed({ source, message }: Awaited<ReturnType<typeof begin>>): Promise<void> {
  let read = 0;
  message.on("data", (chunk: Buffer) => {
    read += chunk.length;
  });
  for (let sent = 64 * KIB; sent <= 8 * MIB; sent += 64 * KIB) {
    source.write(Buffer.alloc(64 * KIB, "x"));
    while (read < sent) await once(message, "data");
  }
  source.end();
  await once(message, "end");
  expect(read).toBe(8 * MIB);
}

/**
 * An answer that nobody reads for each of the users: a request behind another one on its connection whose answer never comes,
 * so that it waits in the gateway, all of it, and no byte in the kernel.
 */
async function dammed({ url, answers }: Running, users: readonly string[]): Promise<Socket[]> {
  const port = Number(new URL(url).port);
  const sockets = users.map((user) => {
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    socket.write(rawRequest(DAM) + rawRequest(user));
    return socket;
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  await until(() => users.every((user) => answers.has(user)));
  for (const user of users)
    answers.get(user)!.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
  return sockets;
}

function rawRequest(user: string): string {
  const body = JSON.stringify({ model: "m", user, stream: true });
  return `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

/** Has an answer behind a dam grow, and resolves when the gateway has what was sent, or has made room for it. */
async function grow({ url, answers, aborted }: Running, user: string, size: number): Promise<DataPlaneView> {
  // Before anything is waited for: one that was cut just now grows no more.
  const gone = aborted.length;
  const before = await dataPlaneOf(url);
  answers.get(user)!.write(Buffer.alloc(size, "x"));
  return untilDataPlane(
    url,
    ({ buffered_bytes: now }) =>
      now >= before.buffered_bytes + size || now < before.buffered_bytes || aborted.length > gone,
  );
}

/** Bytes that buffers hold in this process, garbage not counted. */
function heldByBuffers(): number {
  collect();
  return process.memoryUsage().arrayBuffers;
}

describe("a stream whose client stalls", () => {
  it.each([
    [
      CHAT,
      /^\n\ndata: (\{"error":\{"message":"the client reads too slowly",.*"code":"client_too_slow"\}\})\n\n$/,
    ],
    ["/v1/responses", /^\n\nevent: response\.failed\ndata: (.*the client reads too slowly.*)\n\n$/],
    ["/v1/messages", /^\n\nevent: error\ndata: (.*the client reads too slowly.*)\n\n$/],
  ])(
    "is cut above the limit: the client that reads on has all until then, and is told; others are whole: %s",
    async (path, event) => {
      const running = await withWorker({ limits: { streamBufferBytes: 256 * KIB } });
      const { url, aborted, router } = running;
      const other = await begin(running, "other");
      const fed = feed(other);
      const stalled = await begin(running, "stalled", undefined, path);
      const sent = await flood(stalled.source);
      await until(() => aborted.length === 1);
      const seen = await broken(stalled.message);
      const at = seen.lastIndexOf("\n\n", seen.indexOf("the client reads too slowly"));
      const part = seen.slice(0, at);
      // The last event may have been cut in two, wherever: what was sent until there is all there.
      expect(sent.startsWith(part.trimEnd())).toBe(true);
      expect(part.length).toBeGreaterThan(256 * KIB);
      expect(JSON.parse(event.exec(seen.slice(at))![1]!)).toBeDefined();
      await fed;
      expect(aborted).toEqual(["stalled"]);
      expect(inFlight(router)).toBe(0);
      expect(await dataPlaneOf(url)).toMatchObject({
        ...{ requests_in_flight: 0, buffered_bytes: 0 },
        outcomes: { client_too_slow: 1, complete: 1 },
      });
    },
  );

  it("is broken off where the client does not read on for 5 seconds, and no sooner", async () => {
    const running = await withWorker({ limits: { streamBufferBytes: 256 * KIB } });
    const { url, router, aborted } = running;
    const stalled = await begin(running, "stalled");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    await flood(stalled.source);
    while (aborted.length === 0) await turn();
    expect(inFlight(router)).toBe(0);
    vi.advanceTimersByTime(4_999);
    await turn();
    const waiting = await dataPlaneOf(url);
    expect(waiting.requests_in_flight).toBe(1);
    expect(waiting.buffered_bytes).toBeGreaterThan(256 * KIB);
    vi.advanceTimersByTime(1);
    const gone = await untilDataPlane(url, ({ requests_in_flight }) => requests_in_flight === 0);
    expect(gone.buffered_bytes).toBe(0);
    await broken(stalled.message);
  });

  it("goes on where the client reads in fits and starts, but never has more wait than the limit", async () => {
    const running = await withWorker({ limits: { streamBufferBytes: 4 * MIB } });
    const { url, aborted } = running;
    const { source, message } = await begin(running, "slow");
    let sent = 0;
    let read = 0;
    const take = (chunk: Buffer) => {
      read += chunk.length;
    };
    for (let round = 0; round < 5; round++) {
      for (let waiting = 0; waiting < MIB; waiting = (await dataPlaneOf(url)).buffered_bytes) {
        source.write(Buffer.alloc(64 * KIB, "x"));
        sent += 64 * KIB;
      }
      message.on("data", take).resume();
      await untilDataPlane(url, ({ buffered_bytes }) => buffered_bytes === 0);
      message.off("data", take).pause();
    }
    source.end();
    message.on("data", take).resume();
    await once(message, "end");
    expect(read).toBe(sent);
    expect(aborted).toEqual([]);
    expect((await dataPlaneOf(url)).outcomes).toEqual({ complete: 1 });
  });
});

describe("an answer that is no stream of events", () => {
  const JSON_HEADERS = { "content-type": "application/json" };

  it("may have more wait for its client than a stream", async () => {
    const running = await withWorker({ limits: { streamBufferBytes: 64 * KIB } });
    const { source, message } = await begin(running, "json", JSON_HEADERS);
    const sent = await flood(source, MUCH);
    source.end();
    await until(() => inFlight(running.router) === 0);
    expect((await dataPlaneOf(running.url)).buffered_bytes).toBeGreaterThan(MIB);
    expect(await text(message)).toBe(sent);
  });

  it.each([
    ["JSON", JSON_HEADERS],
    ["a compressed stream", { "content-type": "text/event-stream", "content-encoding": "gzip" }],
  ])("is cut above the limit of its own, without a word: %s", async (_name, headers) => {
    const running = await withWorker({ limits: { streamBufferBytes: 64 * KIB, answerBufferBytes: MIB } });
    const { url, aborted, router } = running;
    const { source, message } = await begin(running, "json", headers);
    const sent = await flood(source);
    await until(() => aborted.length === 1);
    const seen = await broken(message);
    expect(sent.startsWith(seen)).toBe(true);
    expect(inFlight(router)).toBe(0);
    expect(await dataPlaneOf(url)).toMatchObject({
      ...{ requests_in_flight: 0, buffered_bytes: 0 },
      outcomes: { client_too_slow: 1 },
    });
  });

  it.each([CHAT, "/v1/responses", "/v1/messages"])("of 20 MB passes whole: %s (D12)", async (path) => {
    const running = await withWorker();
    const reply = post(running.url + path, { model: "m", user: "large" });
    await until(() => running.answers.has("large"));
    const body = JSON.stringify({ id: "resp_1", text: "x".repeat(20_000_000) });
    running.answers.get("large")!.writeHead(200, JSON_HEADERS).end(body);
    expect((await reply).body).toBe(body);
    expect(await dataPlaneOf(running.url)).toMatchObject({ buffered_bytes: 0, outcomes: { complete: 1 } });
  });
});

describe("all that waits", () => {
  const limits = { streamBufferBytes: MIB, bufferedTotalBytes: MIB };

  it("is kept within the limit: who holds most is cut first, whoever grows; never one that reads", async () => {
    const running = await withWorker({ limits });
    const { url, aborted } = running;
    await dammed(running, ["a", "b", "c", "d"]);
    await grow(running, "b", 350 * KIB);
    await grow(running, "c", 250 * KIB);
    await grow(running, "d", 150 * KIB);
    await feed(await begin(running, "reading"));
    expect(aborted).toEqual([]);
    // What comes is more each time than may come in uncounted.
    const more = async () => {
      const { buffered_bytes } = await grow(running, "a", 64 * KIB);
      expect(buffered_bytes).toBeLessThanOrEqual(MIB + 64 * KIB);
    };
    while (aborted.length < 1) await more();
    expect(aborted).toEqual(["b"]);
    while (aborted.length < 2) await more();
    expect(aborted).toEqual(["b", "a"]);
    await feed(await begin(running, "reading again"));
    // Those that hold less go on.
    expect(aborted).toEqual(["b", "a"]);
    expect((await dataPlaneOf(url)).outcomes).toMatchObject({ client_too_slow: 2, complete: 2 });
  });

  it("is kept within the limit where it grows little by little and is counted in between", async () => {
    const running = await withWorker({ limits });
    const { aborted } = running;
    const users = Array.from({ length: 8 }, (_, i) => `u${i}`);
    await dammed(running, users);
    const step = 8 * KIB;
    for (let sent = 0; sent < 2 * MIB && aborted.length === 0; sent += step) {
      const { buffered_bytes } = await grow(running, users[(sent / step) % users.length]!, step);
      expect(buffered_bytes).toBeLessThanOrEqual(MIB + step);
    }
    expect(aborted.length).toBeGreaterThan(0);
  });

  it("includes the last bytes of those that are cut by the limit of their own", async () => {
    const running = await withWorker({ limits: { streamBufferBytes: 16 * KIB, bufferedTotalBytes: MIB } });
    const { url, answers, aborted } = running;
    const users = Array.from({ length: 64 }, (_, i) => `u${i}`);
    await dammed(running, users);
    for (const user of users) answers.get(user)!.write(Buffer.alloc(60 * KIB));
    await until(() => aborted.length === users.length);
    expect((await dataPlaneOf(url)).buffered_bytes).toBeLessThanOrEqual(MIB + 64 * KIB);
  });

  it("is let go of when it is cut, also behind an answer that goes on", async () => {
    const running = await withWorker({ limits: { streamBufferBytes: 4 * MIB, bufferedTotalBytes: 4 * MIB } });
    const { url, answers, aborted } = running;
    const users = Array.from({ length: 48 }, (_, i) => `u${i}`);
    await dammed(running, users);
    // One and the same, so that the worker's end holds nothing.
    const block = Buffer.alloc(64 * KIB);
    const before = heldByBuffers();
    for (const [i, user] of users.entries()) {
      const source = answers.get(user)!;
      for (let n = 0; n < 16 && !source.destroyed; n++) source.write(block);
      await untilDataPlane(url, ({ buffered_bytes }) => buffered_bytes >= MIB || aborted.length > i - 4);
    }
    await until(() => aborted.length >= 44);
    expect((await dataPlaneOf(url)).buffered_bytes).toBeLessThanOrEqual(4 * MIB + 64 * KIB);
    // What was sent is 48 MiB; what is held is some more than the limit, for the sockets have buffers of their own.
    expect(heldByBuffers() - before).toBeLessThan(16 * MIB);
  });

  it("is kept within the limit over clients that stall, on sockets of their own; one that reads is whole", async () => {
    const running = await withWorker({
      limits: { streamBufferBytes: 64 * MIB, bufferedTotalBytes: 4 * MIB },
    });
    const { url, aborted, router } = running;
    const fed = feed(await begin(running, "reading"));
    const stalled = ["a", "b", "c", "d"];
    const streams: Awaited<ReturnType<typeof begin>>[] = [];
    for (const user of stalled) streams.push(await begin(running, user));
    const floods = streams.map(({ source }) => flood(source));
    await Promise.all([fed, ...floods]);
    await until(() => inFlight(router) === 0);
    expect([...aborted].sort()).toEqual(stalled);
    for (const { message } of streams) await broken(message);
    expect(await dataPlaneOf(url)).toMatchObject({
      ...{ requests_in_flight: 0, buffered_bytes: 0 },
      outcomes: { client_too_slow: 4, complete: 1 },
    });
  });

  it("is nothing any more when its clients have left", async () => {
    const running = await withWorker({ limits });
    const { url, router } = running;
    const sockets = await dammed(running, ["a", "b"]);
    await grow(running, "a", 100 * KIB);
    const { buffered_bytes } = await grow(running, "b", 200 * KIB);
    expect(buffered_bytes).toBeGreaterThanOrEqual(300 * KIB);
    for (const socket of sockets) socket.destroy();
    await until(() => inFlight(router) === 0);
    expect(await dataPlaneOf(url)).toMatchObject({
      ...{ requests_in_flight: 0, buffered_bytes: 0 },
      outcomes: { client_gone: 4 },
    });
  });
});

describe("an answer whose worker is done", () => {
  it("goes on to a client that takes some of it every 9 minutes", async () => {
    const running = await withWorker();
    const { clock, url, router } = running;
    const { source, message } = await begin(running, "slow", { "content-type": "application/json" });
    const size = 32 * MIB;
    source.end(Buffer.alloc(size, "x"));
    await until(() => inFlight(router) === 0);
    for (let taken = 0; taken < size; ) {
      clock.advance(9 * 60_000);
      taken += await take(message, Math.min(size - taken, 4 * MIB));
      // The gateway has the time to fill the kernel's buffers again.
      await dataPlaneOf(url);
    }
    expect((await dataPlaneOf(url)).outcomes).toEqual({ complete: 1 });
  });
});

/** Reads at least so many bytes; rejects where the answer breaks off. */
async function take(message: IncomingMessage, size: number): Promise<number> {
  let taken = 0;
  while (taken < size) {
    const chunk: Buffer | null = message.read();
    if (chunk) taken += chunk.length;
    else await once(message, "readable");
  }
  return taken;
}
