// Breakers behind a running gateway: what opens one, what does not, and what an open one keeps away from its worker.

import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { open, post } from "./client.js";
import { CHAT, type Crew, crew, type Deed, hold, inTurn, refuse, reset, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, until } from "./fixture.js";
import { call, shown } from "./operator.js";
import { VirtualClock } from "./virtual-clock.js";

const OPEN_MS = 10_000;
/** At the latest so long after it the gateway sees what time alone has changed. */
const TICK_MS = 250;

expectNothingUncaught();

interface Timed {
  readonly self: Crew;
  readonly clock: VirtualClock;
}

/** A crew whose time stands still, and whose clients may say which worker they want. */
async function timed(deeds: readonly Deed[], options: Omit<GatewayFixture, "urls"> = {}): Promise<Timed> {
  const clock = new VirtualClock();
  return { clock, self: await crew(deeds, { clock, allowPin: true, ...options }) };
}

/** A request for one worker, which no other one is tried for. */
const to = (self: Crew, worker: string) => self.say(undefined, {}, { "x-hawser-pin": worker });

/** Requests for one worker, one after the other: what came of each. */
async function times(count: number, self: Crew, worker: string): Promise<string[]> {
  const said: string[] = [];
  for (let i = 0; i < count; i++) said.push(await to(self, worker));
  return said;
}

/** Begins a good answer, and breaks off in the middle of it. */
const breakOff: Deed = ({ response }) => {
  response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
  response.write('{"by":', () => response.destroy());
};

/** Requests for one worker, one after the other, of which some answers break off: what came of each. */
async function whole(count: number, self: Crew, worker: string): Promise<string[]> {
  const said: string[] = [];
  for (let i = 0; i < count; i++) said.push(await to(self, worker).catch(() => "broken off"));
  return said;
}

/** Sends requests for a worker that holds them, and waits until they are there. */
async function held(count: number, self: Crew, worker: string): Promise<Promise<string>[]> {
  const said: Promise<string>[] = [];
  const before = self.asked.length;
  for (let i = 1; i <= count; i++) {
    said.push(to(self, worker));
    await until(() => self.asked.length === before + i);
  }
  return said;
}

const askedOf = (self: Crew, worker: string) => self.asked.filter((asked) => asked.worker === worker).length;

const shownOf = ({ running }: Crew, worker: string) => shown(running.admin, worker);

const breakerOf = async (self: Crew, worker: string) => (await shownOf(self, worker)).breaker;

/** Has w0 fail until its breaker is open. */
async function opened(options: Omit<GatewayFixture, "urls"> = {}): Promise<Timed> {
  const made = await timed([refuse(500), serve], options);
  await times(5, made.self, "w0");
  expect(await shownOf(made.self, "w0")).toMatchObject({ state: "unhealthy", breaker: { state: "open" } });
  return made;
}

