// Checks of workers behind a running gateway: who is taken out, who comes back, and how gently.
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Worker } from "../../host/index.js";
import { startWorker } from "../../host/worker/server.js";
import { get, post } from "./client.js";
import { CHAT } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, gateway, type RunningGateway, stop, until } from "./fixture.js";
import { call, shown } from "./operator.js";
import { ILL, MODELS, metrics, type Probed, probed, WELL } from "./probed.js";
import { VirtualClock } from "./virtual-clock.js";

const INTERVAL_MS = 5_000;

expectNothingUncaught();

interface Fleet {
  readonly running: RunningGateway;
  readonly clock: VirtualClock;
}

/** A gateway over workers, whose time stands still. */
async function over(urls: readonly string[], options: Omit<GatewayFixture, "urls"> = {}): Promise<Fleet> {
  const clock = new VirtualClock();
  return { clock, running: await gateway({ urls, clock, ...options }) };
}

const workerOf = ({ router }: RunningGateway, id: string): Worker =>
  [...router.workers].find((worker) => worker.id === id)!;

/** Lets time pass until something is so. */
async function passUntil(clock: VirtualClock, holds: () => boolean): Promise<void> {
  await until(() => {
    if (holds()) return true;
    clock.advance(INTERVAL_MS);
    return false;
  });
}

/** Has the gateway ask a worker once more; resolves when the question has come, and so the answer before it has gone in. */
async function askedAgain(clock: VirtualClock, worker: Probed, path: string): Promise<void> {
  const count = () => worker.asked.filter((asked) => asked === path).length;
  const before = count();
  await passUntil(clock, () => count() > before);
}

/** Says what came of a request: `200 w0 place`. */
async function say({ url }: RunningGateway, key?: string): Promise<string> {
  const session = key === undefined ? {} : { "x-session-id": key };
  const messages = [{ role: "user", content: "hello" }];
  const { status, headers } = await post(url + CHAT, { model: "m", messages }, session);
  return [status, headers["x-hawser-worker"], headers["x-hawser-decision"]].join(" ");
}

