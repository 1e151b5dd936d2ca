// What an operator sets of the data plane in the config file, and what a client of `hawser serve` then meets: each key has its effect.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { connect } from "node:net";
import OpenAI from "openai";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { stringify } from "yaml";
import { directoryOf } from "../fixtures/directory.js";
import { open, post, text } from "../gateway/client.js";
import { type Answer, upstream } from "../gateway/fixture.js";
import { loads, type Running, start, until, worker } from "./fleet.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [] };
const STREAM = { "content-type": "text/event-stream" };
const EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n';
const DONE = "data: [DONE]\n\n";

afterEach(() => void vi.unstubAllEnvs());

interface Serving extends Running {
  /** What it wrote to stderr since it listens, in lines. */
  readonly log: () => string[];
}

/** Runs `hawser serve` with a config: workers w0, w1 ... at `urls`, and what is in `more`; `files` stand beside it. */
async function serving(
  urls: readonly (string | object)[],
  more: object = {},
  files: Record<string, string> = {},
): Promise<Serving> {
  const workers = urls.map((each, i) => ({
    id: `w${i}`,
    ...(typeof each === "string" ? { url: each } : each),
  }));
  const config = { listen: { port: 0 }, admin: { port: 0 }, workers, ...more };
  const running = await start(["serve"], directoryOf({ "hawser.yaml": stringify(config), ...files }));
  let written = "";
  running.child.stderr!.on("data", (chunk) => {
    written += chunk;
  });
  return { ...running, log: () => written.split("\n").slice(0, -1) };
}

/** The lines about requests. */
// biome-ignore lint/suspicious/noExplicitAny: any JSON
const requestsIn = ({ log }: Serving): any[] =>
  log()
    .map((line) => JSON.parse(line))
    .filter(({ msg }) => msg === "request");

interface DataPlane {
  readonly body_bytes: number;
  readonly buffered_bytes: number;
  readonly retries: number;
  readonly retries_refused: number;
  readonly outcomes: Readonly<Record<string, number>>;
}

async function dataPlane({ url }: Running): Promise<DataPlane> {
  const { data_plane } = (await (await fetch(`${url}/health`)).json()) as { data_plane: DataPlane };
  return data_plane;
}

const client = ({ url }: Running) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: "client-key", maxRetries: 0 });

/** Asks with the official client; resolves to the worker that answered, and to the answer's words where it is a stream. */
async function complete(running: Running, stream = false, members: object = {}): Promise<[string, string]> {
  const { data, response } = await client(running)
    .chat.completions.create({ ...{ model: "m", messages: [], stream }, ...members })
    .withResponse();
  let words = "";
  if (stream)
    for await (const { choices } of data as AsyncIterable<OpenAI.ChatCompletionChunk>)
      words += choices[0]?.delta.content ?? "";
  return [response.headers.get("x-hawser-worker")!, words];
}

const ok: Answer = (_request, response) => response.end("{}");
const silent: Answer = () => {};
const reset: Answer = (request) => request.socket.resetAndDestroy();
const refuse =
  (status: number): Answer =>
  (_request, response) =>
    response.writeHead(status).end('{"error":{"message":"the worker is full"}}');

async function urlsOf(...answers: Answer[]): Promise<string[]> {
  return (await Promise.all(answers.map((answer) => upstream(answer)))).map(({ url }) => url);
}

