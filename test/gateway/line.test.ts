// Requests in line while the fleet changes around them: workers that list other models, are replaced, or begin slowly.
import { describe, expect, it } from "vitest";
import { parseWorkerEntry } from "../../host/config/worker-entry.js";
import { PROCESS_CLOCK } from "../../host/fleet/clock.js";
import { RequestReader } from "../../host/session/request-reader.js";
import { formatMistake } from "../../host/yaml/mistake.js";
import { get, post } from "./client.js";
import { CHAT, type Crew, crew, hold, refuse, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, gateway, type RunningGateway, until, upstream } from "./fixture.js";
import { call, shown } from "./operator.js";
import { type Page, type Posted, type Probed, probed } from "./probed.js";
import { VirtualClock } from "./virtual-clock.js";

const INTERVAL_MS = 5_000;

expectNothingUncaught();

function readWorker(source: string) {
  const { entry, mistakes } = parseWorkerEntry(source);
  return entry ? { entry } : { mistakes: mistakes.map(formatMistake) };
}

const listing = (...models: string[]): Page => [
  200,
  JSON.stringify({ object: "list", data: models.map((id) => ({ id })) }),
];

/** A gateway whose workers list what a test has them list; their requests are left to it. */
interface Listed {
  readonly running: RunningGateway;
  readonly workers: readonly Probed[];
  /** All requests that came to a worker, in that order. */
  readonly held: Posted[];
  readonly clock: VirtualClock;
  /** Posts and tells what came of it: `200`, or `404 model_not_found`. */
  say(model?: string): Promise<string>;
  /** Has a worker list other models, and waits until the gateway has asked for them. */
  list(worker: number, ...models: string[]): Promise<void>;
}

async function listed(models: readonly string[][], options: Partial<GatewayFixture> = {}): Promise<Listed> {
  const clock = new VirtualClock();
  const held: Posted[] = [];
  const workers = await Promise.all(models.map(() => probed()));
  for (const [i, worker] of workers.entries()) {
    worker.pages["/v1/models"] = listing(...models[i]!);
    worker.onPost = (posted) => void held.push(posted);
  }
  const urls = workers.map(({ url }) => url);
  const health = { intervalMs: INTERVAL_MS };
  const running = await gateway({ urls, clock, health, maxInFlight: 1, readWorker, ...options });
  return {
    ...{ running, workers, held, clock },
    async say(model = "m") {
      const { status, body } = await post(running.url + CHAT, { model });
      return status < 400 ? String(status) : `${status} ${JSON.parse(body).error.code}`;
    },
    async list(worker, ...names) {
      workers[worker]!.pages["/v1/models"] = listing(...names);
      const known = () => [...running.router.workers][worker]!.models.join();
      clock.advance(INTERVAL_MS);
      await until(() => known() === names.join());
    },
  };
}

const answer = ({ response }: Posted) => void response.end("{}");

/** Serves all that come from now on, and those that are held. */
function release(self: Crew): void {
  self.deeds.fill(serve);
  for (const asked of self.asked) if (!asked.isGone && !asked.response.writableEnded) serve(asked);
}

describe("a request that cannot be asked for", () => {
  const reader = new RequestReader({
    sources: ["opencode", { body: "sid", parent: "pid" }],
    tenant: { header: "x-tenant" },
  });
  it.each([
    ["a session id of 300 bytes", { "x-session-id": "x".repeat(300) }, {}, "session_key_too_long"],
    ["a session id with a NUL", {}, { sid: "a\0b" }, "session_key_invalid"],
    ["a parent's with a NUL", {}, { sid: "a", pid: "a\0b" }, "session_key_invalid"],
    ["a tenant that is too long", { "x-tenant": "t".repeat(5_000) }, {}, "tenant_invalid"],
  ])(
    "is told so though others wait, and holds up none of them: %s",
    async (_name, headers, members, code) => {
      const self = await crew([hold], { maxInFlight: 1, reader });
      const said = await self.inLine(["a", "b"]);
      const reply = await self.say(undefined, members, headers as Record<string, string>);
      expect(reply).toMatch(/^400 /);
      expect(reply).toContain(`"code":"${code}"`);
      expect([self.loads, self.waiting]).toEqual(["1", 1]);
      release(self);
      for (const each of said) expect(await each).toBe("200 w0 place");
      expect([self.loads, self.waiting]).toEqual(["0", 0]);
    },
  );
});

