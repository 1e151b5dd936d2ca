// A config that changes while the gateway serves: every key takes effect with the next request, and what was before stays.
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { RawConfig } from "../../host/config/schema.js";
import { keysOf } from "../config/keys.js";
import { directoryOf } from "../fixtures/directory.js";
import { DnsServer } from "../fleet/dns-server.js";
import { open, text } from "./client.js";
import { CHAT, type Crew, type Deed, hold, refuse, reset, serve } from "./crew.js";
import { dataPlaneOf, untilDataPlane } from "./data-plane.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { until } from "./fixture.js";
import { call, shown } from "./operator.js";
import { metrics, type Probed, probed } from "./probed.js";
import { type Keys, type Reloadable, reloadable, reloadableCrew } from "./reloadable.js";
import { Wire } from "./wire.js";

expectNothingUncaught();

/** Keys of the config of which a test here shows that another value takes effect. */
const proved = new Set<string>();

/** A test that these keys take effect while the gateway serves. */
function takesEffect(keys: string, title: string, run: () => Promise<void>): void {
  for (const key of keys.split(" ")) proved.add(key);
  it(`${keys}: ${title}`, run);
}

/** Keys that are none of the gateway's own: test/cli/reload.test.ts has them, and tests of the config. */
const ELSEWHERE = [
  ...["listen.host", "listen.port", "admin.host", "admin.port", "shutdown.deadline", "policies.path"],
  ...["session.max_bindings", "decision_log.file", "decision_log.sample", "decision_log.columns"],
  ...["decision_log.max_size", "decision_log.max_files"],
  // Without effect, as a warning says.
  ...["worker_selection.prefill", "worker_selection.decode", "worker_selection.encode"],
];

const MIB = 2 ** 20;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
/** How much later than its time a deadline may be kept. */
const GRACE = 2_000;

/** Begins a stream of events, and leaves the rest to the test. */
const begin: Deed = ({ response }) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write("data: 0\n\n");
};

const lines = (log: readonly string[], message: string) =>
  log.map((line) => JSON.parse(line)).filter(({ msg }) => msg === message);

/** The head of a request whose body is sent by hand. */
const head = (length: number) =>
  `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n`;

/** A body of so many bytes. */
const bodyOf = (length: number) => `{"model":"m","pad":"${"x".repeat(length - 22)}"}`;

/** A connection on which half of a request is sent. */
async function halfSent(
  url: string,
  length: number,
): Promise<{ wire: Wire; finish: () => Promise<number[]> }> {
  const before = (await dataPlaneOf(url)).body_bytes;
  const wire = new Wire(url);
  const body = bodyOf(length);
  wire.send(head(length) + body.slice(0, length / 2));
  await untilDataPlane(url, ({ body_bytes }) => body_bytes >= before + length / 2);
  return {
    wire,
    finish: () => {
      wire.send(body.slice(length / 2));
      return wire.statuses(1);
    },
  };
}

const size = (length: number) => ({ pad: "x".repeat(length) });

describe("limits", () => {
  takesEffect("limits.body", "of the next request; one that has begun keeps its own", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    const early = await halfSent(running.url, 4_000);
    await running.reconfigure({ limits: { body: "2KB" } });
    expect(await crew.say("s", size(3_000))).toMatch(/^413 .*2000 bytes/);
    expect((await call(running.admin, "POST", "/admin/explain", bodyOf(3_000))).status).toBe(413);
    expect(await early.finish()).toEqual([200]);
    await running.reconfigure({ limits: { body: "4KB" } });
    expect(await crew.say("s", size(3_000))).toMatch(/^200/);
  });

  takesEffect("limits.body_total", "what is under way counts, and is never lost", async () => {
    const { crew, running } = await reloadableCrew([serve], { limits: { body: "6KB", body_total: "20KB" } });
    const early = await halfSent(running.url, 6_000);
    await running.reconfigure({ limits: { body_total: "8KB" } });
    expect(await crew.say("s", size(5_500))).toMatch(/^503 .*8000 bytes/);
    expect(await early.finish()).toEqual([200]);
    expect(await crew.say("s", size(5_500))).toMatch(/^200/);
    expect(await crew.dataPlane()).toMatchObject({ body_bytes: 0 });
  });

  for (const [key, type] of [
    ["stream_buffer", "text/event-stream"],
    ["answer_buffer", "application/octet-stream"],
  ] as const)
    takesEffect(`limits.${key}`, "of the next answer; one that has begun keeps its own", async () => {
      const { crew, running } = await reloadableCrew([
        ({ response }) => {
          response.writeHead(200, { "content-type": type });
          response.end(Buffer.alloc(24 * MIB, "data: x\n\n"));
        },
      ]);
      await running.reconfigure({ limits: { [key]: "64MiB" } });
      const early = await open(running.url + CHAT, { model: "m" });
      await untilDataPlane(running.url, ({ buffered_bytes }) => buffered_bytes > 4 * MIB);
      await running.reconfigure({ limits: { [key]: "1MiB" } });
      const late = await open(running.url + CHAT, { model: "m" });
      late.on("error", () => {});
      await untilDataPlane(running.url, ({ outcomes }) => outcomes.client_too_slow === 1);
      late.destroy();
      expect((await text(early)).length).toBe(24 * MIB);
      await untilDataPlane(running.url, ({ outcomes }) => outcomes.complete === 1);
      expect(crew.loads).toBe("0");
    });

  takesEffect("limits.buffered_total", "what waits already counts: whoever holds most is cut", async () => {
    const { crew, running } = await reloadableCrew([begin]);
    await running.reconfigure({ limits: { stream_buffer: "64MiB" } });
    const message = await open(running.url + CHAT, { model: "m", stream: true });
    message.on("error", () => {});
    const { response } = crew.asked[0]!;
    response.write(Buffer.alloc(24 * MIB, "data: x\n\n"));
    await untilDataPlane(running.url, ({ buffered_bytes }) => buffered_bytes > 8 * MIB);
    expect((await crew.dataPlane()).outcomes).toEqual({});
    const total = { stream_buffer: "4MiB", answer_buffer: "4MiB", buffered_total: "4MiB" };
    await running.reconfigure({ limits: total });
    response.write("data: more\n\n");
    await untilDataPlane(running.url, (seen) => seen.outcomes.client_too_slow === 1);
    message.destroy();
  });
});

