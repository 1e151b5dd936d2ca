// What the gateway waits for, how long, and what comes of it, by a clock that the test moves.
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { open, post, text } from "./client.js";
import { dataPlaneOf } from "./data-plane.js";
import { type GatewayFixture, gateway, inFlight, until, upstream } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [] };
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Between two beats where the deadlines are those of the defaults. */
const BEAT = 1_000;
/** How much later than its time a deadline may be kept. */
const GRACE = 2 * BEAT;

/** A gateway whose time the test moves, over workers that answer when they are told to. */
async function withWorkers(count: number, options: Partial<GatewayFixture> = {}) {
  const clock = new VirtualClock();
  const waiting: ServerResponse[] = [];
  const aborted: ServerResponse[] = [];
  const answer = (_request: IncomingMessage, response: ServerResponse) => {
    response.on("close", () => response.writableFinished || aborted.push(response));
    waiting.push(response);
  };
  const workers = await Promise.all(Array.from({ length: count }, () => upstream(answer)));
  const urls = workers.map(({ url }) => url);
  // Polled once a real hour: not in this test.
  const running = await gateway({ urls, clock, health: { intervalMs: HOUR }, ...options });
  return { clock, waiting, aborted, workers, ...running };
}

/** The head of a stream, and perhaps some of it. */
function begin(response: ServerResponse, bytes?: string): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  if (bytes === undefined) response.flushHeaders();
  else response.write(bytes);
}

/** Opens a stream that has begun. */
async function stream(url: string, waiting: ServerResponse[], path = CHAT) {
  const seen = waiting.length;
  const opened = open(url + path, { ...ask, stream: true });
  await until(() => waiting.length > seen);
  const source = waiting[seen]!;
  begin(source, "data: 0\n\n");
  const message = await opened;
  await once(message, "data");
  return { source, message };
}

type Stream = Awaited<ReturnType<typeof stream>>;

/** Sends a few bytes, and waits until the client has them. */
async function drip({ source, message }: Stream): Promise<void> {
  const arrived = once(message, "data");
  source.write("data: 1\n\n");
  await arrived;
}

/** The rest of an answer that breaks off. */
async function broken(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  message.on("data", (chunk: Buffer) => chunks.push(chunk));
  const [error] = await once(message, "error");
  expect((error as Error).message).toBe("aborted");
  return Buffer.concat(chunks).toString();
}

/** Where a client finds the error, in an answer and in a stream. */
const APIS: readonly (readonly [path: string, body: RegExp, event: RegExp])[] = [
  [CHAT, /^\{"error":.*"code":"CODE"\}\}$/, /^data: \{"error":.*"code":"CODE"\}\}\n\n$/],
  ["/v1/completions", /^\{"error":.*"code":"CODE"\}\}$/, /^data: \{"error":.*"code":"CODE"\}\}\n\n$/],
  ["/v1/embeddings", /^\{"error":.*"code":"CODE"\}\}$/, /^data: \{"error":.*"code":"CODE"\}\}\n\n$/],
  [
    "/v1/responses",
    /^\{"error":.*"code":"CODE"\}\}$/,
    /^event: response\.failed\ndata: \{"type":"response\.failed",.*\}\n\n$/,
  ],
  ["/v1/messages", /^\{"type":"error",.*\}$/, /^event: error\ndata: \{"type":"error",.*\}\n\n$/],
];

function withCode(pattern: RegExp, code: string): RegExp {
  return new RegExp(pattern.source.replace("CODE", code));
}

const SILENT = "sent nothing for longer than the gateway waits";

/** Has all timers of the process, but Node's own, go by time that the test moves, besides real time. */
function fakeTimers(): void {
  const toFake = ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] as const;
  vi.useFakeTimers({ toFake: [...toFake], shouldAdvanceTime: true });
  // A timer that can be refreshed would be kept by the transport for the tests that follow, in which it stands still.
  const fake = globalThis.setTimeout;
  const plain = (...timer: Parameters<typeof fake>) => Object.assign(fake(...timer), { refresh: undefined });
  globalThis.setTimeout = plain as unknown as typeof fake;
  onTestFinished(() => {
    globalThis.setTimeout = fake;
    vi.useRealTimers();
  });
}