describe("a breaker does not open", () => {
  it.each([400, 401, 404, 413, 422, 501])(
    "by 20 answers of %i, which are the client's doing (C9)",
    async (status) => {
      const { self } = await timed([refuse(status), serve]);
      const said = await times(20, self, "w0");
      expect(said.filter((reply) => reply.startsWith(`${status} w0 `))).toHaveLength(20);
      expect(await shownOf(self, "w0")).toMatchObject({
        state: "ready",
        eligible: true,
        breaker: { state: "closed", why: null, successes: 0, failures: 0, failures_in_a_row: 0 },
      });
      expect(await breakerOf(self, "w1")).toMatchObject({ state: "closed", failures: 0 });
    },
  );

  it.each([429, 503])("by 20 answers of %i, by which a worker says that it is busy (C11)", async (status) => {
    const { self, clock } = await timed([refuse(status), serve]);
    for (let i = 0; i < 20; i++) {
      await to(self, "w0");
      clock.advance(1_000);
    }
    expect(askedOf(self, "w0")).toBe(20);
    expect(await shownOf(self, "w0")).toMatchObject({
      ...{ state: "ready", eligible: true, held_off_ms: 0, reason: "it answers" },
      breaker: { state: "closed", successes: 0, failures: 0 },
    });
    self.deeds[0] = refuse(status, { "retry-after": "7" });
    await to(self, "w0");
    expect(await shownOf(self, "w0")).toMatchObject({
      ...{ state: "ready", eligible: false, held_off_ms: 7_000 },
      reason: "it asked to be left alone for a while",
      breaker: { state: "closed", failures: 0 },
    });
    // Of two moments the later one counts.
    clock.advance(7_000);
    self.deeds[0] = inTurn(refuse(status, { "retry-after": "60" }), refuse(status, { "retry-after": "5" }));
    const both = [self.say("a"), self.say("b")];
    await Promise.all(both);
    expect((await shownOf(self, "w0")).held_off_ms).toBe(60_000);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", failures: 0 });
  });

  it("by clients that leave", async () => {
    const { self } = await timed([hold, serve]);
    for (let i = 0; i < 20; i++) {
      const gone = new AbortController();
      const left = fetch(self.running.url + CHAT, {
        ...{ method: "POST", body: JSON.stringify({ model: "m" }), signal: gone.signal },
        headers: { "x-hawser-pin": "w0" },
      });
      await until(() => self.asked.length === i + 1);
      gone.abort();
      await expect(left).rejects.toThrow();
    }
    await until(() => self.loads === "0 0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", successes: 0, failures: 0 });
  });

  it("by four failures, whatever lies between them that says nothing; the fifth opens it", async () => {
    const { self } = await timed([refuse(500), serve]);
    await times(4, self, "w0");
    for (const status of [400, 429, 503, 501]) {
      self.deeds[0] = refuse(status);
      await to(self, "w0");
    }
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", failures: 4, failures_in_a_row: 4 });
    self.deeds[0] = refuse(500);
    await to(self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "open", failures: 5 });
  });

  it("by failures that a good answer lies between", async () => {
    const { self } = await timed([refuse(500), serve]);
    await times(4, self, "w0");
    self.deeds[0] = inTurn(serve, refuse(500));
    await times(5, self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", failures: 8, failures_in_a_row: 4 });
  });

  it("where there is none", async () => {
    const { self } = await timed([refuse(500), serve], { breaker: null });
    await times(20, self, "w0");
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready", breaker: null });
  });
});

