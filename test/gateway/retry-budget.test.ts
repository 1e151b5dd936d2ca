// How many retries are allowed at once: a share of the requests under way, so that a fleet in trouble is not asked twice.
import { connect, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { Retries } from "../../host/gateway/retries.js";
import { open, text } from "./client.js";
import { CHAT, type Crew, crew, type Deed, hold, refuse, reset, serve } from "./crew.js";
import { until } from "./fixture.js";

/** Retries that are allowed however few requests there are. */
const FEW = 10;
const HELD = [hold, hold, hold, hold];

/** Sends requests at once, and waits until each is with a worker. */
async function send(self: Crew, count: number): Promise<Promise<string>[]> {
  const before = self.asked.length;
  const said = Array.from({ length: count }, () => self.say());
  await until(() => self.asked.length === before + count);
  return said;
}

/** Has the workers fail these requests, one right after the other. */
function failAll(self: Crew, from: number, to: number, deed: Deed): void {
  for (const asked of self.asked.slice(from, to)) deed(asked);
}

/** How many of the requests ended with a status. */
async function countOf(said: readonly Promise<string>[], status: number): Promise<number> {
  const replies = await Promise.all(said);
  return replies.filter((reply) => reply.startsWith(`${status} `)).length;
}

/** Waits until so many requests have ended for their clients in any way. */
async function untilEnded(self: Crew, count: number): Promise<void> {
  for (;;) {
    const { outcomes } = await self.dataPlane();
    if (Object.values(outcomes).reduce((sum, n) => sum + n, 0) >= count) return;
  }
}

/** Fails one request more than may be tried again, and expects the others to be: the budget is whole. */
async function expectWholeBudget(self: Crew): Promise<void> {
  const from = self.asked.length;
  const { outcomes } = await self.dataPlane();
  const ended = Object.values(outcomes).reduce((sum, n) => sum + n, 0);
  self.deeds.fill(hold);
  const said = await send(self, FEW + 1);
  failAll(self, from, from + FEW + 1, reset);
  await until(() => self.asked.length === from + 2 * FEW + 1);
  await untilEnded(self, ended + 1);
  failAll(self, from + FEW + 1, from + 2 * FEW + 1, serve);
  expect([await countOf(said, 200), await countOf(said, 502)]).toEqual([FEW, 1]);
}

describe("the budget of retries", () => {
  it.each([
    { requests: 40, budget: 0.25, most: 10 },
    { requests: 40, budget: 0.01, most: 10 },
    { requests: 40, budget: 0.5, most: 20 },
    { requests: 80, budget: 0.25, most: 20 },
  ])("$requests requests reset at once, a budget of $budget: $most tried again", async (row) => {
    const { requests, budget, most } = row;
    const self = await crew(HELD, { retries: { budget } });
    const said = await send(self, requests);
    failAll(self, 0, requests, reset);
    await untilEnded(self, requests - most);
    await until(() => self.asked.length === requests + most);
    expect(self.running.audit.open).toBe(most);
    expect(await self.dataPlane()).toMatchObject({ retries: most, retries_refused: requests - most });
    failAll(self, requests, requests + most, serve);
    expect([await countOf(said, 200), await countOf(said, 502)]).toEqual([most, requests - most]);
    expect(self.loads).toBe("0 0 0 0");
    await expectWholeBudget(self);
  });

  it("of 0 allows none, and what is refused is the worker's own answer", async () => {
    const self = await crew([reset, serve], { retries: { budget: 0 } });
    expect(await self.say("s")).toMatch(/^502 .*"worker_unreachable"/);
    self.deeds[0] = refuse(429, { "retry-after": "4" });
    expect(await self.say("s")).toMatch(/^429 w0 place .*w0 is full/);
    expect(self.order).toBe("w0 w0");
    expect(await self.dataPlane()).toMatchObject({ retries: 0, retries_refused: 2 });
    expect(self.running.router.status().bindings).toBe(0);
  });

  it("has nothing to do with requests that reached no worker", async () => {
    const self = await crew([serve, serve], { retries: { budget: 0 } });
    const keys = Array.from({ length: 2 * FEW }, (_, i) => `key ${i}`);
    self.bind("w0", ...keys);
    await self.kill("w0");
    const said = await Promise.all(keys.map((key) => self.say(key)));
    expect(new Set(said)).toEqual(new Set(["200 w1 move_gone"]));
    const { retries, retries_refused } = await self.dataPlane();
    // Those that came when the worker was known to be gone needed none.
    expect(retries).toBeGreaterThan(0);
    expect(retries_refused).toBe(0);
  });

  it("is not used up by them either", async () => {
    const self = await crew([serve, hold, hold], { retries: { budget: 0.1 } });
    const keys = Array.from({ length: FEW }, (_, i) => `key ${i}`);
    self.bind("w0", ...keys);
    await self.kill("w0");
    const said = keys.map((key) => {
      self.worker("w0").ready = true;
      return self.say(key);
    });
    await until(() => self.asked.length === FEW);
    expect((await self.dataPlane()).retries).toBeGreaterThan(0);
    self.worker("w0").ready = false;
    await expectWholeBudget(self);
    for (const asked of self.asked.slice(0, FEW)) serve(asked);
    expect(await countOf(said, 200)).toBe(FEW);
  });

  it("counts a request that reached no worker first, and was reset then", async () => {
    const self = await crew([serve, reset, serve], { retries: { budget: 0 } });
    await self.kill("w0");
    expect(await self.say()).toMatch(/^502 .*worker \\"w1\\"/);
    expect(await self.dataPlane()).toMatchObject({ retries: 1, retries_refused: 1 });
  });

  it("counts a request once, however often it is tried", async () => {
    const self = await crew(HELD, { retries: { attempts: 4 }, breaker: null });
    const said = await send(self, FEW);
    for (let round = 0; round < 3; round++) {
      failAll(self, round * FEW, (round + 1) * FEW, reset);
      await until(() => self.asked.length === (round + 2) * FEW);
    }
    expect(await self.dataPlane()).toMatchObject({ retries: 3 * FEW, retries_refused: 0 });
    failAll(self, 3 * FEW, 4 * FEW, serve);
    expect(await countOf(said, 200)).toBe(FEW);
    await expectWholeBudget(self);
  });

  it("has nothing to do with the other worker of a session that is kept, mode hard", async () => {
    const self = await crew([reset, serve], { retries: { budget: 0 }, session: { mode: "hard" } });
    self.bind("w0", "s");
    expect(await self.say("s")).toBe("200 w1 place");
    expect(await self.dataPlane()).toMatchObject({ retries: 1, retries_refused: 0 });
  });
});

describe("the budget is given back", () => {
  it.each<[name: string, deed: Deed, status: number]>([
    ["is answered", serve, 200],
    ["is answered with an error of the client's", refuse(400), 400],
    ["is turned away once more", refuse(503), 503],
    ["is reset once more", reset, 502],
  ])("when the retry %s", async (_name, deed, status) => {
    const self = await crew(HELD, { retries: { attempts: 2 } });
    const said = await send(self, FEW);
    failAll(self, 0, FEW, reset);
    await until(() => self.asked.length === 2 * FEW);
    failAll(self, FEW, 2 * FEW, deed);
    expect(await countOf(said, status)).toBe(FEW);
    await expectWholeBudget(self);
  });

  it("when the head of the answer is there, though the body goes on", async () => {
    const self = await crew(HELD, { retries: { budget: 0.1 } });
    const opened = Array.from({ length: FEW }, () => open(self.running.url + CHAT, { model: "m" }));
    await until(() => self.asked.length === FEW);
    failAll(self, 0, FEW, refuse(503));
    await until(() => self.asked.length === 2 * FEW);
    const long = self.asked.slice(FEW);
    for (const { response } of long) response.write("{");
    const messages = await Promise.all(opened);
    await expectWholeBudget(self);
    for (const { response } of long) response.end("}");
    expect(await Promise.all(messages.map(text))).toEqual(Array(FEW).fill("{}"));
  });

  it("when the client leaves while another worker is tried", async () => {
    const self = await crew(HELD);
    const { hostname, port } = new URL(self.running.url);
    const body = '{"model":"m"}';
    const sockets: Socket[] = Array.from({ length: FEW }, () => {
      const socket = connect(Number(port), hostname).on("error", () => {});
      socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
      return socket;
    });
    await until(() => self.asked.length === FEW);
    failAll(self, 0, FEW, reset);
    await until(() => self.asked.length === 2 * FEW);
    for (const socket of sockets) socket.destroy();
    await until(() => self.asked.slice(FEW).every(({ isGone }) => isGone));
    expect(self.running.audit.open).toBe(0);
    expect(await self.dataPlane()).toMatchObject({ outcomes: { client_gone: FEW }, requests_in_flight: 0 });
    await expectWholeBudget(self);
  });
});

describe("the share", () => {
  function retries(budget: number, live: number): Retries {
    const options = { attempts: 3, connect: true, reset: true, statuses: [], stateful: false };
    return new Retries({ ...options, budget }, () => live);
  }

  /** How many retries may be under way. */
  function most(budget: number, live: number): number {
    const self = retries(budget, live);
    let count = 0;
    for (; count < 1_000 && self.hasRoom(); count++) self.begin();
    return count;
  }

  it.each([
    [0, 1_000, 0],
    [0.5, 0, 10],
    [0.5, 20, 10],
    [0.5, 22, 11],
    [0.001, 500, 10],
    [1, 500, 500],
  ])("a budget of %s with %s requests under way: %s", (budget, live, expected) => {
    expect(most(budget, live)).toBe(expected);
  });

  it("is not exceeded by a part of a request", () => {
    expect(most(0.25, 42)).toBe(10);
    expect(most(0.5, 23)).toBe(11);
  });

  it("is counted anew each time: one that ends makes room for one", () => {
    const self = retries(0.5, 0);
    for (let i = 0; i < FEW; i++) {
      expect(self.hasRoom()).toBe(true);
      self.begin();
    }
    expect(self.hasRoom()).toBe(false);
    expect(self.refused).toBe(1);
    self.end();
    expect(self.hasRoom()).toBe(true);
    expect(self.refused).toBe(1);
  });
});