describe("deadlines", () => {
  /** A request in one phase of its way; resolves, when it has come there, to what becomes of it. */
  type Sent = () => Promise<{ readonly end: () => string | undefined }>;

  /** How many requests have ended in any way. */
  const ended = async (crew: Crew) =>
    Object.values((await crew.dataPlane()).outcomes).reduce((sum, count) => sum + count, 0);

  const phases: Record<string, (crew: Crew) => Sent> = {
    "timeouts.upload": (crew) => async () => {
      const { wire } = await halfSent(crew.running.url, 1_000);
      return { end: () => (wire.text === "" ? undefined : wire.text.slice(9, 12)) };
    },
    "timeouts.first_byte": (crew) => async () => {
      const before = crew.asked.length;
      crew.deeds.fill(hold);
      let end: string | undefined;
      void crew.say(`${before}`).then((said) => {
        end = said.slice(0, 3);
      });
      await until(() => crew.asked.length > before);
      return { end: () => end };
    },
    "timeouts.idle": (crew) => async () => {
      crew.deeds.fill(begin);
      return streaming(crew);
    },
    "timeouts.total": (crew) => async () => {
      crew.deeds.fill(begin);
      return streaming(crew);
    },
  };

  /** A stream of which the first event has come through. */
  async function streaming(crew: Crew) {
    let end: string | undefined;
    const message = await open(crew.running.url + CHAT, { model: "m", stream: true });
    const all: string[] = [];
    message.setEncoding("latin1").on("data", (chunk: string) => all.push(chunk));
    message.on("error", () => {});
    message.on("close", () => {
      end = /"code":"([a-z_]+)"/.exec(all.join(""))?.[1] ?? "whole";
    });
    await until(() => all.length > 0);
    return { end: () => end };
  }

  for (const [key, phase] of Object.entries(phases))
    takesEffect(key, "of the next request; one under way keeps what it began with", async () => {
      const member = key.split(".")[1]!;
      const { crew, running } = await reloadableCrew([hold], {
        timeouts: { upload: "2h", first_byte: "2h", idle: "2h", [member]: "60s" },
      });
      const { clock } = running;
      const send = phase(crew);
      const early = await send();
      await running.reconfigure({ timeouts: { [member]: "2s" } });
      const late = await send();
      clock.advance(2_000 + GRACE);
      await until(() => late.end() !== undefined);
      clock.advance(55_000);
      expect(await ended(crew)).toBe(1);
      await running.reconfigure({ timeouts: { [member]: "1h" } });
      const last = await send();
      clock.advance(1_000 + GRACE);
      await until(() => early.end() !== undefined);
      expect(early.end()).toBe(late.end());
      clock.advance(HOUR - 5_000);
      expect(await ended(crew)).toBe(2);
      clock.advance(5_000 + GRACE);
      await until(() => last.end() !== undefined);
      expect(crew.loads).toBe("0");
    });

  it("are never over too early because beats come faster than before", async () => {
    const { crew, running } = await reloadableCrew([hold], { timeouts: { first_byte: "60s" } });
    const { clock } = running;
    // A moment before a beat of a second.
    clock.advance(999);
    const said = crew.say("s");
    await until(() => crew.asked.length === 1);
    clock.advance(1);
    await running.reconfigure({ streams: { keep_alive: "80ms" } });
    clock.advance(59_900);
    expect(crew.loads).toBe("1");
    clock.advance(GRACE);
    expect(await said).toMatch(/^504 .*worker_timeout/);
  });

  takesEffect(
    "streams.keep_alive",
    "of the next request; one under way keeps what it began with",
    async () => {
      const { crew, running } = await reloadableCrew([hold]);
      const send = async (index: number) => {
        const wire = new Wire(running.url);
        const body = '{"model":"m","stream":true}';
        wire.send(head(body.length) + body);
        await until(() => crew.asked.length === index + 1);
        return () => wire.text.split(": keep-alive\n\n").length - 1;
      };
      const early = await send(0);
      await running.reconfigure({ streams: { keep_alive: "10s" } });
      const late = await send(1);
      running.clock.advance(10_000);
      await until(() => late() === 1);
      await running.reconfigure({ streams: { keep_alive: "off" } });
      running.clock.advance(10_000);
      await until(() => late() === 2);
      expect(early()).toBe(0);
      for (const { response } of crew.asked) response.end("data: [DONE]\n\n");
    },
  );

  takesEffect("timeouts.connect", "of the next connection, to workers that were there before", async () => {
    // Takes connections, and never says a word of TLS.
    const mute = createServer().listen(0, "127.0.0.1");
    onTestFinished(() => void mute.close());
    mute.on("connection", (socket) => onTestFinished(() => void socket.destroy()));
    await new Promise((resolve) => mute.once("listening", resolve));
    const { port } = mute.address() as { port: number };
    const running = await reloadable({
      workers: [{ id: "mute", url: `https://127.0.0.1:${port}` }],
      health: { timeout: "100ms", interval: "10s" },
    });
    const reason = async () => (await shown(running.admin, "mute")).reason as string;
    expect(await reason()).not.toMatch("within 40 ms");
    await running.reconfigure({ timeouts: { connect: "40ms" } });
    running.clock.advance(10_000);
    while (!(await reason()).includes("within 40 ms"));
  });
});

describe("retries", () => {
  takesEffect("retries.attempts", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([refuse(503), serve]);
    expect(await crew.say()).toMatch(/^503 w0/);
    await running.reconfigure({ retries: { attempts: 2 } });
    expect(await crew.say()).toMatch(/^200 w1/);
    await running.reconfigure({ retries: { attempts: 1 } });
    expect(await crew.say()).toMatch(/^503 w0/);
  });

  takesEffect("retries.on", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([refuse(500), serve], { retries: { attempts: 2 } });
    expect(await crew.say()).toMatch(/^500 w0/);
    await running.reconfigure({ retries: { on: [500] } });
    expect(await crew.say()).toMatch(/^200 w1/);
    crew.deeds[0] = reset;
    expect(await crew.say()).toMatch(/^502 .*worker_unreachable/);
  });

  takesEffect("retries.stateful", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([reset, serve], { retries: { attempts: 2 } });
    expect(await crew.say(undefined, { store: true })).toMatch(/^502 .*worker_unreachable/);
    await running.reconfigure({ retries: { stateful: true } });
    expect(await crew.say(undefined, { store: true })).toMatch(/^200 w1/);
  });

  takesEffect(
    "retries.budget",
    "with retries under way, which count on and give back what they took",
    async () => {
      const { crew, running } = await reloadableCrew([reset, hold], {
        retries: { attempts: 2 },
        breaker: "off",
      });
      /** The requests that are with w1, each of which was tried again there. */
      const held = () =>
        crew.asked.filter(({ worker, response }) => worker === "w1" && !response.writableEnded);
      /** Sends requests that w0 fails, each when the one before has its place at w1. */
      const retried = async (count: number) => {
        const said: Promise<string>[] = [];
        for (const most = held().length + count; held().length < most; ) {
          const before = held().length;
          said.push(crew.say());
          await until(() => held().length > before);
        }
        return said;
      };
      const refused = async () => expect(await crew.say()).toMatch(/^502 .*worker_unreachable/);
      const kept = await retried(2);
      await running.reconfigure({ retries: { budget: 0 } });
      await refused();
      await running.reconfigure({ retries: { budget: 0.1 } });
      // Ten are always allowed, of which two are under way.
      kept.push(...(await retried(8)));
      await refused();
      held().forEach(serve);
      expect(await Promise.all(kept)).toEqual(Array(10).fill("200 w1 place"));
      const more = await retried(10);
      await refused();
      held().forEach(serve);
      expect(await Promise.all(more)).toEqual(Array(10).fill("200 w1 place"));
    },
  );

  takesEffect("streams.peek", "of the next answer", async () => {
    const FULL = 'data: {"error":{"message":"out of blocks","code":503}}\n\n';
    const failing: Deed = ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(FULL);
    };
    const { crew, running } = await reloadableCrew([failing, serve], { retries: { attempts: 2 } });
    expect(await crew.say(undefined, { stream: true })).toBe("200 w0 place");
    await running.reconfigure({ streams: { peek: true } });
    expect(await crew.say(undefined, { stream: true })).toBe("200 w1 place");
  });
});