describe("a breaker opens", () => {
  it.each<[string, Deed, string]>([
    ["500", refuse(500), "status 500"],
    ["502", refuse(502), "status 502"],
    ["504", refuse(504), "status 504"],
    ["a reset", reset, "ECONNRESET"],
  ])("by 5 failures in a row: %s", async (_name, deed, why) => {
    const { self } = await timed([deed, serve]);
    await times(4, self, "w0");
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready", breaker: { state: "closed" } });
    await to(self, "w0");
    await expectOpen(self, why);
  });

  it("by 5 failures in a row: no connection", async () => {
    // Failed checks would take it out sooner.
    const { self } = await timed([serve, serve], { health: { unhealthyAfter: 1_000 } });
    await self.kill("w0");
    for (const reply of await times(5, self, "w0")) expect(reply).toMatch(/^502 /);
    await expectOpen(self, "ECONNREFUSED", 0);
  });

  it("by 5 failures in a row: the first byte does not come in time", async () => {
    const { self, clock } = await timed([hold, serve], { timeouts: { firstByteMs: 1_000 } });
    for (let i = 0; i < 5; i++) {
      const [said] = await held(1, self, "w0");
      clock.advance(1_500);
      expect(await said).toMatch(/^504 .*worker_timeout/);
    }
    await expectOpen(self, "first byte timeout");
  });

  it("by 5 failures in a row: an error as the first event of a stream", async () => {
    const event: Deed = ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end('data: {"error":{"message":"no memory","code":500}}\n\n');
    };
    const { self } = await timed([event, serve], { streams: { peek: true } });
    for (let i = 0; i < 5; i++) await self.say(undefined, { stream: true }, { "x-hawser-pin": "w0" });
    await expectOpen(self, "an error event, status 500");
  });

  it("by half of the results within the window, of ten at least", async () => {
    const { self, clock } = await timed([serve, serve]);
    await times(30, self, "w0");
    // What is older than the window does not count.
    clock.advance(30_000);
    for (let i = 0; i < 9; i++) {
      self.deeds[0] = i % 2 === 0 ? serve : refuse(500);
      await to(self, "w0");
    }
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", successes: 5, failures: 4 });
    self.deeds[0] = refuse(500);
    await to(self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "open", failures_in_a_row: 1 });
  });

  it("by answers most of which break off after a good head, whatever good ones lie between", async () => {
    // Of 150 such answers 112 break off, never more than three of them in a row.
    const four = [serve, breakOff, breakOff, breakOff];
    const { self } = await timed([inTurn(...Array(150).fill(four).flat()), serve]);
    const said = await whole(9, self, "w0");
    expect(said.filter((reply) => reply === "broken off")).toHaveLength(6);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", successes: 3, failures: 6 });
    const rest = await whole(141, self, "w0");
    expect(rest.filter((reply) => /^503 .*no_worker_eligible/.test(reply))).toHaveLength(140);
    await expectOpen(self, "the connection was closed", 10);
  });

  it("by 5 answers in a row that break off, between which is only what says nothing", async () => {
    const { self } = await timed([
      inTurn(
        breakOff,
        breakOff,
        refuse(400),
        breakOff,
        refuse(429),
        refuse(500),
        breakOff,
        refuse(422),
        breakOff,
      ),
      serve,
    ]);
    await whole(8, self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", failures: 5, failures_in_a_row: 4 });
    await whole(1, self, "w0");
    await expectOpen(self, "the connection was closed", 9);
  });

  it("not by 4 of them, where the next one comes to its end", async () => {
    const { self } = await timed(
      [inTurn(breakOff, breakOff, breakOff, breakOff, serve, breakOff, breakOff, breakOff, breakOff), serve],
      { breaker: { minRequests: 100 } },
    );
    await whole(9, self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({
      ...{ state: "closed", successes: 1, failures: 8, failures_in_a_row: 4 },
    });
  });

  /** The breaker of w0 is open because of `why`, and keeps everything away, which w1 serves. */
  async function expectOpen(self: Crew, why: string, asked = 5): Promise<void> {
    const seen = await shownOf(self, "w0");
    expect(seen).toMatchObject({ state: "unhealthy", eligible: false, breaker: { state: "open" } });
    expect(seen.reason).toContain("its breaker is open: ");
    expect(seen.reason).toContain(why);
    expect(seen.breaker.why).toContain(why);
    const { open_until: until, since } = seen.breaker;
    // The time of day is told to the millisecond, and read twice.
    expect(Math.abs(Date.parse(until) - Date.parse(since) - OPEN_MS)).toBeLessThan(1_000);
    expect(self.running.log.filter((line) => line.includes("worker is unhealthy"))).toHaveLength(1);
    for (let i = 0; i < 10; i++) expect(await self.say(`k${i}`)).toBe("200 w1 place");
    expect(await to(self, "w0")).toMatch(/^503 .*no_worker_eligible/);
    expect(askedOf(self, "w0")).toBe(asked);
  }
});

