// Requests on one connection that come before the answers to those before them: how many are begun, what becomes of the rest,
// that their client's end is seen, and that one which goes wrong leaves the others whole.
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { dataPlaneOf, untilDataPlane } from "./data-plane.js";
import { type GatewayFixture, gateway, inFlight, until, upstream } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";
import { headersOf, post, request, Wire } from "./wire.js";

const MOST = 16;
const HOUR = 3_600_000;
const STREAM = { "content-type": "text/event-stream" };

/** A gateway over one worker whose answers, found by the `n` of their requests, are the test's to give. */
async function withWorker(options: Partial<GatewayFixture> = {}) {
  const answers = new Map<string, ServerResponse>();
  const worker = await upstream((_request, response, body) => {
    answers.set(String(JSON.parse(String(body)).n), response);
  });
  const running = await gateway({ urls: [worker.url], health: { intervalMs: HOUR }, ...options });
  const wire = new Wire(running.url);
  const answer = async (n: string | number) => {
    await until(() => answers.has(String(n)));
    return answers.get(String(n))!;
  };
  return { ...running, answers, answer, wire };
}

function numbered(n: string | number, path?: string): string {
  return post(JSON.stringify({ model: "m", n, stream: true }), [], path);
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, n) => n);
}

/** Requests that the servers of this process take in whose target contains `mark`. */
function counting(mark: string): { count: number } {
  const seen = { count: 0 };
  const count = (message: unknown) => {
    if ((message as { request: { url: string } }).request.url.includes(mark)) seen.count++;
  };
  subscribe("http.server.request.start", count);
  onTestFinished(() => void unsubscribe("http.server.request.start", count));
  return seen;
}