describe("what is told, and to whom", () => {
  takesEffect("log.requests log.sample", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([serve], { log: { requests: "errors" } });
    const logged = () => lines(running.log, "request").length;
    const ask = async (count: number) => {
      for (let i = 0; i < count; i++) await crew.say("s");
    };
    await ask(3);
    await running.reconfigure({ log: { requests: "all" } });
    await ask(3);
    await until(() => logged() === 3);
    await running.reconfigure({ log: { requests: "sampled", sample: 0.5 } });
    await ask(4);
    await until(() => logged() === 5);
    await running.reconfigure({ log: { sample: 1 } });
    await ask(4);
    await until(() => logged() === 9);
  });

  takesEffect("forward_credentials", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    const cookie = { cookie: "c=1", authorization: "Bearer theirs" };
    const seen = () => crew.asked.at(-1)!.request.headers;
    await crew.say("s", {}, cookie);
    expect(seen()).not.toHaveProperty("cookie");
    await running.reconfigure({ forward_credentials: ["cookie"] });
    await crew.say("s", {}, cookie);
    expect(seen()).toMatchObject({ cookie: "c=1" });
    expect(seen()).not.toHaveProperty("authorization");
  });

  takesEffect("admin.token", "of the next call", async () => {
    const running = await reloadable({ workers: [{ id: "a", url: "http://127.0.0.1:9" }] });
    const status = async (headers = {}) =>
      (await call(running.admin, "GET", "/admin/workers", undefined, headers)).status;
    expect(await status()).toBe(200);
    await running.reconfigure({ admin: { token: { env: "ADMIN" } } });
    expect(await status()).toBe(401);
    expect(await status({ authorization: "Bearer the-token-of-the-admin" })).toBe(200);
    await running.reconfigure({ admin: undefined });
    expect(await status()).toBe(200);
  });
});

describe("access", () => {
  const hash = (key: string) => createHash("sha256").update(key).digest("hex");
  const key = (name: string, more: object = {}, secret = name) => ({ name, sha256: hash(secret), ...more });
  const access = (...keys: ReturnType<typeof key>[]): Keys => ({ access: { keys } });
  const as = (secret: string) => ({ authorization: `Bearer ${secret}` });

  takesEffect("access.keys.name access.keys.sha256", "keys come, go and are renamed", async () => {
    const { crew, running } = await reloadableCrew([serve], { log: { requests: "all" } });
    const say = (secret: string) => crew.say("s", {}, as(secret));
    const client = () => lines(running.log, "request").at(-1)?.client;
    expect(await crew.say("s")).toMatch(/^200/);
    await running.reconfigure(access(key("a")));
    expect(await crew.say("s")).toMatch(/^401/);
    expect(await say("a")).toMatch(/^200/);
    await until(() => client() === "a");
    await running.reconfigure(access(key("b"), key("new-name", {}, "a")));
    expect(await say("b")).toMatch(/^200/);
    expect(await say("a")).toMatch(/^200/);
    await until(() => client() === "new-name");
    await running.reconfigure(access(key("b")));
    expect(await say("a")).toMatch(/^401/);
    await running.reconfigure({ access: undefined });
    expect(await crew.say("s")).toMatch(/^200/);
  });

  takesEffect(
    "access.keys.max_in_flight",
    "what is under way counts, whatever becomes of its key",
    async () => {
      const { crew, running } = await reloadableCrew([hold], access(key("a", { max_in_flight: 2 })));
      const say = () => crew.say("s", {}, as("a"));
      const held = [say(), say()];
      await until(() => crew.loads === "2");
      await running.reconfigure(access(key("a", { max_in_flight: 3 })));
      held.push(say());
      await until(() => crew.loads === "3");
      const isFull = async () => expect(await say()).toMatch(/^429 .*too_many_requests_in_flight/);
      await running.reconfigure(access(key("a", { max_in_flight: 1 })));
      await isFull();
      // Renamed, taken away and given back, and not needed for a while.
      await running.reconfigure(access(key("b", { max_in_flight: 1 }, "a")));
      await isFull();
      await running.reconfigure(access(key("c")));
      expect(await say()).toMatch(/^401/);
      await running.reconfigure(access(key("c"), key("a", { max_in_flight: 3 })));
      await isFull();
      await running.reconfigure({ access: undefined });
      await running.reconfigure(access(key("a", { max_in_flight: 3 })));
      await isFull();
      await running.reconfigure(access(key("c")));
      // Those of a key that is not taken any more go on to their end.
      for (const asked of crew.asked) serve(asked);
      expect(await Promise.all(held)).toEqual(["200 w0 place", "200 w0 keep", "200 w0 keep"]);
      await running.reconfigure(access(key("a", { max_in_flight: 1 })));
      const last = say();
      await until(() => crew.loads === "1");
      await isFull();
      serve(crew.asked.at(-1)!);
      expect(await last).toMatch(/^200/);
    },
  );

  takesEffect("access.keys.requests_per_minute", "another limit begins anew, the same goes on", async () => {
    const limited = (count: number) => access(key("a", { requests_per_minute: count }));
    const { crew, running } = await reloadableCrew([serve], limited(2));
    const say = async () => Number((await crew.say("s", {}, as("a"))).slice(0, 3));
    expect([await say(), await say(), await say()]).toEqual([200, 200, 429]);
    await running.reconfigure(limited(2));
    expect(await say()).toBe(429);
    await running.reconfigure(limited(1));
    expect([await say(), await say()]).toEqual([200, 429]);
    await running.reconfigure(access(key("a")));
    expect([await say(), await say()]).toEqual([200, 200]);
  });
});