// The first test of the file: the transport keeps a timer of its own from its first use on, and only one that is faked moves.
describe("this process's own time", () => {
  it("passes, for all of its timers: a first token after 301 seconds and one after 29 minutes come (A10, H1)", async () => {
    fakeTimers();
    const waiting: ServerResponse[] = [];
    const worker = await upstream((_request, response) => waiting.push(response));
    const { url, router } = await gateway({ urls: [worker.url], health: { intervalMs: HOUR } });
    const replies = [post(url + CHAT, ask), post(url + CHAT, ask)];
    await until(() => waiting.length === 2);
    await vi.advanceTimersByTimeAsync(301_000);
    expect(inFlight(router)).toBe(2);
    waiting[0]!.write("early, ");
    await until(() => waiting[0]!.writableLength === 0);
    // As long again between two bytes of the one, within the 10 minutes.
    await vi.advanceTimersByTimeAsync(301_000);
    expect(inFlight(router)).toBe(2);
    waiting[0]!.end("and later");
    await until(() => inFlight(router) === 1);
    await vi.advanceTimersByTimeAsync(29 * MINUTE - 602_000);
    expect(inFlight(router)).toBe(1);
    waiting[1]!.end("late");
    const bodies = (await Promise.all(replies)).map(({ body }) => body).sort();
    expect(bodies).toEqual(["early, and later", "late"]);
  });
});

describe("the first byte of an answer", () => {
  it.each([0, 1, 999])(
    "is waited for 30 minutes and no less, dispatched %i ms after a beat; then the worker's request is aborted (H6)",
    async (ms) => {
      const { clock, url, router, waiting, aborted } = await withWorkers(1);
      clock.advance(ms);
      const reply = post(url + CHAT, ask);
      await until(() => waiting.length === 1);
      clock.advance(30 * MINUTE - 1);
      expect(inFlight(router)).toBe(1);
      clock.advance(1 + BEAT);
      expect(inFlight(router)).toBe(0);
      expect((await reply).status).toBe(504);
      await until(() => aborted.length === 1);
    },
  );

  it.each(APIS)("does not come: 504 in the shape of %s", async (path, body) => {
    const { clock, url, waiting } = await withWorkers(1);
    const reply = post(url + path, { ...ask, stream: true });
    await until(() => waiting.length === 1);
    clock.advance(30 * MINUTE + BEAT);
    const answer = await reply;
    expect([answer.status, answer.headers["content-type"]]).toEqual([504, "application/json"]);
    expect(answer.body).toMatch(withCode(body, "worker_timeout"));
    expect(answer.body).toContain(SILENT);
    expect((await dataPlaneOf(url)).outcomes).toEqual({ worker_timeout: 1 });
  });

  it("is that of the body: a head alone does not count", async () => {
    const { clock, url, router, waiting, aborted } = await withWorkers(1);
    const opened = open(url + CHAT, ask);
    await until(() => waiting.length === 1);
    clock.advance(29 * MINUTE);
    begin(waiting[0]!);
    const message = await opened;
    clock.advance(MINUTE - 1);
    expect(inFlight(router)).toBe(1);
    clock.advance(1 + BEAT);
    expect(await broken(message)).toMatch(/^\n\ndata: \{"error":.*"code":"worker_timeout"\}\}\n\n$/);
    await until(() => aborted.length === 1);
  });

  it("is waited for anew by each attempt, and not from the upload on", async () => {
    const { clock, url, router, waiting } = await withWorkers(2);
    const socket = await rawClient(url);
    const body = JSON.stringify(ask);
    socket.write(head(body.length));
    for (const byte of body) {
      clock.advance(59_000);
      await upload(url, socket, byte);
    }
    await until(() => waiting.length === 1);
    clock.advance(30 * MINUTE - 1);
    waiting[0]!.writeHead(503).end();
    await until(() => waiting.length === 2);
    clock.advance(30 * MINUTE - 1);
    expect(inFlight(router)).toBe(1);
    const [answer] = await Promise.all([once(socket, "data"), waiting[1]!.end("{}")]);
    expect(String(answer[0])).toMatch(/^HTTP\/1\.1 200 /);
    await until(() => inFlight(router) === 0);
  });

  it("ends the second attempt at its own 30 minutes", async () => {
    const { clock, url, router, waiting, log } = await withWorkers(2);
    const reply = post(url + CHAT, ask);
    await until(() => waiting.length === 1);
    clock.advance(20 * MINUTE);
    waiting[0]!.writeHead(503).end();
    await until(() => waiting.length === 2);
    clock.advance(30 * MINUTE - 1);
    expect(inFlight(router)).toBe(1);
    clock.advance(1 + BEAT);
    expect((await reply).status).toBe(504);
    expect(JSON.parse(log.at(-1)!).failed).toEqual([
      expect.stringMatching(/: status 503$/),
      expect.stringMatching(/: first byte timeout$/),
    ]);
  });

  it("is not waited for where that is turned off: a day", async () => {
    const { clock, url, waiting } = await withWorkers(1, { timeouts: { firstByteMs: Infinity } });
    const reply = post(url + CHAT, ask);
    await until(() => waiting.length === 1);
    clock.advance(DAY);
    waiting[0]!.end("{}");
    expect((await reply).status).toBe(200);
  });
});

