// What real simulated engines say of themselves, and how that steers requests under least load.
import { request } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { startWorker, type WorkerOptions } from "../../host/worker/server.js";
import { VirtualClock as EngineClock } from "../worker/virtual-clock.js";
import { post } from "./client.js";
import { CHAT } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, gateway, type RunningGateway, until } from "./fixture.js";
import { shown } from "./operator.js";
import { metrics, probed } from "./probed.js";
import { VirtualClock } from "./virtual-clock.js";

const AN_HOUR = 3_600_000;
const INTERVAL_MS = 2_000;
const STALE_MS = 10_000;

expectNothingUncaught();

const body = { model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 4 };

/** An engine whose time stands still: what it is sent stays in it. */
async function engine(options: Partial<WorkerOptions> = {}): Promise<string> {
  const worker = await startWorker({ models: ["m"], clock: new EngineClock(), ...options });
  onTestFinished(() => worker.close());
  return worker.url;
}

interface Watched {
  readonly running: RunningGateway;
  readonly clock: VirtualClock;
}

/** A gateway under least load, whose time stands still. */
async function over(urls: readonly string[], options: Omit<GatewayFixture, "urls"> = {}): Promise<Watched> {
  const clock = new VirtualClock();
  const health = { intervalMs: AN_HOUR };
  return { clock, running: await gateway({ urls, clock, health, policy: "least-loaded", ...options }) };
}

/** Sends requests straight to an engine, past the gateway; they are cut when the test ends. */
async function burden(url: string, count: number): Promise<() => void> {
  const sent = Array.from({ length: count }, () => {
    const one = request(`${url}${CHAT}`, { method: "POST", headers: { "content-type": "application/json" } });
    one.on("error", () => {});
    one.end(JSON.stringify(body));
    return one;
  });
  const cut = () => {
    for (const one of sent) one.destroy();
  };
  onTestFinished(cut);
  await settled(url, (inside) => inside >= count);
  return cut;
}

/** Waits until an engine has so many requests inside. */
async function settled(url: string, holds: (inside: number) => boolean): Promise<void> {
  for (;;) {
    const page = await (await fetch(`${url}/metrics`)).text();
    const values = [...page.matchAll(/^vllm:num_requests_(?:running|waiting)\{.*\} (\d+)$/gm)];
    if (holds(values.reduce((sum, [, value]) => sum + Number(value), 0))) return;
  }
}

const signalsOf = async ({ running }: Watched, id: string) => (await shown(running.admin, id)).signals;

/** Has all engines asked once more; resolves when what they say, or that they do not, is known. */
async function scraped(self: Watched, ...ids: string[]): Promise<void> {
  self.clock.advance(INTERVAL_MS);
  for (const id of ids) {
    for (;;) {
      const { age_ms: age, error } = await signalsOf(self, id);
      if (age === 0 || error?.age_ms === 0) break;
    }
  }
}

/** Requests that stay under way at the gateway, until the test ends. */
async function hold({ running }: Watched, count: number): Promise<void> {
  const loads = () => running.router.status().workers.map((worker) => worker.active_requests);
  for (let i = 0; i < count; i++) {
    const before = loads().reduce((sum, load) => sum + load, 0);
    post(running.url + CHAT, body).catch(() => {});
    await until(() => loads().reduce((sum, load) => sum + load, 0) > before);
  }
}

const loadsOf = ({ running }: Watched) =>
  running.router.status().workers.map(({ active_requests }) => active_requests);

/** The worker that would be chosen now. */
function next({ running }: Watched): string {
  return running.router.explain({ model: "m" }).worker;
}

describe("requests that others send straight to an engine", () => {
  it("make the gateway prefer another one, and are seen to be gone", async () => {
    const urls = [await engine(), await engine()];
    const self = await over(urls);
    expect(next(self)).toBe("w0");
    const cut = await burden(urls[0]!, 5);
    await scraped(self, "w0", "w1");
    expect(await shown(self.running.admin, "w0")).toMatchObject({
      ...{ active_requests: 0 },
      signals: { running: 5, waiting: 0, elsewhere: 5, age_ms: 0, error: null },
      columns: { active_requests: 5 },
    });
    expect(next(self)).toBe("w1");
    // One more than there is room for with the other one.
    await hold(self, 6);
    expect(loadsOf(self)).toEqual([1, 5]);
    cut();
    await settled(urls[0]!, (inside) => inside === 1);
    await scraped(self, "w0", "w1");
    expect(await signalsOf(self, "w0")).toMatchObject({ running: 1, elsewhere: 0 });
    await hold(self, 4);
    expect(loadsOf(self)).toEqual([5, 5]);
  });

  it("count where they wait inside the engine, too, with what its cache holds shown", async () => {
    const url = await engine({ maxNumSeqs: 2, kvBlocks: 512, blockSize: 32 });
    const self = await over([url, await engine({ kvBlocks: 100, blockSize: 64 })]);
    await burden(url, 5);
    await scraped(self, "w0", "w1");
    const seen = await shown(self.running.admin, "w0");
    expect(seen).toMatchObject({
      signals: { running: 2, waiting: 3, elsewhere: 5, kv_blocks: 512, block_tokens: 32 },
      columns: { active_requests: 5, queue_depth: 3, kv_blocks: 512 },
    });
    expect(seen.columns.kv_used).toBe(seen.signals.kv_used);
    expect(seen.signals.kv_used).toBeGreaterThanOrEqual(0);
    expect(await shown(self.running.admin, "w1")).toMatchObject({
      signals: { running: 0, waiting: 0, kv_used: 0, kv_blocks: 100, block_tokens: 64 },
      columns: { queue_depth: 0, kv_used: 0, kv_blocks: 100 },
    });
  });
});