describe("session", () => {
  const decision = (said: string) => said.split(" ").slice(1).join(" ");

  takesEffect("session.mode session.full_determinism", "of the next request; bindings stay", async () => {
    const { crew, running } = await reloadableCrew([serve, serve]);
    expect(await crew.say("s")).toBe("200 w0 place");
    const say = async (session: RawConfig["session"]) => {
      await running.reconfigure({ session });
      return decision(await crew.say("s"));
    };
    expect(await say({ mode: "hard" })).toBe("w0 hard");
    expect(await say({ mode: "off" })).toBe("w0 place");
    expect(await say({ mode: "soft", full_determinism: true })).toMatch(/deterministic$/);
    expect(await say({ full_determinism: false })).toBe("w0 keep");
    expect(crew.binding("s")).toMatchObject({ worker: "w0" });
  });

  takesEffect("session.ttl", "of the sessions that are bound, too", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    await crew.say("s");
    await until(() => crew.loads === "0");
    running.clock.advance(20 * MINUTE);
    expect(crew.binding("s")).toBeDefined();
    await running.reconfigure({ session: { ttl: "10m" } });
    expect(crew.binding("s")).toBeUndefined();
  });

  takesEffect("session.when_full", "of the next session", async () => {
    const { crew, running } = await reloadableCrew([serve], { session: { max_bindings: 1 } });
    await crew.say("a");
    await running.reconfigure({ session: { when_full: "refuse-new" } });
    await crew.say("b");
    expect([crew.binding("a"), crew.binding("b")]).toMatchObject([{ worker: "w0" }, undefined]);
    await running.reconfigure({ session: { when_full: "evict-idle" } });
    await crew.say("b");
    expect([crew.binding("a"), crew.binding("b")]).toMatchObject([undefined, { worker: "w0" }]);
  });

  takesEffect("session.binding", "of the next session; those that are bound stay bound", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    const child = (name: string) => crew.say(name, {}, { "x-parent-session-id": "p" });
    const kinds = () => running.router.sessions(10).views.map(({ kind }) => kind);
    await child("a");
    await running.reconfigure({ session: { binding: "parent-group" } });
    await child("b");
    await child("c");
    expect(kinds()).toEqual(["session", "parent-group"]);
    await running.reconfigure({ session: { binding: "session" } });
    expect(await child("a")).toBe("200 w0 keep");
  });

  takesEffect("session.first_placement", "of the next child", async () => {
    const { crew, running } = await reloadableCrew([hold, serve]);
    crew.bind("w0", "p");
    const child = (name: string) => crew.say(name, {}, { "x-parent-session-id": "p" });
    const [busy] = await crew.inLine(["busy"]);
    expect(await child("a")).toBe("200 w1 place");
    await running.reconfigure({ session: { first_placement: "parent" } });
    crew.deeds[0] = serve;
    expect(await child("b")).toBe("200 w0 keep");
    serve(crew.asked[0]!);
    expect(await busy).toBe("200 w0 place");
  });

  takesEffect("session.sources", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    await running.reconfigure({ session: { sources: [{ header: "x-mine" }] } });
    await crew.say("s", {}, { "x-mine": "m" });
    expect([crew.binding("s"), crew.binding("m")]).toMatchObject([undefined, { worker: "w0" }]);
    await running.reconfigure({ session: { sources: ["default"] } });
    await crew.say("s");
    expect(crew.binding("s")).toMatchObject({ worker: "w0" });
  });

  takesEffect("session.tenant", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    await crew.say("s");
    await running.reconfigure({ session: { tenant: { header: "x-tenant" } } });
    expect(await crew.say("s", {}, { "x-tenant": "t" })).toBe("200 w0 place");
    expect(running.router.sessions(10).views.length).toBe(2);
  });

  takesEffect("session.model_suffixes", "of the next request", async () => {
    const { crew, running, workers } = await reloadableCrew([serve]);
    await running.reconfigure({ workers: [{ ...workers[0]!, models: ["m", "m-thinking"] }] });
    await until(() => crew.worker("w0")?.eligible);
    const think = { model: "m-thinking" };
    await crew.say("s");
    await crew.say("s", think);
    expect(running.router.sessions(10).views.length).toBe(2);
    await running.reconfigure({ session: { model_suffixes: ["-thinking"] } });
    await crew.say("new");
    expect(await crew.say("new", think)).toBe("200 w0 keep");
    expect(running.router.sessions(10).views.length).toBe(3);
  });

  takesEffect("session.allow_pin session.allow_affinity_header", "of the next request", async () => {
    const { crew, running } = await reloadableCrew([serve, serve]);
    const pinned = () => crew.say("s", {}, { "x-hawser-pin": "w1" });
    const loose = () => crew.say("t", {}, { "x-hawser-affinity": "off" });
    const before = [await pinned(), await loose()];
    await running.reconfigure({ session: { allow_pin: true, allow_affinity_header: true } });
    expect(await crew.say("u", {}, { "x-hawser-pin": "w1" })).toBe("200 w1 explicit");
    expect(await loose()).toBe("200 w0 place");
    await running.reconfigure({ session: { allow_pin: false, allow_affinity_header: false } });
    expect([await pinned(), await loose()].map((said) => said.slice(0, 3))).toEqual(
      before.map((said) => said.slice(0, 3)),
    );
  });
});

describe("policies", () => {
  const names = ({ running }: Crew) =>
    running.router.status().policies.map(({ name, type, state }) => `${name} ${type} ${state}`);

  takesEffect(
    "worker_selection.aggregated worker_selection.fallback worker_selection.instances.name worker_selection.instances.type",
    "with the next request; bindings, counts and streams survive (F5, F6)",
    async () => {
      const { crew, running } = await reloadableCrew([begin, begin]);
      crew.bind("w1", "s");
      const stream = await open(running.url + CHAT, { model: "m", stream: true }, { "x-session-id": "s" });
      const instances = [
        { name: "chosen", type: "sticky" },
        { name: "turns", type: "round-robin" },
      ];
      await running.reconfigure({ worker_selection: { aggregated: "turns", fallback: "chosen", instances } });
      expect(names(crew)).toEqual(["turns round-robin deciding", "chosen sticky standby"]);
      expect([crew.loads, crew.binding("s")?.worker]).toEqual(["0 1", "w1"]);
      crew.deeds.fill(serve);
      expect((await crew.say("new")).split(" ")[1]).toBe("w0");
      await running.reconfigure({ worker_selection: { aggregated: "chosen", fallback: undefined } });
      expect(names(crew)).toEqual(["chosen sticky deciding"]);
      expect(await crew.say("s")).toBe("200 w1 keep");
      crew.asked[0]!.response.end("data: [DONE]\n\n");
      expect(await text(stream)).toBe("data: 0\n\ndata: [DONE]\n\n");
      await until(() => crew.loads === "0 0");
    },
  );

  takesEffect("worker_selection.instances.parameters", "with the next request (F12)", async () => {
    const { crew, running } = await reloadableCrew([serve, serve]);
    const of = (parameters: object) => ({
      worker_selection: { instances: [{ name: "chosen", type: "sticky", parameters: { ...parameters } }] },
    });
    expect([await crew.say("a"), await crew.say("b")]).toEqual(Array(2).fill("200 w0 place"));
    await running.reconfigure(of({ placement: "round-robin" }));
    const said = [await crew.say("c"), await crew.say("d")];
    expect(said.sort()).toEqual(["200 w0 place", "200 w1 place"]);
    expect(await crew.say("a")).toBe("200 w0 keep");
  });

  takesEffect("worker_selection.instances.sha256", "which says what is there already", async () => {
    const { crew, running } = await reloadableCrew([serve]);
    const sha256 = createHash("sha256")
      .update(await moduleOf("sticky"))
      .digest("hex");
    await running.reconfigure({
      worker_selection: { instances: [{ name: "chosen", type: "sticky", sha256 }] },
    });
    expect(names(crew)).toEqual(["chosen sticky deciding"]);
  });

  async function moduleOf(type: string): Promise<Buffer> {
    const { readFile } = await import("node:fs/promises");
    return readFile(new URL(`../../build/${type}.wasm`, import.meta.url));
  }
});

