// Workers that come and go while requests are under way, and how requests are spread over those that are there.
import { EventEmitter, once } from "node:events";
import type { ServerResponse } from "node:http";
import { pino } from "pino";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGateway } from "../../host/gateway/server.js";
import { createRouter, loadPolicy, type Worker } from "../../host/index.js";
import { get, open, post, type Reply, text } from "./client.js";
import { CHAT, type Crew, crew, hold, reset, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { dataPlane, fleet, inFlight, until, upstream } from "./fixture.js";

const stream = { model: "m", stream: true, messages: [] };
const HEAD = { "content-type": "text/event-stream" };

expectNothingUncaught();

/** Opens a stream whose worker has sent its head; `session` binds it. */
async function opened(self: Crew, session?: string) {
  const count = self.asked.length + 1;
  const message = open(
    self.running.url + CHAT,
    stream,
    session === undefined ? {} : { "x-session-id": session },
  );
  await until(() => self.asked.length === count);
  const asked = self.asked.at(-1)!;
  asked.response.writeHead(200, HEAD).write("data: 1\n\n");
  return { ...asked, message: await message };
}

/** Adds a worker to a running gateway, and waits until it has answered. */
async function added(self: Crew, id: string, url: string, apiKey?: string): Promise<Worker> {
  const worker = self.running.gateway.addWorker({ id, url, apiKey });
  await until(() => worker.eligible);
  return worker;
}

describe("a worker that is removed while a stream of its is open", () => {
  it.each([
    ["the old request ends first", true],
    ["the new request ends first", false],
  ])(
    "and added again under the same id and address counts on its own object, where %s (A9)",
    async (_name, isOldFirst) => {
      const self = await crew([hold]);
      const counts: number[] = [];
      const old = self.worker("w0");
      const first = await opened(self);
      self.running.gateway.removeWorker(old);
      const fresh = await added(self, "w0", old.url!);
      const note = () => counts.push(old.activeRequests, fresh.activeRequests);
      expect(fresh).not.toBe(old);
      expect([old.activeRequests, fresh.activeRequests]).toEqual([1, 0]);
      const second = await opened(self);
      expect([old.activeRequests, fresh.activeRequests]).toEqual([1, 1]);
      const order = isOldFirst ? [first, second] : [second, first];
      for (const [i, { response, message }] of order.entries()) {
        response.end("data: [DONE]\n\n");
        expect(await text(message)).toBe("data: 1\n\ndata: [DONE]\n\n");
        note();
        const left = i === 1 ? [0, 0] : isOldFirst ? [0, 1] : [1, 0];
        expect([old.activeRequests, fresh.activeRequests]).toEqual(left);
      }
      note();
      expect(Math.min(...counts)).toBe(0);
      // What is shown is what stands there now.
      expect(self.loads).toBe("0");
    },
  );

  it("lets it finish whole, and closes its connections behind it", async () => {
    const self = await crew([hold, serve]);
    const [worker] = self.running.router.workers;
    const { server } = self.upstreams[0]!;
    const { response, message } = await opened(self);
    self.running.gateway.removeWorker(worker!);
    expect(self.loads).toBe("0");
    // Others are served meanwhile, by the other one.
    expect(await self.say()).toBe("200 w1 place");
    for (let i = 0; i < 100; i++) response.write(`data: ${"x".repeat(1_000)}\n\n`);
    response.end("data: [DONE]\n\n");
    const got = await text(message);
    expect([got.length, message.complete]).toEqual([
      100 * 1_008 + "data: 1\n\ndata: [DONE]\n\n".length,
      true,
    ]);
    await until(() => worker!.activeRequests === 0);
    let open = 1;
    await until(() => {
      server.getConnections((_, count) => {
        open = count;
      });
      return open === 0;
    });
    expect(await self.dataPlane()).toMatchObject({ requests_in_flight: 0, outcomes: { complete: 2 } });
  });

  it("lets its client still leave: the worker hears of it at once", async () => {
    const self = await crew([hold, serve]);
    const asked = await opened(self);
    self.running.gateway.removeWorker(self.worker("w0"));
    asked.message.destroy();
    await until(() => self.asked[0]!.isGone);
    await until(() => self.running.audit.open === 0);
  });

  it("tells its client where it breaks off", async () => {
    const self = await crew([hold, serve]);
    const { request, message } = await opened(self);
    self.running.gateway.removeWorker(self.worker("w0"));
    request.socket.destroy();
    const got = new Promise<string>((resolve) => {
      let all = "";
      message.on("data", (chunk) => {
        all += chunk;
      });
      message.on("error", () => {}).on("close", () => resolve(all));
    });
    expect(await got).toContain('worker \\"w0\\" broke off in the middle of its answer');
    expect(self.loads).toBe("0");
  });
});

describe("a worker that is removed before it has answered", () => {
  it("may still answer", async () => {
    const self = await crew([hold, serve]);
    const asked = self.say("s");
    await until(() => self.asked.length === 1);
    self.running.gateway.removeWorker(self.worker("w0"));
    serve(self.asked[0]!);
    expect(await asked).toBe("200 w0 place");
    // Nobody is bound to a worker that is not there.
    expect(self.binding("s")).toBeUndefined();
    expect(await self.say("s")).toBe("200 w1 place");
  });

  it("has another one tried where it breaks off", async () => {
    const self = await crew([hold, serve]);
    const asked = self.say("s");
    await until(() => self.asked.length === 1);
    self.running.gateway.removeWorker(self.worker("w0"));
    reset(self.asked[0]!);
    expect(await asked).toBe("200 w1 place");
    expect(self.order).toBe("w0 w1");
  });

  it("is tried again as a new one, where it is added again meanwhile", async () => {
    const self = await crew([hold]);
    const old = self.worker("w0");
    const asked = self.say();
    await until(() => self.asked.length === 1);
    self.running.gateway.removeWorker(old);
    const fresh = await added(self, "w0", old.url!);
    self.deeds[0] = serve;
    reset(self.asked[0]!);
    expect(await asked).toBe("200 w0 place");
    expect([old.activeRequests, fresh.activeRequests]).toEqual([0, 0]);
  });
});

describe("the sessions of a worker that is removed", () => {
  it("are placed anew, and stay where they are placed when it is added again", async () => {
    const self = await crew([serve, serve]);
    self.bind("w0", "a", "b");
    self.bind("w1", "c");
    const old = self.worker("w0");
    self.running.gateway.removeWorker(old);
    expect(self.running.router.status()).toMatchObject({
      bindings: 1,
      workers: [{ id: "w1", bound_sessions: 1 }],
    });
    expect(await self.say("a")).toBe("200 w1 place");
    const fresh = await added(self, "w0", old.url!);
    expect(fresh.boundSessions).toBe(0);
    for (const key of ["a", "c"]) expect(await self.say(key)).toBe("200 w1 keep");
    // One that has not come meanwhile is new to all, and the new worker is one of them.
    expect(await self.say("b")).toMatch(/^200 w[01] place$/);
  });

  it("have an end even where a request of theirs is under way there", async () => {
    const self = await crew([hold, serve]);
    const first = await opened(self, "s");
    expect(self.binding("s")).toMatchObject({ worker: "w0" });
    self.running.gateway.removeWorker(self.worker("w0"));
    expect(await self.say("s")).toBe("200 w1 place");
    first.response.end();
    await text(first.message);
    // The answer of the old one takes nothing from the new.
    expect(self.binding("s")).toMatchObject({ worker: "w1", leases: 0 });
  });
});

describe("a worker that is added", () => {
  it("begins with no load and takes part at once (A24)", async () => {
    const self = await crew([hold, hold], { policy: "least-loaded" });
    const busy = [await opened(self), await opened(self)];
    expect(self.loads).toBe("1 1");
    const late = await upstream((_request, response) => response.end("{}"));
    const worker = await added(self, "late", late.url);
    expect([worker.activeRequests, self.loads]).toEqual([0, "1 1 0"]);
    for (let i = 0; i < 3; i++) expect(await self.say()).toBe("200 late place");
    expect(self.loads).toBe("1 1 0");
    for (const { response, message } of busy) {
      response.end();
      await text(message);
    }
    expect(self.loads).toBe("0 0 0");
  });

  it("is chosen only once it has answered for its models, and is shown as starting before", async () => {
    const self = await crew([serve], { policy: "least-loaded" });
    const asks = new EventEmitter();
    const late = await upstream((_request, response) => response.end("{}"));
    late.server.removeAllListeners("request");
    late.server.on("request", (request, response: ServerResponse) => {
      request.resume();
      if (request.method === "GET") asks.emit("asked", response);
      else response.end("{}");
    });
    const asked = once(asks, "asked");
    const worker = self.running.gateway.addWorker({ id: "late", url: late.url });
    const [response] = (await asked) as [ServerResponse];
    const { workers } = (await get(`${self.running.admin}/admin/workers`)).body as { workers: object[] };
    expect(workers[1]).toMatchObject({ id: "late", state: "starting", models: [] });
    expect(await self.say()).toBe("200 w0 place");
    const list = (answer: ServerResponse) => answer.end('{"data":[{"id":"m"},{"id":"other"}]}');
    asks.on("asked", list);
    list(response);
    await until(() => worker.eligible);
    expect(await self.say(undefined, { model: "other" })).toBe("200 late place");
    const { data } = (await get(`${self.running.url}/v1/models`)).body as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).toEqual(["m", "other"]);
  });

  it("is shown its API key", async () => {
    const self = await crew([serve]);
    const shown: (string | undefined)[] = [];
    const late = await upstream((_request, response) => response.end("{}"));
    late.server.prependListener("request", ({ headers }) => shown.push(headers.authorization));
    await added(self, "late", late.url, "sk-late");
    self.running.gateway.removeWorker(self.worker("w0"));
    expect(await self.say()).toBe("200 late place");
    expect(shown.length).toBeGreaterThan(2);
    expect(new Set(shown)).toEqual(new Set(["Bearer sk-late"]));
  });

  it("takes the place of one that is gone, in a gateway that had none left", async () => {
    const self = await crew([serve]);
    const old = self.worker("w0");
    self.running.gateway.removeWorker(old);
    expect((await get(`${self.running.url}/health`)).status).toBe(503);
    expect(await self.say()).toMatch(/^503 .*no_worker_eligible/);
    await added(self, "w0", old.url!);
    expect(await self.say()).toBe("200 w0 place");
    expect((await get(`${self.running.url}/health`)).status).toBe(200);
  });

  it.each<[string, { id: string; url: string }]>([
    ["an id that is taken", { id: "w0", url: "http://127.0.0.1:1" }],
    ["a url that is none", { id: "new", url: "nonsense" }],
  ])("is refused with %s, and nothing is changed by it", async (_name, options) => {
    const self = await crew([serve]);
    expect(() => self.running.gateway.addWorker(options)).toThrow();
    expect([...self.running.router.workers].map(({ id }) => id)).toEqual(["w0"]);
    expect((await get(`${self.running.url}/health`)).status).toBe(200);
    expect(await self.say()).toBe("200 w0 place");
  });

  it("may be removed again before it has answered (C1)", async () => {
    const self = await crew([serve]);
    const asks = new EventEmitter();
    const late = await upstream(() => {});
    late.server.removeAllListeners("request");
    late.server.on("request", (_request, response) => asks.emit("asked", response));
    const asked = once(asks, "asked");
    const worker = self.running.gateway.addWorker({ id: "late", url: late.url });
    const [response] = (await asked) as [ServerResponse];
    self.running.gateway.removeWorker(worker);
    response.end('{"data":[{"id":"m"}]}');
    await once(response, "close");
    expect(await self.say()).toBe("200 w0 place");
    expect([worker.eligible, self.loads]).toEqual([false, "0"]);
    expect(self.running.log.join()).not.toMatch(/"late".*worker is ready/);
  });

  it("may be removed twice, and another router's not at all", async () => {
    const self = await crew([serve, serve]);
    const old = self.worker("w0");
    const stranger = [...createRouter({ policy: loadPolicy("sticky"), workers: [{ id: "w1" }] }).workers][0]!;
    for (const worker of [old, old, stranger]) self.running.gateway.removeWorker(worker);
    expect(await self.say()).toBe("200 w1 place");
    expect(self.loads).toBe("0");
  });
});