describe("between two bytes of an answer", () => {
  it("a byte every 9 minutes goes on for two days: no deadline for all of it (A10)", async () => {
    const { clock, url, router, waiting } = await withWorkers(1);
    const live = await stream(url, waiting);
    for (let passed = 0; passed < 2 * DAY; passed += 9 * MINUTE) {
      clock.advance(9 * MINUTE);
      expect(inFlight(router)).toBe(1);
      await drip(live);
    }
    live.source.end("data: [DONE]\n\n");
    expect(await text(live.message)).toBe("data: [DONE]\n\n");
  });

  it.each(APIS)(
    "10 minutes pass on %s and no less: an error event, a broken connection, an abort (H6)",
    async (path, _body, event) => {
      const { clock, url, router, waiting, aborted } = await withWorkers(1);
      const live = await stream(url, waiting, path);
      await drip(live);
      clock.advance(10 * MINUTE);
      expect(inFlight(router)).toBe(1);
      clock.advance(GRACE);
      expect(inFlight(router)).toBe(0);
      const end = await broken(live.message);
      expect(end.slice(0, 2)).toBe("\n\n");
      expect(end.slice(2)).toMatch(withCode(event, "worker_timeout"));
      expect(end).toContain(SILENT);
      await until(() => aborted.length === 1);
      expect((await dataPlaneOf(url)).outcomes).toEqual({ worker_timeout: 1 });
    },
  );

  it("10 minutes pass in an answer that is no stream: only a broken connection", async () => {
    const { clock, url, router, waiting, aborted } = await withWorkers(1);
    const opened = open(url + CHAT, ask);
    await until(() => waiting.length === 1);
    waiting[0]!.writeHead(200, { "content-type": "application/json" }).write('{"half":');
    const message = await opened;
    const [first] = await once(message, "data");
    clock.advance(10 * MINUTE + GRACE);
    expect(inFlight(router)).toBe(0);
    expect(first + (await broken(message))).toBe('{"half":');
    await until(() => aborted.length === 1);
  });

  it("nothing is waited for where that is turned off: a day", async () => {
    const { clock, url, waiting } = await withWorkers(1, { timeouts: { idleMs: Infinity } });
    const live = await stream(url, waiting);
    clock.advance(DAY);
    await drip(live);
    live.source.end();
    expect(await text(live.message)).toBe("");
  });
});