describe("admission", () => {
  const full = (crew: Crew) => crew.inLine(["first"]);
  const one = (urls: RawConfig["workers"]) => urls!.map((worker) => ({ ...worker, max_in_flight: 1 }));

  takesEffect("admission.queue", "of the next request; who waits already waits on", async () => {
    const { crew, running, workers } = await reloadableCrew([hold]);
    await running.reconfigure({ workers: one(workers) });
    const said = [...(await full(crew)), ...(await crew.inLine(["a", "b"]))];
    await running.reconfigure({ admission: { queue: 1 } });
    expect(await crew.say("c")).toMatch(/^429 .*queue_full/);
    expect(crew.waiting).toBe(2);
    await running.reconfigure({ admission: { queue: 3 } });
    said.push(...(await crew.inLine(["c"])));
    crew.deeds.fill(serve);
    serve(crew.asked[0]!);
    expect(await Promise.all(said)).toEqual(Array(4).fill("200 w0 place"));
  });

  takesEffect("admission.deadline", "of the next request; who waits already keeps their own", async () => {
    const { crew, running, workers } = await reloadableCrew([hold], { admission: { deadline: "60s" } });
    await running.reconfigure({ workers: one(workers) });
    const [first] = await full(crew);
    const [early] = await crew.inLine(["early"]);
    await running.reconfigure({ admission: { deadline: "10s" } });
    const [late] = await crew.inLine(["late"]);
    running.clock.advance(10_000 + GRACE);
    expect(await late).toMatch(/^429 .*queue_timeout/);
    expect(crew.waiting).toBe(1);
    running.clock.advance(50_000);
    expect(await early).toMatch(/^429 .*queue_timeout/);
    serve(crew.asked[0]!);
    expect(await first).toMatch(/^200/);
  });

  takesEffect("admission.bound_first", "of those that come behind it", async () => {
    const { crew, running, workers } = await reloadableCrew([hold]);
    crew.bind("w0", "bound");
    await running.reconfigure({ workers: one(workers) });
    const said = [...(await full(crew)), ...(await crew.inLine(["a"]))];
    await running.reconfigure({ admission: { bound_first: true } });
    said.push(...(await crew.inLine(["bound"])));
    crew.deeds.fill(serve);
    serve(crew.asked[0]!);
    await Promise.all(said);
    const keys = crew.asked.map(({ request }) => request.headers["x-session-id"]);
    expect(keys).toEqual(["first", "bound", "a"]);
  });

  it("serves who waits when a config brings room: a higher limit, another worker", async () => {
    const { crew, running, workers } = await reloadableCrew([hold, hold]);
    await running.reconfigure({ workers: one(workers.slice(0, 1)) });
    const said = [...(await full(crew)), ...(await crew.inLine(["a", "b"]))];
    await running.reconfigure({ workers: [{ ...workers[0]!, max_in_flight: 2 }] });
    await until(() => crew.loads === "2");
    await running.reconfigure({ workers: [{ ...workers[0]!, max_in_flight: 2 }, workers[1]!] });
    await until(() => crew.loads === "2 1" && crew.asked.length === 3);
    for (const asked of crew.asked) serve(asked);
    expect(await Promise.all(said)).toEqual(["200 w0 place", "200 w0 place", "200 w1 place"]);
  });

  it("refuses who waits for a model that nobody serves any more", async () => {
    const { crew, running, workers } = await reloadableCrew([hold, hold]);
    await running.reconfigure({ workers: one(workers.slice(0, 1)) });
    const [first, waits] = [...(await full(crew)), ...(await crew.inLine(["a"]))];
    await running.reconfigure({ workers: [{ ...workers[1]!, models: ["other"] }] });
    expect(await waits).toMatch(/^404|^503/);
    serve(crew.asked[0]!);
    expect(await first).toMatch(/^200 w0/);
  });
});

describe("workers", () => {
  /** Opens a stream that has begun. */
  async function stream(crew: Crew, key = "s") {
    const before = crew.asked.length;
    const message = await open(
      crew.running.url + CHAT,
      { model: "m", stream: true },
      { "x-session-id": key },
    );
    return { message, source: crew.asked[before]!.response };
  }

  const DONE = "data: 0\n\ndata: [DONE]\n\n";

  takesEffect("workers.id", "come and go; a stream of one that goes runs to its end (F6)", async () => {
    const { crew, running, workers } = await reloadableCrew([begin, serve]);
    const { message, source } = await stream(crew);
    await running.reconfigure({ workers: workers.slice(1) });
    await until(() => crew.worker("w1").eligible);
    expect(await crew.say("s")).toBe("200 w1 place");
    source.end("data: [DONE]\n\n");
    expect(await text(message)).toBe(DONE);
    await running.reconfigure({ workers });
    await until(() => crew.worker("w0")?.eligible);
    expect(crew.loads).toBe("0 0");
  });

  takesEffect(
    "workers.weight workers.max_num_seqs workers.max_in_flight workers.models",
    "change in place: counts, bindings and streams stay (F6)",
    async () => {
      const { crew, running, workers } = await reloadableCrew([begin]);
      const models = { models: ["m"] };
      await running.reconfigure({ workers: [{ ...workers[0]!, ...models }] });
      await until(() => crew.worker("w0").eligible);
      const worker = crew.worker("w0");
      const { message, source } = await stream(crew);
      const next = { weight: 70, max_num_seqs: 9, max_in_flight: 1, models: ["m", "n"] };
      await running.reconfigure({ workers: [{ ...workers[0]!, ...next }] });
      expect(crew.worker("w0")).toBe(worker);
      expect(await shown(running.admin, "w0")).toMatchObject({
        ...{ ...next, active_requests: 1, bound_sessions: 1, state: "ready", source: "config" },
      });
      expect(worker.hasRoom).toBe(false);
      source.end("data: [DONE]\n\n");
      expect(await text(message)).toBe(DONE);
      await running.reconfigure({ workers: [{ ...workers[0]!, ...models }] });
      expect(await shown(running.admin, "w0")).toMatchObject({
        ...{ ...models, weight: 100, max_num_seqs: null, max_in_flight: null, bound_sessions: 1 },
      });
      expect(running.router.serves("n")).toBe(false);
    },
  );

  takesEffect(
    "workers.url workers.api_key",
    "another url is another worker, another key the same; streams run to their end",
    async () => {
      const { crew, running, workers } = await reloadableCrew([begin, serve]);
      const { message, source } = await stream(crew);
      const before = crew.worker("w0");
      await running.reconfigure({ workers: [{ id: "w0", url: crew.upstreams[1]!.url }] });
      await until(() => crew.worker("w0").eligible);
      expect([crew.worker("w0") === before, before.removed, before.activeRequests]).toEqual([false, true, 1]);
      expect(await crew.say("s")).toBe("200 w0 place");
      expect(crew.asked.at(-1)!.worker).toBe("w1");
      source.end("data: [DONE]\n\n");
      expect(await text(message)).toBe(DONE);
      const key = { ...workers[1]!, id: "w0", api_key: { env: "FIRST_KEY" } };
      await running.reconfigure({ workers: [key] });
      await until(() => crew.worker("w0").eligible);
      await crew.say("s");
      expect(crew.asked.at(-1)!.request.headers.authorization).toBe("Bearer first-secret");
      const keyed = crew.worker("w0");
      await running.reconfigure({ workers: [{ ...key, api_key: { env: "SECOND_KEY" } }] });
      // It is the same worker still, in service, and its sessions stay.
      expect([crew.worker("w0"), crew.worker("w0").eligible]).toEqual([keyed, true]);
      expect(await crew.say("s")).toBe("200 w0 keep");
      expect(crew.asked.at(-1)!.request.headers.authorization).toBe("Bearer second-secret");
    },
  );

  it("that an operator drains stay drained whatever else the config changes", async () => {
    const { crew, running, workers } = await reloadableCrew([serve, serve]);
    await call(running.admin, "POST", "/admin/workers/w0/drain");
    await running.reconfigure({
      workers: [{ ...workers[0]!, weight: 70 }, workers[1]!],
      health: { unhealthy_after: 3 },
    });
    expect(await shown(running.admin, "w0")).toMatchObject({ state: "draining", weight: 70 });
    expect(await crew.say("s")).toBe("200 w1 place");
    await call(running.admin, "DELETE", "/admin/workers/w0/drain");
    expect(await shown(running.admin, "w0")).toMatchObject({ state: "ready" });
  });

  it("that an operator changes stay so until the config changes them", async () => {
    const { crew, running, workers } = await reloadableCrew([serve, serve]);
    await call(running.admin, "PUT", "/admin/workers/w0", { url: workers[0]!.url, weight: 30 });
    const worker = crew.worker("w0");
    await running.reconfigure({ workers: [workers[0]!, { ...workers[1]!, weight: 10 }], log: { sample: 1 } });
    expect(await shown(running.admin, "w0")).toMatchObject({ weight: 30, source: "admin" });
    await running.reconfigure({ workers: [{ ...workers[0]!, weight: 40 }, workers[1]!] });
    expect(await shown(running.admin, "w0")).toMatchObject({ weight: 40, source: "config" });
    expect(crew.worker("w0")).toBe(worker);
    await call(running.admin, "PUT", "/admin/workers/w0", { url: workers[0]!.url, weight: 30 });
    await call(running.admin, "PUT", "/admin/workers/own", { url: workers[0]!.url });
    await running.reconfigure({ workers: [workers[1]!] });
    expect([...running.router.workers].map(({ id }) => id)).toEqual(["w1", "own"]);
  });

  it("that an operator removes stay away until the config changes them", async () => {
    const { running, workers } = await reloadableCrew([serve, serve]);
    await call(running.admin, "DELETE", "/admin/workers/w0");
    await running.reconfigure({ workers: [workers[0]!, { ...workers[1]!, weight: 10 }] });
    expect([...running.router.workers].map(({ id }) => id)).toEqual(["w1"]);
    await running.reconfigure({ workers: [{ ...workers[0]!, weight: 40 }, workers[1]!] });
    expect([...running.router.workers].map(({ id }) => id)).toEqual(["w1", "w0"]);
  });

  it("that cannot be had are told, change nothing else, and are tried again with the next config", async () => {
    const { crew, running, workers } = await reloadableCrew([serve]);
    const known = { ...workers[0]!, models: ["m"] };
    await running.reconfigure({ workers: [known] });
    await until(() => crew.worker("w0").eligible);
    // As many models as there can be: an operator has added some.
    const own = (i: number) => ({
      url: "http://127.0.0.1:9",
      models: Array.from({ length: i === 3 ? 255 : 256 }, (_, n) => `model-${256 * i + n}`),
    });
    const path = (i: number) => `/admin/workers/own${i}`;
    for (const i of [0, 1, 2, 3])
      expect((await call(running.admin, "PUT", path(i), own(i))).status).toBe(201);
    const wider = { ...known, weight: 70, models: ["m", "n"] };
    const problem = "at most 1024 models can be served";
    const told = await running.reconfigure({ workers: [wider, { ...known, id: "new", models: ["o"] }] });
    expect(told).toEqual([
      `worker "w0" was not changed: ${problem}`,
      `worker "new" was not added: ${problem}`,
    ]);
    expect(await shown(running.admin, "w0")).toMatchObject({ models: ["m"], weight: 100 });
    expect(await crew.say("s")).toBe("200 w0 place");
    await call(running.admin, "DELETE", path(3));
    expect(await running.reconfigure()).toEqual([]);
    expect(await shown(running.admin, "w0")).toMatchObject({ models: ["m", "n"], weight: 70 });
    expect((await shown(running.admin, "new")).models).toEqual(["o"]);
  });

  it("that could not be changed go all the same when the config names them no more", async () => {
    const { crew, running, workers } = await reloadableCrew([serve]);
    const known = { ...workers[0]!, models: ["m"] };
    await running.reconfigure({ workers: [known] });
    const models = (i: number) =>
      Array.from({ length: i === 3 ? 255 : 256 }, (_, n) => `model-${256 * i + n}`);
    for (const i of [0, 1, 2, 3])
      await call(running.admin, "PUT", `/admin/workers/own${i}`, { url: known.url, models: models(i) });
    expect((await running.reconfigure({ workers: [{ ...known, models: ["m", "n"] }] })).length).toBe(1);
    await running.reconfigure({ workers: [{ ...known, id: "w1" }] });
    expect([crew.worker("w0"), crew.worker("w1")?.models]).toEqual([undefined, ["m"]]);
  });
});