it("a fleet that changes all the time loses no request", async () => {
  const self = await crew([serve, serve], { policy: "least-loaded" });
  const { gateway: running, router } = self.running;
  const urls = self.upstreams.map(({ url }) => url);
  let isOver = false;
  const churn = (async () => {
    for (let i = 0; i < 60; i++) {
      const id = `w${i % 2}`;
      running.removeWorker(self.worker(id));
      await added(self, id, urls[i % 2]!);
    }
    isOver = true;
  })();
  const statuses = new Set<string>();
  let sent = 0;
  const client = async (key: string) => {
    while (!isOver) {
      statuses.add((await self.say(key)).slice(0, 3));
      sent++;
    }
  };
  await Promise.all([churn, ...Array.from({ length: 8 }, (_, i) => client(`s${i}`))]);
  expect([...statuses]).toEqual(["200"]);
  expect(sent).toBeGreaterThan(60);
  await until(() => inFlight(router) === 0);
  expect((await self.dataPlane()).outcomes).toEqual({ complete: sent });
});

describe("two workers that are alike", () => {
  const POLICIES: readonly string[] = [
    "least-loaded",
    "sticky",
    "soft-affinity-load-guard",
    "affinity-break-margin",
    "imbalance-gate",
    "soft-pin-repin",
  ];

  it.each(POLICIES)(
    "get as many of the requests that come one at a time: %s with ties: random (A13)",
    async (name) => {
      const counts = [0, 0];
      const urls = await Promise.all(
        counts.map(
          async (_, i) =>
            (
              await upstream((_request, response) => {
                counts[i]!++;
                response.end("{}");
              })
            ).url,
        ),
      );
      const url = await tied(name, urls);
      // Far apart in either direction by chance once in some million runs.
      for (let i = 0; i < 160; i++) await post(url + CHAT, { model: "m" });
      expect(counts[0]! + counts[1]!).toBe(160);
      expect(Math.min(...counts)).toBeGreaterThanOrEqual(48);
    },
  );

  it("but for their speed: under least-loaded the faster one gets more (A13)", async () => {
    const held: ServerResponse[] = [];
    const counts = { slow: 0, fast: 0 };
    // The slow one answers once for every ten answers of the fast one.
    const slow = await upstream((_request, response) => {
      counts.slow++;
      held.push(response);
    });
    const fast = await upstream((_request, response) => {
      counts.fast++;
      if (counts.fast % 10 === 0) held.shift()?.end("{}");
      response.end("{}");
    });
    const url = await tied("least-loaded", [slow.url, fast.url]);
    let left = 200;
    const pending = new Set<Promise<Reply>>();
    const client = async () => {
      while (left-- > 0) {
        const reply = post(url + CHAT, { model: "m" });
        pending.add(reply);
        await reply;
        pending.delete(reply);
      }
    };
    const clients = Promise.all(Array.from({ length: 8 }, client));
    // Those that the fast one leaves behind.
    await until(() => {
      if (pending.size === held.length) held.shift()?.end("{}");
      return left <= 0 && pending.size === 0;
    });
    await clients;
    expect(counts.slow + counts.fast).toBe(200);
    expect(counts.fast).toBeGreaterThan(3 * counts.slow);
    expect(counts.slow).toBeGreaterThan(0);
  });

  it("but for their health: one that has failed is no candidate, however idle (A13)", async () => {
    const self = await crew([serve, serve], { policy: "least-loaded" });
    await self.kill("w0");
    for (let i = 0; i < 10; i++) expect(await self.say()).toBe("200 w1 place");
    await until(() => !self.worker("w0").eligible);
    expect(self.order).toBe(Array(10).fill("w1").join(" "));
    expect((await self.dataPlane()).retries).toBeGreaterThanOrEqual(1);
  });
});

/** A gateway whose policy breaks ties at random; resolves to its address. */
async function tied(policy: string, urls: readonly string[]): Promise<string> {
  const needed = policy === "soft-pin-repin" ? { max_active_requests: 1 } : {};
  const router = createRouter({
    ...{ policy: loadPolicy(policy), parameters: { ...needed, ties: "random" } },
  });
  const running = createGateway({
    ...{ router, log: pino({ level: "silent" }), dataPlane: dataPlane({}), ...fleet() },
    workers: urls.map((url, i) => ({ id: `w${i}`, url })),
  });
  onTestFinished(() => running.close());
  return running.listen("127.0.0.1", 0);
}