describe("the deadline for all of a request", () => {
  const timeouts = { totalMs: HOUR };

  it("ends it before its answer: 504, whatever attempts there were; the worker's request is aborted", async () => {
    const { clock, url, router, waiting, aborted } = await withWorkers(3, { timeouts });
    const reply = post(url + CHAT, ask);
    for (let attempt = 1; attempt <= 2; attempt++) {
      await until(() => waiting.length === attempt);
      clock.advance(25 * MINUTE);
      waiting[attempt - 1]!.writeHead(503).end();
    }
    await until(() => waiting.length === 3);
    clock.advance(10 * MINUTE - 1);
    expect(inFlight(router)).toBe(1);
    clock.advance(1 + BEAT);
    expect(inFlight(router)).toBe(0);
    const answer = await reply;
    expect([answer.status, JSON.parse(answer.body).error.code]).toEqual([504, "request_timeout"]);
    await until(() => aborted.length === 1);
    expect(aborted[0]).toBe(waiting[2]);
  });

  it("ends it in mid-stream, however lively: an error event, a broken connection", async () => {
    const { clock, url, router, waiting, aborted } = await withWorkers(1, { timeouts });
    const live = await stream(url, waiting);
    for (let minutes = 5; minutes < 60; minutes += 5) {
      clock.advance(5 * MINUTE);
      await drip(live);
    }
    clock.advance(5 * MINUTE - 1);
    expect(inFlight(router)).toBe(1);
    clock.advance(1 + BEAT);
    expect(inFlight(router)).toBe(0);
    expect(await broken(live.message)).toMatch(/^\n\ndata: \{"error":.*"code":"request_timeout"\}\}\n\n$/);
    await until(() => aborted.length === 1);
    expect((await dataPlaneOf(url)).outcomes).toEqual({ request_timeout: 1 });
  });

  it("ends it in mid-upload, however lively: 504, and a connection that is closed", async () => {
    const { clock, url, waiting } = await withWorkers(1, { timeouts });
    const socket = await rawClient(url);
    socket.write(head(1_000));
    for (let passed = 0; passed < HOUR - 50_000; passed += 50_000) {
      await upload(url, socket, "x");
      clock.advance(50_000);
    }
    await upload(url, socket, "x");
    await upload(url, socket, "x");
    expect((await dataPlaneOf(url)).requests_in_flight).toBe(1);
    let seen = "";
    socket.on("data", (bytes: Buffer) => {
      seen += bytes;
    });
    clock.advance(50_000 + BEAT);
    // A client that does not stop sending is not to keep its connection.
    await once(socket, "end");
    expect(seen).toMatch(/^HTTP\/1\.1 504 [\s\S]*"code":"request_timeout"/);
    expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: 0, body_bytes: 0 });
    expect(waiting).toEqual([]);
  });
});

describe("a connection to a worker", () => {
  it("that is not accepted is given up after the time allowed, and another worker tried", async () => {
    const deaf = await deafWorker();
    const good = await upstream((_request, response) => response.end("{}"));
    const urls = [deaf.url, good.url];
    const run = (connectMs: number) =>
      gateway({
        urls,
        timeouts: { connectMs },
        policy: "round-robin",
        log: { requests: "all" },
        health: { intervalMs: HOUR },
      });
    const patient = await run(HOUR);
    const hasty = await run(50);
    await deaf.fall();
    // One of two goes to either worker; the patient gateway's other one waits on.
    const answers: number[] = [];
    const waits = [1, 2].map(() =>
      open(patient.url + CHAT, ask).then(
        (message) => answers.push(message.statusCode!),
        () => {},
      ),
    );
    const replies = await Promise.all([post(hasty.url + CHAT, ask), post(hasty.url + CHAT, ask)]);
    expect(replies.map(({ status, headers }) => [status, headers["x-hawser-worker"]])).toEqual([
      [200, "w1"],
      [200, "w1"],
    ]);
    const failures = hasty.log.flatMap((line) => JSON.parse(line).failed ?? []);
    expect(failures).toEqual([expect.stringMatching(/^w0: no connection to .* within 50 ms$/)]);
    expect([answers, inFlight(patient.router)]).toEqual([[200], 1]);
    await patient.gateway.close();
    await Promise.all(waits);
  });

  it("holds no body of a client that leaves while it is being opened", async () => {
    const deaf = await deafWorker();
    const { url, router } = await gateway({
      urls: [deaf.url],
      timeouts: { connectMs: HOUR },
      limits: { bodyTotalBytes: 1_000 },
      retries: { attempts: 1 },
      health: { intervalMs: HOUR },
    });
    await deaf.fall();
    const body = JSON.stringify({ ...ask, prompt: "x".repeat(800) });
    // Each takes more than half of what all may.
    for (let i = 0; i < 3; i++) {
      const leave = new AbortController();
      const got = fetch(url + CHAT, { method: "POST", body, signal: leave.signal }).catch(() => "left");
      await until(() => inFlight(router) === 1);
      expect((await dataPlaneOf(url)).body_bytes).toBeGreaterThan(800);
      leave.abort();
      expect(await got).toBe("left");
      await until(() => inFlight(router) === 0);
      expect((await dataPlaneOf(url)).body_bytes).toBe(0);
    }
    expect((await dataPlaneOf(url)).outcomes).toEqual({ client_gone: 3 });
  });
});

