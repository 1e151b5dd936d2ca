// Requests for which every worker is full: in which order they get one, how long they wait, and what they are told.
import { describe, expect, it } from "vitest";
import { get, open, post } from "./client.js";
import { CHAT, type Crew, crew, hold, refuse, reset, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { stop, until, upstream } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

expectNothingUncaught();

const error = (reply: string) => JSON.parse(reply.slice(reply.indexOf("{"))).error;

const keysAsked = (self: Crew) => self.asked.map(({ request }) => request.headers["x-session-id"]);

describe("a request that finds every worker full", () => {
  it("waits until one has room, and those that wait go on in the order in which they came", async () => {
    const self = await crew([hold, hold], { maxInFlight: 1 });
    const said = await self.inLine(["a", "b", "c", "d", "e"]);
    expect([self.loads, self.waiting]).toEqual(["1 1", 3]);
    for (let i = 0; i < 5; i++) {
      await until(() => self.asked.length > i);
      serve(self.asked[i]!);
      await said[i];
    }
    expect(keysAsked(self)).toEqual(["a", "b", "c", "d", "e"]);
    for (const reply of said) expect(await reply).toMatch(/^200 w[01] place$/);
    expect([self.loads, self.waiting]).toEqual(["0 0", 0]);
  });

  it("asks the router once for each lease that ends, however many wait (B23)", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(Array.from({ length: 30 }, (_, i) => `k${i}`));
    const { router } = self.running;
    const acquire = router.acquire.bind(router);
    let asks = 0;
    router.acquire = (request) => {
      asks++;
      return acquire(request);
    };
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(asks).toBe(0);
    for (let i = 0; i < 30; i++) {
      await until(() => self.asked.length > i);
      serve(self.asked[i]!);
    }
    await Promise.all(said);
    // One that succeeds, and one that finds the worker full again.
    expect(asks).toBeLessThanOrEqual(2 * 30);
  });

  it("does not overtake those that came before it", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(["a", "b"]);
    serve(self.asked[0]!);
    await said[0];
    said.push(...(await self.inLine(["c"])));
    expect(keysAsked(self)).toEqual(["a", "b"]);
    serve(self.asked[1]!);
    await until(() => self.asked.length === 3);
    serve(self.asked[2]!);
    expect(keysAsked(self)).toEqual(["a", "b", "c"]);
    await Promise.all(said);
  });

  it("is behind bound sessions only where that is configured", async () => {
    for (const boundFirst of [false, true]) {
      const self = await crew([hold], { maxInFlight: 1, admission: { boundFirst } });
      self.bind("w0", "bound");
      const said = await self.inLine(["a", "new", "bound"]);
      for (let i = 0; i < 3; i++) {
        await until(() => self.asked.length > i);
        serve(self.asked[i]!);
      }
      await Promise.all(said);
      expect(keysAsked(self)).toEqual(boundFirst ? ["a", "bound", "new"] : ["a", "new", "bound"]);
    }
  });

  it("is served at once by a worker that is added", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(["a", "b"]);
    const late = await upstream((_request, response) => response.end("{}"));
    self.running.gateway.addWorker({ id: "late", url: late.url });
    expect(await said[1]).toBe("200 late place");
    serve(self.asked[0]!);
    await said[0];
  });

  it("is told so when no worker is left to wait for", async () => {
    const self = await crew([hold], { maxInFlight: 1, health: { intervalMs: 20 } });
    const said = await self.inLine(["a", "b", "c", "d"]);
    await stop(self.upstreams[0]!.server);
    expect(await said[0]).toMatch(/^502 /);
    expect(await said[3]).toMatch(/^503 .*no_worker_eligible/);
    await Promise.all(said);
    expect(self.waiting).toBe(0);
  });

  it("gets the place of one that is to be tried elsewhere, which waits for that before all others", async () => {
    const self = await crew([hold, hold], { maxInFlight: 1 });
    const [first, second, third] = await self.inLine(["a", "b", "c"]);
    // w1 is full: the one that w0 turns away is the next there, and the one in line the next at w0.
    refuse(503)(self.asked.find(({ worker }) => worker === "w0")!);
    await until(() => self.asked.length === 3);
    expect([self.asked[2]!.worker, self.waiting]).toEqual(["w0", 1]);
    serve(self.asked[1]!);
    await until(() => self.asked.length === 4);
    expect([self.asked[3]!.worker, self.waiting]).toEqual(["w1", 0]);
    serve(self.asked[3]!);
    serve(self.asked[2]!);
    expect(await first).toMatch(/^200 w1 /);
    expect(await second).toMatch(/^200 w1 /);
    expect(await third).toMatch(/^200 w0 /);
  });

  it("does not wait behind one that is to be tried elsewhere, where that one may not go but others may", async () => {
    const self = await crew([hold, hold], { maxInFlight: 1 });
    const [first, second] = await self.inLine(["a", "b"]);
    refuse(503)(self.asked.find(({ worker }) => worker === "w0")!);
    await until(() => self.waiting === 1);
    const third = self.say("c");
    await until(() => self.asked.length === 3);
    expect([self.asked[2]!.worker, self.waiting]).toEqual(["w0", 1]);
    for (const asked of self.asked.slice(1)) serve(asked);
    await until(() => self.asked.length === 4);
    serve(self.asked[3]!);
    for (const reply of [first, second, third]) expect(await reply).toMatch(/^200 /);
  });

  it("leaves no trace where its client leaves", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(["a"]);
    const gone = new AbortController();
    const left = fetch(self.running.url + CHAT, {
      method: "POST",
      body: JSON.stringify({ model: "m" }),
      signal: gone.signal,
    });
    await until(() => self.waiting === 1);
    said.push(...(await self.inLine(["c"])));
    gone.abort();
    await expect(left).rejects.toThrow();
    await until(() => self.waiting === 1);
    serve(self.asked[0]!);
    await until(() => self.asked.length === 2);
    serve(self.asked[1]!);
    await Promise.all(said);
    expect(keysAsked(self)).toEqual(["a", "c"]);
    expect(self.loads).toBe("0");
  });

  it("waits for its own model alone", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(["a", "b"]);
    const other = await upstream((_request, response) => response.end("{}"));
    self.running.gateway.addWorker({ id: "other", url: other.url, models: ["other"] });
    await until(() => self.worker("other").eligible);
    expect(await self.say("x", { model: "other" })).toBe("200 other place");
    expect(self.waiting).toBe(1);
    serve(self.asked[0]!);
    await until(() => self.asked.length === 2);
    serve(self.asked[1]!);
    await Promise.all(said);
  });

  it("moves no binding before it has a worker, and none at all where it never gets one (C6)", async () => {
    const clock = new VirtualClock();
    const self = await crew([hold], { maxInFlight: 1, clock, admission: { deadlineMs: 1_000 } });
    const said = await self.inLine(["a", "b"]);
    expect(self.running.router.status()).toMatchObject({ bindings: 1 });
    clock.advance(5_000);
    expect(await said[1]).toMatch(/^429 /);
    serve(self.asked[0]!);
    await said[0];
    expect(self.binding("b")).toBeUndefined();
    expect(self.running.router.status()).toMatchObject({ bindings: 1 });
  });
});