describe("more requests than one connection may have under way", () => {
  it.each(["in one packet", "one by one"])(
    "are told so in their turn, behind whole answers; the connection is closed: %s",
    async (how) => {
      const { url, wire, answers, answer, log } = await withWorker();
      const all = numbers(3 * MOST).map((n) => numbered(n));
      if (how === "in one packet") wire.send(all.join(""));
      else
        for (const one of all) {
          wire.send(one);
          await new Promise(setImmediate);
        }
      await answer(MOST - 1);
      await untilDataPlane(url, ({ outcomes }) => outcomes.too_many_pipelined === 1);
      // Nothing is out before its turn.
      expect(wire.text).toBe("");
      for (const n of numbers(MOST).reverse()) answers.get(String(n))!.end(`answer ${n}`);
      const got = await wire.answers(MOST + 2);
      expect(got.map(({ status }) => status)).toEqual([...numbers(MOST).map(() => 200), 503]);
      expect(got.slice(0, MOST).map(({ body }) => body)).toEqual(numbers(MOST).map((n) => `answer ${n}`));
      const last = got[MOST]!;
      expect(JSON.parse(last.body).error).toMatchObject({ code: "too_many_pipelined", type: "server_error" });
      expect([headersOf(last, "connection"), headersOf(last, "retry-after")]).toEqual([["close"], ["1"]]);
      expect(wire.end).toBe("FIN");
      expect([...answers.keys()]).toEqual(numbers(MOST).map(String));
      const { outcomes } = await dataPlaneOf(url);
      expect(outcomes).toEqual({ complete: MOST, too_many_pipelined: 1 });
      expect(log.filter((line) => line.includes('"outcome":"too_many_pipelined","status":503')).length).toBe(
        1,
      );
    },
  );

  it.each([
    ["a health check", "GET /health HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["an unknown path", "GET /v1/messages/none HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["a path that is no URL", "GET /%zz HTTP/1.1\r\nhost: x\r\n\r\n"],
    ["a request that names no host", "GET /health HTTP/1.1\r\n\r\n"],
    ["a request that expects what there is not", "GET /health HTTP/1.1\r\nhost: x\r\nexpect: y\r\n\r\n"],
    ["a request with a bad body", post("[]")],
  ])("are counted whatever they ask for: %s", async (_name, one) => {
    const { url, wire, answer } = await withWorker();
    const seen = counting("?after");
    wire.send(numbered("slow"));
    const slow = await answer("slow");
    wire.send(one.repeat(MOST));
    wire.send("GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    await dataPlaneOf(url);
    wire.send("GET /health?after HTTP/1.1\r\nhost: x\r\n\r\n");
    await dataPlaneOf(url);
    slow.end("{}");
    await until(() => wire.end !== undefined);
    expect(seen.count).toBe(0);
    // One that names no host has the connection closed behind it.
    const answered = one.includes("host: x") ? MOST + 1 : 2;
    expect(wire.text.split("HTTP/1.1 ").length - 1).toBe(answered);
  });

  it("are as many again when some have been answered", async () => {
    const { wire, answer } = await withWorker();
    for (const round of [1, 2, 3]) {
      wire.send(
        numbers(MOST)
          .map((n) => numbered(`${round}.${n}`))
          .join(""),
      );
      for (const n of numbers(MOST)) (await answer(`${round}.${n}`)).end("{}");
      expect((await wire.answers(round * MOST)).map(({ status }) => status).filter((s) => s !== 200)).toEqual(
        [],
      );
    }
    // Those that were answered make room for as many while others wait.
    wire.send(
      numbers(MOST)
        .map((n) => numbered(`4.${n}`))
        .join(""),
    );
    for (const n of numbers(8)) (await answer(`4.${n}`)).end("{}");
    await wire.answers(3 * MOST + 8);
    wire.send(
      numbers(8)
        .map((n) => numbered(`5.${n}`))
        .join(""),
    );
    for (const n of numbers(8)) (await answer(`5.${n}`)).end("{}");
    for (const n of numbers(8)) (await answer(`4.${8 + n}`)).end("{}");
    const got = await wire.answers(4 * MOST + 8);
    expect([got.length, got.filter(({ status }) => status !== 200)]).toEqual([4 * MOST + 8, []]);
  });

  it("cannot pile up: what comes is read and thrown away, whatever it is", async () => {
    const { url, wire, answers, answer } = await withWorker();
    const seen = counting("?flood");
    wire.send(
      numbers(MOST)
        .map((n) => numbered(n))
        .join(""),
    );
    await answer(MOST - 1);
    const flood = numbered("flood", "/v1/chat/completions?flood").repeat(1_000);
    // Far more than the kernel holds: it has been read when the last of it has been taken.
    for (let i = 0; i < 200; i++)
      await new Promise<void>((resolve) => wire.socket.write(flood, () => resolve()));
    // No more than what one read holds.
    expect(seen.count).toBeLessThan(1_000);
    expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: MOST });
    expect(answers.size).toBe(MOST);
    wire.socket.resetAndDestroy();
    await until(() => [...answers.values()].every(({ destroyed }) => destroyed));
    await untilDataPlane(url, ({ requests_in_flight }) => requests_in_flight === 0);
  });

  it("have the connection cut where they are too short to be any that is proxied, and thousands", async () => {
    const { wire, answer } = await withWorker();
    wire.send(numbered("slow"));
    const slow = await answer("slow");
    const seen = counting("/?short");
    wire.send("GET /?short HTTP/1.1\r\nhost:\r\n\r\n".repeat(20_000));
    await until(() => slow.destroyed);
    expect(seen.count).toBeLessThan(4_000);
  });
});

describe("a client that leaves", () => {
  it.each(["end", "destroy", "resetAndDestroy"] as const)(
    "is noticed at once with as many requests behind a slow one as it may have, whatever waits there: %s",
    async (leave) => {
      const names = numbers(300).map((n) => `${n}-${"x".repeat(200)}`);
      const { url, router, wire, answer } = await withWorker({ models: [...names, "m"] });
      wire.send(numbered("slow"));
      const slow = await answer("slow");
      // Answers that are far longer than what Node has wait before it stops reading.
      wire.send("GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n".repeat(7));
      wire.send(
        numbers(6)
          .map((n) => numbered(n))
          .join(""),
      );
      for (const n of numbers(6)) (await answer(n)).writeHead(200, STREAM).end("x".repeat(200_000));
      await until(() => inFlight(router) === 1);
      wire.send(numbered("last") + numbered("very last"));
      await answer("very last");
      expect(slow.destroyed).toBe(false);
      wire.socket[leave]();
      await until(() => slow.destroyed && inFlight(router) === 0);
      await untilDataPlane(url, ({ requests_in_flight: n, buffered_bytes: b }) => n === 0 && b === 0);
    },
  );
});

