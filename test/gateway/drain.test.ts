// Workers that an operator drains or removes while they serve: who moves, who stays, and what is cut at the deadline.
import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { APIS, type Api } from "./apis.js";
import { get, open, post, type Reply, text } from "./client.js";
import { CHAT, type Crew, crew, hold, refuse, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, until } from "./fixture.js";
import { call, shown } from "./operator.js";
import { VirtualClock } from "./virtual-clock.js";

const PINNED = { "x-hawser-pin": "w0" };
const HEAD = { "content-type": "text/event-stream" };

expectNothingUncaught();

interface Timed {
  readonly self: Crew;
  readonly clock: VirtualClock;
}

/** Two workers: what w0 gets is up to the test, w1 serves. */
async function pair(options: Omit<GatewayFixture, "urls"> = {}): Promise<Timed> {
  const clock = new VirtualClock();
  return { clock, self: await crew([hold, serve], { clock, allowPin: true, ...options }) };
}

const shownOf = ({ running }: Crew, worker: string) => shown(running.admin, worker);

const readWorker = (source: string) => ({ entry: JSON.parse(source) });

/** Drains a worker; `query` may set a deadline. */
const drain = ({ running }: Crew, worker: string, query = "") =>
  call(running.admin, "POST", `/admin/workers/${worker}/drain${query}`);

const resume = ({ running }: Crew, worker: string) =>
  call(running.admin, "DELETE", `/admin/workers/${worker}/drain`);

/** Removes a worker; `query` may set a deadline. */
const remove = ({ running }: Crew, worker: string, query = "") =>
  call(running.admin, "DELETE", `/admin/workers/${worker}${query}`);

const list = async ({ running }: Crew) => (await call(running.admin, "GET", "/admin/workers")).body.workers;

/** Opens a stream at w0, whose head and first event have come. */
async function opened(self: Crew, api = APIS[0]!, session?: string) {
  const count = self.asked.length + 1;
  const headers = { ...PINNED, ...(session !== undefined && { "x-session-id": session }) };
  const body = { model: "m", stream: true, messages: [], input: "" };
  const sent = open(self.running.url + api.path, body, headers);
  await until(() => self.asked.length === count);
  const asked = self.asked.at(-1)!;
  expect(asked.worker).toBe("w0");
  asked.response.writeHead(200, HEAD).write(firstEvent(api));
  return { ...asked, message: await sent };
}