describe("health", () => {
  const INTERVAL = 10_000;

  /** A gateway over workers that answer as they are told. */
  async function watching(keys: Keys = {}, count = 1) {
    const workers = await Promise.all(Array.from({ length: count }, () => probed()));
    const running = await reloadable({
      ...keys,
      workers: workers.map(({ url }, i) => ({ id: `w${i}`, url })),
      health: { path: "/health", interval: "10s", timeout: "5s", ...keys.health },
    });
    const view = (i = 0) => shown(running.admin, `w${i}`);
    const times = (worker: Probed, path: string) => worker.asked.filter((each) => each === path).length;
    /** Lets time pass until a worker is asked once more; resolves to how long that takes. */
    const asked = async (worker: Probed, path: string) => {
      const before = times(worker, path);
      const start = running.clock.now();
      await until(() => {
        if (times(worker, path) > before) return true;
        // By small steps: a check that is under way still is not begun again.
        running.clock.advance(250);
        return false;
      });
      return running.clock.now() - start;
    };
    const becomes = async (state: string) => {
      while ((await view()).state !== state);
    };
    return { workers, worker: workers[0]!, running, view, times, asked, becomes };
  }

  takesEffect("health.path", "of the next check; the state stays", async () => {
    const { worker, running, view, asked, becomes } = await watching();
    worker.pages["/well"] = [500, ""];
    await running.reconfigure({ health: { path: "/well" } });
    expect((await view()).state).toBe("ready");
    await asked(worker, "/well");
    await asked(worker, "/well");
    await becomes("unhealthy");
    // An unhealthy one stays so until a check passes.
    await running.reconfigure({ health: { path: "/health", healthy_after: 1 } });
    expect(await view()).toMatchObject({
      state: "unhealthy",
      reason: expect.stringContaining("status 500"),
    });
    await asked(worker, "/health");
    await becomes("ready");
  });

  takesEffect("health.interval", "shorter at once, longer with the next check", async () => {
    const { worker, running, times, asked } = await watching({ health: { interval: "1h" } });
    await running.reconfigure({ health: { interval: "10s" } });
    expect(await asked(worker, "/health")).toBeLessThan(MINUTE);
    await running.reconfigure({ health: { interval: "1h" } });
    await asked(worker, "/health");
    const before = times(worker, "/health");
    for (let i = 0; i < 50; i++) {
      running.clock.advance(INTERVAL);
      await call(running.admin, "GET", "/admin/workers");
    }
    expect(times(worker, "/health")).toBe(before);
  });

  takesEffect("health.timeout", "of the next check", async () => {
    const { worker, running, view, asked } = await watching();
    worker.pages["/health"] = "silence";
    await running.reconfigure({ health: { timeout: "50ms", unhealthy_after: 1 } });
    await asked(worker, "/health");
    while ((await view()).state !== "unhealthy");
    expect((await view()).reason).toMatch(/50 ms/);
  });

  takesEffect("health.unhealthy_after health.healthy_after", "of the next check", async () => {
    const { worker, running, view, asked, becomes } = await watching({ health: { unhealthy_after: 5 } });
    worker.pages["/health"] = [500, ""];
    await asked(worker, "/health");
    expect((await view()).state).toBe("ready");
    await running.reconfigure({ health: { unhealthy_after: 2 } });
    expect((await view()).state).toBe("ready");
    await asked(worker, "/health");
    await becomes("unhealthy");
    worker.pages["/health"] = [200, ""];
    await running.reconfigure({ health: { healthy_after: 1 } });
    await asked(worker, "/health");
    await becomes("ready");
  });

  takesEffect("health.slow_start", "also where one is under way", async () => {
    const { workers, running, view, asked } = await watching(
      { health: { unhealthy_after: 1, healthy_after: 1 } },
      2,
    );
    const [worker] = workers as [Probed];
    worker.pages["/health"] = [500, ""];
    await asked(worker, "/health");
    while ((await view()).state !== "unhealthy");
    worker.pages["/health"] = [200, ""];
    await running.reconfigure({ health: { slow_start: "30s" } });
    await asked(worker, "/health");
    while ((await view()).state !== "ready");
    expect((await view()).slow_start_limit).toBe(1);
    await running.reconfigure({ health: { slow_start: "off" } });
    expect((await view()).slow_start_limit).toBeNull();
  });

  takesEffect("signals.path signals.interval signals.stale_after", "of the next question", async () => {
    const { worker, running, view, asked } = await watching();
    worker.pages["/m"] = metrics({ num_requests_running: 3 });
    await running.reconfigure({ signals: { path: "/m", interval: "1h", stale_after: "2h" } });
    await asked(worker, "/m");
    while ((await view()).signals.running !== 3);
    await running.reconfigure({ signals: { interval: "2s" } });
    expect(await asked(worker, "/m")).toBeLessThan(MINUTE);
    await running.reconfigure({ signals: { path: "off" } });
    running.clock.advance(MINUTE);
    while ((await view()).signals.running !== 3);
    await running.reconfigure({ signals: { stale_after: "30s" } });
    expect((await view()).signals.running).toBeNull();
  });
});

