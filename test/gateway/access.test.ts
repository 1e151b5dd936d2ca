// Who may use the gateway: the keys that clients show, what each key may have under way, and how fast it may begin.
import crypto, { createHash } from "node:crypto";
import { once } from "node:events";
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { syncBuiltinESMExports } from "node:module";
import { connect, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { Access, MAX_ACCESS_KEY_LENGTH } from "../../host/gateway/access.js";
import { type AccessKey, CREDENTIALS } from "../../host/gateway/options.js";
import { APIS, goodAnswer } from "./apis.js";
import { open, post, text } from "./client.js";
import { dataPlaneOf, untilDataPlane } from "./data-plane.js";
import { AN_HOUR, expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, gateway, inFlight, type RunningGateway, until, upstream } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

const CHAT = "/v1/chat/completions";
const MODELS = "/v1/models";
const KEY = "hwsr_key-of-team-a";
const OTHER = "sk-key-of-team-b";
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const ask = { model: "m", messages: [] };
const PATHS = APIS.map(({ path }) => path);

expectNothingUncaught();

const sha256 = (key: string) => createHash("sha256").update(key).digest("hex");
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

/** A key without limits, but for those that are set. */
function keyOf(name: string, key: string, limits: Partial<AccessKey> = {}): AccessKey {
  const none = Number.POSITIVE_INFINITY;
  return { name, sha256: sha256(key), maxInFlight: none, requestsPerMinute: none, ...limits };
}

/** What a worker got of a request. */
interface Got {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: Buffer;
}

interface Guarded extends RunningGateway {
  /** The requests that reached the worker. */
  readonly got: Got[];
}

type Answer = (got: Got) => void;

/** Answers as the API of its path does. */
const serve: Answer = ({ request, response, body }) => {
  const api = APIS.find(({ path }) => path === request.url!.split("?")[0])!;
  const answer = goodAnswer(api, JSON.parse(body.toString()).stream === true);
  response.writeHead(200, { "content-type": answer.type }).end(answer.body);
};

/** Leaves it to the test. */
const hold: Answer = () => {};

/** A gateway over a worker that answers so, with the keys of team-a, with these limits, and of team-b, with none. */
async function guarded(
  limits: Partial<AccessKey> = {},
  answer: Answer = serve,
  options: Partial<GatewayFixture> = {},
): Promise<Guarded> {
  const got: Got[] = [];
  const worker = await upstream((request, response, body) => {
    got.push({ request, response, body });
    answer(got.at(-1)!);
  });
  const access = { keys: [keyOf("team-a", KEY, limits), keyOf("team-b", OTHER)] };
  const log = { requests: "all" as const };
  const running = await gateway({
    ...{ urls: [worker.url], access, pollIntervalMs: AN_HOUR, log },
    ...options,
  });
  return { ...running, got };
}

/** The lines about requests, in order. */
// biome-ignore lint/suspicious/noExplicitAny: any JSON
function linesOf({ log }: RunningGateway): any[] {
  return log.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "request");
}

/** The error in an answer, in the shape of its API. */
function refusalOf(path: string, body: string) {
  const parsed = JSON.parse(body);
  if (path !== "/v1/messages") return parsed.error;
  expect(parsed.type).toBe("error");
  return parsed.error;
}

