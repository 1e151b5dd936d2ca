// Comments that tell a client which waits for a stream that it goes on: when they are sent, and what is still possible behind them.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { describe, expect, it, onTestFinished } from "vitest";
import { APIS, type Api, goodAnswer } from "./apis.js";
import { open } from "./client.js";
import { AN_HOUR, expectNothingUncaught } from "./fault-cells.js";
import {
  type GatewayFixture,
  gateway,
  inFlight,
  type RunningGateway,
  stop,
  until,
  upstream,
} from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

const SILENCE = 15_000;
const COMMENT = ": keep-alive\n\n";
const CHAT = "/v1/chat/completions";
const STREAM = { "content-type": "text/event-stream; charset=utf-8", "x-engine": "e" };

/** The endpoints that stream. */
const STREAMING = APIS.filter(({ path }) => path !== "/v1/embeddings");
const chat = STREAMING.find(({ path }) => path === CHAT)!;

expectNothingUncaught();

/** A request at a worker, which the test answers. */
interface Post {
  readonly worker: string;
  readonly response: ServerResponse;
}

interface Scene extends RunningGateway {
  readonly clock: VirtualClock;
  readonly posts: readonly Post[];
  /** Resolves to the `n`th request that came to a worker, from 1. */
  post(n?: number): Promise<Post>;
}

/** A gateway that sends comments, over workers that answer nothing by themselves. */
async function scene(count = 1, options: Partial<GatewayFixture> = {}): Promise<Scene> {
  const posts: Post[] = [];
  const workers = await Promise.all(
    Array.from({ length: count }, (_, i) =>
      upstream((_request, response) => void posts.push({ worker: `w${i}`, response })),
    ),
  );
  const clock = new VirtualClock();
  const running = await gateway({
    ...{ urls: workers.map(({ url }) => url), clock, health: { intervalMs: AN_HOUR } },
    ...{ streams: { keepAliveMs: SILENCE }, ...options },
  });
  const post = async (n = 1) => {
    await until(() => posts.length >= n);
    return posts[n - 1]!;
  };
  return { ...running, clock, posts, post };
}

/** What a client has got so far of an answer. */
interface Got {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  text: string;
  /** Resolves at the end: whether it was that of the answer, and not only that of the connection. */
  readonly isWhole: Promise<boolean>;
}

/** Reads an answer from its head on. */
function follow(message: IncomingMessage): Got {
  const isWhole = new Promise<boolean>((resolve) => {
    message.on("error", () => {}).on("close", () => resolve(message.complete));
  });
  const got: Got = { status: message.statusCode!, headers: message.headers, text: "", isWhole };
  message.setEncoding("utf8").on("data", (text: string) => {
    got.text += text;
  });
  return got;
}

/** Asks an endpoint for a stream; resolves when its worker has the request and the client its first comment. */
async function commented(running: Scene, path = CHAT): Promise<{ got: Got; post: Post }> {
  const opened = open(running.url + path, { model: "m", stream: true });
  const post = await running.post(running.posts.length + 1);
  running.clock.advance(SILENCE);
  const got = follow(await opened);
  await until(() => got.text === COMMENT);
  return { got, post };
}

/** Resolves when what was written has left, and the gateway in this process has had some turns to read it. */
async function flushed({ socket }: ServerResponse): Promise<void> {
  await new Promise((resolve) => socket!.write("", resolve));
  for (let i = 0; i < 3; i++) await turn();
}

const goodStream = (api: Api) => goodAnswer(api, true).body.toString();