describe("breaker", () => {
  const OFF = { consecutive: 1_000, min_requests: 1_000 };

  async function failing(breaker: RawConfig["breaker"]) {
    const { crew, running } = await reloadableCrew([refuse(500), serve], {
      breaker,
      session: { allow_pin: true },
    });
    const pinned = () => crew.say(undefined, {}, { "x-hawser-pin": "w0" });
    const view = async () => (await shown(running.admin, "w0")).breaker;
    const times = async (count: number) => {
      for (let i = 0; i < count; i++) await pinned();
    };
    return { crew, running, view, times };
  }

  takesEffect("breaker.consecutive", "with the next failure", async () => {
    const { running, view, times } = await failing(OFF);
    await times(3);
    await running.reconfigure({ breaker: { consecutive: 4 } });
    expect(await view()).toMatchObject({ state: "closed", failures: 3, failures_in_a_row: 3 });
    await times(1);
    expect(await view()).toMatchObject({ state: "open" });
  });

  takesEffect("breaker.min_requests breaker.failure_ratio", "with the next failure", async () => {
    const { crew, running, view, times } = await failing(OFF);
    crew.deeds[0] = serve;
    await times(4);
    crew.deeds[0] = refuse(500);
    await times(1);
    await running.reconfigure({ breaker: { min_requests: 2 } });
    await times(1);
    expect(await view()).toMatchObject({ state: "closed", successes: 4, failures: 2 });
    await running.reconfigure({ breaker: { failure_ratio: 0.4 } });
    await times(1);
    expect(await view()).toMatchObject({ state: "open" });
  });

  takesEffect("breaker.window", "another one begins anew", async () => {
    const { running, view, times } = await failing(OFF);
    await times(2);
    await running.reconfigure({ breaker: { half_open: 2 } });
    expect(await view()).toMatchObject({ failures: 2 });
    await running.reconfigure({ breaker: { window: "10s" } });
    await times(3);
    expect(await view()).toMatchObject({ failures: 3 });
    running.clock.advance(10_000);
    expect(await view()).toMatchObject({ failures: 0 });
  });

  takesEffect(
    "breaker.open breaker.open_max breaker.half_open",
    "the next time; one that is open stays open for as long as it began with",
    async () => {
      const { crew, running, view, times } = await failing({ consecutive: 1, open: "20s", half_open: 1 });
      await times(1);
      await running.reconfigure({ breaker: { open: "1s", open_max: "30s", half_open: 2 } });
      running.clock.advance(19_000);
      expect(await view()).toMatchObject({ state: "open" });
      running.clock.advance(1_250);
      expect(await view()).toMatchObject({ state: "half_open" });
      await times(1);
      const { since, open_until } = await view();
      expect(Date.parse(open_until) - Date.parse(since)).toBe(30_000);
      running.clock.advance(30_250);
      crew.deeds[0] = serve;
      await times(1);
      expect(await view()).toMatchObject({ state: "half_open" });
      await times(1);
      expect(await view()).toMatchObject({ state: "closed" });
    },
  );

  it("off and on: what is open is in service at once, and begins anew", async () => {
    const { crew, running, view, times } = await failing({ consecutive: 1 });
    await times(1);
    expect(await crew.say("s")).toBe("200 w1 place");
    await running.reconfigure({ breaker: "off" });
    expect(await view()).toBeNull();
    expect(await shown(running.admin, "w0")).toMatchObject({ state: "ready" });
    await times(3);
    await running.reconfigure({ breaker: { consecutive: 2 } });
    expect(await view()).toMatchObject({ state: "closed", failures: 0 });
    await times(2);
    expect(await view()).toMatchObject({ state: "open" });
  });

  it("half-open, and switched off with probes under way: nobody loses count", async () => {
    const { crew, running, view, times } = await failing({ consecutive: 1, open: "1s", half_open: 1 });
    await times(1);
    running.clock.advance(1_250);
    crew.deeds[0] = hold;
    const probe = crew.say(undefined, {}, { "x-hawser-pin": "w0" });
    await until(() => crew.loads.startsWith("1"));
    await running.reconfigure({ breaker: "off" });
    serve(crew.asked.at(-1)!);
    expect(await probe).toBe("200 w0 explicit");
    expect([crew.loads, await view()]).toEqual(["0 0", null]);
  });
});

it("an unchanged config changes nothing: no worker, no connection, no state (F5)", async () => {
  const { crew, running } = await reloadableCrew([begin, serve], {
    access: { keys: [{ name: "a", sha256: createHash("sha256").update("a").digest("hex") }] },
    breaker: { consecutive: 3 },
  });
  const key = { authorization: "Bearer a" };
  crew.bind("w0", "s");
  crew.bind("w1", "t");
  const message = await open(
    running.url + CHAT,
    { model: "m", stream: true },
    { ...key, "x-session-id": "s" },
  );
  await crew.say("t", {}, key);
  const sockets = crew.asked.map(({ request }) => request.socket);
  const workers = [...running.router.workers];
  const state = async () => {
    const { body } = await call(running.admin, "GET", "/admin/workers");
    // The time of day of a moment on the test's clock goes on.
    const views = JSON.stringify(body).replaceAll(/"since":"[^"]+"/g, "");
    return { log: [...running.log], status: running.router.status(), views };
  };
  const before = await state();
  for (let i = 0; i < 3; i++) expect(await running.reconfigure()).toEqual([]);
  expect(await state()).toEqual(before);
  expect([...running.router.workers].every((worker, i) => worker === workers[i])).toBe(true);
  await crew.say("t", {}, key);
  expect(crew.asked.at(-1)!.request.socket).toBe(sockets[1]);
  crew.asked[0]!.response.end();
  expect(await text(message)).toBe("data: 0\n\n");
});