describe("a breaker that was open", () => {
  it("is half-open after its time: so many probes at once, and good answers to them close it (C12)", async () => {
    const { self, clock } = await opened();
    self.deeds[0] = hold;
    clock.advance(OPEN_MS - 1);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
    clock.advance(1);
    expect(await shownOf(self, "w0")).toMatchObject({
      state: "ready",
      reason: "its breaker is half-open: status 500",
      breaker: { state: "half_open", open_until: null },
    });
    const probes = await held(3, self, "w0");
    expect(self.loads).toBe("3 0");
    expect(await to(self, "w0")).toMatch(/^429 .*workers_full/);
    expect(await self.say()).toBe("200 w1 place");
    const mine = self.asked.filter(({ worker }) => worker === "w0").slice(-3);
    for (const [i, asked] of mine.entries()) {
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open" });
      serve(asked);
      expect(await probes[i]).toBe("200 w0 explicit");
    }
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", failures: 0 });
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready", eligible: true, reason: "it answers" });
    // There is no limit any more.
    const more = await held(5, self, "w0");
    for (const asked of self.asked.slice(-5)) serve(asked);
    await Promise.all(more);
  });

  it("opens again by one failure, for twice as long each time", async () => {
    const { self, clock } = await opened({ breaker: { openMaxMs: 40_000 } });
    for (const ms of [10_000, 20_000, 40_000, 40_000]) {
      clock.advance(ms - 1);
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
      const count = askedOf(self, "w0");
      expect(await to(self, "w0")).toMatch(/^503 /);
      expect(askedOf(self, "w0")).toBe(count);
      clock.advance(1);
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open" });
      expect(await to(self, "w0")).toMatch(/^500 w0 /);
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
    }
  });

  it("is not closed for good by probes that all break off after a good head", async () => {
    const { self, clock } = await opened();
    self.deeds[0] = hold;
    for (const openMs of [10_000, 20_000, 40_000]) {
      clock.advance(openMs - 1);
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
      clock.advance(TICK_MS);
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open" });
      const probes = await streamed(3, self);
      // By their heads alone it is closed.
      expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", why: null });
      clock.advance(1_000);
      for (const asked of self.asked.slice(-3)) asked.response.destroy();
      for (const probe of probes) probe.resume();
      await until(() => self.loads === "0 0");
      const breaker = await breakerOf(self, "w0");
      expect(breaker).toMatchObject({ state: "open", failures: 1 });
      expect(breaker.why).toBe("the connection was closed");
    }
    clock.advance(79_999);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
    clock.advance(TICK_MS);
    self.deeds[0] = serve;
    const good = Array(3).fill("200 w0 explicit");
    expect(await times(3, self, "w0")).toEqual(good);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed", why: null });

    /** Sends streams to w0 that begin well, a little later than they were sent; resolves when they have begun. */
    async function streamed(count: number, crew: Crew): Promise<IncomingMessage[]> {
      const messages: Promise<IncomingMessage>[] = [];
      const first = crew.asked.length;
      for (let i = 1; i <= count; i++) {
        messages.push(open(crew.running.url + CHAT, { model: "m", stream: true }, { "x-hawser-pin": "w0" }));
        await until(() => crew.asked.length === first + i);
      }
      clock.advance(100);
      for (const { response } of crew.asked.slice(first))
        response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      return Promise.all(messages);
    }
  });

  it("opens again at the first probe that breaks off", async () => {
    const { self, clock } = await opened();
    self.deeds[0] = inTurn(serve, breakOff);
    clock.advance(OPEN_MS);
    await whole(1, self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open" });
    await whole(1, self, "w0");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
    clock.advance(2 * OPEN_MS - 1);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "open" });
  });

  it("has places for probes again where their clients left, and counts nothing of them", async () => {
    const { self, clock } = await opened();
    self.deeds[0] = hold;
    clock.advance(OPEN_MS);
    for (let round = 0; round < 3; round++) {
      const messages = [];
      for (let i = 0; i < 3; i++) {
        const count = self.asked.length + 1;
        const stream = { model: "m", stream: true };
        const message = open(self.running.url + CHAT, stream, { "x-hawser-pin": "w0" });
        await until(() => self.asked.length === count);
        self.asked.at(-1)!.response.writeHead(422, { "content-type": "text/event-stream" }).flushHeaders();
        messages.push(await message);
      }
      expect(await to(self, "w0")).toMatch(/^429 /);
      for (const message of messages) message.destroy();
      await until(() => self.loads === "0 0");
    }
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open", successes: 0, failures: 5 });
  });

  it("is not held up by long streams from before, and has no more probes when those end", async () => {
    const { self, clock } = await timed([hold, serve]);
    const streams = [];
    for (let i = 0; i < 4; i++) {
      const message = open(self.running.url + CHAT, { model: "m", stream: true }, { "x-hawser-pin": "w0" });
      await until(() => self.asked.length === i + 1);
      self.asked[i]!.response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      streams.push(await message);
    }
    self.deeds[0] = refuse(500);
    await times(5, self, "w0");
    self.deeds[0] = hold;
    clock.advance(OPEN_MS);
    const probes = await held(3, self, "w0");
    expect(self.loads).toBe("7 0");
    expect(await to(self, "w0")).toMatch(/^429 /);
    for (let i = 0; i < 4; i++) {
      self.asked[i]!.response.end("data: [DONE]\n\n");
      streams[i]!.resume();
      await until(() => self.loads === `${6 - i} 0`);
      expect(await to(self, "w0")).toMatch(/^429 /);
    }
    // Nor do they say anything of the worker as it is now.
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open" });
    for (const asked of self.asked.slice(-3)) serve(asked);
    for (const probe of probes) expect(await probe).toBe("200 w0 explicit");
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed" });
  });

  it("serves those that wait in line as soon as it is half-open, so many at a time", async () => {
    const { self, clock } = await opened({ maxInFlight: 1, breaker: { halfOpen: 1 } });
    self.deeds.splice(0, 2, hold, hold);
    const first = self.say("a");
    await until(() => self.loads === "0 1");
    const others = [self.say("b"), self.say("c")];
    await until(() => self.waiting === 2);
    clock.advance(OPEN_MS);
    await until(() => self.asked.length === 7);
    expect([self.loads, self.waiting]).toEqual(["1 1", 1]);
    for (const worker of ["w0", "w1"]) serve(self.asked.findLast((asked) => asked.worker === worker)!);
    await until(() => self.asked.length === 8);
    serve(self.asked.at(-1)!);
    expect(await first).toMatch(/^200 w1 /);
    for (const reply of await Promise.all(others)) expect(reply).toMatch(/^200 w[01] /);
  });
});