describe("an answer that goes wrong behind another one that goes on", () => {
  /** A stream that has begun, and others behind it. */
  async function behindStream(options: Partial<GatewayFixture>, ...others: string[]) {
    const running = await withWorker(options);
    running.wire.send(numbered("first") + others.join(""));
    const first = await running.answer("first");
    first.writeHead(200, STREAM).write("data: 0\n\n");
    await until(() => running.wire.text.includes("data: 0"));
    return { ...running, first };
  }

  it.each([
    ["a stream", STREAM, true],
    ["JSON", { "content-type": "application/json", "content-length": "100" }, false],
  ])(
    "breaks in its turn, not sooner: %s",
    async (_name, head: Record<string, string>, isStream) => {
      const { url, wire, first, answer } = await behindStream({}, numbered("second"));
      const second = await answer("second");
      second.writeHead(200, head).write("data: B\n\n");
      await untilDataPlane(url, () => second.headersSent);
      second.socket!.end();
      await untilDataPlane(url, ({ outcomes }) => outcomes.worker_failed === 1);
      // Longer than a reader gets to take the last of an answer that broke.
      await delay(6_000);
      expect(wire.end).toBeUndefined();
      first.end("data: [DONE]\n\n");
      await until(() => wire.end !== undefined);
      const [whole, ...rest] = await wire.answers(2);
      expect([whole!.body, rest]).toEqual(["data: 0\n\ndata: [DONE]\n\n", []]);
      const broken = wire.text.slice(wire.text.indexOf("data: [DONE]"));
      if (isStream) expect(broken).toMatch(/data: B\n\n[\s\S]*"code":"worker_failed"/);
      else expect(broken).not.toContain("HTTP/1.1");
    },
    30_000,
  );

  it("gives up what it holds at once where all hold too much", async () => {
    const limits = { streamBufferBytes: 2 ** 20, bufferedTotalBytes: 2 ** 20 };
    const { url, router, wire, first, answer } = await behindStream(
      { limits },
      ...numbers(4).map((n) => numbered(n)),
    );
    for (const n of numbers(4)) {
      (await answer(n)).writeHead(200, STREAM).end(Buffer.alloc(400_000, "x"));
      await until(() => inFlight(router) === 4 - n);
    }
    const { buffered_bytes, outcomes } = await dataPlaneOf(url);
    expect(buffered_bytes).toBeLessThanOrEqual(2 ** 20);
    expect(outcomes.client_too_slow).toBeGreaterThan(0);
    expect(wire.end).toBeUndefined();
    first.end("data: [DONE]\n\n");
    expect((await wire.answers(1))[0]!.body).toBe("data: 0\n\ndata: [DONE]\n\n");
  });

  it("waits for its turn as long as it takes, where it is whole and the one before it goes on", async () => {
    const clock = new VirtualClock();
    const { url, router, wire, first, answer } = await behindStream({ clock }, numbered("second"));
    (await answer("second")).end("whole");
    await until(() => inFlight(router) === 1);
    for (const n of numbers(20)) {
      clock.advance(9 * 60_000);
      first.write(`data: part ${n}\n\n`);
      await until(() => wire.text.includes(`part ${n}\n`) || wire.end !== undefined);
    }
    first.end();
    expect((await wire.answers(2)).map(({ body }) => body.slice(-9))).toEqual([
      "rt 19\n\n".padStart(9, "pa"),
      "whole",
    ]);
    expect((await dataPlaneOf(url)).outcomes).toEqual({ complete: 2 });
  });

  it.each([
    ["is too large", 413, request("/v1/chat/completions", ["content-length: 999999999"], "x")],
    ["is to nowhere", 404, request("/v1/nowhere", ["content-length: 1000"], "x")],
  ])(
    "is refused in its turn while its body, which %s, does not come",
    async (_name, status, bytes) => {
      const { wire, first } = await behindStream({}, bytes);
      // Longer than a client gets to send the rest of what was refused.
      await delay(6_000);
      expect(wire.end).toBeUndefined();
      first.end("data: [DONE]\n\n");
      const [whole, refused] = await wire.answers(2);
      expect([whole!.body, refused!.status]).toEqual(["data: 0\n\ndata: [DONE]\n\n", status]);
      await until(() => wire.end !== undefined);
    },
    30_000,
  );
});