describe("a client's key", () => {
  const shown: readonly (readonly [string, Record<string, string>])[] = [
    ["a bearer token", bearer(KEY)],
    ["a bearer token, whatever its case and its spaces", { Authorization: `bearer   ${KEY} ` }],
    ["x-api-key", { "X-Api-Key": KEY }],
    ["x-api-key beside a bearer token of another kind", { ...bearer("of-a-worker"), "x-api-key": KEY }],
    ["x-api-key beside another authorization", { authorization: "Basic dTpw", "x-api-key": KEY }],
    ["a bearer token beside another x-api-key", { ...bearer(KEY), "x-api-key": "of-a-worker" }],
  ];

  it.each(shown)("opens every endpoint as %s, and stays at the gateway", async (_name, headers) => {
    const self = await guarded();
    for (const path of PATHS) {
      for (const stream of [false, true]) {
        const reply = await post(`${self.url}${path}?beta=true`, { ...ask, stream }, headers);
        expect([path, reply.status]).toEqual([path, 200]);
        expect(reply.headers).not.toHaveProperty("www-authenticate");
      }
    }
    expect(self.got.length).toBe(2 * PATHS.length);
    for (const { request } of self.got) expect(JSON.stringify(request.rawHeaders)).not.toContain(KEY);
    expect(linesOf(self).map(({ client }) => client)).toEqual(self.got.map(() => "team-a"));
  });

  const MISSING = /an access key, as authorization: Bearer KEY or x-api-key: KEY, and none was shown$/;
  const UNKNOWN =
    /an access key, as authorization: Bearer KEY or x-api-key: KEY, and the one that was shown is not known$/;
  const refused: readonly (readonly [string, Record<string, string>, RegExp])[] = [
    ["no key", {}, MISSING],
    ["an empty key", { "x-api-key": "", authorization: "Bearer " }, MISSING],
    ["another kind of authorization", { authorization: `Basic ${KEY}` }, MISSING],
    ["a key without its scheme", { authorization: KEY }, MISSING],
    ["a key in a cookie", { cookie: `key=${KEY}` }, MISSING],
    ["a wrong key", bearer("hwsr_wrong"), UNKNOWN],
    ["a wrong x-api-key", { "x-api-key": "hwsr_wrong" }, UNKNOWN],
    ["two wrong keys", { ...bearer("hwsr_wrong"), "x-api-key": "hwsr_wrong" }, UNKNOWN],
    ["a key with something behind it", bearer(`${KEY}0`), UNKNOWN],
    ["a key that is cut", { "x-api-key": KEY.slice(0, -1) }, UNKNOWN],
    ["a key in another case", bearer(KEY.toUpperCase()), UNKNOWN],
    ["the hash of a key", bearer(sha256(KEY)), UNKNOWN],
    ["two keys at once", { "x-api-key": `${KEY}, ${OTHER}` }, UNKNOWN],
    ["a very long key", bearer("x".repeat(8_000)), UNKNOWN],
  ];

  it.each(refused)("is wanted by every endpoint, which refuses %s", async (_name, headers, words) => {
    const self = await guarded();
    for (const path of PATHS) {
      const reply = await post(self.url + path, ask, headers);
      expect(reply.status).toBe(401);
      expect(reply.headers).toMatchObject({
        "www-authenticate": "Bearer",
        "content-type": "application/json",
      });
      const shape =
        path === "/v1/messages"
          ? { type: "authentication_error" }
          : { type: "invalid_request_error", param: null, code: "invalid_api_key" };
      expect(refusalOf(path, reply.body)).toEqual({ message: expect.stringMatching(words), ...shape });
    }
    expect(self.got).toEqual([]);
    const lines = linesOf(self);
    expect(lines.map(({ path }) => path)).toEqual(PATHS);
    for (const line of lines) {
      expect(line).toMatchObject({ outcome: "invalid_api_key", status: 401 });
      expect(line).not.toHaveProperty("client");
    }
  });

  it("is hashed as its bytes stand in the header, as many as are looked at", async () => {
    const odd = "schlüssel-€-!~";
    const long = "k".repeat(MAX_ACCESS_KEY_LENGTH);
    const access = { keys: [keyOf("odd", odd), keyOf("long", long), keyOf("longer", `${long}k`)] };
    const self = await guarded({}, serve, { access });
    const statuses: number[] = [];
    for (const key of [odd, long, `${long}k`]) {
      const bytes = Buffer.from(key).toString("latin1");
      // A body of text would have Node encode the head as it does the body.
      const body = Buffer.from(JSON.stringify(ask));
      statuses.push((await post(self.url + CHAT, body, bearer(bytes))).status);
    }
    expect(statuses).toEqual([200, 200, 401]);
  });

  it("is compared with the hashes of all keys, wherever it stands among them", () => {
    const keys = Array.from({ length: 256 }, (_, i) => keyOf(`k${i}`, `key-${i}`));
    const access = new Access({ keys });
    const compare = vi.spyOn(crypto, "timingSafeEqual");
    syncBuiltinESMExports();
    onTestFinished(() => {
      compare.mockRestore();
      syncBuiltinESMExports();
    });
    const counts = ["key-0", "key-100", "key-255", "key-256"].map((key) => {
      compare.mockClear();
      const admitted = access.admit(bearer(key));
      return [admitted.client, compare.mock.calls.length];
    });
    expect(counts).toEqual([
      ["k0", 256],
      ["k100", 256],
      ["k255", 256],
      [undefined, 256],
    ]);
  });

  it("is in no log, no answer and nothing that an operator is shown, and neither is its hash", async () => {
    const self = await guarded({ maxInFlight: 1 }, hold);
    const shownKeys = [KEY, "hwsr_wrong", "x".repeat(300)];
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    const answers: string[] = [];
    for (const key of shownKeys) {
      for (const headers of [bearer(key), { "x-api-key": key }] as Record<string, string>[]) {
        for (const path of PATHS) answers.push(JSON.stringify(await post(self.url + path, ask, headers)));
        answers.push(await (await fetch(self.url + MODELS, { headers })).text());
      }
    }
    self.got[0]!.response.end("{}");
    answers.push(JSON.stringify(await first));
    for (const url of [`${self.url}/health`, `${self.admin}/admin/workers`, `${self.admin}/admin/sessions`])
      answers.push(await (await fetch(url)).text());
    expect(linesOf(self).length).toBe(1 + 6 * PATHS.length);
    const told = [...answers, ...self.log].join("\n");
    for (const key of shownKeys) {
      expect(told).not.toContain(key);
      expect(told).not.toContain(sha256(key));
    }
  });

  it.each(CREDENTIALS)("goes to a worker only where %s is forwarded", async (name) => {
    const self = await guarded({}, serve, { forwardCredentials: [name] });
    const headers: Record<string, string> = { ...bearer(KEY), "x-api-key": OTHER, cookie: "sid=1" };
    await post(self.url + CHAT, ask, headers);
    const seen: IncomingHttpHeaders = self.got[0]!.request.headers;
    const forwarded = CREDENTIALS.filter((each) => seen[each] !== undefined);
    expect([forwarded, seen[name]]).toEqual([[name], headers[name]]);
  });
});