function firstEvent({ events }: Api): string {
  const [name, data] = events[0]!;
  return `${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;
}

/** All of a stream that breaks off. */
function broken(message: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    let got = "";
    message.on("data", (chunk) => {
      got += chunk;
    });
    message.on("error", () => {}).on("close", () => resolve(got));
  });
}

describe("a worker that is drained", () => {
  it("gets no new sessions, and bound ones move at their next turn", async () => {
    const { self } = await pair();
    self.deeds[0] = serve;
    self.bind("w0", "a", "b");
    self.bind("w1", "c");
    const answer = await drain(self, "w0");
    expect(answer.status).toBe(200);
    expect(answer.body).toMatchObject({
      ...{ id: "w0", state: "draining", reason: "an operator drained it", eligible: false, drain_ms: null },
      ...{ active_requests: 0, bound_sessions: 2 },
    });
    for (let i = 0; i < 5; i++) expect(await self.say(`new${i}`)).toBe("200 w1 place");
    expect(await self.say()).toBe("200 w1 place");
    expect(await self.say("a")).toBe("200 w1 move_gone");
    expect(await self.say("a")).toBe("200 w1 keep");
    expect(await self.say("c")).toBe("200 w1 keep");
    expect(self.binding("a")).toMatchObject({ worker: "w1", moves: 1 });
    expect(self.order).not.toContain("w0");
    expect(self.running.log.join()).toContain("worker is draining");
  });

  it("finishes the streams that it has, however long they take (C14)", async () => {
    const { self, clock } = await pair();
    const { response, message } = await opened(self, APIS[0], "s");
    expect((await drain(self, "w0")).body).toMatchObject({
      ...{ state: "draining", reason: "an operator drains it", active_requests: 1 },
    });
    for (let i = 0; i < 60; i++) {
      clock.advance(60_000);
      // The bytes have to come in between the beats of the clock.
      const received = new Promise((resolve) => message.once("data", resolve));
      response.write(`data: ${i}\n\n`);
      await received;
    }
    expect(self.loads).toBe("1 0");
    response.end("data: [DONE]\n\n");
    expect(await text(message)).toContain("data: [DONE]\n\n");
    expect(message.complete).toBe(true);
    await until(() => self.loads === "0 0");
    expect(await shownOf(self, "w0")).toMatchObject({
      ...{ state: "draining", reason: "an operator drained it", active_requests: 0 },
    });
    expect((await self.dataPlane()).outcomes).toEqual({ complete: 1 });
  });

  it.each(
    APIS.filter(({ path }) => /chat|messages|responses/.test(path)).map((api) => [api.path, api] as const),
  )(
    "has the rest cut at the deadline, and every client is told in its own way: %s (C14)",
    async (_path, api) => {
      const { self, clock } = await pair();
      const streams = [await opened(self, api), await opened(self, api)];
      const whole = post(self.running.url + api.path, { model: "m", messages: [], input: "" }, PINNED);
      await until(() => self.asked.length === 3);
      const ends = streams.map(({ message }) => broken(message));
      expect((await drain(self, "w0", "?deadline=30s")).body).toMatchObject({ drain_ms: 30_000 });
      clock.advance(29_999);
      expect(self.loads).toBe("3 0");
      expect(await shownOf(self, "w0")).toMatchObject({ drain_ms: 1, active_requests: 3 });
      clock.advance(1);
      for (const end of ends) {
        const [, , last = ""] = /^([\s\S]*?\n\n)\n*([\s\S]+)\n\n$/.exec(await end) ?? [];
        const [, event, data = ""] = /^(?:event: (\S+)\n)?data: (.+)$/.exec(last) ?? [];
        expect(event).toBe(api.errorEvent);
        const told = api.eventData(data);
        expect(told.message).toContain("taken out of service");
        if (told.code !== undefined) expect(told.code).toBe("worker_drained");
      }
      const refused: Reply = await whole;
      expect(refused).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
      expect(api.refusal(refused.body).message).toContain("taken out of service");
      await until(() => self.asked.every(({ isGone }) => isGone));
      expect(self.loads).toBe("0 0");
      expect((await self.dataPlane()).outcomes).toEqual({ worker_drained: 3 });
      // It is not to blame for what was cut.
      expect(await shownOf(self, "w0")).toMatchObject({
        ...{ state: "draining", drain_ms: 0, active_requests: 0 },
        breaker: { state: "closed", failures: 0 },
      });
    },
  );

  it("has another worker serve, at the deadline, what has no byte of an answer yet", async () => {
    const { self, clock } = await pair();
    self.bind("w0", "a", "b", "c");
    const whole = self.say("a");
    const stream = self.say("b", { stream: true });
    const stored = self.say("c", { store: true });
    await until(() => self.order === "w0 w0 w0");
    await drain(self, "w0", "?deadline=30s");
    clock.advance(30_000);
    expect(await whole).toBe("200 w1 move_gone");
    expect(await stream).toBe("200 w1 move_gone");
    // It may have been run, and is not run twice.
    expect(await stored).toContain("worker_drained");
    await until(() => self.asked.slice(0, 3).every(({ isGone }) => isGone));
    expect(self.loads).toBe("0 0");
    expect(self.binding("a")).toMatchObject({ worker: "w1", moves: 1 });
    expect((await self.dataPlane()).outcomes).toEqual({ complete: 2, worker_drained: 1 });
    expect(await shownOf(self, "w0")).toMatchObject({ breaker: { state: "closed", failures: 0 } });
  });

  it("has others serve all that it has no answer to, however few retries the budget allows", async () => {
    const { self, clock } = await pair({ retries: { budget: 0.01 } });
    const keys = Array.from({ length: 30 }, (_, i) => `k${i}`);
    self.bind("w0", ...keys);
    const said = keys.map((key) => self.say(key));
    await until(() => self.asked.length === 30);
    expect(self.loads).toBe("30 0");
    await drain(self, "w0", "?deadline=30s");
    clock.advance(30_000);
    for (const reply of await Promise.all(said)) expect(reply).toBe("200 w1 move_gone");
    expect(self.asked.slice(30).map(({ worker }) => worker)).toEqual(keys.map(() => "w1"));
    expect(await self.dataPlane()).toMatchObject({
      ...{ retries: 30, retries_refused: 0, outcomes: { complete: 30 } },
    });
  });

  it("takes nothing out of the budget, which is there for those that a worker fails meanwhile", async () => {
    const { self, clock } = await pair({ retries: { budget: 0.01 } });
    const keys = Array.from({ length: 20 }, (_, i) => `k${i}`);
    self.bind("w0", ...keys);
    self.deeds[1] = hold;
    const moved = keys.map((key) => self.say(key));
    await until(() => self.asked.length === 20);
    await drain(self, "w0", "?deadline=0s");
    clock.advance(250);
    await until(() => self.asked.length === 40);
    await resume(self, "w0");
    self.deeds[0] = serve;
    self.bind("w1", "late");
    self.deeds[1] = refuse(503);
    expect(await self.say("late")).toMatch(/^200 w0 /);
    for (const asked of self.asked.slice(20, 40)) serve(asked);
    for (const reply of await Promise.all(moved)) expect(reply).toMatch(/^200 w1 /);
  });

  it("cuts nothing of what others have", async () => {
    const { self, clock } = await pair();
    const { message } = await opened(self);
    const end = broken(message);
    self.deeds[1] = hold;
    const other = open(self.running.url + CHAT, { model: "m", stream: true });
    await until(() => self.loads === "1 1" && self.asked.length === 2);
    self.asked[1]!.response.writeHead(200, HEAD).write("data: 1\n\n");
    await drain(self, "w0", "?deadline=1m");
    clock.advance(61_000);
    expect(await end).toContain("worker_drained");
    expect(self.loads).toBe("0 1");
    self.asked[1]!.response.end("data: [DONE]\n\n");
    expect(await text(await other)).toBe("data: 1\n\ndata: [DONE]\n\n");
  });

  it("is given another deadline, or none, by another call", async () => {
    const { self, clock } = await pair();
    const { response, message } = await opened(self);
    await drain(self, "w0", "?deadline=30s");
    clock.advance(20_000);
    expect((await drain(self, "w0", "?deadline=1h")).body).toMatchObject({ drain_ms: 3_600_000 });
    clock.advance(60_000);
    expect((await drain(self, "w0")).body).toMatchObject({ drain_ms: null });
    expect(self.loads).toBe("1 0");
    response.end();
    await text(message);
  });

  it("is put back warm: its sessions are there still, and it does not begin slowly", async () => {
    const { self, clock } = await pair({ health: { slowStartMs: 30_000 } });
    self.deeds[0] = serve;
    self.bind("w0", "a", "b");
    await drain(self, "w0", "?deadline=30s");
    expect(await self.say("a")).toBe("200 w1 move_gone");
    clock.advance(60_000);
    const answer = await resume(self, "w0");
    expect(answer.status).toBe(200);
    expect(answer.body).toMatchObject({
      ...{ state: "ready", reason: "it answers", eligible: true, drain_ms: null, slow_start_limit: null },
    });
    expect(await self.say("b")).toBe("200 w0 keep");
    // It has moved, and is not moved back.
    expect(await self.say("a")).toBe("200 w1 keep");
    clock.advance(60_000);
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready" });
    // Once more does no harm.
    expect((await resume(self, "w0")).body).toMatchObject({ state: "ready" });
  });

  it("leaves nobody to ask where it was the only one: requests are refused until it is put back", async () => {
    const clock = new VirtualClock();
    const self = await crew([serve], { clock });
    self.bind("w0", "a");
    await drain(self, "w0");
    expect(await self.say("a")).toMatch(/^503 .*no_worker_eligible/);
    expect((await get(`${self.running.url}/health`)).status).toBe(503);
    await resume(self, "w0");
    expect(await self.say("a")).toBe("200 w0 keep");
  });

  it("lets those that wait in line for it go elsewhere, or know that there is nobody", async () => {
    const clock = new VirtualClock();
    const self = await crew([hold], { clock, maxInFlight: 1 });
    const first = self.say("a");
    await until(() => self.asked.length === 1);
    const second = self.say("b");
    await until(() => self.waiting === 1);
    await drain(self, "w0");
    expect(await second).toMatch(/^503 .*no_worker_eligible/);
    serve(self.asked[0]!);
    expect(await first).toBe("200 w0 place");
  });

  it.each([
    ["?deadline=soon", 400, "deadline must be a duration of at most a day"],
    ["?deadline=25h", 400, "deadline must be a duration of at most a day"],
    ["?deadline=", 400, "deadline must be a duration of at most a day"],
    ["?deadline=-1s", 400, "deadline must be a duration of at most a day"],
    ["?dead=30s", 400, "there is no parameter"],
    ["?deadline=1s&deadline=2s", 400, "given more than once"],
  ])("stays in service where the call is refused: %s", async (query, status, message) => {
    const { self } = await pair();
    const answer = await drain(self, "w0", query);
    expect(answer.status).toBe(status);
    expect(answer.body.error.message).toContain(message);
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready" });
  });

  it("has to be there", async () => {
    const { self } = await pair();
    for (const answer of [await drain(self, "w9"), await resume(self, "w9")]) {
      expect(answer.status).toBe(404);
      expect(answer.body.error.code).toBe("unknown_worker");
    }
  });
});

describe("a worker that an operator removes", () => {
  it("finishes what it has, and is shown as gone until then, with what others have untouched (C4)", async () => {
    const { self } = await pair();
    const { response, message } = await opened(self, APIS[0], "s");
    self.bind("w1", "c");
    const before = await shownOf(self, "w1");
    const answer = await remove(self, "w0");
    expect(answer).toEqual({ status: 200, body: { id: "w0", state: "gone", active_requests: 1 } });
    expect(await list(self)).toMatchObject([
      { id: "w1", state: "ready", bound_sessions: 1, active_requests: 0 },
      {
        id: "w0",
        state: "gone",
        reason: "it was removed",
        active_requests: 1,
        eligible: false,
        columns: null,
      },
    ]);
    const { columns, active_requests, bound_sessions } = before;
    expect(columns).toMatchObject({ active_requests: 0, bound_sessions: 1 });
    expect(await shownOf(self, "w1")).toMatchObject({ columns, active_requests, bound_sessions });
    expect(await self.say("s")).toBe("200 w1 place");
    expect(await self.say("c")).toBe("200 w1 keep");
    for (let i = 0; i < 3; i++) expect(await self.say(`new${i}`)).toBe("200 w1 place");
    expect((await call(self.running.admin, "GET", "/admin/workers/w0")).status).toBe(404);
    // What it runs may be given a deadline still, and that does not need one.
    expect(await remove(self, "w0")).toEqual(answer);
    response.end("data: [DONE]\n\n");
    expect(await text(message)).toContain("data: [DONE]\n\n");
    while ((await list(self)).length > 1);
    expect(await list(self)).toMatchObject([{ id: "w1" }]);
    expect(await remove(self, "w0")).toMatchObject({
      status: 404,
      body: { error: { code: "unknown_worker" } },
    });
    expect((await self.dataPlane()).outcomes).toEqual({ complete: 6 });
  });

  it("is still cut at its deadline where it was drained before", async () => {
    const { self, clock } = await pair();
    const { message } = await opened(self);
    const end = broken(message);
    await drain(self, "w0", "?deadline=30s");
    expect((await remove(self, "w0")).body).toMatchObject({ active_requests: 1 });
    clock.advance(31_000);
    expect(await end).toContain("worker_drained");
    expect((await self.dataPlane()).outcomes).toEqual({ worker_drained: 1 });
  });

  it("has until the deadline that it is given, where it is given one", async () => {
    const { self, clock } = await pair();
    const { message } = await opened(self);
    const end = broken(message);
    self.bind("w0", "a");
    const whole = self.say("a");
    await until(() => self.asked.length === 2);
    expect(await remove(self, "w0", "?deadline=5s")).toEqual({
      status: 200,
      body: { id: "w0", state: "gone", active_requests: 2 },
    });
    clock.advance(4_999);
    expect(await list(self)).toMatchObject([{ id: "w1" }, { id: "w0", state: "gone", drain_ms: 1 }]);
    expect(self.order).toBe("w0 w0");
    clock.advance(251);
    expect(await end).toContain("worker_drained");
    expect(await whole).toMatch(/^200 w1 /);
    await until(() => self.asked.slice(0, 2).every(({ isGone }) => isGone));
    expect(await list(self)).toMatchObject([{ id: "w1", active_requests: 0 }]);
  });

  it("may be given its deadline later, when only its requests are left", async () => {
    const { self, clock } = await pair();
    const { message } = await opened(self);
    const end = broken(message);
    expect((await remove(self, "w0")).body).toMatchObject({ active_requests: 1 });
    clock.advance(60_000);
    expect((await list(self)).at(-1)).toMatchObject({ id: "w0", state: "gone", drain_ms: null });
    expect(await remove(self, "w0", "?deadline=0s")).toMatchObject({
      status: 200,
      body: { id: "w0", state: "gone", active_requests: 1 },
    });
    clock.advance(250);
    expect(await end).toContain("worker_drained");
    expect((await remove(self, "w0", "?deadline=0s")).status).toBe(404);
    expect((await self.dataPlane()).outcomes).toEqual({ worker_drained: 1 });
  });

  it("keeps its deadline where it is removed once more without one", async () => {
    const { self, clock } = await pair();
    const { message } = await opened(self);
    const end = broken(message);
    await remove(self, "w0", "?deadline=5s");
    expect((await remove(self, "w0")).body).toMatchObject({ state: "gone", active_requests: 1 });
    expect((await list(self)).at(-1)).toMatchObject({ id: "w0", drain_ms: 5_000 });
    clock.advance(5_250);
    expect(await end).toContain("worker_drained");
  });

  it("is not mixed up with the one that has its id now", async () => {
    const { self, clock } = await pair({ readWorker });
    const { message } = await opened(self);
    const end = broken(message);
    await remove(self, "w0");
    const body = { url: self.upstreams[0]!.url };
    expect((await call(self.running.admin, "PUT", "/admin/workers/w0", body)).status).toBe(201);
    await until(() => self.worker("w0").eligible);
    // The call is for the one that is there; the other one goes on until it is called again.
    expect((await remove(self, "w0", "?deadline=0s")).body).toMatchObject({ active_requests: 0 });
    clock.advance(1_000);
    expect(await list(self)).toMatchObject([{ id: "w1" }, { id: "w0", state: "gone", active_requests: 1 }]);
    expect((await remove(self, "w0", "?deadline=0s")).body).toMatchObject({ active_requests: 1 });
    clock.advance(1_000);
    expect(await end).toContain("worker_drained");
  });

  it.each([
    ["?deadline=soon", "deadline must be a duration of at most a day"],
    ["?deadline=24.5h", "deadline must be a duration of at most a day"],
    ["?deadline=86401s", "deadline must be a duration of at most a day"],
    ["?deadline=", "deadline must be a duration of at most a day"],
    ["?dead=30s", "there is no parameter"],
    ["?deadline=1s&deadline=2s", "given more than once"],
  ])("stays where the call is refused: %s", async (query, message) => {
    const { self } = await pair();
    const answer = await remove(self, "w0", query);
    expect(answer.status).toBe(400);
    expect(answer.body.error.message).toContain(message);
    expect(await shownOf(self, "w0")).toMatchObject({ state: "ready" });
  });
});