describe("a check", () => {
  it.each([
    [1, 1],
    [2, 2],
    [3, 1],
    [1, 4],
  ])(
    "that fails %i times in a row takes a worker out, and %i that pass bring it back",
    async (unhealthyAfter, healthyAfter) => {
      const worker = await probed();
      const { running, clock } = await over([worker.url], { health: { unhealthyAfter, healthyAfter } });
      /** Whether it was eligible whenever it was asked: by then all answers before that one have gone in. */
      const seen: boolean[] = [];
      worker.onAsked = (path) => {
        if (path === "/health") seen.push(workerOf(running, "w0").eligible);
      };
      const ask = async (page: typeof WELL, count: number) => {
        worker.pages["/health"] = page;
        for (let i = 0; i < count; i++) await askedAgain(clock, worker, "/health");
      };
      await ask(ILL, unhealthyAfter);
      await ask(WELL, healthyAfter);
      await ask(WELL, 1);
      const expected = [
        ...Array(unhealthyAfter).fill(true),
        // The first that passes, and those after it, are asked while it is out.
        ...Array(healthyAfter).fill(false),
        true,
      ];
      expect(seen).toEqual(expected);
      expect(await shown(running.admin, "w0")).toMatchObject({ state: "ready", reason: "it answers" });
    },
  );

  it("that passes between two that fail keeps a worker in", async () => {
    const worker = await probed();
    const { running, clock } = await over([worker.url], { health: { unhealthyAfter: 2 } });
    for (const page of [ILL, WELL, ILL, WELL, ILL, WELL]) {
      worker.pages["/health"] = page;
      await askedAgain(clock, worker, "/health");
      expect(workerOf(running, "w0").eligible).toBe(true);
    }
  });

  it("asks at the path that is configured", async () => {
    const worker = await probed();
    worker.pages["/ready?deep=1"] = WELL;
    worker.pages["/health"] = ILL;
    const { running, clock } = await over([worker.url], { health: { path: "/ready?deep=1" } });
    for (let i = 0; i < 3; i++) await askedAgain(clock, worker, "/ready?deep=1");
    expect(worker.asked).not.toContain("/health");
    expect(await shown(running.admin, "w0")).toMatchObject({ state: "ready", models: ["m"] });
  });

  it("asks for the models alone where the path is off, and for them where they are fixed, too", async () => {
    for (const fixed of [{}, { models: ["m"] }]) {
      const worker = await probed();
      worker.pages["/health"] = ILL;
      const { running, clock } = await over([worker.url], { ...fixed, health: { path: null } });
      for (let i = 0; i < 3; i++) await askedAgain(clock, worker, "/v1/models");
      expect(worker.asked).not.toContain("/health");
      expect(workerOf(running, "w0").eligible).toBe(true);
      worker.pages["/v1/models"] = ILL;
      await passUntil(clock, () => !workerOf(running, "w0").eligible);
      expect(await shown(running.admin, "w0")).toMatchObject({
        state: "unhealthy",
        reason: "it answered GET /v1/models with status 500",
      });
    }
  });

  it("counts though the models are fixed; that they are not listed does not", async () => {
    const worker = await probed();
    worker.pages["/v1/models"] = ILL;
    const { running, clock } = await over([worker.url], { models: ["m"] });
    for (let i = 0; i < 3; i++) await askedAgain(clock, worker, "/health");
    expect(await say(running)).toBe("200 w0 place");
    worker.pages["/health"] = ILL;
    await passUntil(clock, () => !workerOf(running, "w0").eligible);
    const seen = await shown(running.admin, "w0");
    expect(seen).toMatchObject({ state: "unhealthy", reason: "it answered GET /health with status 500" });
    expect(await say(running)).toMatch(/^503 /);
  });

  it("is asked once at a time, and fails where it is not answered in time: others are served meanwhile", async () => {
    const workers = [await probed(), await probed()];
    const { running, clock } = await over(
      workers.map(({ url }) => url),
      { health: { timeoutMs: 100, unhealthyAfter: 2 } },
    );
    workers[0]!.pages["/health"] = "silence";
    let [open, most] = [0, 0];
    workers[0]!.server.prependListener("request", (_request, response) => {
      open++;
      most = Math.max(most, open);
      response.on("close", () => open--);
    });
    for (let i = 0; i < 20; i++) clock.advance(INTERVAL_MS);
    await passUntil(clock, () => !workerOf(running, "w0").eligible);
    expect(most).toBeLessThanOrEqual(2);
    expect((await shown(running.admin, "w0")).reason).toMatch(/^it did not answer GET \/health within /);
    for (let i = 0; i < 4; i++) expect(await say(running)).toBe("200 w1 place");
    workers[0]!.pages["/health"] = WELL;
    await passUntil(clock, () => workerOf(running, "w0").eligible);
  });

  it("of the models changes what a worker is asked for", async () => {
    const worker = await probed();
    const { running, clock } = await over([worker.url]);
    worker.pages["/v1/models"] = [200, '{"data":[{"id":"other"}]}'];
    await passUntil(clock, () => workerOf(running, "w0").models[0] === "other");
    expect(await say(running)).toMatch(/^404 /);
    worker.pages["/v1/models"] = MODELS;
    await passUntil(clock, () => workerOf(running, "w0").models[0] === "m");
    expect(await say(running)).toBe("200 w0 place");
  });
});