describe("a list of models that changes while requests wait", () => {
  it("tells those that wait when nobody serves their model any more, and those that come", async () => {
    const self = await listed([["m"]]);
    const first = self.say();
    await until(() => self.held.length === 1);
    const second = self.say();
    await until(() => self.running.gateway.waiting === 1);
    await self.list(0);
    expect(await second).toBe("404 model_not_found");
    expect(await self.say()).toBe("404 model_not_found");
    expect(self.running.gateway.waiting).toBe(0);
    answer(self.held[0]!);
    expect(await first).toBe("200");
    expect((await fetch(`${self.running.url}/health`)).status).toBe(200);
  });

  it.each(["before", "after"])(
    "leaves nothing behind where it is empty for a while: a request that ends %s it is back",
    async (when) => {
      const self = await listed([["m"]]);
      const first = self.say();
      await until(() => self.held.length === 1);
      const second = self.say();
      await until(() => self.running.gateway.waiting === 1);
      await self.list(0);
      expect(await second).toBe("404 model_not_found");
      if (when === "before") {
        answer(self.held[0]!);
        await first;
      }
      await self.list(0, "m");
      const third = self.say();
      if (when === "after") {
        await until(() => self.running.gateway.waiting === 1);
        answer(self.held[0]!);
        await first;
      }
      await until(() => self.held.length === 2);
      const fourth = self.say();
      await until(() => self.running.gateway.waiting === 1);
      answer(self.held[1]!);
      await until(() => self.held.length === 3);
      answer(self.held[2]!);
      expect([await third, await fourth]).toEqual(["200", "200"]);
      expect([...self.running.router.workers][0]!.activeRequests).toBe(0);
    },
  );

  it("has an idle worker take those that wait for what it serves from now on", async () => {
    const self = await listed([["m"], ["other"]]);
    const first = self.say();
    await until(() => self.held.length === 1);
    const second = self.say();
    await until(() => self.running.gateway.waiting === 1);
    await self.list(1, "other", "m");
    await until(() => self.held.length === 2);
    expect(self.workers.map(({ posted }) => posted.length)).toEqual([1, 1]);
    answer(self.held[1]!);
    expect(await second).toBe("200");
    answer(self.held[0]!);
    await first;
  });
});

describe("the lines of two models of one worker", () => {
  it("take turns: whoever has waited longest is next, however often others come for the other model", async () => {
    const self = await listed([["A", "B"]]);
    const models: string[] = [];
    const all: Promise<void>[] = [];
    /** Asks, and again as soon as it is answered, until there have been enough. */
    const ask = (model: string, times: number): void => {
      const said = self.say(model).then((reply) => {
        expect(reply).toBe("200");
        models.push(model);
        if (times > 1) ask(model, times - 1);
      });
      all.push(said);
    };
    const places = () => self.held.length + self.running.gateway.waiting;
    ask("A", 10);
    await until(() => self.held.length === 1);
    self.clock.advance(1);
    ask("A", 10);
    await until(() => places() === 2);
    self.clock.advance(1);
    ask("B", 1);
    await until(() => places() === 3);
    for (let served = 0; served < 21; served++) {
      await until(() => self.held.length > served);
      self.clock.advance(1);
      answer(self.held[served]!);
      // Whoever asks in a loop is in line again before the next one ends.
      await until(() => models.length === served + 1);
      await until(() => places() >= Math.min(21, served + 3));
    }
    await Promise.all(all);
    expect(models.indexOf("B")).toBe(2);
    expect(models.length).toBe(21);
  });
});

describe("retries in line", () => {
  it("that may all not go to the same worker ask the router once for each lease that ends", async () => {
    const self = await crew([refuse(429), hold], { maxInFlight: 1, retries: { budget: 1 }, breaker: null });
    const first = self.say("a");
    await until(() => self.order === "w0 w1");
    const count = 50;
    const said = Array.from({ length: count }, (_, i) => self.say(`k${i}`));
    await until(() => self.asked.length === count + 2 && self.waiting === count);
    const { router } = self.running;
    const acquire = router.acquire.bind(router);
    let asks = 0;
    router.acquire = (request) => {
      asks++;
      return acquire(request);
    };
    serve(self.asked[1]!);
    await first;
    await until(() => self.waiting === count - 1);
    // One that has it, and one that finds the worker full again.
    expect(asks).toBeLessThanOrEqual(3);
    release(self);
    for (const reply of await Promise.all(said)) expect(reply).toMatch(/^200 /);
  });
});

