// A gateway whose own requests come back to it: by a worker that is itself, or by another gateway.
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { directoryOf } from "../fixtures/directory.js";
import { APIS } from "./apis.js";
import { post } from "./client.js";
import { CHAT, crew, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { gateway, inFlight, type RunningGateway, until } from "./fixture.js";
import { call, shown } from "./operator.js";
import { probed } from "./probed.js";
import { VirtualClock } from "./virtual-clock.js";

const INTERVAL_MS = 5_000;
const AN_HOUR = 3_600_000;
/** What a gateway says of itself in all that it sends. */
const OWN = /^1\.1 hawser-[0-9a-f]{16}$/;

expectNothingUncaught();

const readWorker = (source: string) => ({ entry: JSON.parse(source) });

/** How requests ended, by outcome. */
async function outcomesOf({ url }: RunningGateway): Promise<Record<string, number>> {
  const health = (await (await fetch(`${url}/health`)).json()) as {
    data_plane: { outcomes: Record<string, number> };
  };
  return health.data_plane.outcomes;
}

const total = (outcomes: Record<string, number>) => Object.values(outcomes).reduce((sum, n) => sum + n, 0);

describe("a gateway that is its own worker", () => {
  it.each<[string, (running: RunningGateway, file: string) => unknown]>([
    ["by addWorker", ({ gateway, url }) => gateway.addWorker({ id: "self", url })],
    [
      "with its models configured",
      ({ gateway, url }) => gateway.addWorker({ id: "self", url, models: ["m"] }),
    ],
    ["by a call", ({ admin, url }) => call(admin, "PUT", "/admin/workers/self", { url })],
    [
      "by a file",
      ({ url }, file) => {
        const labels = { hawser_id: "self" };
        writeFileSync(`${file}.new`, JSON.stringify([{ targets: [new URL(url).host], labels }]));
        renameSync(`${file}.new`, file);
      },
    ],
  ])("never has that one in service: %s", async (_name, add) => {
    const clock = new VirtualClock();
    const file = join(directoryOf({ "workers.json": "[]" }), "workers.json");
    const running = await gateway({
      ...{ urls: [], clock, readWorker, health: { intervalMs: INTERVAL_MS } },
      discovery: [{ kind: "file", file }],
    });
    await add(running, file);
    let self: { state?: string; reason?: string } = {};
    const states = new Set<string>();
    while (self.state !== "unhealthy") {
      clock.advance(INTERVAL_MS);
      self = await shown(running.admin, "self");
      if (self.state !== undefined) states.add(self.state);
    }
    expect([...states].filter((state) => state === "ready")).toEqual([]);
    expect(self.reason).toContain("it answered GET /health with status 508");
    const reply = await post(running.url + CHAT, { model: "m" });
    expect(reply).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
    expect(JSON.parse(reply.body).error.code).toBe("no_worker_eligible");
    // Its questions are nobody's requests.
    expect(await outcomesOf(running)).toEqual({ no_worker_eligible: 1 });
  });
});

describe("what a gateway sends", () => {
  it("says who sends it, in questions too, and is known by that when it comes back", async () => {
    const clock = new VirtualClock();
    const worker = await probed();
    const seen: [string, string | undefined][] = [];
    worker.server.prependListener("request", ({ url, headers }) => seen.push([url!, headers.via]));
    const running = await gateway({ urls: [worker.url], clock });
    await until(() => worker.asked.includes("/metrics"));
    await post(running.url + CHAT, { model: "m" });
    expect([...new Set(seen.map(([url]) => url))].sort()).toEqual([
      "/health",
      "/metrics",
      "/v1/chat/completions",
      "/v1/models",
    ]);
    const [via, ...others] = [...new Set(seen.map(([, value]) => value))];
    expect(via).toMatch(OWN);
    expect(others).toEqual([]);
    const health = await fetch(`${running.url}/health`, { headers: { via: via! } });
    expect(health.status).toBe(508);
    // Another gateway is called otherwise.
    const second = await gateway({ urls: [worker.url] });
    seen.length = 0;
    await post(second.url + CHAT, { model: "m" });
    expect(seen.at(-1)![1]).toMatch(OWN);
    expect(seen.at(-1)![1]).not.toBe(via);
  });

  it.each(APIS.map(({ path }) => path))(
    "is refused where it comes back, in the error shape of %s, counted and logged",
    async (path) => {
      const self = await crew([serve], { log: { requests: "errors" } });
      await self.say();
      const via = self.asked[0]!.request.headers.via!;
      expect(via).toMatch(OWN);
      const body = { model: "m", messages: [], input: "", stream: true };
      for (const value of [via, `1.1 first, ${via}, 1.0 last`]) {
        const reply = await post(`${self.running.url}${path}?beta=true`, body, { via: value });
        expect(reply.status).toBe(508);
        expect(reply.headers["content-type"]).toBe("application/json");
        const told = JSON.parse(reply.body);
        const message = expect.stringContaining("the url of one of its workers leads back to it");
        if (path === "/v1/messages") {
          expect(told).toEqual({ type: "error", error: { type: "api_error", message } });
        } else {
          expect(told).toEqual({
            error: { message, type: "server_error", param: null, code: "loop_detected" },
          });
        }
      }
      expect(self.order).toBe("w0");
      expect((await self.dataPlane()).outcomes).toEqual({ complete: 1, loop_detected: 2 });
      const lines = self.running.log.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "request");
      expect(lines).toHaveLength(2);
      for (const line of lines)
        expect(line).toMatchObject({ level: 40, path, outcome: "loop_detected", status: 508 });
    },
  );

  it("passes where somebody else's is, and the worker hears of both", async () => {
    const self = await crew([serve]);
    const others = "1.1 proxy.example (nginx), 1.1 hawser-0123456789abcdef";
    expect(await self.say(undefined, {}, { via: others })).toBe("200 w0 place");
    const [theirs, own] = self.asked[0]!.request.headers.via!.split(/, (?=[^,]*$)/);
    expect(theirs).toBe(others);
    expect(own).toMatch(OWN);
    expect((await self.dataPlane()).outcomes).toEqual({ complete: 1 });
  });
});

