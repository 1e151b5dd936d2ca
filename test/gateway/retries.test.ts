// What is tried on another worker, on which one, and what that does to the session: through a running gateway.
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { afterEach, describe, expect, it, vi } from "vitest";
import { type Clock, PROCESS_CLOCK } from "../../host/fleet/clock.js";
import type { Retries as RetryOptions } from "../../host/gateway/options.js";
import { retryAfterMs } from "../../host/gateway/retries.js";
import { createRouter, loadPolicy } from "../../host/index.js";
import { open, post } from "./client.js";
import { CHAT, type Crew, crew, type Deed, hold, inTurn, refuse, reset, serve } from "./crew.js";
import { inFlight, until } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

const PATHS = [CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"];
const STREAM = { stream: true };

/** Ends a request that a worker holds, as its test says. */
function answer({ asked }: Crew, at: number, deed: Deed): void {
  deed(asked[at]!);
}

/** The workers that failed a request, as its log line has them. */
function failures({ running }: Crew): string[] {
  const lines = running.log.map((line) => JSON.parse(line) as { msg: string; failed?: string[] });
  return lines.filter(({ msg }) => msg === "request").flatMap(({ failed }) => failed ?? []);
}

/** What still comes of an answer, whole or not. */
async function rest(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  message.on("data", (chunk: Buffer) => void chunks.push(chunk)).on("error", () => {});
  await new Promise((resolve) => message.on("close", resolve));
  return Buffer.concat(chunks).toString();
}

/** A request on a connection that its test cuts. */
function cuttable({ running }: Crew, key: string): { leave(): void } {
  const { hostname, port } = new URL(running.url);
  const socket = connect(Number(port), hostname).on("error", () => {});
  const body = '{"model":"m"}';
  const head = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nx-session-id: ${key}\r\ncontent-length: ${body.length}`;
  socket.write(`${head}\r\n\r\n${body}`);
  return { leave: () => void socket.destroy() };
}

describe("what is tried on another worker", () => {
  it.each(PATHS.flatMap((path) => [true, false].map((stream) => ({ path, stream }))))(
    "no connection, a reset, 429, 502 and 503, one after the other: $path, stream: $stream (C8, C15)",
    async ({ path, stream }) => {
      const self = await crew([serve, reset, refuse(429), refuse(502), refuse(503), serve, serve], {
        retries: { attempts: 6 },
      });
      self.bind("w0", "s");
      await self.kill("w0");
      const sent = `{ "model":"m", "stream":${stream}, "x":1e400 }  `;
      const reply = await post(self.running.url + path, sent, { "x-session-id": "s" });
      expect([reply.status, reply.headers["x-hawser-worker"]]).toEqual([200, "w5"]);
      expect(reply.body).toBe(stream ? 'data: {"by":"w5"}\n\ndata: [DONE]\n\n' : '{"by":"w5"}');
      expect(self.order).toBe("w1 w2 w3 w4 w5");
      for (const { body, request } of self.asked) {
        expect(body.toString()).toBe(sent);
        expect(request.url).toBe(path);
        expect(request.headers).toMatchObject({ "x-session-id": "s", "content-length": `${sent.length}` });
      }
      expect(failures(self)).toMatchObject([
        expect.stringMatching(/^w0: .*ECONNREFUSED/),
        expect.stringMatching(/^w1: /),
        ...["w2: status 429", "w3: status 502", "w4: status 503"],
      ]);
      expect(self.loads).toBe("0 0 0 0 0 0 0");
      expect(await self.dataPlane()).toMatchObject({
        retries: 5,
        retries_refused: 0,
        outcomes: { complete: 1 },
      });
    },
  );

  it.each<[name: string, deed: Deed | "gone", off: Partial<RetryOptions>, told: RegExp]>([
    ["no connection", "gone", { connect: false }, /^502 .*"worker_unreachable"/],
    ["a reset", reset, { reset: false }, /^502 .*"worker_unreachable"/],
    ["429", refuse(429), { statuses: [502, 503] }, /^429 w0 place .*w0 is full/],
    ["502", refuse(502), { statuses: [429, 503] }, /^502 w0 place .*w0 is full/],
    ["503", refuse(503), { statuses: [] }, /^503 w0 place .*w0 is full/],
  ])("%s is not where that is left out of the config", async (_name, deed, off, told) => {
    const on = await crew([deed === "gone" ? serve : deed, serve]);
    const self = await crew([deed === "gone" ? serve : deed, serve], { retries: off });
    if (deed === "gone") {
      await on.kill("w0");
      await self.kill("w0");
    }
    expect(await on.say()).toBe("200 w1 place");
    expect(await self.say()).toMatch(told);
    expect(self.order).toBe(deed === "gone" ? "" : "w0");
    expect(await self.dataPlane()).toMatchObject({ retries: 0, retries_refused: 0 });
  });

  it.each([500, 504])("%s is where the config says so, and only there", async (status) => {
    const on = await crew([refuse(status), serve], { retries: { statuses: [status] } });
    expect(await on.say()).toBe("200 w1 place");
    const off = await crew([refuse(status), serve]);
    expect(await off.say()).toMatch(`${status} w0 place `);
    expect(off.order).toBe("w0");
  });

  it("no answer that says that the request is wrong is", async () => {
    for (const status of [400, 401, 404, 413, 422]) {
      const self = await crew([refuse(status), serve]);
      expect(await self.say()).toMatch(`${status} w0 place `);
      expect(self.order).toBe("w0");
    }
  });

  it("no request that waited too long for its answer is", async () => {
    const clock = new VirtualClock();
    const self = await crew([hold, serve], { clock, timeouts: { firstByteMs: 60_000 } });
    const said = self.say();
    await until(() => self.order === "w0");
    clock.advance(70_000);
    expect(await said).toMatch(/^504 .*"worker_timeout"/);
    expect(self.order).toBe("w0");
  });

  it("a connection that the worker closes as a request comes down it is no failure of the client's (D11)", async () => {
    const sockets: unknown[] = [];
    const remember: Deed = (asked) => {
      sockets.push(asked.request.socket);
      serve(asked);
    };
    const closeIdle: Deed = (asked) => {
      sockets.push(asked.request.socket);
      asked.request.socket.end();
    };
    for (const end of [closeIdle, reset]) {
      const self = await crew([inTurn(remember, end), serve]);
      self.bind("w0", "s");
      expect(await self.say("s")).toBe("200 w0 keep");
      expect(await self.say("s")).toMatch("200 w1 move_gone");
      expect(self.order).toBe("w0 w0 w1");
    }
    // It was the very connection that had served before.
    expect(sockets[1]).toBe(sockets[0]);
  });
});

describe("a request that its worker may have run and stored", () => {
  const STORED: [name: string, members: object][] = [
    ["`store: true`", { store: true }],
    ["a conversation", { conversation: "c" }],
    ["a conversation by its id", { conversation: { id: "c" } }],
  ];

  it.each(STORED)("%s: a reset or 502 is the client's to see", async (_name, members) => {
    const lost = await crew([reset, serve]);
    expect(await lost.say("s", members)).toMatch(/^502 .*"worker_unreachable"/);
    expect(lost.order).toBe("w0");
    for (const status of [500, 502, 504]) {
      const self = await crew([refuse(status), serve], { retries: { statuses: [500, 502, 504] } });
      expect(await self.say("s", members)).toMatch(`${status} w0 place `);
      expect(self.order).toBe("w0");
    }
  });

  it.each(STORED)(
    "%s: it was not run where there was no connection, or on 429 and 503",
    async (_n, members) => {
      const self = await crew([serve, refuse(429), refuse(503), serve], { retries: { attempts: 4 } });
      await self.kill("w0");
      expect(await self.say("s", members)).toMatch(/^200 w3 /);
    },
  );

  it.each(STORED)("%s: all of it is tried where `stateful` is set", async (_name, members) => {
    const retries = { attempts: 5, statuses: [500, 502, 504], stateful: true };
    const self = await crew([reset, refuse(500), refuse(502), refuse(504), serve], { retries });
    expect(await self.say("s", members)).toMatch(/^200 w4 /);
  });

  it("is not one with `store: false`, or with the word in its prompt", async () => {
    for (const members of [
      { store: false },
      { input: '"store": true, "conversation": "c"' },
      { store: "true" },
    ]) {
      const self = await crew([reset, serve]);
      expect(await self.say("s", members)).toMatch(/^200 w1 /);
    }
  });
});

describe("nothing is tried again", () => {
  it.each([true, false])("once a head is out, stream: %s", async (stream) => {
    const self = await crew([hold, serve]);
    const opened = open(self.running.url + CHAT, { model: "m", stream });
    await until(() => self.order === "w0");
    const { response } = self.asked[0]!;
    response.writeHead(200, { "content-type": stream ? "text/event-stream" : "application/json" });
    response.flushHeaders();
    const message = await opened;
    response.socket!.resetAndDestroy();
    const told = await rest(message);
    expect(message.complete).toBe(false);
    expect(told).toMatch(stream ? /"code":"worker_failed"/ : /^$/);
    expect(self.order).toBe("w0");
    expect(self.loads).toBe("0 0");
    expect(await self.dataPlane()).toMatchObject({ retries: 0, outcomes: { worker_failed: 1 } });
  });

  it.each<[name: string, deed: Deed, told: RegExp]>([
    ["a reset", reset, /"code":"worker_failed"/],
    ["429", refuse(429), /w0 is full.*"code":"worker_error"/],
    ["503", refuse(503), /w0 is full.*"code":"worker_error"/],
  ])("once a keep-alive's head is out: %s", async (_name, deed, told) => {
    const clock = new VirtualClock();
    const self = await crew([hold, serve], { clock, streams: { keepAliveMs: 1_000 } });
    self.bind("w0", "s");
    const opened = open(self.running.url + CHAT, { model: "m", ...STREAM }, { "x-session-id": "s" });
    await until(() => self.order === "w0");
    clock.advance(1_500);
    const message = await opened;
    expect(message.statusCode).toBe(200);
    answer(self, 0, deed);
    const got = await rest(message);
    expect(got).toMatch(/^: keep-alive\n\n/);
    expect(got).toMatch(told);
    expect(self.order).toBe("w0");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1 });
    expect(await self.dataPlane()).toMatchObject({ retries: 0 });
  });

  it("on a worker that was tried already", async () => {
    const self = await crew([refuse(503), refuse(503), refuse(503)], { retries: { attempts: 16 } });
    expect(await self.say()).toMatch(/^503 w2 place .*w2 is full/);
    expect(self.order).toBe("w0 w1 w2");
    expect(failures(self)).toEqual(["w0: status 503", "w1: status 503", "w2: status 503"]);
  });

  it.each([1, 2, 4])("after as many workers as the config allows: %s", async (attempts) => {
    const full = refuse(503);
    const self = await crew([full, full, full, full, full], { retries: { attempts } });
    expect(await self.say()).toMatch(`503 w${attempts - 1} place `);
    expect(self.asked.length).toBe(attempts);
    expect(await self.dataPlane()).toMatchObject({ retries: attempts - 1, retries_refused: 0 });
  });

  it("counts those without a connection among them", async () => {
    const self = await crew([serve, serve, serve]);
    const two = await crew([serve, serve, serve], { retries: { attempts: 2 } });
    for (const each of [self, two]) {
      await each.kill("w0");
      await each.kill("w1");
    }
    expect(await self.say()).toBe("200 w2 place");
    expect(await two.say()).toMatch(/^502 .*worker \\"w1\\" could not be reached/);
    expect(two.order).toBe("");
  });

  it("where the client chose the worker", async () => {
    for (const deed of [reset, refuse(429), refuse(503)]) {
      const self = await crew([serve, deed, serve], { allowPin: true });
      expect(await self.say("s", {}, { "x-hawser-pin": "w1" })).toMatch(/^(429|502|503) /);
      expect(self.order).toBe("w1");
    }
    const dead = await crew([serve, serve], { allowPin: true });
    await dead.kill("w1");
    expect(await dead.say("s", {}, { "x-hawser-pin": "w1" })).toMatch(/^502 /);
    expect(dead.order).toBe("");
    // Where such a choice does not count it is no reason either.
    const free = await crew([refuse(503), serve]);
    expect(await free.say(undefined, {}, { "x-hawser-pin": "w0" })).toBe("200 w1 place");
  });
});

describe("the session", () => {
  it.each<[name: string, deed: Deed]>([
    ["a reset", reset],
    ["429", refuse(429, { "retry-after": "5" })],
    ["503", refuse(503)],
  ])("goes to the worker that took it, at once and for good: %s (B7, B13, C15)", async (_name, deed) => {
    const self = await crew([deed, serve, serve]);
    self.bind("w0", "s");
    for (let i = 0; i < 10; i++) expect(await self.say("s")).toBe(`200 w1 ${i ? "keep" : "move_gone"}`);
    expect(self.order).toBe(`w0${" w1".repeat(10)}`);
    expect(self.binding("s")).toMatchObject({ worker: "w1", turns: 11, moves: 1 });
  });

  it("is where it was until the other worker has taken it, with exact counts all the way", async () => {
    const self = await crew([hold, hold, hold]);
    self.bind("w0", "s");
    const said = self.say("s");
    const stays = () => expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1, moves: 0 });
    await until(() => self.order === "w0");
    expect(self.loads).toBe("1 0 0");
    answer(self, 0, refuse(503));
    await until(() => self.order === "w0 w1");
    expect(self.loads).toBe("0 1 0");
    expect(self.running.audit.open).toBe(1);
    stays();
    answer(self, 1, reset);
    await until(() => self.order === "w0 w1 w2");
    expect(self.loads).toBe("0 0 1");
    expect(self.running.audit.open).toBe(1);
    stays();
    expect(self.running.router.status().workers.map(({ bound_sessions }) => bound_sessions)).toEqual([
      1, 0, 0,
    ]);
    answer(self, 2, serve);
    expect(await said).toBe("200 w2 move_gone");
    expect(self.loads).toBe("0 0 0");
    expect(self.running.audit.open).toBe(0);
    expect(self.binding("s")).toMatchObject({ worker: "w2", turns: 2, moves: 1, leases: 0 });
    expect(self.running.router.status().workers.map(({ bound_sessions }) => bound_sessions)).toEqual([
      0, 0, 1,
    ]);
  });

  it.each<[name: string, deed: Deed]>([
    ["no worker takes it", refuse(503)],
    ["all break off", reset],
    ["the last one finds the request wrong", inTurn(refuse(400))],
  ])("stays where it was where %s", async (_name, last) => {
    const self = await crew([refuse(503), refuse(429), last]);
    self.bind("w0", "s");
    expect(await self.say("s")).toMatch(/^(400|502|503) /);
    expect(self.order).toBe("w0 w1 w2");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1, moves: 0, leases: 0 });
    expect(self.running.router.status()).toMatchObject({ bindings: 1, affinity_broken: 0 });
    self.deeds.fill(serve);
    expect(await self.say("s")).toBe("200 w0 keep");
  });

  it("that is new stays together where its worker turns all of its first requests away at once (B18, B19)", async () => {
    const self = await crew([hold, hold, hold]);
    const said = Array.from({ length: 8 }, () => self.say("s"));
    await until(() => self.order === Array(8).fill("w0").join(" "));
    for (let i = 0; i < 8; i++) answer(self, i, refuse(503));
    await until(() => self.asked.length === 16);
    expect(self.loads).toBe("0 8 0");
    for (let i = 8; i < 16; i++) answer(self, i, serve);
    const replies = (await Promise.all(said)).sort();
    expect(replies).toEqual([...Array(7).fill("200 w1 keep"), "200 w1 place"]);
    expect(self.binding("s")).toMatchObject({ worker: "w1", turns: 8, moves: 0 });
  });

  it("that is new is joined where it is tried again", async () => {
    const self = await crew([hold, hold]);
    const first = self.say("s");
    await until(() => self.asked.length === 1);
    answer(self, 0, refuse(503));
    await until(() => self.asked.length === 2);
    const second = self.say("s");
    await until(() => self.asked.length === 3);
    for (const at of [1, 2]) answer(self, at, serve);
    expect([await first, await second]).toEqual(["200 w1 place", "200 w1 keep"]);
  });

  it("that is new is bound where it was taken, and nowhere where it was not", async () => {
    const self = await crew([refuse(503), refuse(503), serve]);
    expect(await self.say("s")).toBe("200 w2 place");
    expect(self.binding("s")).toMatchObject({ worker: "w2", turns: 1, moves: 0 });
    self.deeds.fill(refuse(503));
    expect(await self.say("t")).toMatch(/^503 /);
    expect(self.binding("t")).toBeUndefined();
    expect(self.running.router.status().bindings).toBe(1);
  });

  it("is known by the id of the answer that was taken, not of one that was not", async () => {
    const respond =
      (id: string, status: number): Deed =>
      ({ response }) => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify({ object: "response", id, output: [] }));
      };
    const self = await crew([respond("resp_bad", 503), respond("resp_good", 200), serve]);
    const url = `${self.running.url}/v1/responses`;
    expect((await post(url, { model: "m", input: "x" })).status).toBe(200);
    self.deeds.fill(serve);
    const next = async (id: string) => {
      const { headers } = await post(url, { model: "m", input: "x", previous_response_id: id });
      return `${headers["x-hawser-worker"]} ${headers["x-hawser-decision"]}`;
    };
    expect(await next("resp_good")).toBe("w1 keep");
    expect(await next("resp_bad")).toBe("w0 place");
  });

  it("goes on where it was for others of its requests while one of them is tried elsewhere", async () => {
    const self = await crew([hold, hold, serve]);
    self.bind("w0", "s");
    const first = self.say("s");
    await until(() => self.order === "w0");
    answer(self, 0, refuse(503));
    await until(() => self.order === "w0 w1");
    self.deeds.fill(serve);
    expect(await self.say("s")).toBe("200 w0 keep");
    expect(self.loads).toBe("0 1 0");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 2, moves: 0, leases: 1 });
    answer(self, 1, serve);
    expect(await first).toBe("200 w1 move_gone");
    expect(self.binding("s")).toMatchObject({ worker: "w1", turns: 3, moves: 1, leases: 0 });
    expect(await self.say("s")).toBe("200 w1 keep");
  });

  it("goes where the first of its requests was taken where several are tried elsewhere", async () => {
    const self = await crew([hold, hold, hold]);
    self.bind("w0", "s");
    const said = [self.say("s"), self.say("s")];
    await until(() => self.order === "w0 w0");
    answer(self, 0, refuse(503));
    answer(self, 1, refuse(503));
    await until(() => self.asked.length === 4);
    expect(self.loads).toBe("0 1 1");
    // The one on w2 first.
    const at = self.asked[3]!.worker === "w2" ? [3, 2] : [2, 3];
    answer(self, at[0]!, serve);
    await until(() => self.binding("s")?.worker === "w2");
    answer(self, at[1]!, serve);
    expect((await Promise.all(said)).sort()).toEqual(["200 w1 move_gone", "200 w2 move_gone"]);
    expect(self.binding("s")).toMatchObject({ worker: "w2", moves: 1, leases: 0 });
    expect(self.running.router.status()).toMatchObject({ rebinds_lost: 1 });
    expect(self.loads).toBe("0 0 0");
  });
});

describe("a client that leaves while another worker is tried", () => {
  it("has that one's request aborted, and leaves the session where it was", async () => {
    const self = await crew([refuse(503), hold, serve]);
    self.bind("w0", "s");
    const client = cuttable(self, "s");
    await until(() => self.order === "w0 w1");
    expect(self.loads).toBe("0 1 0");
    client.leave();
    await until(() => self.asked[1]!.isGone);
    await until(() => inFlight(self.running.router) === 0);
    expect(self.order).toBe("w0 w1");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1, leases: 0 });
    expect(self.running.audit.open).toBe(0);
    expect(await self.dataPlane()).toMatchObject({ retries: 1, outcomes: { client_gone: 1 } });
  });

  it("has no other worker tried for it", async () => {
    const self = await crew([refuse(503), hold, serve]);
    const client = cuttable(self, "s");
    await until(() => self.order === "w0 w1");
    client.leave();
    await until(() => self.asked[1]!.isGone);
    // Whatever the worker still says is said to nobody.
    answer(self, 1, refuse(503));
    self.deeds.fill(serve);
    expect(await self.say()).toBe("200 w0 place");
    expect(self.order).toBe("w0 w1 w0");
  });
});

describe("a worker that is removed", () => {
  it.each<[name: string, deed: Deed]>([
    ["answers 503", refuse(503, { "retry-after": "60" })],
    ["breaks off", reset],
  ])("while it serves a request, and %s: another is tried, never a negative count", async (_name, deed) => {
    const self = await crew([hold, hold]);
    self.bind("w0", "s");
    const { gateway, router } = self.running;
    const old = self.worker("w0");
    const said = self.say("s");
    await until(() => self.order === "w0");
    gateway.removeWorker(old);
    const again = gateway.addWorker({ id: "w0", url: self.upstreams[0]!.url });
    await until(() => again.eligible);
    expect([old.activeRequests, again.activeRequests]).toEqual([1, 0]);
    // The one that took its name is another worker, and may be tried.
    self.worker("w1").addRequests(5);
    answer(self, 0, deed);
    await until(() => self.asked.length === 2);
    expect(self.order).toBe("w0 w0");
    expect([old.activeRequests, again.activeRequests]).toEqual([0, 1]);
    answer(self, 1, serve);
    expect(await said).toBe("200 w0 place");
    expect([old.activeRequests, again.activeRequests]).toEqual([0, 0]);
    expect(router.query({ key: "s", model: "m" })).toBe(again);
    self.worker("w1").addRequests(-5);
  });

  it("and was the last one has nothing tried", async () => {
    const self = await crew([hold]);
    const old = self.worker("w0");
    const said = self.say("s");
    await until(() => self.order === "w0");
    self.running.gateway.removeWorker(old);
    answer(self, 0, reset);
    expect(await said).toMatch(/^502 .*"worker_unreachable"/);
    expect(old.activeRequests).toBe(0);
  });

  it("while another is tried: the request on it goes on, and does not bind there", async () => {
    const self = await crew([refuse(503), hold]);
    self.bind("w0", "s");
    const said = self.say("s");
    await until(() => self.order === "w0 w1");
    self.running.gateway.removeWorker(self.worker("w1"));
    answer(self, 1, serve);
    expect(await said).toBe("200 w1 move_gone");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1 });
  });
});

describe("full determinism", () => {
  it("has the sessions of a dead worker go where its own order says, and no others", async () => {
    const self = await crew([serve, serve, serve, serve], {
      session: { fullDeterminism: true },
      // Nobody is to notice.
      ...{ breaker: null, health: { unhealthyAfter: 1_000 } },
    });
    const others = createRouter({
      policy: loadPolicy("sticky"),
      workers: ["w0", "w2", "w3"].map((id) => ({ id, models: ["m"] })),
      session: { fullDeterminism: true },
    });
    const keys = Array.from({ length: 40 }, (_, i) => `key ${i}`);
    const ask = (key: string) => ({ key, model: "m" });
    const homes = new Map(keys.map((key) => [key, self.running.router.explain(ask(key)).worker]));
    await self.kill("w1");
    for (const key of keys) {
      const home = homes.get(key)!;
      const expected = home === "w1" ? others.explain(ask(key)).worker : home;
      expect(await self.say(key)).toBe(`200 ${expected} deterministic`);
    }
    const moved = keys.filter((key) => homes.get(key) === "w1");
    expect(new Set(moved.map((key) => others.explain(ask(key)).worker)).size).toBeGreaterThan(1);
    expect((await self.dataPlane()).retries).toBe(moved.length);
    expect(self.running.router.status().bindings).toBe(0);
  });
});

describe("mode hard without any retries configured", () => {
  const none = { attempts: 1, connect: false, reset: false, statuses: [], budget: 0 };
  const hard = { session: { mode: "hard" }, retries: none } as const;

  it.each<[name: string, deed: Deed | "gone"]>([
    ["no connection", "gone"],
    ["a reset", reset],
    ["429", refuse(429)],
    ["502", refuse(502)],
    ["503", refuse(503)],
    ["504", refuse(504)],
  ])("chooses once more for a session whose worker fails it: %s", async (_name, deed) => {
    const self = await crew([deed === "gone" ? serve : deed, serve], hard);
    self.bind("w0", "s");
    if (deed === "gone") await self.kill("w0");
    expect(await self.say("s")).toBe("200 w1 place");
    expect(self.binding("s")).toMatchObject({ worker: "w1", turns: 2, moves: 1 });
    expect(await self.say("s")).toBe("200 w1 hard");
    expect(await self.dataPlane()).toMatchObject({ retries: 1, retries_refused: 0 });
  });

  it("not twice, and what the second worker says is told", async () => {
    const self = await crew([refuse(503), refuse(429, { "retry-after": "3" }), serve], hard);
    self.bind("w0", "s");
    expect(await self.say("s")).toMatch(/^429 w1 place .*w1 is full/);
    expect(self.order).toBe("w0 w1");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1, moves: 0 });
  });

  it("not for a new session, a server's error, a pinned request, or one that may have been stored", async () => {
    const self = await crew([refuse(503), serve], { ...hard, allowPin: true });
    expect(await self.say("new")).toMatch(/^503 w0 place /);
    self.bind("w0", "s");
    self.deeds[0] = refuse(500);
    expect(await self.say("s")).toMatch(/^500 w0 hard /);
    self.deeds[0] = refuse(503);
    expect(await self.say("s", {}, { "x-hawser-pin": "w0" })).toMatch(/^503 w0 explicit /);
    self.deeds[0] = reset;
    expect(await self.say("s", { store: true })).toMatch(/^502 /);
    expect(self.order).toBe("w0 w0 w0 w0");
    self.deeds[0] = refuse(429);
    expect(await self.say("s", { store: true })).toBe("200 w1 place");
  });

  it("has others of its requests join the new worker before that has answered", async () => {
    const self = await crew([hold, hold, hold], hard);
    self.bind("w0", "s");
    const said = [self.say("s"), self.say("s"), self.say("s")];
    await until(() => self.asked.length === 3);
    for (let i = 0; i < 3; i++) answer(self, i, refuse(503));
    await until(() => self.asked.length === 6);
    expect(self.loads).toBe("0 3 0");
    for (let i = 3; i < 6; i++) answer(self, i, serve);
    expect((await Promise.all(said)).map((reply) => reply.split(" ")[1])).toEqual(["w1", "w1", "w1"]);
    expect(self.binding("s")).toMatchObject({ worker: "w1", moves: 1, turns: 4 });
  });

  it("goes on with retries where those are configured", async () => {
    const self = await crew([refuse(503), refuse(503), serve], { session: { mode: "hard" } });
    self.bind("w0", "s");
    expect(await self.say("s")).toBe("200 w2 place");
    expect(self.order).toBe("w0 w1 w2");
  });
});

describe("Retry-After", () => {
  /** Sessions a, b, c ... bound to w1; w0 answers as told, w1 is full, w2 serves. */
  async function threeWorkers(deed: Deed, clock: Clock): Promise<Crew> {
    const self = await crew([deed, refuse(503), serve], { clock, allowPin: true });
    self.bind("w1", ..."abcdefgh");
    return self;
  }

  const toW0 = (self: Crew) => self.say(undefined, {}, { "x-hawser-pin": "w0" });

  it("in seconds: no retry of any request goes there until then, not a moment longer", async () => {
    const clock = new VirtualClock();
    const self = await threeWorkers(inTurn(refuse(429, { "retry-after": "5" }), serve), clock);
    expect(await self.say("new")).toMatch("200 w2 place");
    expect(self.order).toBe("w0 w1 w2");
    expect(await self.say("a")).toBe("200 w2 move_gone");
    clock.advance(4_999);
    expect(await self.say("b")).toBe("200 w2 move_gone");
    clock.advance(1);
    expect(await self.say("c")).toBe("200 w0 move_gone");
  });

  it("as a date", async () => {
    const clock = new VirtualClock();
    const inHalfAnHour: Deed = (asked) =>
      refuse(503, { "retry-after": new Date(Date.now() + 1_800_000).toUTCString() })(asked);
    const self = await threeWorkers(inTurn(inHalfAnHour, serve), clock);
    await toW0(self);
    clock.advance(1_200_000);
    expect(await self.say("a")).toBe("200 w2 move_gone");
    clock.advance(600_000);
    expect(await self.say("b")).toBe("200 w0 move_gone");
  });

  it.each([
    ["the later was said first", "10", "2"],
    ["the later was said last", "2", "9"],
  ])("said twice, the later moment counts: %s", async (_name, first, second) => {
    const clock = new VirtualClock();
    const self = await threeWorkers(hold, clock);
    const both = [toW0(self), toW0(self)];
    await until(() => self.asked.length === 2);
    refuse(429, { "retry-after": first })(self.asked[0]!);
    await both[0];
    clock.advance(1_000);
    refuse(503, { "retry-after": second })(self.asked[1]!);
    await both[1];
    self.deeds[0] = serve;
    clock.advance(8_999);
    expect(await self.say("a")).toBe("200 w2 move_gone");
    clock.advance(1);
    expect(await self.say("b")).toBe("200 w0 move_gone");
  });

  it.each<[name: string, deed: Deed]>([
    ["what cannot be read", refuse(429, { "retry-after": "soon" })],
    ["what is over", refuse(429, { "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT" })],
    ["nothing", refuse(503)],
    ["no time at all", refuse(503, { "retry-after": "0" })],
    ["what is not about load", refuse(502, { "retry-after": "60" })],
  ])("keeps nothing off where it says %s", async (_name, deed) => {
    const self = await threeWorkers(inTurn(deed, serve), new VirtualClock());
    await toW0(self);
    expect(await self.say("a")).toBe("200 w0 move_gone");
  });

  it("counts whether or not its status is one to try again, and keeps first choices off as well", async () => {
    const self = await crew([inTurn(refuse(429, { "retry-after": "60" }), serve), refuse(503), serve], {
      clock: new VirtualClock(),
      retries: { statuses: [503] },
    });
    expect(await self.say()).toMatch(/^429 w0 /);
    self.bind("w1", "a");
    expect(await self.say("a")).toBe("200 w2 move_gone");
    expect(await self.say("new")).toBe("200 w2 place");
  });

  it("of the last worker is the client's to see, with all else that it said (B13)", async () => {
    const clock = new VirtualClock();
    const self = await crew(
      [refuse(429, { "retry-after": "7", "x-of": "w0" }), refuse(429, { "retry-after": "9", "x-of": "w1" })],
      { clock },
    );
    const reply = await post(self.running.url + CHAT, { model: "m" });
    expect(reply).toMatchObject({
      status: 429,
      headers: { "retry-after": "9", "x-of": "w1", "x-hawser-worker": "w1" },
    });
    expect(reply.body).toBe('{"error":{"message":"w1 is full"}}');
    expect(self.order).toBe("w0 w1");
    // Both are left alone now: the next one waits for the first of them, and no worker is asked before.
    const next = post(self.running.url + CHAT, { model: "m" });
    await until(() => self.waiting === 1);
    clock.advance(6_999);
    expect([self.order, self.waiting]).toEqual(["w0 w1", 1]);
    clock.advance(1);
    await until(() => self.order === "w0 w1 w0" && self.waiting === 1);
    clock.advance(2_000);
    expect(await next).toMatchObject({ status: 429, headers: { "retry-after": "9", "x-of": "w1" } });
    expect(self.order).toBe("w0 w1 w0 w1");
  });

  it("asks no worker twice in one request, however short it is (B13)", async () => {
    const clock: Clock = { ...PROCESS_CLOCK, now: () => 0 };
    const self = await crew([refuse(429, { "retry-after": "0" }), refuse(429, { "retry-after": "0" })], {
      clock,
      retries: { attempts: 16 },
    });
    expect(await self.say("s")).toMatch(/^429 w1 /);
    expect(self.order).toBe("w0 w1");
  });

  it("of a worker that was removed means nothing to one that took its name", async () => {
    const self = await threeWorkers(inTurn(refuse(429, { "retry-after": "60" }), serve), new VirtualClock());
    await toW0(self);
    const { gateway } = self.running;
    gateway.removeWorker(self.worker("w0"));
    const again = gateway.addWorker({ id: "w0", url: self.upstreams[0]!.url });
    await until(() => again.eligible);
    self.worker("w2").addRequests(1);
    expect(await self.say("a")).toBe("200 w0 move_gone");
    self.worker("w2").addRequests(-1);
  });
});

describe("retryAfterMs", () => {
  const NOW = Date.UTC(2026, 0, 15, 12, 0, 0);

  afterEach(() => void vi.useRealTimers());

  /** At noon of a winter's day. */
  function at(value: string | string[] | undefined): number {
    vi.useFakeTimers({ now: NOW, toFake: ["Date"] });
    return retryAfterMs(value);
  }

  it.each<[value: string | string[] | undefined, ms: number]>([
    ["5", 5_000],
    ["0", 0],
    ["0120", 120_000],
    [" 7 ", 7_000],
    [["3", "60"], 3_000],
    ["Thu, 15 Jan 2026 12:01:30 GMT", 90_000],
    ["Thu, 15 Jan 2026 11:59:59 GMT", -1_000],
    ["Thursday, 15-Jan-26 12:01:30 GMT", 90_000],
    ["Thu Jan 15 12:01:30 2026", 90_000],
    ["Thu Jan  1 12:00:00 2026", -14 * 86_400_000],
    ["9".repeat(400), Number.POSITIVE_INFINITY],
    ["soon", Number.NaN],
    ["", Number.NaN],
    [undefined, Number.NaN],
    [[], Number.NaN],
    ["1e3", Number.NaN],
    ["5s", Number.NaN],
    // What Date.parse alone takes for a day of some year.
    ["40.5", Number.NaN],
    ["-5", Number.NaN],
    ["1.5", Number.NaN],
    ["+5", Number.NaN],
    ["5, 6", Number.NaN],
    ["2027", 2_027_000],
    ["2027-01-15", Number.NaN],
    ["in 40 seconds", Number.NaN],
    ["Jan 15 2027", Number.NaN],
    ["Thu", Number.NaN],
  ])("%j is %s", (value, ms) => {
    expect(at(value)).toBe(ms);
  });

  it("takes a date in C's form for one in UTC, wherever it runs", () => {
    const zone = process.env.TZ;
    try {
      process.env.TZ = "America/New_York";
      expect(at("Thu Jan 15 12:01:30 2026")).toBe(90_000);
    } finally {
      if (zone === undefined) delete process.env.TZ;
      else process.env.TZ = zone;
    }
  });
});