describe("breakers take out", () => {
  it.each([
    [1, 0],
    [2, 1],
    [3, 1],
    [4, 2],
  ])("of %i workers of a model at most %i", async (count, most) => {
    const { self } = await timed(Array(count).fill(refuse(500)), { retries: { attempts: 1 } });
    for (let i = 0; i < count; i++) await times(10, self, `w${i}`);
    const states = await Promise.all(
      self.deeds.map(async (_, i) => (await breakerOf(self, `w${i}`)).state as string),
    );
    expect(states.filter((state) => state === "open")).toHaveLength(most);
    // The others are asked still.
    expect(await self.say()).toMatch(/^500 w\d /);
  });

  it("no second worker while the first is half-open; but where that one is closed again, it may", async () => {
    const { self, clock } = await opened();
    clock.advance(OPEN_MS);
    self.deeds.splice(0, 2, serve, refuse(500));
    await times(6, self, "w1");
    expect(await breakerOf(self, "w1")).toMatchObject({ state: "closed", failures_in_a_row: 6 });
    await times(3, self, "w0");
    clock.advance(TICK_MS);
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "closed" });
    await to(self, "w1");
    expect(await breakerOf(self, "w1")).toMatchObject({ state: "open" });
  });

  it("none where its only peer is out for another reason", async () => {
    const { self } = await timed([refuse(500), serve], { health: { unhealthyAfter: 1 } });
    await self.kill("w1");
    expect(await to(self, "w1")).toMatch(/^502 /);
    expect(await shownOf(self, "w1")).toMatchObject({ state: "unhealthy", breaker: { state: "closed" } });
    await times(10, self, "w0");
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready", breaker: { state: "closed" } });
  });
});