describe("a client that waits for a stream", () => {
  it.each(STREAMING)(
    "is told again and again that it goes on, then gets the answer whole: $path",
    async (api) => {
      const running = await scene();
      const { got, post } = await commented(running, api.path);
      expect(got.status).toBe(200);
      expect(got.headers).toMatchObject({
        ...{ "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" },
        ...{ "x-hawser-worker": "w0", "x-hawser-policy": "sticky", "x-hawser-decision": "place" },
      });
      for (let count = 2; count <= 5; count++) {
        running.clock.advance(SILENCE);
        await until(() => got.text === COMMENT.repeat(count));
      }
      // Not before it has been silent as long again.
      running.clock.advance(SILENCE - 1_000);
      post.response.writeHead(200, STREAM).end(goodStream(api));
      expect(await got.isWhole).toBe(true);
      expect(got.text).toBe(COMMENT.repeat(5) + goodStream(api));
    },
  );

  it("is told so behind the head of its worker, too, where that is all that has come", async () => {
    const running = await scene();
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const { response } = await running.post();
    response.writeHead(200, STREAM).flushHeaders();
    const got = follow(await opened);
    for (let count = 1; count <= 3; count++) {
      running.clock.advance(SILENCE);
      await until(() => got.text === COMMENT.repeat(count));
    }
    response.end(goodStream(chat));
    expect(await got.isWhole).toBe(true);
    expect(got.headers).toMatchObject({ "x-engine": "e", "x-hawser-worker": "w0" });
    expect(got.text).toBe(COMMENT.repeat(3) + goodStream(chat));
  });

  it("is told so, too, where that head says how long the answer is: it comes whole all the same", async () => {
    const running = await scene();
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const { response } = await running.post();
    const body = goodAnswer(chat, true).body;
    response.writeHead(200, { ...STREAM, "content-length": body.length }).flushHeaders();
    const got = follow(await opened);
    running.clock.advance(2 * SILENCE);
    response.end(body);
    expect(await got.isWhole).toBe(true);
    expect(got.text).toBe(COMMENT.repeat(2) + goodStream(chat));
  });

  it("hears nothing before the silence is over: the head is the worker's own", async () => {
    const running = await scene();
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const { response } = await running.post();
    running.clock.advance(SILENCE - 1_000);
    response.writeHead(200, STREAM).end(goodStream(chat));
    const got = follow(await opened);
    expect(await got.isWhole).toBe(true);
    expect([got.headers["x-engine"], got.text]).toEqual(["e", goodStream(chat)]);
  });

  it.each(STREAMING)("hears nothing between events, nor inside of them: $path", async (api) => {
    const running = await scene();
    const { got, post } = await commented(running, api.path);
    post.response.writeHead(200, STREAM);
    let sent = COMMENT;
    // Every cut but the last few is inside of an event.
    for (const part of goodStream(api).match(/.{1,37}/gs)!) {
      post.response.write(part);
      sent += part;
      await until(() => got.text.length === sent.length);
      running.clock.advance(4 * SILENCE);
    }
    post.response.end();
    expect(await got.isWhole).toBe(true);
    expect(got.text).toBe(COMMENT + goodStream(api));
  });

  it("hears nothing unless that is asked for", async () => {
    const running = await scene(1, { streams: {} });
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const { response } = await running.post();
    running.clock.advance(25 * 60_000);
    response.writeHead(200, STREAM).end(goodStream(chat));
    const got = follow(await opened);
    expect(await got.isWhole).toBe(true);
    expect([got.headers["x-engine"], got.text]).toEqual(["e", goodStream(chat)]);
  });

  it("has waited since its request was whole, however long that took", async () => {
    const running = await scene();
    const body = JSON.stringify({ model: "m", stream: true, messages: [] });
    const socket = connect(Number(new URL(running.url).port), "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: h\r\ncontent-length: ${body.length}\r\n\r\n${body.slice(0, -1)}`,
    );
    const bodyBytes = async () =>
      ((await (await fetch(`${running.url}/health`)).json()) as { data_plane: { body_bytes: number } })
        .data_plane.body_bytes;
    while ((await bodyBytes()) < body.length - 1);
    running.clock.advance(2 * SILENCE);
    socket.write(body.slice(-1));
    const { response } = await running.post();
    running.clock.advance(2_000);
    // Nothing has gone out, so that this can be told as what it is.
    response.writeHead(400, { "content-type": "application/json" }).end('{"error":{"message":"no"}}');
    await until(() => text.includes("\r\n\r\n"));
    expect(text).toMatch(/^HTTP\/1.1 400 /);
    expect(text).not.toContain("\n: keep-alive");
  });

  it("gets 90 seconds of prefill through a proxy that cuts what is idle for 60 (D9)", async () => {
    for (const keepAliveMs of [Number.POSITIVE_INFINITY, 30_000]) {
      const running = await scene(1, { streams: { keepAliveMs } });
      const proxy = await idleProxy(running.url, running.clock, 60_000);
      const opened = open(proxy + CHAT, { model: "m", stream: true });
      const { response } = await running.post();
      if (keepAliveMs === Number.POSITIVE_INFINITY) {
        running.clock.advance(90_000);
        await expect(opened).rejects.toThrow();
        continue;
      }
      running.clock.advance(30_000);
      const got = follow(await opened);
      for (let count = 1; count <= 3; count++) {
        await until(() => got.text === COMMENT.repeat(count));
        if (count < 3) running.clock.advance(30_000);
      }
      response.writeHead(200, STREAM).end(goodStream(chat));
      expect(await got.isWhole).toBe(true);
      expect(got.text).toBe(COMMENT.repeat(3) + goodStream(chat));
    }
  });
});

