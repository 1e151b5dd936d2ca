// The line of log for a request, and what must never stand in it, nor in what an operator is shown.
import { once } from "node:events";
import { connect, createServer as createRawServer } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { DataPlaneOptions } from "../../host/gateway/options.js";
import { RequestReader } from "../../host/session/request-reader.js";
import { open, post, type Reply, text } from "./client.js";
import { AN_HOUR, expectNothingUncaught } from "./fault-cells.js";
import {
  type Answer,
  type GatewayFixture,
  gateway,
  inFlight,
  QUIET,
  type RunningGateway,
  stop,
  until,
  upstream,
} from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

const CHAT = "/v1/chat/completions";
const INFO = 30;
const WARN = 40;
const ask = { model: "m", messages: [] };

expectNothingUncaught();

/** The lines about requests, in order. */
// biome-ignore lint/suspicious/noExplicitAny: any JSON
function linesOf({ log }: RunningGateway): any[] {
  return log.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "request");
}

const ok: Answer = (_request, response) => response.end("{}");
const status =
  (code: number): Answer =>
  (_request, response) =>
    response.writeHead(code).end("{}");

/** A gateway that logs all requests, over workers that answer so. */
async function logging(
  answers: readonly Answer[],
  options: Partial<GatewayFixture> = {},
): Promise<RunningGateway> {
  const workers = await Promise.all(answers.map((answer) => upstream(answer)));
  return gateway({
    ...{ urls: workers.map(({ url }) => url), health: { intervalMs: AN_HOUR }, log: { requests: "all" } },
    ...options,
  });
}