describe("those in line for a worker that is replaced by a call", () => {
  it.each([
    ["whose models are not known yet, wait while it is looked at", {}, 1_000, "200"],
    ["whose models are configured, wait while it is looked at", { models: ["m"] }, 1_000, "200"],
    [
      "whose models are not known yet, do not wait for one that is not there",
      {},
      2,
      "503 no_worker_eligible",
    ],
    [
      "whose models are configured, do not wait for one that is not there",
      { models: ["m"] },
      2,
      "503 no_worker_eligible",
    ],
  ])("by one %s", async (_name, more, unhealthyAfter, end) => {
    const health = { intervalMs: 50, timeoutMs: 50, unhealthyAfter };
    const self = await listed([["m"], ["other"]], { clock: PROCESS_CLOCK, health });
    const fresh = await probed();
    fresh.pages["/health"] = "silence";
    fresh.onPost = answer;
    const first = self.say();
    await until(() => self.held.length === 1);
    const second = self.say();
    await until(() => self.running.gateway.waiting === 1);
    const put = await call(self.running.admin, "PUT", "/admin/workers/w0", { url: fresh.url, ...more });
    expect(put).toMatchObject({ status: 200, body: { url: fresh.url, state: "starting" } });
    if (end === "200") {
      // Whoever comes now waits as well.
      const third = self.say();
      await until(() => self.running.gateway.waiting === 2);
      fresh.pages["/health"] = [200, ""];
      expect(await third).toBe("200");
    }
    expect(await second).toBe(end);
    answer(self.held[0]!);
    expect(await first).toBe("200");
  });

  it("do not go to where it was for a model that it is to serve where it will be", async () => {
    const self = await listed([["m"], ["n"]]);
    const fresh = await probed();
    fresh.pages["/v1/models"] = listing("m", "n");
    fresh.onPost = answer;
    const put = (body: object) => call(self.running.admin, "PUT", "/admin/workers/w0", body);
    await put({ url: self.workers[0]!.url, models: ["m"] });
    await until(() => [...self.running.router.workers].at(-1)!.eligible);
    const first = self.say("n");
    await until(() => self.held.length === 1);
    const second = self.say("n");
    await until(() => self.running.gateway.waiting === 1);
    expect((await put({ url: fresh.url, models: ["m", "n"] })).status).toBe(200);
    expect(await second).toBe("200");
    expect(self.workers.map(({ posted }) => posted.length)).toEqual([0, 1]);
    expect(fresh.posted).toHaveLength(1);
    answer(self.held[0]!);
    expect(await first).toBe("200");
  });

  it("lose nothing by a call that is refused: one model more than a router serves", async () => {
    const { url } = await upstream((_request, response) => response.end("{}"));
    const other = await upstream((_request, response) => response.end("{}"));
    const {
      admin,
      url: base,
      router,
    } = await gateway({ urls: [], readWorker, health: { intervalMs: 3_600_000 } });
    const put = (id: string, body: object) => call(admin, "PUT", `/admin/workers/${id}`, body);
    for (let i = 0; i < 4; i++) {
      const models = Array.from({ length: i === 3 ? 255 : 256 }, (_, model) => `k${i}-${model}`);
      expect((await put(`k${i}`, { url, models })).status).toBe(201);
    }
    expect((await put("x", { url, models: ["m"] })).status).toBe(201);
    const worker = [...router.workers].at(-1)!;
    await until(() => worker.eligible);
    const answered = await put("x", { url: other.url, models: ["m", "n"] });
    expect(answered).toMatchObject({ status: 400, body: { error: { code: "invalid_worker" } } });
    expect(answered.body.error.message).toContain("1024");
    expect([...router.workers].at(-1)).toBe(worker);
    expect(await shown(admin, "x")).toMatchObject({ url, state: "ready", models: ["m"] });
    expect((await post(base + CHAT, { model: "m" })).headers["x-hawser-worker"]).toBe("x");
  });
});

describe("a worker that begins slowly", () => {
  it("takes those in line as soon as it may have more, where no other can", async () => {
    const clock = new VirtualClock();
    const health = { slowStartMs: 30_000, intervalMs: INTERVAL_MS };
    const self = await crew([hold], { clock, maxInFlight: 1, readWorker, health });
    const late = await probed();
    const held: Posted[] = [];
    late.onPost = (posted) => void held.push(posted);
    const put = (most: number) =>
      call(self.running.admin, "PUT", "/admin/workers/w1", { url: late.url, max_in_flight: most });
    const said = await self.inLine(["a"]);
    await put(1);
    await until(() => self.worker("w1")?.eligible === true);
    said.push(self.say("b"));
    await until(() => held.length === 1);
    said.push(...(await self.inLine(["c"])));
    expect(self.waiting).toBe(1);
    expect((await put(10)).body).toMatchObject({ slow_start_limit: 1, max_in_flight: 10 });
    await until(() => held.length === 2 && self.waiting === 0);
    // Nor does anybody wait that comes now.
    said.push(self.say("d"));
    await until(() => held.length === 3);
    expect(self.waiting).toBe(0);
    for (const posted of held) answer(posted);
    release(self);
    for (const reply of await Promise.all(said)) expect(reply).toMatch(/^200 /);
  });
});