/** A proxy that cuts connections on which nothing has come from `url` for some time; resolves to its address. */
async function idleProxy(url: string, clock: VirtualClock, ms: number): Promise<string> {
  const sockets: Socket[] = [];
  const server = createServer((client) => {
    const target = connect(Number(new URL(url).port), "127.0.0.1");
    sockets.push(client, target);
    let heardAt = clock.now();
    const cut = () => {
      stopWatching();
      client.destroy();
      target.destroy();
    };
    const stopWatching = clock.every(1_000, () => {
      if (clock.now() - heardAt >= ms) cut();
    });
    target.on("data", (chunk) => {
      heardAt = clock.now();
      client.write(chunk);
    });
    client.on("data", (chunk) => target.write(chunk));
    for (const socket of [client, target]) socket.on("error", cut).on("close", cut);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("an answer to which no comment can be added", () => {
  it.each(APIS)("is one that is no stream: $path", async (api) => {
    for (const body of [{ model: "m" }, { model: "m", stream: false }, { model: "m", stream: "true" }]) {
      const running = await scene();
      const opened = open(running.url + api.path, body);
      const { response } = await running.post();
      running.clock.advance(4 * SILENCE);
      const answer = goodAnswer(api, false);
      response.writeHead(201, { "content-type": answer.type, "content-length": answer.body.length });
      response.flushHeaders();
      const got = follow(await opened);
      running.clock.advance(4 * SILENCE);
      response.end(answer.body);
      expect(await got.isWhole).toBe(true);
      expect([got.status, got.text]).toEqual([201, answer.body.toString()]);
    }
  });

  it("is one of embeddings, whatever is asked for", async () => {
    const running = await scene();
    const opened = open(`${running.url}/v1/embeddings`, { model: "m", stream: true });
    const { response } = await running.post();
    running.clock.advance(4 * SILENCE);
    response.writeHead(200, STREAM).flushHeaders();
    const got = follow(await opened);
    running.clock.advance(4 * SILENCE);
    response.end("data: {}\n\n");
    expect(await got.isWhole).toBe(true);
    expect([got.headers["x-engine"], got.text]).toEqual(["e", "data: {}\n\n"]);
  });

  it.each([
    ["is of another type", { "content-type": "application/json" }],
    ["has no type", {}],
    ["is encoded", { "content-type": "text/event-stream", "content-encoding": "x" }],
  ])("is one whose head has come and that %s", async (_name, head: Record<string, string>) => {
    const running = await scene();
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const { response } = await running.post();
    response.writeHead(200, head).flushHeaders();
    const got = follow(await opened);
    running.clock.advance(4 * SILENCE);
    response.end("the answer");
    expect(await got.isWhole).toBe(true);
    expect(got.text).toBe("the answer");
  });
});

describe("the official clients", () => {
  /** Has an answer come after comments before and behind its head; `asked` resolves at the head. */
  async function answerLate<T>(running: Scene, asked: Promise<T>, api: Api): Promise<T> {
    const { response } = await running.post();
    running.clock.advance(SILENCE);
    const events = await asked;
    running.clock.advance(SILENCE);
    response.writeHead(200, STREAM).flushHeaders();
    running.clock.advance(SILENCE);
    response.end(goodStream(api));
    return events;
  }

  const api = (path: string) => STREAMING.find((candidate) => candidate.path === path)!;
  const dataOf = ({ events }: Api) => events.map(([, data]) => data).filter((data) => data !== "[DONE]");

  it.each([CHAT, "/v1/completions", "/v1/responses"])(
    "make nothing of a comment: openai on %s",
    async (path) => {
      const running = await scene();
      const client = openai(running);
      const wanted = { model: "m", stream: true } as const;
      const asked = {
        [CHAT]: () => client.chat.completions.create({ ...wanted, messages: [] }),
        "/v1/completions": () => client.completions.create({ ...wanted, prompt: "p" }),
        "/v1/responses": () => client.responses.create({ ...wanted, input: "p" }),
      }[path]!;
      const seen: unknown[] = [];
      for await (const event of await answerLate<AsyncIterable<unknown>>(running, asked(), api(path)))
        seen.push(event);
      expect(seen).toEqual(dataOf(api(path)));
    },
  );

  it("make nothing of a comment: Anthropic's", async () => {
    const running = await scene();
    const asked = anthropic(running).messages.create({
      model: "m",
      stream: true,
      max_tokens: 1,
      messages: [],
    });
    const seen: unknown[] = [];
    for await (const event of await answerLate(running, asked, api("/v1/messages"))) seen.push(event);
    expect(seen).toEqual(dataOf(api("/v1/messages")));
  });

  const refusal = { type: "error", error: { type: "overloaded_error", message: "the engine is full" } };
  const sendRefusal = ({ response }: Post) =>
    response.writeHead(529, { "content-type": "application/json" }).end(JSON.stringify(refusal));

  it("throw the error that a worker answers with later: openai", async () => {
    const running = await scene();
    const asked = openai(running).chat.completions.create({ model: "m", stream: true, messages: [] });
    const post = await running.post();
    running.clock.advance(SILENCE);
    const events = await asked;
    sendRefusal(post);
    await expect(drained(events)).rejects.toThrow("the engine is full");
  });

  it("throw the error that a worker answers with later: Anthropic's", async () => {
    const running = await scene();
    const asked = anthropic(running).messages.create({
      model: "m",
      stream: true,
      max_tokens: 1,
      messages: [],
    });
    const post = await running.post();
    running.clock.advance(SILENCE);
    const events = await asked;
    sendRefusal(post);
    await expect(drained(events)).rejects.toMatchObject({
      error: { type: "error", error: { message: "the engine is full" } },
    });
  });

  it("tell of a response that failed", async () => {
    const running = await scene();
    const asked = openai(running).responses.create({ model: "m", stream: true, input: "p" });
    const post = await running.post();
    running.clock.advance(SILENCE);
    const events = await asked;
    sendRefusal(post);
    const seen: unknown[] = [];
    await (async () => {
      for await (const event of events) seen.push(event);
    })().catch(() => {});
    expect(seen).toMatchObject([
      { type: "response.failed", response: { status: "failed", error: { message: "the engine is full" } } },
    ]);
  });
});

function openai({ url }: RunningGateway): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
}

function anthropic({ url }: RunningGateway): Anthropic {
  return new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0 });
}