describe("requests of the gateway's own", () => {
  it("inside one interval are spread by what is in flight, though all engines said the same (A17)", async () => {
    const urls = [await engine(), await engine(), await engine(), await engine()];
    const self = await over(urls);
    const ids = urls.map((_, i) => `w${i}`);
    await scraped(self, ...ids);
    await hold(self, 8);
    expect(loadsOf(self)).toEqual([2, 2, 2, 2]);
    // What engines then say of them is not counted once more.
    for (const url of urls) await settled(url, (inside) => inside === 2);
    await scraped(self, ...ids);
    for (const id of ids)
      expect(await signalsOf(self, id)).toMatchObject({ running: 2, elsewhere: 0, age_ms: 0 });
    await hold(self, 8);
    expect(loadsOf(self)).toEqual([4, 4, 4, 4]);
  });

  it("are not taken for others' where the engine still has them and the gateway has not", async () => {
    const worker = await probed();
    worker.pages["/metrics"] = metrics({ num_requests_running: 3, num_requests_waiting: 0 });
    const self = await over([worker.url]);
    await scraped(self, "w0");
    expect(await signalsOf(self, "w0")).toMatchObject({ running: 3, elsewhere: 3 });
    const leases = [0, 1, 2].map(() => self.running.router.acquire({ model: "m" }));
    for (const lease of leases) lease.release();
    await scraped(self, "w0");
    // Three were in flight at once since the last time: the engine may speak of those.
    expect(await signalsOf(self, "w0")).toMatchObject({ running: 3, elsewhere: 0 });
    await scraped(self, "w0");
    expect(await signalsOf(self, "w0")).toMatchObject({ running: 3, elsewhere: 3 });
  });
});

describe("an engine that does not say any more how it is", () => {
  it("is not idle for ever because it said so last: what it said ages out, its own load counts (A16)", async () => {
    const silent = await probed();
    silent.pages["/metrics"] = metrics({ num_requests_running: 0, num_requests_waiting: 0 });
    silent.onPost = () => {};
    const other = await engine();
    const self = await over([other, silent.url]);
    await burden(other, 3);
    await scraped(self, "w0", "w1");
    expect(next(self)).toBe("w1");
    silent.pages["/metrics"] = [500, "no metrics today"];
    for (let ms = INTERVAL_MS; ms < STALE_MS; ms += INTERVAL_MS) {
      await scraped(self, "w0", "w1");
      expect(await signalsOf(self, "w1")).toMatchObject({
        ...{ running: 0, age_ms: ms },
        error: { message: "it answered GET /metrics with status 500", age_ms: 0 },
      });
    }
    await scraped(self, "w0", "w1");
    expect(await shown(self.running.admin, "w1")).toMatchObject({
      state: "ready",
      signals: { running: null, waiting: null, elsewhere: 0, age_ms: STALE_MS },
      columns: { queue_depth: -1, kv_used: -1 },
    });
    // By its own count it fills like any other.
    await hold(self, 8);
    const [first, second] = loadsOf(self) as [number, number];
    expect(Math.abs(first + 3 - second)).toBeLessThanOrEqual(1);
  });

  it("is not busy for ever because it said so last", async () => {
    const silent = await probed();
    silent.pages["/metrics"] = metrics({ num_requests_running: 9, num_requests_waiting: 0 });
    const self = await over([silent.url, await engine()]);
    await scraped(self, "w0", "w1");
    expect(next(self)).toBe("w1");
    silent.pages["/metrics"] = "silence";
    for (let ms = 0; ms < STALE_MS; ms += 250) self.clock.advance(250);
    expect(await signalsOf(self, "w0")).toMatchObject({ running: null, elsewhere: 0 });
    expect(next(self)).toBe("w0");
  });
});

describe("an engine without metrics", () => {
  it("is well all the same, and says why nothing is known", async () => {
    const worker = await probed();
    const self = await over([worker.url]);
    await scraped(self, "w0");
    expect(await shown(self.running.admin, "w0")).toMatchObject({
      ...{ state: "ready", eligible: true },
      signals: {
        ...{ running: null, waiting: null, kv_used: null, kv_blocks: null, block_tokens: null, age_ms: null },
        error: { message: "it answered GET /metrics with status 404", age_ms: 0 },
      },
      columns: { queue_depth: -1, kv_used: -1, kv_blocks: 0 },
    });
    expect((await post(self.running.url + CHAT, body)).status).toBe(200);
    expect(self.running.log.join()).not.toContain("unhealthy");
  });

  it("is not asked where that is off", async () => {
    const worker = await probed();
    const self = await over([worker.url], { signals: { path: null } });
    for (let i = 0; i < 20; i++) self.clock.advance(INTERVAL_MS);
    expect((await post(self.running.url + CHAT, body)).status).toBe(200);
    expect(worker.asked).not.toContain("/metrics");
    expect(await signalsOf(self, "w0")).toMatchObject({ age_ms: null, error: null });
  });

  it("may be asked at another path", async () => {
    const worker = await probed();
    worker.pages["/stats"] = metrics({ num_requests_running: 4, num_requests_waiting: 1 });
    const self = await over([worker.url], { signals: { path: "/stats" } });
    await scraped(self, "w0");
    expect(await signalsOf(self, "w0")).toMatchObject({ running: 4, waiting: 1, elsewhere: 5 });
    expect(worker.asked).not.toContain("/metrics");
  });
});