describe("breakers take out no more than half where others leave", () => {
  const openOf = async (self: Crew, ...workers: string[]) =>
    Promise.all(workers.map(async (worker) => (await breakerOf(self, worker)).state as string));

  it.each([
    ["removed", "DELETE", "/admin/workers/w1"],
    ["drained", "POST", "/admin/workers/w1/drain"],
  ])(
    "is the only one left, the other one is %s: it is half-open at once, and serves",
    async (_name, method, path) => {
      const { self } = await opened();
      self.deeds[0] = serve;
      expect((await call(self.running.admin, method, path)).status).toBe(200);
      expect(await shownOf(self, "w0")).toMatchObject({
        ...{ state: "ready", eligible: true, reason: "its breaker is half-open: status 500" },
        breaker: { state: "half_open", open_until: null },
      });
      for (let i = 0; i < 3; i++) expect(await self.say()).toBe("200 w0 place");
      expect(await openOf(self, "w0")).toEqual(["closed"]);
    },
  );

  it("and fails still: it is asked all the same, and closed when it is well", async () => {
    const { self, clock } = await opened();
    await call(self.running.admin, "DELETE", "/admin/workers/w1");
    clock.advance(TICK_MS);
    self.deeds[0] = inTurn(serve, serve, refuse(500));
    for (const said of ["200", "200", "500", "500", "500", "500", "500", "500"])
      expect(await self.say()).toMatch(new RegExp(`^${said} w0 `));
    expect(await breakerOf(self, "w0")).toMatchObject({ state: "half_open" });
    self.deeds[0] = serve;
    await times(2, self, "w0");
    expect(await openOf(self, "w0")).toEqual(["half_open"]);
    await times(1, self, "w0");
    expect(await openOf(self, "w0")).toEqual(["closed"]);
  });

  it("two of four are open and the other two go: requests still reach workers", async () => {
    const { self, clock } = await timed([refuse(500), refuse(500), serve, serve], {
      retries: { attempts: 1 },
    });
    for (const worker of ["w0", "w1"]) await times(5, self, worker);
    expect(await openOf(self, "w0", "w1", "w2", "w3")).toEqual(["open", "open", "closed", "closed"]);
    // With three of them two may not be out.
    await call(self.running.admin, "DELETE", "/admin/workers/w3");
    clock.advance(TICK_MS);
    expect((await openOf(self, "w0", "w1")).sort()).toEqual(["half_open", "half_open"]);
    await call(self.running.admin, "DELETE", "/admin/workers/w2");
    clock.advance(TICK_MS);
    expect(await self.say()).toMatch(/^500 w[01] /);
    self.deeds.splice(0, 2, serve, serve);
    for (let i = 0; i < 6; i++) expect(await self.say(`k${i}`)).toMatch(/^200 w[01] /);
    await times(3, self, "w0");
    await times(3, self, "w1");
    expect(await openOf(self, "w0", "w1")).toEqual(["closed", "closed"]);
  });

  it("does not relent where enough are left", async () => {
    const { self, clock } = await timed([refuse(500), serve, serve, serve]);
    await times(5, self, "w0");
    for (const gone of ["w3", "w2"]) await call(self.running.admin, "DELETE", `/admin/workers/${gone}`);
    clock.advance(OPEN_MS - TICK_MS);
    expect(await openOf(self, "w0", "w1")).toEqual(["open", "closed"]);
  });

  it("does not count those that are drained: neither as out, nor as there", async () => {
    const { self, clock } = await timed([refuse(500), refuse(500), serve, serve]);
    for (const drained of ["w2", "w3"])
      await call(self.running.admin, "POST", `/admin/workers/${drained}/drain`);
    await times(5, self, "w0");
    expect(await openOf(self, "w0")).toEqual(["open"]);
    await times(10, self, "w1");
    expect(await openOf(self, "w0", "w1")).toEqual(["open", "closed"]);
    // One that is drained beside it leaves it alone.
    await call(self.running.admin, "POST", "/admin/workers/w1/drain");
    clock.advance(TICK_MS);
    expect(await openOf(self, "w0")).toEqual(["half_open"]);
  });
});