describe("timeouts", () => {
  it("first_byte: the openai client sees a 504", async () => {
    const running = await serving(await urlsOf(silent), { timeouts: { first_byte: "300ms" } });
    await expect(complete(running)).rejects.toMatchObject({ status: 504, code: "worker_timeout" });
    expect((await dataPlane(running)).outcomes).toEqual({ worker_timeout: 1 });
  });

  it("idle: the openai client hears of it in mid-stream", async () => {
    const begins: Answer = (_request, response) => response.writeHead(200, STREAM).write(EVENT);
    const running = await serving(await urlsOf(begins), { timeouts: { idle: "300ms" } });
    await expect(complete(running, true)).rejects.toThrow("sent nothing for longer than the gateway waits");
  });

  it("total: also where the worker never stops", async () => {
    const endless: Answer = (_request, response) => {
      response.writeHead(200, STREAM);
      const timer = setInterval(() => response.write(EVENT), 20);
      response.on("close", () => clearInterval(timer));
    };
    const running = await serving(await urlsOf(endless), { timeouts: { total: "1s" } });
    await expect(complete(running, true)).rejects.toThrow("longer than the gateway allows");
  });

  it("upload: a body that comes to a halt", async () => {
    const running = await serving(await urlsOf(ok), { timeouts: { upload: "300ms" } });
    const socket = connect(Number(new URL(running.url).port), "127.0.0.1");
    socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{"model":`);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 408 .*upload_timeout/s);
    socket.destroy();
  });

  it("connect: another worker is tried where nobody takes the connection", async () => {
    // It answers once for its models, then is stopped, and its queue of connections filled.
    const script = `require("http").createServer((_, r) => r.writeHead(200, { connection: "close" }).end('{"data":[{"id":"m"}]}'))
      .listen({ port: 0, host: "127.0.0.1", backlog: 1 }, function () { console.log(this.address().port); })`;
    const deaf = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
    onTestFinished(() => void deaf.kill("SIGKILL"));
    const port = Number((await once(deaf.stdout, "data"))[0]);
    const running = await serving([`http://127.0.0.1:${port}`, ...(await urlsOf(ok))], {
      ...{ timeouts: { connect: "300ms" }, log: { requests: "errors" } },
    });
    deaf.kill("SIGSTOP");
    let queued = 0;
    for (let i = 0; i < 8; i++) {
      const socket = connect(port, "127.0.0.1", () => queued++);
      socket.on("error", () => {});
      onTestFinished(() => void socket.destroy());
    }
    await until(async () => queued >= 2);
    expect((await complete(running))[0]).toBe("w1");
    await until(async () => requestsIn(running).length === 1);
    expect(requestsIn(running)[0].failed).toEqual([
      expect.stringMatching(/^w0: no connection to .* within 300 ms$/),
    ]);
  });
});

describe("retries", () => {
  it("by default: the openai client sees the answer of another worker", async () => {
    const running = await serving(await urlsOf(refuse(503), reset, ok));
    expect(await complete(running)).toEqual(["w2", ""]);
    expect(await dataPlane(running)).toMatchObject({ retries: 2, outcomes: { complete: 1 } });
  });

  it("attempts: no more workers than that", async () => {
    const urls = await urlsOf(refuse(503), refuse(503), ok);
    for (const [attempts, last] of [
      [1, "w0"],
      [2, "w1"],
    ]) {
      const running = await serving(urls, { retries: { attempts } });
      await expect(complete(running)).rejects.toMatchObject({
        ...{ status: 503, message: expect.stringContaining("the worker is full") },
      });
      const { headers } = await post(running.url + CHAT, ask);
      expect(headers["x-hawser-worker"]).toBe(last);
    }
  });

  it("on: for nothing else", async () => {
    const urls = await urlsOf((request, response) => {
      response.writeHead(Number(request.headers["x-status"] ?? 200)).end("{}");
    }, ok);
    const running = await serving(urls, { retries: { on: [500] } });
    const found: string[] = [];
    for (const status of ["500", "503", "429"]) {
      const reply = await post(running.url + CHAT, ask, { "x-status": status });
      found.push(`${reply.status} ${reply.headers["x-hawser-worker"]}`);
    }
    expect(found).toEqual(["200 w1", "503 w0", "429 w0"]);
  });

  it("budget: none where it is 0", async () => {
    const running = await serving(await urlsOf(refuse(503), ok), { retries: { budget: 0 } });
    await expect(complete(running)).rejects.toMatchObject({ status: 503 });
    expect(await dataPlane(running)).toMatchObject({ retries: 0, retries_refused: 1 });
  });

  it("stateful: what a worker may have stored is only then asked for twice", async () => {
    const urls = await urlsOf(reset, ok);
    const careful = await serving(urls);
    await expect(complete(careful, false, { store: true })).rejects.toMatchObject({
      ...{ status: 502, code: "worker_unreachable" },
    });
    const bold = await serving(urls, { retries: { stateful: true } });
    expect((await complete(bold, false, { store: true }))[0]).toBe("w1");
  });
});