async function drained(events: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of events);
}

describe("what goes wrong behind a comment", () => {
  /** What the client is told in the stream: the data of the one event behind the comment, after which the connection breaks. */
  async function told(got: Got, { errorEvent }: Api): Promise<string> {
    expect(await got.isWhole).toBe(false);
    const begin = `${COMMENT}\n\n${errorEvent ? `event: ${errorEvent}\n` : ""}data: `;
    expect(got.text.slice(0, begin.length)).toBe(begin);
    const [data, ...rest] = got.text.slice(begin.length).split("\n");
    expect(rest).toEqual(["", ""]);
    return data!;
  }

  it.each(STREAMING)("an error of the worker is told in its own words: $path", async (api) => {
    const running = await scene();
    const { got, post } = await commented(running, api.path);
    const error = { type: "error", error: { type: "t", message: "KV cache is full: €", code: 503 } };
    post.response.writeHead(503, { "content-type": "application/json" }).write('{"object":');
    // What comes in parts is told when all of it is there.
    await flushed(post.response);
    post.response.end(`"error",${JSON.stringify(error).slice(1)}`);
    const { code, message } = api.eventData(await told(got, api));
    expect(message).toBe("KV cache is full: €");
    if (code !== undefined) expect(code).toBe("worker_error");
    expect(running.log.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "request")).toMatchObject([
      { level: 40, outcome: "worker_error", status: 200, failed: ["w0: status 503"] },
    ]);
    await until(() => inFlight(running.router) === 0);
    // What was refused binds nothing.
    expect(running.router.status().bindings).toBe(0);
  });

  it("an error that is the client's own is told as such", async () => {
    const running = await scene();
    const { got, post } = await commented(running);
    post.response.writeHead(400).end('{"error":{"message":"the prompt is too long"}}');
    expect(JSON.parse(await told(got, chat))).toEqual({
      error: {
        ...{
          message: "the prompt is too long",
          type: "invalid_request_error",
          param: null,
          code: "worker_error",
        },
      },
    });
  });

  it.each([
    ["is no JSON", 500, "<html>no</html>"],
    ["is empty", 502, ""],
    ["is null", 500, "null"],
    ["has no message", 500, '{"error":{"type":"t"}}'],
    ["has a message that is no text", 500, '{"error":{"message":{"a":1}}}'],
    ["is endless", 500, `{"error":{"message":"${"x".repeat(70_000)}"}}`],
  ])("an error that %s is told by its status", async (_name, status, body) => {
    const running = await scene();
    const { got, post } = await commented(running);
    post.response.writeHead(status).end(body);
    expect(chat.eventData(await told(got, chat)).message).toBe(`worker "w0" answered with status ${status}`);
  });

  it("an error that goes on and on is told as soon as it is too long, and its request aborted", async () => {
    const running = await scene();
    const { got, post } = await commented(running);
    const { response } = post;
    response.writeHead(500).write("x".repeat(70_000));
    expect(chat.eventData(await told(got, chat)).message).toBe('worker "w0" answered with status 500');
    await until(() => response.destroyed && inFlight(running.router) === 0);
  });

  it("an error that trickles in is told when its time is up; until then comments go on", async () => {
    const timeouts = { firstByteMs: 10 * SILENCE, idleMs: 10 * SILENCE };
    const running = await scene(1, { timeouts });
    const { got, post } = await commented(running);
    const { response } = post;
    response.writeHead(500).flushHeaders();
    let comments = 1;
    for (; comments < 10; comments++) {
      response.write("x");
      await flushed(response);
      running.clock.advance(SILENCE);
      await until(() => got.text === COMMENT.repeat(comments + 1));
    }
    expect(inFlight(running.router)).toBe(1);
    response.write("x");
    await flushed(response);
    running.clock.advance(3 * SILENCE);
    expect(await got.isWhole).toBe(false);
    expect(got.text).toContain('worker \\"w0\\" answered with status 500');
    expect(inFlight(running.router)).toBe(0);
  });

  it("a long message is cut short", async () => {
    const running = await scene();
    const { got, post } = await commented(running);
    post.response.writeHead(500).end(JSON.stringify({ error: { message: "x".repeat(2_000) } }));
    expect(chat.eventData(await told(got, chat)).message).toBe("x".repeat(1_000));
  });

  it.each(STREAMING)("an answer that is no stream is told, not passed on: $path", async (api) => {
    const running = await scene();
    const { got, post } = await commented(running, api.path);
    const answer = goodAnswer(api, false);
    post.response.writeHead(200, { "content-type": answer.type }).end(answer.body);
    expect(await told(got, api)).toContain('worker \\"w0\\" answered with no stream of events');
    await until(() => inFlight(running.router) === 0);
  });

  it("a worker that breaks off, also in the middle of its error, is told", async () => {
    const running = await scene(2);
    for (const part of [undefined, '{"error":']) {
      const { got, post } = await commented(running);
      if (part) post.response.writeHead(500).write(part);
      if (part) await flushed(post.response);
      post.response.destroy();
      expect(chat.eventData(await told(got, chat))).toMatchObject({
        ...{
          code: "worker_failed",
          message: `worker "${post.worker}" broke off in the middle of its answer`,
        },
      });
    }
    expect(running.posts.length).toBe(2);
  });

  it("a worker that says nothing in the end is told", async () => {
    const running = await scene();
    const { got } = await commented(running);
    running.clock.advance(30 * 60_000 + 5_000);
    expect(await got.isWhole).toBe(false);
    const data = got.text
      .replaceAll(COMMENT, "")
      .trim()
      .replace(/^data: /, "");
    expect(chat.eventData(data)).toMatchObject({ code: "worker_timeout" });
  });

  it("the end of the gateway is told", async () => {
    const running = await scene();
    const { got } = await commented(running);
    expect((await running.gateway.drain(1)).cut).toBe(1);
    expect(chat.eventData(await told(got, chat))).toMatchObject({ code: "shutting_down" });
  });
});