describe("what else there is", () => {
  it.each(["GET", "HEAD"])("lists its models to those who show a key: %s", async (method) => {
    const { url } = await guarded();
    const statuses = [{}, bearer("hwsr_wrong"), bearer(KEY), { "x-api-key": OTHER }].map(
      async (headers: Record<string, string>) => {
        const response = await fetch(url + MODELS, { method, headers });
        return [
          response.status,
          response.headers.get("www-authenticate"),
          (await response.text()).length > 0,
        ];
      },
    );
    const hasBody = method === "GET";
    expect(await Promise.all(statuses)).toEqual([
      ...[401, 401].map((status) => [status, "Bearer", hasBody]),
      ...[200, 200].map((status) => [status, null, hasBody]),
    ]);
  });

  it("says why it does not list them", async () => {
    const { url } = await guarded();
    expect(await (await fetch(url + MODELS)).json()).toEqual({
      error: {
        message: expect.stringContaining("none was shown"),
        ...{ type: "invalid_request_error", param: null, code: "invalid_api_key" },
      },
    });
  });

  it("lists its models whatever the key has under way, and however often it asks", async () => {
    const self = await guarded({ maxInFlight: 1, requestsPerMinute: 2 }, hold);
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    for (let i = 0; i < 10; i++)
      expect((await fetch(self.url + MODELS, { headers: bearer(KEY) })).status).toBe(200);
    expect((await post(self.url + CHAT, ask, bearer(KEY))).status).toBe(429);
    self.got[0]!.response.end("{}");
    await first;
    const second = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 2);
    self.got[1]!.response.end("{}");
    expect((await second).status).toBe(200);
  });

  it("shows its health to anybody, and knows no other paths, with a key or without", async () => {
    const { url } = await guarded();
    for (const headers of [{}, bearer("hwsr_wrong"), bearer(KEY)] as Record<string, string>[]) {
      expect((await fetch(`${url}/health`, { headers })).status).toBe(200);
      expect((await post(`${url}/v1/none`, ask, headers)).status).toBe(404);
    }
  });

  it("is open where no keys are set, and names no client", async () => {
    const self = await guarded({}, serve, { access: undefined });
    for (const headers of [{}, bearer("any")] as Record<string, string>[]) {
      expect((await post(self.url + CHAT, ask, headers)).status).toBe(200);
      expect((await fetch(self.url + MODELS, { headers })).status).toBe(200);
    }
    for (const line of linesOf(self)) expect(line).not.toHaveProperty("client");
  });

  it("counts its refusals", async () => {
    const self = await guarded({ maxInFlight: 1, requestsPerMinute: 1 }, hold);
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    await post(self.url + CHAT, ask);
    await post(self.url + CHAT, ask, bearer(KEY));
    self.got[0]!.response.end("{}");
    await first;
    await post(self.url + CHAT, ask, bearer(KEY));
    expect((await dataPlaneOf(self.url)).outcomes).toEqual({
      ...{ complete: 1, invalid_api_key: 1, too_many_requests_in_flight: 1, rate_limited: 1 },
    });
    expect(linesOf(self).map(({ outcome, client }) => [outcome, client])).toEqual([
      ["invalid_api_key", undefined],
      ["too_many_requests_in_flight", "team-a"],
      ["complete", "team-a"],
      ["rate_limited", "team-a"],
    ]);
  });
});