describe("the line", () => {
  it.each([0, 2])(
    "is as long as configured: %i, and who finds it full is told when to come again",
    async (queue) => {
      const self = await crew([hold], { maxInFlight: 1, admission: { queue } });
      const said = await self.inLine(["a", "b", "c"].slice(0, queue + 1));
      const reply = await post(self.running.url + CHAT, { model: "m" });
      expect(reply).toMatchObject({ status: 429, headers: { "retry-after": "1" } });
      expect(JSON.parse(reply.body).error).toMatchObject({
        code: "queue_full",
        type: "rate_limit_error",
      });
      const anthropic = await post(`${self.running.url}/v1/messages`, { model: "m" });
      expect(JSON.parse(anthropic.body)).toMatchObject({
        type: "error",
        error: { type: "rate_limit_error" },
      });
      expect(self.waiting).toBe(queue);
      for (let i = 0; i <= queue; i++) {
        await until(() => self.asked.length > i);
        serve(self.asked[i]!);
      }
      await Promise.all(said);
    },
  );

  it("is left after the deadline, not before, with what is left of the line told", async () => {
    const clock = new VirtualClock();
    const self = await crew([hold], { maxInFlight: 1, clock, admission: { deadlineMs: 8_000 } });
    const said = await self.inLine(["a", "b"]);
    clock.advance(7_999);
    expect(self.waiting).toBe(1);
    clock.advance(2_001);
    const reply = await said[1]!;
    expect(reply).toMatch(/^429 /);
    expect(error(reply).code).toBe("queue_timeout");
    expect(self.waiting).toBe(0);
    serve(self.asked[0]!);
    expect(await said[0]).toBe("200 w0 place");
    const { body } = await get(`${self.running.admin}/admin/workers`);
    expect(body).toMatchObject({ queue: { waiting: {}, refused: 0, expired: 1 } });
  });

  it("does not hold a pinned request, which waits for one worker and would hold up others", async () => {
    const self = await crew([hold, hold], { maxInFlight: 1, allowPin: true });
    const said = await self.inLine(["a"]);
    const pinned = await self.say("p", {}, { "x-hawser-pin": self.asked[0]!.worker });
    expect(pinned).toMatch(/^429 /);
    expect(error(pinned).code).toBe("workers_full");
    serve(self.asked[0]!);
    await Promise.all(said);
  });

  it("is not joined in vain: where all asked to be left alone for longer than one may wait", async () => {
    const clock = new VirtualClock();
    const self = await crew([refuse(429, { "retry-after": "60" })], {
      clock,
      admission: { deadlineMs: 30_000 },
    });
    expect(await self.say()).toMatch(/^429 w0 /);
    const reply = await post(self.running.url + CHAT, { model: "m" });
    expect(reply).toMatchObject({ status: 429, headers: { "retry-after": "60" } });
    expect(self.order).toBe("w0");
    clock.advance(31_000);
    self.deeds[0] = serve;
    const waits = self.say();
    await until(() => self.waiting === 1);
    clock.advance(29_000);
    expect(await waits).toBe("200 w0 place");
  });

  it("is cut with the rest when the gateway ends", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(["a", "b"]);
    expect(await self.running.gateway.drain(50)).toEqual({ cut: 2, by: "deadline" });
    for (const reply of said) expect(await reply).toMatch(/^503 .*shutting_down/);
  });

  it("goes on through workers that break off, without losing or doubling a request", async () => {
    const self = await crew([reset, serve], { maxInFlight: 2, health: { slowStartMs: 0 } });
    const said = await Promise.all(Array.from({ length: 60 }, (_, i) => self.say(`k${i}`)));
    expect(said.filter((reply) => /^200 w1 /.test(reply)).length).toBe(60);
    expect([self.loads, self.waiting]).toEqual(["0 0", 0]);
  });

  it("holds streams as well, and counts each once", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const first = open(self.running.url + CHAT, { model: "m", stream: true });
    await until(() => self.asked.length === 1);
    const second = open(self.running.url + CHAT, { model: "m", stream: true });
    await until(() => self.waiting === 1);
    for (const [i, message] of [first, second].entries()) {
      await until(() => self.asked.length === i + 1);
      self.asked[i]!.response.writeHead(200, { "content-type": "text/event-stream" }).end("data: [DONE]\n\n");
      (await message).resume();
    }
    await until(() => self.loads === "0");
  });
});