describe("a worker that says again and again that it is busy, and not for how long", () => {
  const BUSY = [429, 503];

  it.each(BUSY)(
    "is left alone for a second after the fifth %i, and after each that follows",
    async (status) => {
      const { self, clock } = await timed([refuse(status), serve]);
      await times(4, self, "w0");
      expect(await shownOf(self, "w0")).toMatchObject({
        eligible: true,
        held_off_ms: 0,
        reason: "it answers",
      });
      await times(1, self, "w0");
      expect(await shownOf(self, "w0")).toMatchObject({
        ...{ state: "ready", eligible: false, held_off_ms: 1_000 },
        reason: "it asked to be left alone for a while",
      });
      expect(await to(self, "w0")).toMatch(/^429 .*workers_full/);
      clock.advance(999);
      expect((await shownOf(self, "w0")).held_off_ms).toBe(1);
      clock.advance(1);
      expect(await shownOf(self, "w0")).toMatchObject({ eligible: true, held_off_ms: 0 });
      expect(await to(self, "w0")).toMatch(new RegExp(`^${status} w0 `));
      expect((await shownOf(self, "w0")).held_off_ms).toBe(1_000);
      expect(askedOf(self, "w0")).toBe(6);
    },
  );

  it("is counted anew where an operator puts it back, and says nothing where it says for how long", async () => {
    const { self, clock } = await timed([refuse(503), serve]);
    await times(5, self, "w0");
    await call(self.running.admin, "DELETE", "/admin/workers/w0/drain");
    await times(4, self, "w0");
    expect((await shownOf(self, "w0")).held_off_ms).toBe(0);
    await call(self.running.admin, "DELETE", "/admin/workers/w0/drain");
    for (let i = 0; i < 6; i++) {
      self.deeds[0] = refuse(503, { "retry-after": "1" });
      await times(1, self, "w0");
      clock.advance(1_000);
    }
    self.deeds[0] = refuse(503);
    await times(4, self, "w0");
    expect((await shownOf(self, "w0")).held_off_ms).toBe(0);
  });

  it("tells a pinned request why, and when to come again", async () => {
    const { self } = await timed([refuse(503, { "retry-after": "40" }), serve]);
    await times(1, self, "w0");
    const { status, headers, body } = await post(
      self.running.url + CHAT,
      { model: "m" },
      { "x-hawser-pin": "w0" },
    );
    expect([status, headers["retry-after"]]).toEqual([429, "40"]);
    expect(body).toContain("is to be left alone for a while");
  });

  it("is counted anew after a good answer", async () => {
    const { self } = await timed([refuse(503), serve]);
    for (let round = 0; round < 3; round++) {
      self.deeds[0] = refuse(503);
      await times(4, self, "w0");
      expect((await shownOf(self, "w0")).held_off_ms).toBe(0);
      self.deeds[0] = serve;
      expect(await to(self, "w0")).toBe("200 w0 explicit");
    }
    self.deeds[0] = refuse(503);
    await times(5, self, "w0");
    expect((await shownOf(self, "w0")).held_off_ms).toBe(1_000);
  });

  it("is asked still where it is the only one", async () => {
    const { self } = await timed([refuse(503)]);
    for (const reply of await times(20, self, "w0")) expect(reply).toMatch(/^503 w0 /);
    expect(await shownOf(self, "w0")).toMatchObject({ eligible: true, held_off_ms: 0 });
  });

  it("is asked still while all others are full, or drained", async () => {
    const { self } = await timed([refuse(503), hold, serve], { maxInFlight: 1 });
    await call(self.running.admin, "POST", "/admin/workers/w2/drain");
    const [full] = await held(1, self, "w1");
    for (const reply of await times(10, self, "w0")) expect(reply).toMatch(/^503 w0 /);
    expect((await shownOf(self, "w0")).held_off_ms).toBe(0);
    serve(self.asked.find(({ worker }) => worker === "w1")!);
    await full;
    await times(1, self, "w0");
    expect((await shownOf(self, "w0")).held_off_ms).toBe(1_000);
  });

  it("is in service again when an operator says so", async () => {
    const { self } = await timed([refuse(503), serve]);
    await times(5, self, "w0");
    const { status, body } = await call(self.running.admin, "DELETE", "/admin/workers/w0/drain");
    expect(status).toBe(200);
    expect(body).toMatchObject({ state: "ready", eligible: true, held_off_ms: 0, reason: "it answers" });
    self.deeds[0] = serve;
    expect(await to(self, "w0")).toBe("200 w0 explicit");
  });

  it.each(BUSY)("does not draw what goes by load to its %i", async (status) => {
    const { self, clock } = await timed([refuse(status), serve, serve, serve], { policy: "least-loaded" });
    for (let second = 0; second < 3; second++) {
      const before = askedOf(self, "w0");
      for (let i = 0; i < 100; i++) {
        expect(await self.say()).toMatch(/^200 w[123] /);
        clock.advance(10);
      }
      // Five by which it tells, and then one in a second.
      expect(askedOf(self, "w0") - before).toBeLessThanOrEqual(second === 0 ? 5 : 1);
    }
    expect(askedOf(self, "w0")).toBeGreaterThanOrEqual(6);
  });
});

describe("a worker that fails at once", () => {
  it.each([
    ["500, which is passed on", 500],
    ["502, which another worker is tried for", 502],
  ])("does not attract what least load would send it: %s", async (_name, status) => {
    const { self, clock } = await timed([refuse(status), hold], { policy: "least-loaded" });
    const said: Promise<string>[] = [];
    const send = async (count: number) => {
      for (let i = 0; i < count; i++) {
        const held = askedOf(self, "w1");
        let isOver = false;
        said.push(
          self.say().then((reply) => {
            isOver = true;
            return reply;
          }),
        );
        await until(() => isOver || askedOf(self, "w1") > held);
      }
    };
    await send(20);
    expect(askedOf(self, "w0")).toBe(5);
    clock.advance(OPEN_MS);
    await send(20);
    // One probe, which fails.
    expect(askedOf(self, "w0")).toBe(6);
    for (const asked of self.asked) if (asked.worker === "w1") serve(asked);
    const replies = await Promise.all(said);
    const lost = status === 500 ? 6 : 0;
    expect(replies.filter((reply) => reply.startsWith("200 w1 "))).toHaveLength(40 - lost);
    expect(replies.filter((reply) => reply.startsWith("500 w0 "))).toHaveLength(lost);
    expect(self.loads).toBe("0 0");
  });
});