describe("the requests that a key has under way", () => {
  it.each(PATHS)("are limited, over all endpoints together, for each key alone: %s", async (path) => {
    const self = await guarded({ maxInFlight: 2 }, hold);
    const held = [CHAT, "/v1/messages"].map((each) => post(self.url + each, ask, bearer(KEY)));
    await until(() => self.got.length === 2);
    const reply = await post(self.url + path, ask, { "x-api-key": KEY });
    expect([reply.status, reply.headers["retry-after"]]).toEqual([429, "1"]);
    expect(refusalOf(path, reply.body)).toEqual({
      message: "this key may have at most 2 requests under way at once",
      ...(path === "/v1/messages"
        ? { type: "rate_limit_error" }
        : { type: "rate_limit_error", param: null, code: "too_many_requests_in_flight" }),
    });
    expect(self.got.length).toBe(2);
    const other = post(self.url + path, ask, bearer(OTHER));
    await until(() => self.got.length === 3);
    for (const { response } of self.got) response.end("{}");
    for (const { status } of await Promise.all([...held, other])) expect(status).toBe(200);
  });

  it("count until the last byte of the worker's answer", async () => {
    const self = await guarded({ maxInFlight: 1 }, hold);
    const opened = open(self.url + CHAT, { ...ask, stream: true }, bearer(KEY));
    await until(() => self.got.length === 1);
    const { response } = self.got[0]!;
    response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    const message = await opened;
    for (let i = 0; i < 3; i++) expect((await post(self.url + CHAT, ask, bearer(KEY))).status).toBe(429);
    response.end("data: [DONE]\n\n");
    expect(await text(message)).toBe("data: 1\n\ndata: [DONE]\n\n");
    const next = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 2);
    self.got[1]!.response.end("{}");
    expect((await next).status).toBe(200);
  });

  it("count one by one where they come behind each other on a connection", async () => {
    const self = await guarded({ maxInFlight: 2 }, hold);
    const raw = rawRequest(ask);
    const client = rawClient(self.url, raw + raw + raw);
    await until(() => self.got.length === 2);
    await untilDataPlane(self.url, ({ outcomes }) => outcomes.too_many_requests_in_flight === 1);
    for (const { response } of self.got) response.end("{}");
    await until(() => (client.seen.match(/HTTP\/1\.1/g) ?? []).length === 3);
    expect(client.seen.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 429"]);
  });
});

interface Scene extends Guarded {
  readonly clock: VirtualClock;
}

/** How a request ends: `answer` is what the worker does, `act` has the request begin and resolves when the gateway is done with it. */
interface Exit {
  readonly name: string;
  readonly outcome: string;
  readonly answer?: Answer;
  readonly options?: Partial<GatewayFixture>;
  readonly act: (scene: Scene) => Promise<unknown>;
}

const streamed = { ...ask, stream: true };
const beginStream: Answer = ({ response }) =>
  void response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");