describe("streams", () => {
  const first: Answer = (_request, response) =>
    response.writeHead(200, STREAM).end('data: {"error":{"message":"out of blocks","code":500}}\n\n');
  const good: Answer = (_request, response) => response.writeHead(200, STREAM).end(EVENT + DONE);

  it("peek: an error as the first event has another worker tried", async () => {
    const urls = await urlsOf(first, good);
    await expect(complete(await serving(urls), true)).rejects.toThrow("out of blocks");
    expect(await complete(await serving(urls, { streams: { peek: true } }), true)).toEqual(["w1", "word"]);
  });

  it("keep_alive: the openai client has the head before its worker has said anything, and no more events than that sends", async () => {
    const waiting: ServerResponse[] = [];
    const urls = await urlsOf((_request, response) => void waiting.push(response));
    const running = await serving(urls, { streams: { keep_alive: "100ms" } });
    const { data, response } = await client(running)
      .chat.completions.create({ ...ask, stream: true })
      .withResponse();
    expect(response.headers.get("x-hawser-worker")).toBe("w0");
    waiting[0]!.writeHead(200, STREAM).end(EVENT + DONE);
    const seen: unknown[] = [];
    for await (const event of data) seen.push(event);
    expect(seen).toEqual([JSON.parse(EVENT.slice("data: ".length))]);

    const message = await open(running.url + CHAT, { ...ask, stream: true });
    message.setEncoding("utf8");
    let raw = "";
    message.on("data", (chunk) => {
      raw += chunk;
    });
    await until(async () => raw.startsWith(": keep-alive\n\n: keep-alive\n\n"));
    waiting[1]!.writeHead(200, STREAM).end(EVENT + DONE);
    await until(async () => message.complete);
    expect(raw.replaceAll(": keep-alive\n\n", "")).toBe(EVENT + DONE);
  });
});

describe("limits", () => {
  it("body: the openai client sees a 413", async () => {
    const running = await serving(await urlsOf(ok), { limits: { body: "1KB" } });
    const of = (length: number) =>
      complete(running, false, { messages: [{ role: "user", content: "x".repeat(length) }] });
    await of(900);
    await expect(of(1_000)).rejects.toMatchObject({ status: 413, code: "body_too_large" });
  });

  it("body_total: the openai client sees a 503, and when to come again", async () => {
    const waiting: ServerResponse[] = [];
    const urls = await urlsOf((_request, response) => void waiting.push(response));
    const running = await serving(urls, { limits: { body: "100KB", body_total: "100KB" } });
    const big = { messages: [{ role: "user", content: "x".repeat(60_000) }] };
    const held = complete(running, false, big);
    await until(async () => waiting.length === 1);
    const refused = complete(running, false, big);
    await expect(refused).rejects.toMatchObject({ status: 503, code: "too_many_bytes" });
    const error = await refused.catch((each: InstanceType<typeof OpenAI.APIError>) => each);
    expect((error as { headers: Headers }).headers.get("retry-after")).toBe("1");
    waiting[0]!.end("{}");
    await held;
    expect((await dataPlane(running)).body_bytes).toBe(0);
    const again = complete(running, false, big);
    await until(async () => waiting.length === 2);
    waiting[1]!.end("{}");
    await again;
  });

  it.each([
    ["stream_buffer", STREAM],
    ["answer_buffer", { "content-type": "application/json" }],
  ])("%s: a client that does not read is cut", async (key, head: Record<string, string>) => {
    let flood = (): void => {};
    const urls = await urlsOf((_request, response) => {
      const block = Buffer.alloc(262_144, "data: x\n\n");
      const more = (left: number): void => {
        if (left > 0 && !response.destroyed) response.write(block, () => more(left - 1));
      };
      flood = () => more(1_000);
      response.writeHead(200, head).flushHeaders();
    });
    const running = await serving(urls, { limits: { [key]: "64KiB" } });
    const message = await open(running.url + CHAT, ask);
    flood();
    await until(async () => (await dataPlane(running)).outcomes.client_too_slow === 1);
    await expect(text(message)).rejects.toThrow();
    expect(await loads(running.url)).toEqual([0]);
  });

  it("buffered_total: of two clients that do not read, one is cut before either has reached its own limit", async () => {
    const streams: ServerResponse[] = [];
    const urls = await urlsOf((_request, response) => {
      response.writeHead(200, STREAM).flushHeaders();
      streams.push(response);
    });
    const MIB = 1_048_576;
    const running = await serving(urls, {
      limits: { stream_buffer: "1MiB", answer_buffer: "1MiB", buffered_total: "1MiB" },
    });
    const block = Buffer.alloc(65_536, "data: x\n\n");
    /** Sends to a client until `holds`. */
    const fill = async (index: number, holds: (view: DataPlane) => boolean): Promise<void> => {
      for (let view = await dataPlane(running); !holds(view); view = await dataPlane(running)) {
        expect(view.buffered_bytes).toBeLessThan(MIB);
        await new Promise((resolve) => streams[index]!.write(block, resolve));
      }
    };
    const messages = [
      await open(running.url + CHAT, { ...ask, stream: true }),
      await open(running.url + CHAT, { ...ask, stream: true }),
    ];
    await fill(0, ({ buffered_bytes }) => buffered_bytes > 0.4 * MIB);
    expect((await dataPlane(running)).outcomes).toEqual({});
    await fill(1, ({ outcomes }) => outcomes.client_too_slow !== undefined);
    expect((await dataPlane(running)).outcomes).toEqual({ client_too_slow: 1 });
    for (const message of messages) message.on("error", () => {}).destroy();
  });
});