describe("two gateways that are each other's worker", () => {
  it("end every request, and send none of them round more than once", async () => {
    const clock = new VirtualClock();
    const real = await probed();
    const health = { intervalMs: INTERVAL_MS };
    const options = { clock, policy: "round-robin", breaker: null, log: { requests: "all" } as const };
    const b = await gateway({ ...options, urls: [], health });
    const a = await gateway({ ...options, urls: [real.url, b.url], health });
    b.gateway.addWorker({ id: "a", url: a.url });
    const isEligible = ({ router }: RunningGateway) => [...router.workers].every(({ eligible }) => eligible);
    await until(() => {
      clock.advance(INTERVAL_MS);
      return isEligible(a) && isEligible(b);
    });
    const count = 20;
    const replies = await Promise.all(
      Array.from({ length: count }, () => post(a.url + CHAT, { model: "m" })),
    );
    await until(() => inFlight(a.router) + inFlight(b.router) === 0);
    const [atA, atB] = [await outcomesOf(a), await outcomesOf(b)];
    // Every one that `a` gave to `b` came back at once, and was refused.
    const loops = atA.loop_detected!;
    expect(loops).toBeGreaterThan(0);
    expect(loops).toBeLessThanOrEqual(count);
    expect([total(atA), total(atB)]).toEqual([count + loops, loops]);
    expect(real.posted).toHaveLength(count - loops);
    const statuses = replies.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(count - loops);
    expect(statuses.filter((status) => status === 508)).toHaveLength(loops);
  });

  it("serve by the real worker alone, once the breaker has seen that the other leads nowhere", async () => {
    const real = await probed();
    const health = { intervalMs: AN_HOUR };
    const b = await gateway({ urls: [], health });
    const a = await gateway({ urls: [real.url], policy: "round-robin", health });
    b.gateway.addWorker({ id: "a", url: a.url });
    await until(() => [...b.router.workers].every(({ eligible }) => eligible));
    const other = a.gateway.addWorker({ id: "b", url: b.url });
    await until(() => other.eligible);
    for (let i = 0; i < 20; i++) await post(a.url + CHAT, { model: "m" });
    expect(await shown(a.admin, "b")).toMatchObject({
      state: "unhealthy",
      breaker: { state: "open", why: "status 508" },
    });
    expect((await post(a.url + CHAT, { model: "m" })).headers["x-hawser-worker"]).toBe("w0");
  });
});