/** A request as it stands on the wire, with a length that may be another than that of its body. */
function rawRequest(body: object | string, framing?: string): string {
  const bytes = typeof body === "string" ? body : JSON.stringify(body);
  const length = framing ?? `content-length: ${Buffer.byteLength(bytes)}`;
  return `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\n${length}\r\n\r\n${bytes}`;
}

/** A bare connection, and all that has come on it. */
function rawClient(url: string, bytes: string): { seen: string; socket: Socket } {
  const socket = connect(Number(new URL(url).port), "127.0.0.1").on("error", () => {});
  const client = { seen: "", socket };
  socket.on("data", (chunk: Buffer) => {
    client.seen += chunk;
  });
  socket.write(bytes);
  onTestFinished(() => void socket.destroy());
  return client;
}

/** Posts and takes what comes, be it a broken connection. */
const say = ({ url }: Scene, body: object | string = ask) =>
  post(url + CHAT, body, bearer(KEY)).catch(() => {});

/** Sends bytes, and leaves when `holds`. */
async function leave(scene: Scene, bytes: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const { socket } = rawClient(scene.url, bytes);
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
  socket.destroy();
}

const EXITS: readonly Exit[] = [
  { name: "the answer ends", outcome: "complete", answer: serve, act: say },
  { name: "a stream ends", outcome: "complete", answer: serve, act: (scene) => say(scene, streamed) },
  {
    name: "the worker answers with an error",
    outcome: "complete",
    answer: ({ response }) => void response.writeHead(500).end("{}"),
    act: say,
  },
  {
    name: "the worker breaks off before it answers",
    outcome: "worker_unreachable",
    answer: ({ request }) => void request.socket.resetAndDestroy(),
    act: say,
  },
  {
    name: "the worker breaks off in the middle of a stream",
    outcome: "worker_failed",
    answer: (got) => {
      beginStream(got);
      setImmediate(() => got.response.destroy());
    },
    act: (scene) => say(scene, streamed),
  },
  { name: "the body is no JSON", outcome: "invalid_json", act: (scene) => say(scene, "{") },
  {
    name: "no worker serves the model",
    outcome: "model_not_found",
    act: (scene) => say(scene, { model: "x" }),
  },
  {
    name: "the body is too large",
    outcome: "body_too_large",
    options: { limits: { bodyBytes: 100 } },
    act: (scene) => say(scene, { ...ask, user: "x".repeat(100) }),
  },
  {
    name: "there is no room for the body",
    outcome: "too_many_bytes",
    options: { limits: { bodyTotalBytes: 150 } },
    act: (scene) => say(scene, { ...ask, user: "x".repeat(150) }),
  },
  {
    name: "the body comes in another coding",
    outcome: "transfer_coding_unknown",
    act: async ({ url }) => void rawClient(url, rawRequest("", "transfer-encoding: gzip, chunked")),
  },
  {
    name: "the client leaves with half of its body sent",
    outcome: "client_gone",
    act: (scene) =>
      leave(scene, rawRequest("{", "content-length: 100"), async () => {
        return (await dataPlaneOf(scene.url)).requests_in_flight === 2;
      }),
  },
  {
    name: "the client leaves before the head",
    outcome: "client_gone",
    act: (scene) => leave(scene, rawRequest(ask), () => scene.got.length === 2),
  },
  {
    name: "the client leaves in the middle of a stream",
    outcome: "client_gone",
    answer: beginStream,
    act: async (scene) => {
      const client = rawClient(scene.url, rawRequest(streamed));
      await until(() => client.seen.includes("data: 1"));
      client.socket.destroy();
    },
  },
  {
    name: "the body comes to a halt",
    outcome: "upload_timeout",
    options: { timeouts: { uploadMs: MINUTE } },
    act: async (scene) => {
      rawClient(scene.url, rawRequest("{", "content-length: 100"));
      await untilDataPlane(scene.url, ({ requests_in_flight: count }) => count === 2);
      scene.clock.advance(2 * MINUTE);
    },
  },
  {
    name: "the reader is too slow",
    outcome: "client_too_slow",
    options: { limits: { streamBufferBytes: 1_000 } },
    answer: ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const more = () => {
        if (!response.destroyed) response.write(Buffer.alloc(1 << 20, "x"), () => setImmediate(more));
      };
      more();
    },
    act: (scene) => open(scene.url + CHAT, streamed, bearer(KEY)),
  },
];