describe("an answer whose worker is done", () => {
  it.each(["application/json", "text/event-stream"])(
    "is cut where its reader has taken nothing for 10 minutes, and counted: %s",
    async (type) => {
      const limits = { streamBufferBytes: 64 * 2 ** 20 };
      const { clock, url, router, waiting } = await withWorkers(1, { limits });
      const opened = open(url + CHAT, ask);
      await until(() => waiting.length === 1);
      // More than the kernel takes.
      waiting[0]!.writeHead(200, { "content-type": type }).end(Buffer.alloc(24 * 2 ** 20, "x"));
      const message = await opened;
      await until(() => inFlight(router) === 0);
      expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: 1 });
      expect((await dataPlaneOf(url)).outcomes).toEqual({});
      clock.advance(10 * MINUTE);
      expect((await dataPlaneOf(url)).buffered_bytes).toBeGreaterThan(0);
      clock.advance(GRACE);
      await expect(text(message)).rejects.toThrow("aborted");
      expect(await dataPlaneOf(url)).toMatchObject({
        ...{ requests_in_flight: 0, buffered_bytes: 0 },
        outcomes: { client_too_slow: 1 },
      });
    },
  );
});

describe("others", () => {
  it("are served, and their streams go on, while one worker accepts and never answers (D3)", async () => {
    const { clock, url, router, waiting, aborted } = await withWorkers(2, { policy: "least-loaded" });
    const silent = post(url + CHAT, ask);
    await until(() => waiting.length === 1);
    const live = await stream(url, waiting);
    for (let minutes = 0; minutes < 30; minutes += 5) {
      clock.advance(5 * MINUTE);
      await drip(live);
      const served = post(url + CHAT, ask, {
        "x-hawser-pin": live.message.headers["x-hawser-worker"] as string,
      });
      await until(() => waiting.length > 2 && !waiting.at(-1)!.writableEnded);
      waiting.at(-1)!.end("{}");
      expect((await served).status).toBe(200);
    }
    clock.advance(BEAT);
    expect((await silent).status).toBe(504);
    await until(() => aborted.length === 1);
    expect(inFlight(router)).toBe(1);
    live.source.end("data: [DONE]\n\n");
    expect(await text(live.message)).toBe("data: [DONE]\n\n");
    expect(inFlight(router)).toBe(0);
  });

  it("are counted through a day of beats and polls, whatever ends beside them: three streams are three (A4)", async () => {
    const { clock, url, router, waiting, aborted, workers } = await withWorkers(1, {
      health: { intervalMs: 5 },
    });
    let polls = 0;
    workers[0]!.server.on("request", ({ method }) => {
      if (method === "GET") polls++;
    });
    const streams: Stream[] = [];
    for (let i = 0; i < 3; i++) streams.push(await stream(url, waiting));
    let ended = 0;
    for (let passed = 0; passed < DAY; passed += 32 * MINUTE) {
      const before = waiting.length;
      const silent = post(url + CHAT, ask);
      await until(() => waiting.length > before);
      for (let i = 0; i < 4; i++) {
        expect(inFlight(router)).toBe(4);
        clock.advance(8 * MINUTE);
        await Promise.all(streams.map(drip));
      }
      expect((await silent).status).toBe(504);
      ended++;
      expect(inFlight(router)).toBe(3);
    }
    await until(() => polls >= 20 && aborted.length === ended);
    expect(inFlight(router)).toBe(3);
    for (const { source, message } of streams) {
      source.end();
      await text(message);
    }
    expect(inFlight(router)).toBe(0);
  });

  it("a hundred streams on four workers are counted, all of them, for three hours (A12)", async () => {
    const { clock, url, router, waiting } = await withWorkers(4, { policy: "least-loaded" });
    const streams: Stream[] = [];
    for (let i = 0; i < 100; i++) streams.push(await stream(url, waiting));
    const loads = () => router.status().workers.map(({ active_requests }) => active_requests);
    for (let passed = 0; passed < 3 * HOUR; passed += 9 * MINUTE) {
      clock.advance(9 * MINUTE);
      await Promise.all(streams.map(drip));
      expect(loads()).toEqual([25, 25, 25, 25]);
    }
    for (const { source } of streams) source.end();
    await Promise.all(streams.map(({ message }) => text(message)));
    expect(loads()).toEqual([0, 0, 0, 0]);
  });

  it("are forwarded after hours in which all went wrong: no connection is held back (D5)", async () => {
    const { clock, url, router, waiting, workers } = await withWorkers(1);
    for (let round = 0; round < 20; round++) {
      const before = waiting.length;
      const silent = Array.from({ length: 5 }, () => post(url + CHAT, ask));
      await until(() => waiting.length === before + 5);
      const streams: Stream[] = [];
      for (let i = 0; i < 10; i++) streams.push(await stream(url, waiting));
      const ends = streams.slice(0, 5).map(({ message }) => broken(message));
      for (const { message } of streams.slice(5)) message.on("error", () => {}).destroy();
      await until(() => inFlight(router) === 10);
      clock.advance(31 * MINUTE);
      expect(inFlight(router)).toBe(0);
      for (const reply of silent) expect((await reply).status).toBe(504);
      await Promise.all(ends);
    }
    expect(waiting.length).toBe(20 * 15);
    const connections = () =>
      new Promise<number>((resolve) => workers[0]!.server.getConnections((_error, count) => resolve(count)));
    // Those that are left are idle, and at most as many as were ever needed for questions about models.
    while ((await connections()) > 5) await new Promise((resolve) => setTimeout(resolve, 5));
    const reply = post(url + CHAT, ask);
    await until(() => waiting.length === 20 * 15 + 1);
    waiting.at(-1)!.end("{}");
    expect((await reply).status).toBe(200);
    expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: 0, body_bytes: 0, buffered_bytes: 0 });
  });
});