describe("log", () => {
  const some: Answer = (request, response) =>
    response.writeHead(request.headers["x-fail"] ? 500 : 200).end("{}");
  /** The statuses that are logged of ten requests that go well and one that does not, which is the last. */
  async function logged(log?: object): Promise<number[]> {
    const running = await serving(await urlsOf(some), log && { log });
    for (let i = 0; i < 10; i++) await post(running.url + CHAT, ask);
    await post(running.url + CHAT, ask, { "x-fail": "1" });
    await until(async () => requestsIn(running).at(-1)?.status === 500);
    return requestsIn(running).map(({ status }) => status);
  }

  it("requests and sample: errors, all, a share; by default a hundredth", async () => {
    expect(await logged()).toEqual([500]);
    expect(await logged({ requests: "errors" })).toEqual([500]);
    expect(await logged({ requests: "all" })).toEqual([...Array(10).fill(200), 500]);
    expect(await logged({ requests: "sampled", sample: 0.2 })).toEqual([200, 200, 500]);
  });
});

describe("what is shown to workers", () => {
  it("api_key: from the environment and from a file, and nowhere else (F8)", async () => {
    const shown: (string | undefined)[][] = [[], [], []];
    const urls = await Promise.all(
      shown.map(async (list) => {
        const each = await upstream((request, response) => {
          list.push(request.headers.authorization);
          response.end("{}");
        });
        each.server.prependListener("request", ({ method, headers }) => {
          if (method === "GET") list.push(headers.authorization);
        });
        return each.url;
      }),
    );
    vi.stubEnv("FIRST_KEY", "secret-from-env");
    const running = await serving(
      [
        { url: urls[0], api_key: { env: "FIRST_KEY" } },
        { url: urls[1], api_key: { file: "second.key" } },
        { url: urls[2] },
      ],
      { log: { requests: "all" }, worker_selection: roundRobin },
      { "second.key": "secret-from-file\n" },
    );
    for (let i = 0; i < 3; i++) await complete(running);
    const keys = ["Bearer secret-from-env", "Bearer secret-from-file", undefined];
    expect(shown.map((list) => list.slice(0, 2))).toEqual(keys.map((key) => [key, key]));

    const admin = await running.admin();
    const views = [`${running.url}/health`, `${running.url}/v1/models`, `${admin}/admin/workers`];
    const answers = await Promise.all(views.map(async (view) => (await fetch(view)).text()));
    await until(async () => requestsIn(running).length === 3);
    const arguments_ = readFileSync(`/proc/${running.child.pid}/cmdline`, "utf8");
    expect(arguments_).toContain("serve");
    expect([...answers, ...running.log(), arguments_].join("\n")).not.toContain("secret");
  });

  it("forward_credentials: what the client shows, but not in the place of an API key", async () => {
    const seen: object[] = [];
    const record: Answer = ({ headers }, response) => {
      const { authorization, cookie } = headers;
      seen.push({ authorization, cookie });
      response.end("{}");
    };
    const urls = await urlsOf(record, record);
    vi.stubEnv("KEY", "own");
    const workers = [{ url: urls[0] }, { url: urls[1], api_key: { env: "KEY" } }];
    for (const forwarded of [[], ["authorization"], ["authorization", "cookie"]]) {
      const running = await serving(workers, {
        ...{ forward_credentials: forwarded, worker_selection: roundRobin },
      });
      for (let i = 0; i < 2; i++)
        await post(running.url + CHAT, ask, { authorization: "theirs", cookie: "c=1" });
    }
    expect(seen).toEqual([
      ...[{}, { authorization: "Bearer own" }],
      ...[{ authorization: "theirs" }, { authorization: "Bearer own" }],
      ...[
        { authorization: "theirs", cookie: "c=1" },
        { authorization: "Bearer own", cookie: "c=1" },
      ],
    ]);
  });
});