describe("a request is under way for its key no more, and was so once,", () => {
  it.each(EXITS)("when $name", async ({ outcome, answer = hold, options, act }) => {
    const clock = new VirtualClock();
    let isHeld = true;
    const self = await guarded({ maxInFlight: 2 }, (got) => (isHeld ? hold : answer)(got), {
      ...{ clock, retries: { attempts: 1 } },
      ...options,
    });
    const scene = { ...self, clock };
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    isHeld = false;
    await act(scene);
    await untilDataPlane(self.url, ({ outcomes }) => (outcomes[outcome] ?? 0) === 1);
    isHeld = true;
    const before = self.got.length;
    await until(() => [...self.router.workers].every(({ eligible }) => eligible));
    // There is room for one more beside the first: were it not counted any less it would be refused, ...
    const second = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === before + 1);
    // ... and were it counted less twice there would be room for one more.
    expect((await post(self.url + CHAT, ask, bearer(KEY))).status).toBe(429);
    for (const { response } of [self.got[0]!, self.got.at(-1)!]) response.end("{}");
    for (const { status } of await Promise.all([first, second])) expect(status).toBe(200);
    await until(() => inFlight(self.router) === 0);
  });

  it("when it is released more than once", () => {
    const access = new Access({ keys: [keyOf("a", KEY, { maxInFlight: 1 })] });
    const admit = () => {
      const admission = access.admit(bearer(KEY));
      if ("status" in admission) throw new Error(admission.code);
      return admission;
    };
    const first = admit();
    first.release();
    const second = admit();
    first.release();
    expect(admit).toThrow("too_many_requests_in_flight");
    second.release();
    admit();
  });
});

