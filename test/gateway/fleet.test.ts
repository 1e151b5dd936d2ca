import { describe, expect, it } from "vitest";
import { get, post } from "./client.js";
import { gateway, stop, until, upstream } from "./fixture.js";

const CHAT = "/v1/chat/completions";

describe("health", () => {
  it("is 503 until a worker is eligible, and the worker is found when it comes", async () => {
    const first = await upstream((_request, response) => response.end("{}"));
    const port = Number(new URL(first.url).port);
    await stop(first.server);
    const { url, router, log } = await gateway({ urls: [first.url], health: { intervalMs: 20 } });
    expect(await get(`${url}/health`)).toMatchObject({
      status: 503,
      body: { status: "no_worker_eligible", workers: [{ reason: expect.stringContaining("ECONNREFUSED") }] },
    });
    // A wrong address would otherwise never be heard of.
    await until(() => log.some((line) => line.includes("worker is unhealthy")));
    // Nobody can say yet whether the model exists.
    expect((await post(url + CHAT, { model: "m" })).status).toBe(503);
    await upstream((_request, response) => response.end("{}"), port);
    await until(() => router.status().workers[0]!.eligible);
    expect(await get(`${url}/health`)).toMatchObject({
      status: 200,
      body: {
        status: "ok",
        affinity_kept: 0,
        affinity_broken: 0,
        workers: [{ id: "w0", eligible: true, models: ["m"] }],
      },
    });
    expect((await post(url + CHAT, { model: "m" })).status).toBe(200);
    expect((await post(url + CHAT, { model: "x" })).status).toBe(404);
    expect(log.filter((line) => line.includes("worker is unhealthy"))).toHaveLength(1);
    expect(log.join()).toContain("worker is ready");
  });

  it("takes a worker that ceases to answer out, and does not zero live counts (A2)", async () => {
    const dies = await upstream((_request, response) => response.end("{}"));
    const lives = await upstream((_request, response) => void response.write("x"));
    const { url, router } = await gateway({
      urls: [dies.url, lives.url],
      health: { intervalMs: 20 },
      policy: "least-loaded",
    });
    await stop(dies.server);
    await until(() => !router.status().workers[0]!.eligible);
    void fetch(url + CHAT, { method: "POST", body: JSON.stringify({ model: "m" }) }).catch(() => {});
    await until(() => router.status().workers[1]!.active_requests === 1);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(router.status().workers[1]!.active_requests).toBe(1);
    expect((await get(`${url}/health`)).status).toBe(200);
  });

  it.each([
    ["an error status", 500, '{"data":[{"id":"m"}]}'],
    ["no JSON", 200, "hello"],
    ["no list", 200, '{"data":{}}'],
    [
      "too many models",
      200,
      JSON.stringify({ data: Array.from({ length: 257 }, (_, i) => ({ id: `m${i}` })) }),
    ],
    ["an endless list", 200, `{"data":["${"x".repeat(1_100_000)}"]}`],
  ])("takes a worker out that answers with %s, until it is well again", async (_name, code, text) => {
    let ill = false;
    const worker = await upstream(() => {});
    worker.server.removeAllListeners("request");
    worker.server.on("request", (_request, response) => {
      response.writeHead(ill ? code : 200).end(ill ? text : '{"data":[{"id":"m"}]}');
    });
    const { router } = await gateway({ urls: [worker.url], health: { intervalMs: 20 } });
    expect(router.status().workers[0]!.eligible).toBe(true);
    ill = true;
    await until(() => !router.status().workers[0]!.eligible);
    ill = false;
    await until(() => router.status().workers[0]!.eligible);
  });
});

describe("models", () => {
  it("is the union of what the workers list, or of what the config says", async () => {
    const one = await upstream(() => {});
    const { url } = await gateway({ urls: [one.url, one.url] });
    expect(await get(`${url}/v1/models`)).toEqual({
      status: 200,
      body: { object: "list", data: [{ id: "m", object: "model", owned_by: "test" }] },
    });
    const fixed = await gateway({ urls: [one.url], models: ["mine", "m"] });
    expect(
      ((await get(`${fixed.url}/v1/models`)).body as { data: { id: string }[] }).data.map(({ id }) => id),
    ).toEqual([...["mine", "m"]]);
    expect((await post(fixed.url + CHAT, { model: "other" })).status).toBe(404);
  });

  it("leaves out of an entry what is nested too deep to be sure of, for the list's sake, and nothing else", async () => {
    const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels);
    const members = `"owned_by":"x","meta":{"a":[{"b":1}]},"eight":${nested(8)}`;
    const deep = `"nine":${nested(9)},"endless":${nested(200_000)},"__proto__":${nested(20)}`;
    const odd = await upstream(() => {});
    odd.server.removeAllListeners("request");
    odd.server.on("request", (_request, response) => {
      response.end(`{"data":[{"id":"odd",${members},${deep}},{"id":"odd too",${members}}]}`);
    });
    const good = await upstream(() => {});
    const { url } = await gateway({ urls: [odd.url, good.url] });
    const shown = JSON.parse(`{${members}}`);
    expect(await get(`${url}/v1/models`)).toEqual({
      status: 200,
      body: {
        object: "list",
        data: [
          { ...shown, id: "odd" },
          { ...shown, id: "odd too" },
          { id: "m", object: "model", owned_by: "test" },
        ],
      },
    });
  });
});