describe("another worker", () => {
  const refuse = ({ response }: Post) => response.writeHead(503).end('{"error":{"message":"busy"}}');
  const breakOff = ({ response }: Post) => response.destroy();
  const firstEvent = ({ response }: Post) =>
    response.writeHead(200, STREAM).end('data: {"error":{"message":"busy","code":503}}\n\n');

  it.each([
    ["503", refuse],
    ["a broken connection", breakOff],
    ["an error as its first event", firstEvent],
  ])("is tried for %s, but not once a comment went out", async (_name, fail) => {
    const streams = { keepAliveMs: SILENCE, peek: true };
    const quick = await scene(2, { streams });
    const opened = open(quick.url + CHAT, { model: "m", stream: true });
    const first = await quick.post();
    quick.clock.advance(SILENCE - 1_000);
    fail(first);
    (await quick.post(2)).response.writeHead(200, STREAM).end(goodStream(chat));
    const helped = follow(await opened);
    expect(await helped.isWhole).toBe(true);
    expect([helped.headers["x-hawser-worker"], helped.text]).toEqual(["w1", goodStream(chat)]);

    const late = await scene(2, { streams });
    const { got, post } = await commented(late);
    fail(post);
    await got.isWhole;
    expect(got.text).toMatch(/busy|broke off/);
    await until(() => inFlight(late.router) === 0);
    expect(late.posts.length).toBe(1);
  });

  it("is not tried for a head that was held back when the comment went out, and that is the client's then", async () => {
    const running = await scene(2, { streams: { keepAliveMs: SILENCE, peek: true } });
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const post = await running.post();
    post.response.writeHead(200, STREAM).flushHeaders();
    await flushed(post.response);
    running.clock.advance(SILENCE);
    const got = follow(await opened);
    await until(() => got.text === COMMENT);
    const event = 'data: {"error":{"message":"busy","code":503}}\n\n';
    post.response.end(event);
    expect(await got.isWhole).toBe(true);
    expect(got.text).toBe(COMMENT + event);
    expect(running.posts.length).toBe(1);
  });

  it("has been tried before: the comment names the one that is waited for", async () => {
    const running = await scene(2);
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const first = await running.post();
    running.clock.advance(10_000);
    refuse(first);
    const { response } = await running.post(2);
    // The client has waited since before the first one.
    running.clock.advance(5_000);
    const got = follow(await opened);
    await until(() => got.text === COMMENT);
    response.writeHead(200, STREAM).end(goodStream(chat));
    expect(await got.isWhole).toBe(true);
    expect([got.headers["x-hawser-worker"], got.text]).toEqual(["w1", COMMENT + goodStream(chat)]);
  });
});