describe("a body that is refused", () => {
  const LIMITS = [
    ["without a key", {}, "x-api-key: hwsr_wrong", 401],
    ["with too much under way", { maxInFlight: 1 }, `x-api-key: ${KEY}`, 429],
    ["that comes too fast", { requestsPerMinute: 1 }, `x-api-key: ${KEY}`, 429],
  ] as const;

  it.each(LIMITS)("%s is answered before any byte of it comes", async (_name, limits, line, status) => {
    const self = await guarded(limits, hold);
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    const before = (await dataPlaneOf(self.url)).body_bytes;
    const body = JSON.stringify(ask);
    const length = 50_000_000;
    const head = (size: number) =>
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\n${line}\r\ncontent-length: ${size}\r\n\r\n`;
    const client = rawClient(self.url, head(length));
    await until(() => client.seen.endsWith("}"));
    expect(client.seen).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    // What comes of it all the same is thrown away, and the connection goes on.
    client.socket.write(Buffer.alloc(length / 2, "x"));
    client.socket.write(Buffer.alloc(length / 2, "x"));
    client.socket.write(head(body.length) + body);
    await until(() => client.seen.match(/HTTP\/1\.1/g)!.length === 2);
    expect((await dataPlaneOf(self.url)).body_bytes).toBe(before);
    expect(self.got.length).toBe(1);
    self.got[0]!.response.end("{}");
    expect((await first).status).toBe(200);
  });

  it("costs its client the connection where it goes on coming for 5 seconds", async () => {
    const { url } = await guarded();
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const client = rawClient(url, `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n`);
    const closed = once(client.socket, "close");
    while (!client.seen.includes("invalid_api_key")) await turn();
    client.socket.write(" ");
    vi.advanceTimersByTime(4_999);
    await dataPlaneOf(url);
    expect(client.socket.closed).toBe(false);
    vi.advanceTimersByTime(1);
    await closed;
  });
});

describe("the requests that a key begins in a minute", () => {
  // The library counts by `performance.now`, and so does all else in the gateway but for timers.
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const begin = async ({ url }: Guarded, path = CHAT, key = KEY) => {
    const { status, headers } = await post(url + path, ask, bearer(key));
    return headers["retry-after"] === undefined ? status : `${status} ${headers["retry-after"]}`;
  };

  it.each(PATHS)("are limited, over all endpoints together, for each key alone: %s", async (path) => {
    const self = await guarded({ requestsPerMinute: 3 });
    for (const each of [path, CHAT, "/v1/messages"]) expect(await begin(self, each)).toBe(200);
    const reply = await post(self.url + path, ask, { "x-api-key": KEY });
    expect([reply.status, reply.headers["retry-after"]]).toEqual([429, "20"]);
    expect(refusalOf(path, reply.body)).toEqual({
      message: "this key may begin at most 3 requests a minute",
      ...(path === "/v1/messages"
        ? { type: "rate_limit_error" }
        : { type: "rate_limit_error", param: null, code: "rate_limited" }),
    });
    expect(self.got.length).toBe(3);
    for (let i = 0; i < 5; i++) expect(await begin(self, path, OTHER)).toBe(200);
  });

  it("come back evenly, and no more than a minute's are saved up", async () => {
    const self = await guarded({ requestsPerMinute: 3 });
    const burst = async () => {
      const seen: (number | string)[] = [];
      do seen.push(await begin(self));
      while (seen.at(-1) === 200);
      return seen;
    };
    expect(await burst()).toEqual([200, 200, 200, "429 20"]);
    vi.advanceTimersByTime(19 * SECOND);
    expect(await burst()).toEqual(["429 1"]);
    vi.advanceTimersByTime(SECOND);
    expect(await burst()).toEqual([200, "429 20"]);
    vi.advanceTimersByTime(50 * SECOND);
    expect(await burst()).toEqual([200, 200, "429 10"]);
    vi.advanceTimersByTime(60 * MINUTE);
    expect(await burst()).toEqual([200, 200, 200, "429 20"]);
  });

  it("are not used up by those that are refused, for whatever reason", async () => {
    const self = await guarded({ requestsPerMinute: 2, maxInFlight: 1 }, hold);
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    for (let i = 0; i < 5; i++) {
      expect(await begin(self)).toBe("429 1");
      expect(await begin(self, CHAT, "hwsr_wrong")).toBe(401);
    }
    self.got[0]!.response.end("{}");
    await first;
    const second = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 2);
    self.got[1]!.response.end("{}");
    expect((await second).status).toBe(200);
    for (let i = 0; i < 5; i++) expect(await begin(self)).toBe("429 30");
    vi.advanceTimersByTime(30 * SECOND);
    const third = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 3);
    self.got[2]!.response.end("{}");
    expect((await third).status).toBe(200);
  });

  it("are not under way where they come too fast", async () => {
    const self = await guarded({ requestsPerMinute: 1, maxInFlight: 1 });
    expect(await begin(self)).toBe(200);
    for (let i = 0; i < 5; i++) expect(await begin(self)).toBe("429 60");
    vi.advanceTimersByTime(MINUTE);
    expect(await begin(self)).toBe(200);
  });

  it.each([1, 3, 7, 59, 60, 61, 599, 600, 1_000, 10_000])(
    "are as many as %d says, and Retry-After is kept to",
    (requestsPerMinute) => {
      const access = new Access({ keys: [keyOf("a", KEY, { requestsPerMinute })] });
      /** How long to wait; undefined where it was admitted. */
      const wait = () => {
        const admission = access.admit(bearer(KEY));
        return "status" in admission ? admission.retryAfter : undefined;
      };
      for (let i = 0; i < requestsPerMinute; i++) expect(wait()).toBeUndefined();
      for (let round = 0; round < 20; round++) {
        const seconds = wait()!;
        expect(Number.isSafeInteger(seconds) && seconds >= 1 && seconds <= 60).toBe(true);
        vi.advanceTimersByTime((seconds - 1) * SECOND);
        expect(wait()).toBe(1);
        vi.advanceTimersByTime(SECOND);
        expect(wait()).toBeUndefined();
        let more = 1;
        while (wait() === undefined) more++;
        expect(more).toBeLessThanOrEqual(Math.max(1, Math.ceil((requestsPerMinute / 60) * seconds)));
      }
    },
  );
});

describe("the clients of the APIs", () => {
  const openai = ({ url }: Guarded, apiKey: string, maxRetries = 0) =>
    new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries });
  const anthropic = (
    { url }: Guarded,
    credentials: { apiKey: string } | { authToken: string },
    maxRetries = 0,
  ) => new Anthropic({ apiKey: null, authToken: null, ...credentials, baseURL: url, maxRetries });
  const message = { model: "m", max_tokens: 5, messages: [{ role: "user" as const, content: "hi" }] };

  it("are served on every endpoint: OpenAI's", async () => {
    const self = await guarded();
    const client = openai(self, KEY);
    const { choices } = await client.chat.completions.create({ model: "m", messages: [] });
    expect(choices[0]!.message.content).toBe("one € two");
    let said = "";
    for await (const chunk of await client.chat.completions.create({
      model: "m",
      messages: [],
      stream: true,
    }))
      said += chunk.choices[0]!.delta.content;
    expect(said).toBe("onetwo €three");
    expect((await client.completions.create({ model: "m", prompt: "" })).choices[0]!.text).toBe("one € two");
    const events: string[] = [];
    for await (const { type } of await client.responses.create({ model: "m", input: "", stream: true }))
      events.push(type);
    expect(events.at(-1)).toBe("response.completed");
    expect((await client.embeddings.create({ model: "m", input: "" })).object).toBe("list");
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(["m"]);
    expect(linesOf(self).map(({ client: name }) => name)).toEqual(Array(5).fill("team-a"));
  });

  it.each([{ apiKey: KEY }, { authToken: KEY }])("are served: Anthropic's with %o", async (credentials) => {
    const self = await guarded();
    const client = anthropic(self, credentials);
    expect((await client.messages.create(message)).id).toBe("msg_1");
    const types: string[] = [];
    for await (const { type } of await client.messages.create({ ...message, stream: true })) types.push(type);
    expect(types).toEqual(["message_start", "content_block_delta", "message_stop"]);
    expect(linesOf(self).map(({ client: name }) => name)).toEqual(["team-a", "team-a"]);
  });

  it("hear that their key is wrong as a mistake of authentication", async () => {
    const self = await guarded();
    const other = openai(self, "sk-wrong");
    const failures = await Promise.all([
      ...[
        other.chat.completions.create({ model: "m", messages: [] }),
        other.responses.create({ model: "m", input: "" }),
        other.models.list(),
      ].map((asked) => asked.catch((error) => error)),
    ]);
    for (const error of failures) {
      expect(error).toBeInstanceOf(OpenAI.AuthenticationError);
      expect(error).toMatchObject({ status: 401, code: "invalid_api_key" });
    }
    const error = await anthropic(self, { apiKey: "sk-wrong" })
      .messages.create(message)
      .catch((refused) => refused);
    expect(error).toBeInstanceOf(Anthropic.AuthenticationError);
    expect(error.error).toMatchObject({ type: "error", error: { type: "authentication_error" } });
  });

  it("hear of their limits as such", async () => {
    const self = await guarded({ maxInFlight: 1 }, hold);
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    const refused = await openai(self, KEY)
      .chat.completions.create({ model: "m", messages: [] })
      .catch((error) => error);
    expect(refused).toBeInstanceOf(OpenAI.RateLimitError);
    expect([refused.code, refused.headers.get("retry-after")]).toEqual(["too_many_requests_in_flight", "1"]);
    const also = await anthropic(self, { apiKey: KEY })
      .messages.create(message)
      .catch((error) => error);
    expect(also).toBeInstanceOf(Anthropic.RateLimitError);
    expect(also.error.error.type).toBe("rate_limit_error");
    self.got[0]!.response.end("{}");
    await first;
  });

  it("come again by themselves when there is room", async () => {
    let isHeld = true;
    const self = await guarded({ maxInFlight: 1 }, (got) => (isHeld ? hold : serve)(got));
    const first = post(self.url + CHAT, ask, bearer(KEY));
    await until(() => self.got.length === 1);
    isHeld = false;
    const second = openai(self, KEY, 5).chat.completions.create({ model: "m", messages: [] });
    await untilDataPlane(self.url, ({ outcomes }) => (outcomes.too_many_requests_in_flight ?? 0) >= 1);
    self.got[0]!.response.end("{}");
    await first;
    expect((await second).choices[0]!.message.content).toBe("one € two");
  });
});