describe("discovery", () => {
  /** A file of targets beside others: writes them, each a list of workers by id and url. */
  function files(...names: string[]) {
    const directory = directoryOf({});
    const paths = names.map((name) => join(directory, name));
    const write = (index: number, workers: Readonly<Record<string, string>>) => {
      const groups = Object.entries(workers).map(([id, url]) => ({
        targets: [new URL(url).host],
        labels: { hawser_id: id },
      }));
      writeFileSync(paths[index]!, JSON.stringify(groups));
    };
    return { paths, write };
  }

  type Source = NonNullable<RawConfig["discovery"]>[number];

  const ids = ({ router }: Reloadable) => [...router.workers].map(({ id }) => id).sort();

  takesEffect("discovery.file", "sources come and go, and their workers with them", async () => {
    const { crew, running, workers } = await reloadableCrew([begin, serve, serve]);
    const { paths, write } = files("a.json", "b.json");
    const [, { url }, other] = workers as [unknown, { url: string }, { url: string }];
    write(0, { found: url, both: url });
    write(1, { both: url, own: other.url });
    const discovery = (...indexes: number[]) => indexes.map((index) => ({ file: paths[index]! }));
    await running.reconfigure({ workers: workers.slice(0, 1), discovery: discovery(0) });
    await until(() => ids(running).join() === "both,found,w0");
    expect(await shown(running.admin, "found")).toMatchObject({ source: `file ${paths[0]}` });
    await running.reconfigure({ discovery: discovery(0, 1) });
    await until(() => ids(running).join() === "both,found,own,w0");
    await until(() => crew.worker("both").eligible);
    crew.bind("both", "s");
    const both = crew.worker("both");
    // Whoever another source names stays as it is.
    await running.reconfigure({ discovery: discovery(1) });
    expect(ids(running)).toEqual(["both", "own", "w0"]);
    expect(crew.worker("both")).toBe(both);
    expect(await shown(running.admin, "both")).toMatchObject({
      ...{ source: `file ${paths[1]}`, bound_sessions: 1, state: "ready" },
    });
    await running.reconfigure({ discovery: undefined });
    expect(ids(running)).toEqual(["w0"]);
    expect(lines(running.log, "discovery failed")).toEqual([]);
  });

  it("under another name finds its workers before those of the old one go: they stay as they are", async () => {
    const { crew, running, workers } = await reloadableCrew([begin]);
    const { paths, write } = files("old.json", "new.json");
    const { url } = workers[0]!;
    write(0, { same: url, gone: url });
    write(1, { same: url, fresh: url });
    await running.reconfigure({ workers: undefined, discovery: [{ file: paths[0]! }] });
    await until(() => crew.worker("same")?.eligible && crew.worker("gone")?.eligible);
    crew.bind("same", "s");
    const message = await open(running.url + CHAT, { model: "m", stream: true }, { "x-session-id": "s" });
    const same = crew.worker("same");
    await running.reconfigure({ discovery: [{ file: paths[1]! }] });
    await until(() => ids(running).join() === "fresh,same");
    expect([crew.worker("same") === same, same.activeRequests, crew.binding("s")?.worker]).toEqual([
      ...[true, 1, "same"],
    ]);
    expect(lines(running.log, "a worker of that id is there already")).toEqual([]);
    crew.asked[0]!.response.end();
    expect(await text(message)).toBe("data: 0\n\n");
  });

  it("takes over whom the config names no more, and gives up whom it names: they stay as they are", async () => {
    const { crew, running, workers } = await reloadableCrew([serve, serve]);
    const { paths, write } = files("a.json");
    write(0, { w0: workers[0]!.url });
    await running.reconfigure({ discovery: [{ file: paths[0]! }] });
    await until(() => lines(running.log, "a worker of that id is there already").length === 1);
    crew.bind("w0", "s");
    const worker = crew.worker("w0");
    await running.reconfigure({ workers: workers.slice(1) });
    expect(await shown(running.admin, "w0")).toMatchObject({ source: `file ${paths[0]}`, bound_sessions: 1 });
    await running.reconfigure({ workers });
    expect(await shown(running.admin, "w0")).toMatchObject({ source: "config", bound_sessions: 1 });
    expect(crew.worker("w0")).toBe(worker);
  });

  takesEffect("discovery.api_key", "its workers are shown another one, and stay what they are", async () => {
    const { crew, running, workers } = await reloadableCrew([serve]);
    const { paths, write } = files("a.json");
    write(0, { found: workers[0]!.url });
    const source = (env: string) => ({ discovery: [{ file: paths[0]!, api_key: { env } }] });
    const shownKey = async () => {
      await until(() => crew.worker("found")?.eligible);
      await crew.say("s");
      return crew.asked.at(-1)!.request.headers.authorization;
    };
    await running.reconfigure({ workers: undefined, ...source("FIRST_KEY") });
    expect(await shownKey()).toBe("Bearer first-secret");
    const before = crew.worker("found");
    await running.reconfigure(source("SECOND_KEY"));
    while ((await shownKey()) !== "Bearer second-secret");
    expect(crew.worker("found")).toBe(before);
  });

  takesEffect(
    "discovery.dns discovery.type discovery.port discovery.scheme discovery.path discovery.models discovery.weight discovery.max_num_seqs discovery.max_in_flight discovery.servers",
    "its workers stay until it has answered anew, and then are as it says",
    async () => {
      const [first, second] = await Promise.all([DnsServer.start(), DnsServer.start()]);
      const a = { type: "A", address: "127.0.0.1" } as const;
      [first.reply, second.reply] = [{ records: [a] }, null];
      const source: Source = { dns: "one.test", type: "a", port: 9, servers: [first.address] };
      const running = await reloadable({ discovery: [source] });
      const found = async () => (await call(running.admin, "GET", "/admin/workers")).body.workers;
      expect(await found()).toMatchObject([{ id: "127.0.0.1:9", weight: 100, models: [] }]);
      const more = { models: ["x"], weight: 7, max_num_seqs: 8, max_in_flight: 9 };
      await running.reconfigure({ discovery: [{ ...source, ...more, servers: [second.address] }] });
      await until(() => second.questions.length > 0);
      expect(await found()).toMatchObject([{ weight: 100 }]);
      await running.reconfigure({ discovery: [{ ...source, ...more, scheme: "https", path: "/x" }] });
      await until(() => running.router.serves("x"));
      expect(await found()).toMatchObject([{ ...more, url: "https://127.0.0.1:9/x" }]);
      await running.reconfigure({ discovery: [{ ...source, dns: "two.test", port: 10 }] });
      await until(() => first.questions.at(-1)?.name === "two.test" && ids(running).length === 1);
      await until(() => ids(running).join() === "127.0.0.1:10");
      first.reply = { records: [{ type: "SRV", name: "127.0.0.1", port: 11 }] };
      await running.reconfigure({ discovery: [{ dns: "two.test", type: "srv", servers: [first.address] }] });
      await until(() => ids(running).join() === "127.0.0.1:11");
    },
  );
});

it("every key of the config is shown to take effect, or is known to do so at a restart or elsewhere", () => {
  const all = keysOf();
  expect([...proved, ...ELSEWHERE].sort()).toEqual(all.sort());
});