describe("a fleet without workers", () => {
  const ask = ({ url }: RunningGateway, path = CHAT) => post(url + path, { model: "m" });

  it("is one whose workers are not there yet: 503, and when to come again", async () => {
    const running = await gateway({ urls: [] });
    const reply = await ask(running);
    expect(reply).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
    expect(JSON.parse(reply.body).error).toMatchObject({ code: "no_worker_eligible", type: "server_error" });
    expect(JSON.parse((await ask(running, "/v1/messages")).body)).toMatchObject({
      type: "error",
      error: { type: "api_error" },
    });
    const explained = await call(running.admin, "POST", "/admin/explain", { model: "m" });
    expect(explained).toMatchObject({ status: 503, body: { error: { code: "no_worker_eligible" } } });
  });

  it("tells those in line, when its last worker is removed", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const [first, second] = await self.inLine(["a", "b"]);
    expect((await call(self.running.admin, "DELETE", "/admin/workers/w0")).status).toBe(200);
    expect(await second).toMatch(/^503 .*no_worker_eligible/);
    expect(await self.say()).toMatch(/^503 .*no_worker_eligible/);
    release(self);
    expect(await first).toBe("200 w0 place");
  });
});

describe("the log", () => {
  /** The line of the last request. */
  function lineOf({ log }: RunningGateway): Record<string, unknown> {
    return log.map((line) => JSON.parse(line)).findLast(({ msg }) => msg === "request");
  }

  it("names the model of a request that was refused, where some worker serves it", async () => {
    const self = await crew([hold], {
      ...{ maxInFlight: 1, admission: { queue: 0 }, allowPin: true },
      log: { requests: "all" },
    });
    const [first] = await self.inLine(["a"]);
    expect(await self.say()).toMatch(/^429 .*queue_full/);
    expect(lineOf(self.running)).toMatchObject({ outcome: "queue_full", status: 429, model: "m" });
    expect(await self.say(undefined, {}, { "x-hawser-pin": "w0" })).toMatch(/^429 .*workers_full/);
    expect(lineOf(self.running)).toMatchObject({ outcome: "workers_full", status: 429, model: "m" });
    await call(self.running.admin, "POST", "/admin/workers/w0/drain");
    expect(await self.say()).toMatch(/^503 .*no_worker_eligible/);
    expect(lineOf(self.running)).toMatchObject({ outcome: "no_worker_eligible", status: 503, model: "m" });
    expect(await self.say(undefined, { model: "made up" })).toMatch(/^404 .*model_not_found/);
    expect(lineOf(self.running)).toMatchObject({ outcome: "model_not_found", status: 404 });
    expect(lineOf(self.running)).not.toHaveProperty("model");
    release(self);
    await first;
  });
});

describe("a 429 of the gateway's own", () => {
  it("is a rate_limit_error, and says what is full", async () => {
    const clock = new VirtualClock();
    const admission = { queue: 1, deadlineMs: 8_000 };
    const self = await crew([hold], { clock, maxInFlight: 1, admission, allowPin: true });
    const [first, second] = await self.inLine(["a", "b"]);
    const errorOf = (reply: string) => JSON.parse(reply.slice(reply.indexOf("{"))).error;
    expect(errorOf(await self.say())).toMatchObject({ code: "queue_full", type: "rate_limit_error" });
    expect(errorOf(await self.say(undefined, {}, { "x-hawser-pin": "w0" }))).toMatchObject({
      ...{ code: "workers_full", type: "rate_limit_error" },
      message: 'worker "w0", to which the request is pinned, has as many requests in flight as it may',
    });
    clock.advance(10_000);
    expect(errorOf(await second!)).toMatchObject({ code: "queue_timeout", type: "rate_limit_error" });
    release(self);
    await first;
    self.deeds[0] = refuse(503, { "retry-after": "60" });
    await self.say();
    const reply = await post(self.running.url + CHAT, { model: "m" });
    expect(reply).toMatchObject({ status: 429, headers: { "retry-after": "60" } });
    expect(JSON.parse(reply.body).error).toMatchObject({ code: "workers_full", type: "rate_limit_error" });
    expect((await get(`${self.running.admin}/admin/workers`)).body).toMatchObject({
      queue: { waiting: {}, refused: 1, expired: 1 },
    });
  });
});