describe("a gateway starts", () => {
  it("whose workers cannot be reached, says so, and serves when one comes", async () => {
    const gone = [await probed(), await probed()];
    for (const { server } of gone) await stop(server);
    const { running, clock } = await over(
      gone.map(({ url }) => url),
      { health: { unhealthyAfter: 2 } },
    );
    expect(await get(`${running.url}/health`)).toMatchObject({
      status: 503,
      body: { status: "no_worker_eligible" },
    });
    const refused = await post(running.url + CHAT, { model: "m" });
    expect(refused.status).toBe(503);
    expect(JSON.parse(refused.body).error.code).toBe("no_worker_eligible");
    const first = await shown(running.admin, "w0");
    expect(first).toMatchObject({ state: "starting", models: [], columns: null });
    expect(first.reason).toContain("ECONNREFUSED");
    const unhealthy = () => running.log.filter((line) => line.includes("worker is unhealthy"));
    await passUntil(clock, () => unhealthy().length === 2);
    expect(await shown(running.admin, "w1")).toMatchObject({ state: "unhealthy" });
    // One pass is enough for the first time of all.
    await probed(gone[1]!.port);
    await passUntil(clock, () => workerOf(running, "w1").eligible);
    expect(await say(running)).toBe("200 w1 place");
    expect((await get(`${running.url}/health`)).status).toBe(200);
  });

  it("without any worker, and serves the first that is added", async () => {
    const { running } = await over([]);
    expect((await get(`${running.url}/health`)).status).toBe(503);
    // One that serves the model may come any moment.
    expect(await say(running)).toMatch(/^503 /);
    expect((await get(`${running.admin}/admin/workers`)).body).toMatchObject({ workers: [], discovery: [] });
    const { url } = await probed();
    const worker = running.gateway.addWorker({ id: "first", url });
    await until(() => worker.eligible);
    expect(await say(running)).toBe("200 first place");
  });
});