/** A bare connection to a gateway. */
async function rawClient(url: string): Promise<Socket> {
  const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", noDelay: true });
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  return socket;
}

function head(length: number): string {
  return `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${length}\r\n\r\n`;
}

/** Sends a part of a body, and waits until the gateway has it. */
async function upload(url: string, socket: Socket, part: string): Promise<void> {
  const { body_bytes: before } = await dataPlaneOf(url);
  socket.write(part);
  while ((await dataPlaneOf(url)).body_bytes < before + part.length);
}

/** A worker in a thread of its own, which lists its models until it falls deaf: then it accepts nothing any more. */
async function deafWorker(): Promise<{ readonly url: string; fall(): Promise<void> }> {
  const source = `
    const { parentPort } = require("node:worker_threads");
    const server = require("node:http").createServer((_request, response) => {
      response.setHeader("connection", "close");
      response.end('{"object":"list","data":[{"id":"m"}]}');
    });
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => parentPort.postMessage(server.address().port));
    parentPort.on("message", () => {
      parentPort.postMessage("deaf");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    });`;
  const thread = new Worker(source, { eval: true });
  onTestFinished(async () => void (await thread.terminate()));
  const [port] = await once(thread, "message");
  return {
    url: `http://127.0.0.1:${port}`,
    fall: async () => {
      thread.postMessage("fall");
      await once(thread, "message");
      await fillBacklog(port as number);
    },
  };
}

/** Connects until the kernel takes no more connections for a listener that accepts none. */
async function fillBacklog(port: number): Promise<void> {
  const sockets = Array.from({ length: 8 }, () => connect(port, "127.0.0.1").on("error", () => {}));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  // Which of them are accepted is settled when the first are: the others were sent before, and dropped.
  await once(sockets[0]!, "connect");
  expect(sockets.filter(({ connecting }) => connecting).length).toBeGreaterThan(0);
}