describe("the line of a request", () => {
  it("tells its path, end, status, model, worker, decision, session and times, and nothing else", async () => {
    const clock = new VirtualClock();
    const running = await logging(
      [
        (_request, response) => {
          clock.advance(200.04);
          response.write("a");
          setImmediate(async () => {
            // The first byte has come when the client has it.
            await until(() => seen);
            clock.advance(3_000.5);
            response.end("b");
          });
        },
      ],
      { clock },
    );
    let seen = false;
    const message = await open(running.url + CHAT, ask, { "x-session-id": "s" });
    message.once("data", () => {
      seen = true;
    });
    await until(() => message.complete);
    const [line, ...more] = linesOf(running);
    expect(more).toEqual([]);
    expect(line).toEqual({
      ...{
        level: INFO,
        time: expect.any(Number),
        pid: process.pid,
        hostname: expect.any(String),
        msg: "request",
      },
      ...{ path: CHAT, outcome: "complete", status: 200, model: "m" },
      ...{ worker: "w0", policy: "sticky", decision: "place" },
      session: running.router.sessionIdOf("s", "m"),
      ms: { body: 0, first_byte: 200, total: 3_200.5 },
    });
    expect(line.session).toMatch(/^[0-9a-f]{16}$/);
  });

  it("tells the session by the hash under which an operator finds it, tenant and all", async () => {
    const reader = new RequestReader({ tenant: { header: "x-tenant" } });
    const running = await logging([ok], { reader });
    for (const headers of [{}, { "x-session-id": "s" }, { "x-session-id": "s", "x-tenant": "t" }])
      await post(running.url + CHAT, ask, headers);
    const { router } = running;
    const ids = [router.sessionIdOf("s", "m"), router.sessionIdOf("s", "m", "t")];
    expect(linesOf(running).map(({ session }) => session)).toEqual([null, ...ids]);
    for (const id of ids) expect(router.session(id)).toMatchObject({ id, turns: 1 });
  });

  it.each([CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"])(
    "tells the path without its query: %s",
    async (path) => {
      const running = await logging([ok]);
      await post(`${running.url}${path}?beta=true`, ask);
      expect(linesOf(running)).toMatchObject([{ path, outcome: "complete" }]);
    },
  );

  it("is written before the client sees the end, and once", async () => {
    const running = await logging([ok]);
    for (let count = 1; count <= 5; count++) {
      await post(running.url + CHAT, ask);
      expect(linesOf(running).length).toBe(count);
    }
  });
});

describe("how a request ended", () => {
  it.each<[string, object | string, object]>([
    ["a body that is no JSON", "{", { level: INFO, outcome: "invalid_json", status: 400 }],
    ["no model", {}, { level: INFO, outcome: "model_required", status: 400 }],
    ["a model that nobody serves", { model: "x" }, { level: INFO, outcome: "model_not_found", status: 404 }],
    ["too large a body", { model: "x".repeat(99) }, { level: INFO, outcome: "body_too_large", status: 413 }],
  ])("is told of what no worker was asked: %s", async (_name, body, told) => {
    const running = await logging([ok], { limits: { bodyBytes: 64 } });
    await post(running.url + CHAT, body).catch(() => {});
    const [line] = linesOf(running);
    expect(line).toMatchObject({ path: CHAT, ...told });
    for (const field of ["model", "worker", "policy", "decision", "session", "failed"])
      expect(line).not.toHaveProperty(field);
    expect(line.ms.first_byte).toBeUndefined();
    expect(line.ms.total).toBeGreaterThanOrEqual(0);
  });

  it("is the client's fault where it sends a transfer coding that is none", async () => {
    const running = await logging([ok]);
    const { hostname, port } = new URL(running.url);
    const socket = connect(Number(port), hostname);
    socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`);
    const [answer] = await once(socket, "data");
    socket.destroy();
    expect(String(answer)).toMatch(/^HTTP\/1\.1 501 /);
    expect(linesOf(running)).toMatchObject([
      { level: INFO, outcome: "transfer_coding_unknown", status: 501, path: CHAT },
    ]);
  });

  it("is told of a worker's own refusals: the client's are no fault of the worker", async () => {
    const running = await logging(
      [(request, response) => response.writeHead(Number(request.headers["x-status"])).end("{}")],
      { retries: { attempts: 1 } },
    );
    for (const code of ["400", "404", "429", "500", "503"])
      await post(running.url + CHAT, ask, { "x-status": code });
    const line = (code: number, level: number) => ({
      level,
      outcome: "complete",
      status: code,
      worker: "w0",
    });
    const lines = linesOf(running);
    expect(lines).toMatchObject([
      line(400, INFO),
      line(404, INFO),
      { ...line(429, WARN), failed: ["w0: status 429"] },
      { ...line(500, WARN), failed: ["w0: status 500"] },
      { ...line(503, WARN), failed: ["w0: status 503"] },
    ]);
    for (const client of lines.slice(0, 2)) expect(client).not.toHaveProperty("failed");
  });

  it("names the worker that failed it, and how, where another one served it", async () => {
    const running = await logging([status(503), (request) => request.socket.destroy(), ok]);
    const reply = await post(running.url + CHAT, ask, { "x-session-id": "s" });
    expect([reply.status, reply.headers["x-hawser-worker"]]).toEqual([200, "w2"]);
    expect(linesOf(running)).toMatchObject([
      {
        ...{ level: WARN, outcome: "complete", status: 200, worker: "w2" },
        failed: ["w0: status 503", expect.stringMatching(/^w1: \S/)],
      },
    ]);
  });

  it("names one that could not be reached, and where it was looked for", async () => {
    const gone = await upstream(ok);
    const other = await upstream(ok);
    const running = await logging([], { urls: [gone.url, other.url] });
    await stop(gone.server);
    expect((await post(running.url + CHAT, ask)).status).toBe(200);
    const failed = [`w0: connect ECONNREFUSED ${new URL(gone.url).host}`];
    expect(linesOf(running)).toMatchObject([{ level: WARN, outcome: "complete", worker: "w1", failed }]);
  });

  it("is told of an answer that broke off, with the status that had gone out", async () => {
    const running = await logging([
      (request, response) => {
        response.write("x", () => setImmediate(() => request.socket.destroy()));
      },
    ]);
    await open(running.url + CHAT, ask)
      .then(text)
      .catch(() => {});
    expect(linesOf(running)).toMatchObject([
      {
        ...{ level: WARN, outcome: "worker_failed", status: 200, worker: "w0" },
        failed: [expect.stringMatching(/^w0: \S/)],
      },
    ]);
  });

  it("is told of a worker that could not be reached or said nothing", async () => {
    const clock = new VirtualClock();
    let asked = false;
    const running = await logging(
      [
        (request) => {
          if (request.headers["x-break"]) request.socket.destroy();
          else asked = true;
        },
      ],
      { clock },
    );
    await post(running.url + CHAT, ask, { "x-break": "1" });
    const silent = post(running.url + CHAT, ask);
    await until(() => asked);
    clock.advance(AN_HOUR);
    expect((await silent).status).toBe(504);
    expect(linesOf(running)).toMatchObject([
      { level: WARN, outcome: "worker_unreachable", status: 502, worker: "w0" },
      { level: WARN, outcome: "worker_timeout", status: 504, failed: ["w0: first byte timeout"] },
    ]);
  });

  it("is told of a client that left, before or behind the head", async () => {
    let asked = 0;
    const running = await logging([
      (request, response) => {
        asked++;
        if (request.headers["x-head"]) response.flushHeaders();
      },
    ]);
    const leaving = new AbortController();
    const { signal } = leaving;
    const body = JSON.stringify(ask);
    const left = fetch(running.url + CHAT, { method: "POST", body, signal }).catch(() => {});
    await until(() => asked === 1);
    leaving.abort();
    await left;
    (await open(running.url + CHAT, ask, { "x-head": "1" })).destroy();
    await until(() => linesOf(running).length === 2);
    expect(linesOf(running)).toMatchObject([
      { level: INFO, outcome: "client_gone", status: 0, worker: "w0" },
      { level: INFO, outcome: "client_gone", status: 200, worker: "w0" },
    ]);
  });

  it("is counted under the same name in /health", async () => {
    const running = await logging([ok]);
    for (const body of [ask, ask, "{", {}]) await post(running.url + CHAT, body);
    const counts: Record<string, number> = {};
    for (const { outcome } of linesOf(running)) counts[outcome] = (counts[outcome] ?? 0) + 1;
    expect(counts).toEqual({ complete: 2, invalid_json: 1, model_required: 1 });
    expect((await healthOf(running)).data_plane.outcomes).toEqual(counts);
  });
});

describe("which requests are logged", () => {
  /** Sends `count` requests that go well and one that fails in the middle of them. */
  async function send(count: number, log: Partial<DataPlaneOptions["log"]>): Promise<RunningGateway> {
    const failing: Answer = (request, response) =>
      response.writeHead(request.headers["x-fail"] ? 500 : 200).end("{}");
    const running = await logging([failing], { log });
    for (let i = 0; i < count; i++) {
      if (i === count >> 1) await post(running.url + CHAT, ask, { "x-fail": "1" });
      await post(running.url + CHAT, ask);
    }
    // The client's mistakes are no errors.
    if (log.requests === "errors") await post(running.url + CHAT, { model: "nope" });
    return running;
  }

  const levels = (running: RunningGateway) => linesOf(running).map(({ level }) => level);

  it("errors: only those", async () => {
    expect(levels(await send(8, { requests: "errors", sample: 1 }))).toEqual([WARN]);
  });

  it("all: each", async () => {
    const found = levels(await send(8, { requests: "all", sample: 0.01 }));
    expect(found).toEqual([INFO, INFO, INFO, INFO, WARN, INFO, INFO, INFO, INFO]);
  });

  it.each([
    [1, 10, 10],
    [0.5, 10, 5],
    [0.25, 10, 2],
    [0.1, 30, 3],
    [0.3, 10, 3],
    [0.01, 200, 2],
  ])(
    "sampled: a share of %d of those that go well, and each error beside it",
    async (sample, count, logged) => {
      const found = levels(await send(count, { requests: "sampled", sample }));
      expect(found.filter((level) => level === WARN).length).toBe(1);
      expect(found.filter((level) => level === INFO).length).toBe(logged);
    },
  );

  it("sampled: evenly, every fourth of a quarter", async () => {
    const running = await logging([ok], { log: { requests: "sampled", sample: 0.25 } });
    const counts: number[] = [];
    for (let i = 0; i < 12; i++) {
      await post(running.url + CHAT, ask);
      counts.push(linesOf(running).length);
    }
    expect(counts).toEqual([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]);
  });
});

interface Health {
  readonly status: string;
  readonly data_plane: { readonly outcomes: Readonly<Record<string, number>> };
}

async function healthOf({ url }: RunningGateway): Promise<Health> {
  return (await fetch(`${url}/health`)).json() as Promise<Health>;
}

/** What no log and no operator may see: each has the word in it. */
const WORD = /canary/i;
const HEADERS = {
  ...{ authorization: "Bearer canary-token", "x-api-key": "canary-x-api-key", cookie: "sid=canary-cookie" },
  ...{
    "x-session-id": "canary-session",
    "x-parent-session-id": "canary-parent",
    "x-tenant": "canary-tenant",
  },
  ...{ "x-request-id": "canary-request", "user-agent": "canary-agent", "x-hawser-pin": "canary-pin" },
};
const PATH = `${CHAT}?api-version=canary-query`;
const CANARY = {
  model: "m",
  stream: true,
  messages: [{ role: "user", content: "canary-prompt" }],
  user: "canary-user",
};
const API_KEY = "canary-key";

/** All that a gateway has logged and shows to those who watch it. */
async function shown({ url, admin, log, router }: RunningGateway): Promise<string> {
  const ids = [
    router.sessionIdOf("canary-session", "m", "canary-tenant"),
    router.sessionIdOf("canary-parent", "m", "canary-tenant", true),
  ];
  const key = new URLSearchParams({ key: "canary-session", tenant: "canary-tenant" });
  const paths = [
    ...[`${url}/health`, `${url}/v1/models`, `${admin}/admin/workers`, `${admin}/admin/sessions`],
    ...[`${admin}/admin/sessions?worker=w0`, `${admin}/admin/sessions?${key}`],
    ...ids.map((id) => `${admin}/admin/sessions/${id}`),
  ];
  const answers = await Promise.all(paths.map(async (path) => (await fetch(path)).text()));
  const explained = await post(`${admin}/admin/explain?tenant=canary-tenant`, CANARY, HEADERS);
  return [...log, ...answers, explained.body, JSON.stringify(explained.headers)].join("\n");
}

/** Says back all that it was sent, as engines do in their errors. */
const echo =
  (code: number, type = "application/json"): Answer =>
  (request, response, body) => {
    const said = `${request.url} ${JSON.stringify(request.headers)} ${body}`;
    const error = JSON.stringify({ error: { message: said, code } });
    response.writeHead(code, { "content-type": type, "x-echo": "canary-header" });
    response.end(type === "text/event-stream" ? `data: ${error}\n\n` : error);
  };

describe("what is secret, or the client's own, is in no line and in no answer to an operator (E4)", () => {
  const reader = new RequestReader({ tenant: { header: "x-tenant" } });

  /** A gateway that would log everything, and forwards all that it may. */
  function watched(
    answers: readonly Answer[],
    options: Partial<GatewayFixture> = {},
  ): Promise<RunningGateway> {
    return logging(answers, {
      ...{ reader, apiKeys: new Map([["w0", API_KEY]]), forwardCredentials: ["x-api-key", "cookie"] },
      ...{ session: { binding: "parent-group" } },
      ...options,
    });
  }

  async function expectSilence(running: RunningGateway, outcome: string | RegExp): Promise<void> {
    await until(() => linesOf(running).length > 0);
    await until(() => inFlight(running.router) === 0);
    expect(linesOf(running)[0].outcome).toMatch(outcome);
    expect(await shown(running)).not.toMatch(WORD);
  }

  it("all of it reaches the worker", async () => {
    let got = "";
    const running = await watched([
      (request, response, body) => {
        got = `${request.url} ${JSON.stringify(request.headers)} ${body}`;
        response.end("{}");
      },
    ]);
    await post(running.url + PATH, CANARY, HEADERS);
    for (const part of [
      "query",
      "key",
      "x-api-key",
      "cookie",
      "session",
      "parent",
      "tenant",
      "agent",
      "prompt",
      "user",
    ])
      expect(got).toContain(`canary-${part}`);
    await expectSilence(running, "complete");
  });

  it.each<[string, Answer, Partial<GatewayFixture>]>([
    ["served", echo(200), {}],
    ["served as a stream", echo(200, "text/event-stream"), {}],
    ["refused by the worker as the client's fault", echo(400), {}],
    ["refused by the worker", echo(500), {}],
    ["turned away by the worker", echo(503), {}],
    ["an error as the first event", echo(200, "text/event-stream"), { streams: { peek: true } }],
    ["broken off before the head", (request) => request.socket.destroy(), {}],
    [
      "broken off in mid-answer",
      (request, response) =>
        response.write("canary-part", () => setImmediate(() => request.socket.destroy())),
      {},
    ],
  ])("%s", async (_name, answer, options) => {
    const running = await watched([answer, answer], options);
    await open(running.url + PATH, CANARY, HEADERS)
      .then(text)
      .catch(() => {});
    await expectSilence(running, /complete|worker_failed|worker_unreachable/);
  });

  it.each([echo(500), echo(200)])("an answer that came behind a comment (%#)", async (answer) => {
    const clock = new VirtualClock();
    let answerNow: (() => void) | undefined;
    const running = await watched(
      [
        (request, response, body) => {
          answerNow = () => answer(request, response, body);
        },
      ],
      { clock, streams: { keepAliveMs: 15_000 } },
    );
    const opened = open(running.url + PATH, CANARY, HEADERS);
    await until(() => answerNow !== undefined);
    clock.advance(15_000);
    const reading = text(await opened).catch(() => {});
    answerNow!();
    await reading;
    await expectSilence(running, "worker_error");
  });

  it("a worker that sends no HTTP", async () => {
    const raw = createRawServer((socket) => {
      socket.on("error", () => {});
      socket.on("data", (bytes) => {
        const isGet = bytes.toString("latin1").startsWith("GET");
        const list = '{"data":[{"id":"m"}]}';
        socket.end(
          isGet ? `HTTP/1.1 200 OK\r\ncontent-length: ${list.length}\r\n\r\n${list}` : `canary ${bytes}`,
        );
      });
    });
    await new Promise<void>((resolve) => raw.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void raw.close());
    const { port } = raw.address() as { port: number };
    const running = await watched([], { urls: [`http://127.0.0.1:${port}`], ...QUIET });
    await post(running.url + PATH, CANARY, HEADERS);
    await expectSilence(running, "worker_unreachable");
  });

  it("a client that left", async () => {
    let asked = false;
    const running = await watched([
      () => {
        asked = true;
      },
    ]);
    const leaving = new AbortController();
    const init = { method: "POST", body: JSON.stringify(CANARY), headers: HEADERS, signal: leaving.signal };
    const left = fetch(running.url + PATH, init).catch(() => {});
    await until(() => asked);
    leaving.abort();
    await left;
    await expectSilence(running, "client_gone");
  });

  const long = "canary".repeat(50);
  it.each<[string, string, object | string, Record<string, string>, Partial<GatewayFixture>]>([
    ["model_not_found", PATH, { ...CANARY, model: "canary-model" }, {}, {}],
    ["model_not_found", PATH, { ...CANARY, model: "canary".repeat(1_000) }, {}, {}],
    ["invalid_json", PATH, '{"canary-member": canary', {}, {}],
    ["invalid_json", PATH, '"canary-text"', {}, {}],
    ["model_required", PATH, { model: ["canary-model"] }, {}, {}],
    ["session_key_too_long", PATH, CANARY, { "x-session-id": long }, {}],
    ["tenant_invalid", PATH, CANARY, { "x-tenant": "canary".repeat(900) }, {}],
    ["unknown_worker", PATH, CANARY, {}, { allowPin: true }],
    ["invalid_affinity", PATH, CANARY, { "x-hawser-affinity": "canary" }, { allowAffinityHeader: true }],
    ["body_too_large", PATH, CANARY, {}, { limits: { bodyBytes: 16 } }],
    ["too_many_bytes", PATH, CANARY, {}, { limits: { bodyTotalBytes: 16 } }],
  ])("%s, and the client's words with it (%#)", async (outcome, path, body, headers, options) => {
    const running = await watched([ok], options);
    const reply = await post(running.url + path, body, { ...HEADERS, ...headers }).catch(() => undefined);
    expect(reply?.status ?? 413).toBeGreaterThanOrEqual(400);
    await until(() => linesOf(running).length > 0);
    expect(linesOf(running)[0].outcome).toBe(outcome);
    const { log, url, admin } = running;
    const views = [`${url}/health`, `${admin}/admin/workers`, `${admin}/admin/sessions`];
    const answers = await Promise.all(views.map(async (view) => (await fetch(view)).text()));
    expect([...log, ...answers].join("\n")).not.toMatch(WORD);
  });

  it("a path that is not there", async () => {
    const running = await watched([ok]);
    for (const path of ["/v1/canary", "/canary?canary", "/v1/chat/completions/canary", "/%canary"])
      await post(running.url + path, CANARY, HEADERS);
    expect(await shown(running)).not.toMatch(WORD);
  });

  it.each([
    ["an error", 401, (key: string) => `{"error":"${key} is wrong"}`],
    ["what is no JSON", 200, (key: string) => key],
    ["what is no list", 200, (key: string) => `{"data":"${key}"}`],
  ])("a worker that says its API key back in %s where its models were asked", async (_name, code, say) => {
    const worker = await upstream(ok);
    worker.server.removeAllListeners("request");
    worker.server.on("request", (request, response) => {
      response.writeHead(code).end(say(request.headers.authorization ?? ""));
    });
    const running = await watched([], { urls: [worker.url], models: ["m"], ...QUIET });
    expect((await healthOf(running)).status).toBe("no_worker_eligible");
    expect(await shown(running)).not.toMatch(WORD);
  });
});

describe("a client's inventions take no room in what is kept and shown (E3, E4)", () => {
  it("sessions, models, tenants, queries: the status has the same fields after a thousand of them", async () => {
    const reader = new RequestReader({ tenant: { header: "x-tenant" } });
    const running = await logging([ok], {
      reader,
      session: { maxBindings: 64 },
      log: { requests: "errors" },
    });
    const invent = (i: number): Promise<Reply>[] => {
      const headers = { "x-session-id": `s${i}`, "x-tenant": `t${i}` };
      const path = `${CHAT}?q=${i}`;
      return [
        post(running.url + path, ask, headers),
        post(running.url + path, { model: `x${i}` }, headers),
        post(`${running.url}/v1/x${i}`, ask, headers),
      ];
    };
    const fieldsOf = async () => fields(await healthOf(running));
    await Promise.all(invent(0));
    const before = await fieldsOf();
    for (let i = 1; i < 334; i++) await Promise.all(invent(i));
    expect(await fieldsOf()).toEqual(before);
    expect(await healthOf(running)).toMatchObject({
      ...{ bindings: 64, bindings_evicted: 334 - 64 },
      data_plane: { outcomes: { complete: 334, model_not_found: 334 } },
    });
    expect(linesOf(running)).toEqual([]);
  });
});

/** The paths of all fields of a value. */
function fields(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null) return [path];
  return Object.entries(value).flatMap(([name, member]) => fields(member, `${path}/${name}`));
}