describe("a client that leaves", () => {
  it("after a comment has its request aborted at the worker, and costs nothing from then on (H7)", async () => {
    const running = await scene();
    const opened = open(running.url + CHAT, { model: "m", stream: true });
    const { response } = await running.post();
    running.clock.advance(SILENCE);
    const message = await opened;
    message.destroy();
    await until(() => response.destroyed);
    await until(() => inFlight(running.router) === 0);
    running.clock.advance(4 * SILENCE);
    expect(running.audit.open).toBe(0);
  });

  it.each([500, 200])(
    "while an answer with %i that is no stream is turned into an event (H7)",
    async (status) => {
      const running = await scene();
      const opened = open(running.url + CHAT, { model: "m", stream: true });
      const { response } = await running.post();
      running.clock.advance(SILENCE);
      const message = await opened;
      response.writeHead(status, { "content-type": "application/json" }).write('{"error":');
      await flushed(response);
      message.destroy();
      await until(() => response.destroyed);
      await until(() => inFlight(running.router) === 0);
      const { data_plane } = (await (await fetch(`${running.url}/health`)).json()) as {
        data_plane: { outcomes: object };
      };
      expect(data_plane.outcomes).toEqual({ client_gone: 1 });
    },
  );

  it("leaves no comment behind to a worker that has died meanwhile", async () => {
    const running = await scene();
    const { got, post } = await commented(running);
    await stop((post.response.socket as unknown as { server: Parameters<typeof stop>[0] }).server);
    expect(await got.isWhole).toBe(false);
    running.clock.advance(4 * SILENCE);
    expect(got.text.split(COMMENT).length).toBe(2);
  });
});