describe("a worker that comes back", () => {
  const SLOW = { slowStartMs: 30_000, unhealthyAfter: 1, healthyAfter: 1 };

  /** Workers that hold what they get; w0 was away, and has just come back. */
  async function cameBack(count: number, options: Omit<GatewayFixture, "urls"> = {}) {
    const workers: Probed[] = [];
    for (let i = 0; i < count; i++) {
      const worker = await probed();
      worker.onPost = () => {};
      workers.push(worker);
    }
    const { running, clock } = await over(
      workers.map(({ url }) => url),
      { policy: "round-robin", health: SLOW, ...options },
    );
    const said: Promise<string>[] = [];
    /** Sends requests, one after the other; resolves to how many each worker holds. */
    const send = async (requests: number) => {
      for (let i = 0; i < requests; i++) {
        const before = workers.reduce((sum, { posted }) => sum + posted.length, 0);
        said.push(say(running));
        await until(() => workers.reduce((sum, { posted }) => sum + posted.length, 0) > before);
      }
      return loads();
    };
    const loads = () => running.router.status().workers.map((worker) => worker.active_requests);
    const end = async () => {
      for (const { posted } of workers) for (const { response } of posted) response.end("{}");
      expect(new Set((await Promise.all(said)).map((reply) => reply.slice(0, 3)))).toEqual(new Set(["200"]));
    };
    workers[0]!.pages["/health"] = ILL;
    await passUntil(clock, () => !workerOf(running, "w0").eligible);
    /** Brings it back; time stands still then. */
    const back = async () => {
      workers[0]!.pages["/health"] = WELL;
      await passUntil(clock, () => workerOf(running, "w0").ready);
    };
    return { workers, running, clock, send, end, back, loads };
  }

  it("gets ever more under round-robin, and its full share at last (A22)", async () => {
    const { running, clock, send, end, back } = await cameBack(3);
    expect(await send(20)).toEqual([0, 10, 10]);
    await back();
    // One, as long as no time has passed, whatever the others get.
    expect(await send(1)).toEqual([1, 10, 10]);
    expect(await send(4)).toEqual([1, 12, 12]);
    expect((await shown(running.admin, "w0")).slow_start_limit).toBe(1);
    const seen: number[] = [];
    for (let step = 0; step < 5; step++) {
      clock.advance(5_000);
      const mean = (running.router.status().workers[1]!.active_requests + loadOf(running, 2)) / 2;
      const limit = Math.floor(1 + ((mean - 1) * 5 * (step + 1)) / 30);
      expect((await shown(running.admin, "w0")).slow_start_limit).toBe(limit);
      const [load] = await send(12);
      expect(load).toBeLessThanOrEqual(limit);
      seen.push(load!);
    }
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(new Set(seen).size).toBeGreaterThanOrEqual(4);
    clock.advance(5_000);
    expect((await shown(running.admin, "w0")).slow_start_limit).toBe(null);
    const [before] = await send(0);
    const [after] = await send(9);
    expect(after! - before!).toBe(3);
    await end();
  });

  it("says why it gets nothing, or no more, though it is ready", async () => {
    const { running, clock, send, end, back } = await cameBack(2, { maxInFlight: 2 });
    /** Of each worker, as both say it who tell it. */
    const reasons = async () => {
      const { body } = await get(`${running.url}/health`);
      const told = (body as { workers: { eligible: boolean; reason: string }[] }).workers;
      const seen = told.map(({ eligible, reason }) => ({ eligible, reason }));
      for (const [i, each] of seen.entries()) expect(await shown(running.admin, `w${i}`)).toMatchObject(each);
      return seen;
    };
    const well = { eligible: true, reason: "it answers" };
    const full = { eligible: false, reason: "it has as many requests in flight as it may" };
    const ill = { eligible: false, reason: "it answered GET /health with status 500" };
    expect(await reasons()).toEqual([ill, well]);
    expect(await send(1)).toEqual([0, 1]);
    await back();
    expect(await reasons()).toEqual([well, well]);
    const lease = running.router.acquire({ model: "m", exclude: [workerOf(running, "w1")] });
    const slow = "it has as many requests in flight as it may while it begins slowly";
    expect(await reasons()).toEqual([{ eligible: false, reason: slow }, well]);
    clock.advance(SLOW.slowStartMs);
    expect(await reasons()).toEqual([well, well]);
    expect(await send(2)).toEqual([2, 2]);
    expect(await reasons()).toEqual([full, full]);
    lease.release();
    expect(await reasons()).toEqual([well, full]);
    await end();
  });

  it("takes whatever comes where all others are full: nobody is refused for its sake", async () => {
    const { running, send, end, back, loads } = await cameBack(2, { maxInFlight: 4 });
    await send(4);
    expect(loads()).toEqual([0, 4]);
    await back();
    expect(await send(3)).toEqual([3, 4]);
    expect((await shown(running.admin, "w0")).slow_start_limit).toBe(1);
    expect(running.gateway.waiting).toBe(0);
    await end();
  });

  it("takes what is pinned to it, however slowly it begins", async () => {
    const { workers, running, send, end, back } = await cameBack(2, { allowPin: true });
    await send(2);
    await back();
    const pinned = [1, 2, 3].map(() =>
      post(running.url + CHAT, { model: "m" }, { "x-hawser-pin": "w0" }).then(({ status }) => status),
    );
    await until(() => workers[0]!.posted.length === 3);
    await end();
    expect(await Promise.all(pinned)).toEqual([200, 200, 200]);
  });

  it("takes what another one has failed, though it begins slowly", async () => {
    const { running, send, end, back, loads } = await cameBack(2, { policy: "least-loaded" });
    await send(2);
    await back();
    expect(await send(3)).toEqual([1, 4]);
    expect(loads()).toEqual([1, 4]);
    expect((await shown(running.admin, "w0")).slow_start_limit).toBe(1);
    await end();
  });

  it("begins slowly also where it was away, and came back, while it was drained", async () => {
    const { workers, running, clock, send, end } = await cameBack(2);
    await send(4);
    await call(running.admin, "POST", "/admin/workers/w0/drain");
    workers[0]!.pages["/health"] = WELL;
    const { asked } = workers[0]!;
    const before = asked.length;
    await passUntil(clock, () => asked.length >= before + 4);
    expect(await shown(running.admin, "w0")).toMatchObject({ state: "draining", slow_start_limit: null });
    const { body } = await call(running.admin, "DELETE", "/admin/workers/w0/drain");
    expect(body).toMatchObject({ state: "ready", slow_start_limit: 1 });
    // One that was well all the time has kept its cache.
    await call(running.admin, "POST", "/admin/workers/w1/drain");
    const resumed = await call(running.admin, "DELETE", "/admin/workers/w1/drain");
    expect(resumed.body).toMatchObject({ state: "ready", slow_start_limit: null });
    await end();
  });

  it("begins slowly, too, where it is the config's and was not there when the gateway started", async () => {
    const workers = [await probed(), await probed(), await probed()];
    workers[0]!.pages["/health"] = ILL;
    const { running, clock } = await over(
      workers.map(({ url }) => url),
      { health: { ...SLOW, unhealthyAfter: 1_000 } },
    );
    const limits = async () => {
      const { workers } = (await call(running.admin, "GET", "/admin/workers")).body;
      return workers.map((worker: { slow_start_limit: number | null }) => worker.slow_start_limit);
    };
    expect(await shown(running.admin, "w0")).toMatchObject({ state: "starting" });
    // Those that were there have nobody to spare them.
    expect(await limits()).toEqual([null, null, null]);
    workers[0]!.pages["/health"] = WELL;
    await passUntil(clock, () => workerOf(running, "w0").ready);
    expect(await limits()).toEqual([1, null, null]);
    clock.advance(SLOW.slowStartMs);
    expect(await limits()).toEqual([null, null, null]);
  });

  function loadOf({ router }: RunningGateway, row: number): number {
    return router.status().workers[row]!.active_requests;
  }
});