const roundRobin = { aggregated: "turns", instances: [{ name: "turns", type: "round-robin" }] };

describe("simulated workers under a config that sets all of it", () => {
  const everything = {
    limits: {
      ...{ body: "1MiB", body_total: "8MiB", stream_buffer: "256KiB" },
      ...{ answer_buffer: "1MiB", buffered_total: "4MiB" },
    },
    timeouts: { connect: "5s", upload: "1m", first_byte: "1m", idle: "1m", total: "10m" },
    retries: { attempts: 3, on: ["connect", "reset", 429, 500, 502, 503, 504], budget: 1, stateful: false },
    streams: { peek: true, keep_alive: "200ms" },
    log: { requests: "all" },
    forward_credentials: ["authorization"],
  };
  const hello = { role: "user" as const, content: "hello" };
  const sim = { model: "sim", max_tokens: 20, messages: [hello] };

  it("answers whole, on a stream or not, and comments while a long prompt is read", async () => {
    // Half a second for the prompt.
    const slow = await worker("--prefill-rate", "1000");
    const running = await serving([slow.url], everything);
    const reply = await client(running).chat.completions.create(sim);
    expect(reply.choices[0]!.message.content!.split(" ").length).toBe(20);
    const prompt = { role: "user", content: "word ".repeat(1_000) } as const;
    const raw = await post(`${running.url}${CHAT}`, { ...sim, messages: [prompt], stream: true });
    expect(raw.body).toMatch(/^(: keep-alive\n\n)+data: /);
    expect(raw.body.slice(raw.body.indexOf("data: "))).not.toContain(": keep-alive");
    expect(raw.body).toMatch(/data: \[DONE\]\n\n$/);
    await until(async () => requestsIn(running).length === 2);
    expect(requestsIn(running)).toMatchObject(
      Array(2).fill({ outcome: "complete", status: 200, model: "sim", worker: "w0" }),
    );
  });

  it("a worker that is killed is a retry to the openai client, and all of them a 502, then a 503", async () => {
    const workers = await Promise.all([worker(), worker()]);
    const running = await serving(
      workers.map(({ url }) => url),
      everything,
    );
    const asked = () => client(running).chat.completions.create(sim).withResponse();
    const by = async () => (await asked()).response.headers.get("x-hawser-worker");
    expect(await by()).toBe("w0");
    workers[0]!.child.kill("SIGKILL");
    await once(workers[0]!.child, "exit");
    expect(await by()).toBe("w1");
    workers[1]!.child.kill("SIGKILL");
    await once(workers[1]!.child, "exit");
    await expect(asked()).rejects.toMatchObject({ status: 502, code: "worker_unreachable" });
    await until(async () => (await fetch(`${running.url}/health`)).status === 503);
    const refused = await asked().catch((error) => error);
    expect(refused).toMatchObject({ status: 503, code: "no_worker_eligible" });
    expect(refused.headers.get("retry-after")).toBe("1");
  });
});