describe("a worker that is restarted between two looks at it", () => {
  it("begins cold: its sessions are placed anew, those of others stay", async () => {
    const first = await startWorker({ models: ["m"], tpotMs: 0 });
    const other = await startWorker({ models: ["m"], tpotMs: 0 });
    onTestFinished(() => other.close());
    const { running, clock } = await over([first.url, other.url], { health: { slowStartMs: 30_000 } });
    const bind = (worker: string, key: string) => {
      const lease = running.router.acquire({ key, model: "m", pin: worker });
      lease.commit();
      lease.release();
    };
    for (const key of ["a", "b"]) bind("w0", key);
    bind("w1", "c");
    for (const key of ["a", "b"]) expect(await say(running, key)).toBe("200 w0 keep");
    expect(await shown(running.admin, "w0")).toMatchObject({ restarted: null, slow_start_limit: null });
    const scraped = async () => {
      while ((await shown(running.admin, "w0")).signals.age_ms !== 0) await pause(5);
    };
    clock.advance(2_000);
    await scraped();
    await first.close();
    // Starts that are told a second apart may be the same one: the clock they are computed from is set now and then.
    await pause(1_500);
    const again = await startWorker({ models: ["m"], tpotMs: 0, port: Number(new URL(first.url).port) });
    onTestFinished(() => again.close());
    clock.advance(2_000);
    await until(() => running.log.some((line) => line.includes("was restarted")));
    expect(running.log.find((line) => line.includes("was restarted"))).toContain('"worker":"w0"');
    expect(running.log.join()).not.toContain("worker is unhealthy");
    const restarted = await shown(running.admin, "w0");
    expect(restarted).toMatchObject({ state: "ready", bound_sessions: 0, slow_start_limit: 1 });
    expect(restarted.restarted).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    expect(await shown(running.admin, "w1")).toMatchObject({ bound_sessions: 1, restarted: null });
    expect(await say(running, "c")).toBe("200 w1 keep");
    for (const key of ["a", "b"]) expect(await say(running, key)).toMatch(/^200 w[01] place$/);
    for (const key of ["a", "b"]) expect(await say(running, key)).toMatch(/^200 w[01] keep$/);
    clock.advance(2_000);
    await scraped();
    expect(running.log.filter((line) => line.includes("was restarted"))).toHaveLength(1);
  });
});

describe("what an engine says of itself", () => {
  it("is shown as the most that there can be where it is absurd, and draws nothing", async () => {
    const most = 2 ** 31 - 1;
    const workers = [await probed(), await probed()];
    workers[0]!.pages["/metrics"] = metrics({ num_requests_running: most, num_requests_waiting: most });
    const { running, clock } = await over(
      workers.map(({ url }) => url),
      { policy: "least-loaded" },
    );
    await passUntil(clock, () => workerOf(running, "w0").shownRequests > 0);
    expect(await shown(running.admin, "w0")).toMatchObject({
      ...{ signals: { running: most, waiting: most }, columns: { active_requests: most, queue_depth: most } },
    });
    for (let i = 0; i < 3; i++) expect(await say(running)).toBe("200 w1 place");
  });
});
