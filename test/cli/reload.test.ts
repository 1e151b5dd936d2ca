// Running gateways whose config changes: by its file, by a signal, by a call; and what becomes of a file that is wrong.
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { pino } from "pino";
import { afterEach, describe, expect, it, vi } from "vitest";
import { stringify } from "yaml";
import { parseConfig } from "../../host/config/config.js";
import type { RawConfig } from "../../host/config/schema.js";
import { keysOf, valueAt } from "../config/keys.js";
import { type Running, start, until } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";
import { open, post, text } from "../gateway/client.js";
import { type Answer, upstream } from "../gateway/fixture.js";
import { type Answered, call } from "../gateway/operator.js";
import { VirtualClock } from "../gateway/virtual-clock.js";

const CHAT = "/v1/chat/completions";
const HERE = { listen: { port: 0 }, admin: { port: 0 } };

afterEach(() => void vi.unstubAllEnvs());

const serve: Answer = (_request, response) => response.end("{}");

/** A gateway as a process, and the directory that it runs in. */
interface Served extends Running {
  readonly directory: string;
  /** Writes the config in place. */
  write(config: object | string): void;
  /** What it logged, a line each. */
  log(): string[];
  operate(method: string, path: string, headers?: Record<string, string>): Promise<Answered>;
  /** Has the config read again. */
  reload(headers?: Record<string, string>): Promise<Answered>;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON
  health(): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON
  config(headers?: Record<string, string>): Promise<any>;
}

/** Runs `hawser serve` with a config, `files` beside it. */
async function served(
  config: object,
  args: readonly string[] = ["--no-watch"],
  files: Record<string, string | Uint8Array> = {},
): Promise<Served> {
  const directory = directoryOf({ ...files, "hawser.yaml": stringify({ ...HERE, ...config }) });
  return operated(await start(["serve", ...args], directory), directory);
}

async function operated(running: Running, directory: string): Promise<Served> {
  const admin = await running.admin();
  let written = "";
  running.child.stderr!.on("data", (chunk) => {
    written += chunk;
  });
  const operate: Served["operate"] = (method, path, headers) => call(admin, method, path, undefined, headers);
  return {
    ...{ ...running, directory, operate },
    write(next) {
      const content = typeof next === "string" ? next : stringify({ ...HERE, ...next });
      writeFileSync(join(directory, "hawser.yaml"), content);
    },
    log: () => written.split("\n").slice(0, -1),
    reload: (headers) => operate("POST", "/admin/reload", headers),
    health: async () => (await fetch(`${running.url}/health`)).json(),
    config: async (headers) => (await operate("GET", "/admin/config", headers)).body,
  };
}

/** What went wrong, wherever it is shown: each place must say the same. */
async function mistakesOf(self: Served): Promise<string[]> {
  const [health, config] = await Promise.all([self.health(), self.config()]);
  const mistakes: string[] = config.last_reload?.mistakes ?? [];
  // Everybody may read these: of what is quoted nothing is told, nor where the file is.
  const forEverybody = mistakes.map((each) =>
    each.replace(/^\/.*\/([^/]+:\d+:\d+: )/, "$1").replace(/"[^"]*"/g, '"***"'),
  );
  expect(health.config).toEqual({ generation: config.generation, mistakes: forEverybody });
  return mistakes;
}

/** Waits until the file was read as one with mistakes, or as one without. */
async function untilBad(self: Served, holds: (mistakes: string[]) => boolean): Promise<string[]> {
  let mistakes: string[] = [];
  await until(async () => {
    mistakes = (await self.health()).config.mistakes;
    return holds(mistakes);
  });
  return mistakesOf(self);
}

const workersAt = (url: string, more: object = {}) => ({ workers: [{ id: "a", url, ...more }] });

describe("a config file that is watched", () => {
  it("in place, renamed over, behind another link, gone and back: the last good one stays in force (F4)", async () => {
    const { url } = await upstream(serve);
    const config = (weight: number) => stringify({ ...HERE, ...workersAt(url, { weight }) });
    const directory = directoryOf({ "v1/hawser.yaml": config(1) });
    // As a ConfigMap is mounted.
    symlinkSync("v1", join(directory, "data"));
    symlinkSync("data/hawser.yaml", join(directory, "hawser.yaml"));
    const self = await operated(await start(["serve"], directory), directory);
    await until(async () => (await self.health()).status === "ok");
    const weight = async () => (await self.operate("GET", "/admin/workers/a")).body.weight;
    const reached = (wanted: number) => until(async () => (await weight()) === wanted);
    const old = await mistakesOf(self);

    const place = (version: string) => join(directory, version, "hawser.yaml");
    writeFileSync(place("v1"), `${config(2)}lisen: {}\n`);
    const line = config(2).split("\n").length;
    const [mistake, ...rest] = await untilBad(self, (all) => all.length > 0);
    expect([old, rest]).toEqual([[], []]);
    expect(mistake).toMatch(new RegExp(`^hawser.yaml:${line}:1: unknown key "lisen", did you mean "listen"`));
    expect(await weight()).toBe(1);
    expect(await self.health()).toMatchObject({ status: "degraded", config: { generation: 1 } });
    const logged = self.log().map((each) => JSON.parse(each));
    expect(logged).toContainEqual(expect.objectContaining({ level: 50, by: "watch", mistakes: [mistake] }));

    writeFileSync(join(directory, "new.yaml"), config(2));
    renameSync(join(directory, "new.yaml"), place("v1"));
    await reached(2);
    expect(await untilBad(self, (all) => all.length === 0)).toEqual([]);
    expect(await self.health()).toMatchObject({ status: "ok", config: { generation: 2 } });

    mkdirSync(join(directory, "v2"));
    writeFileSync(place("v2"), config(3));
    symlinkSync("v2", join(directory, "next"));
    renameSync(join(directory, "next"), join(directory, "data"));
    await reached(3);

    rmSync(place("v2"));
    const gone = await untilBad(self, (all) => all.length > 0);
    expect(gone).toEqual([expect.stringMatching(/^hawser.yaml:1:1: cannot read the file: /)]);
    expect(await weight()).toBe(3);
    // The very one that is in force.
    writeFileSync(place("v2"), config(3));
    expect(await untilBad(self, (all) => all.length === 0)).toEqual([]);
    expect(await weight()).toBe(3);
  });
});

describe("a config that is asked for", () => {
  const roundRobin = { aggregated: "turns", instances: [{ name: "turns", type: "round-robin" }] };

  it("by a call and by a signal, not by its file with --no-watch", async () => {
    const { url } = await upstream(serve);
    const self = await served(workersAt(url));
    self.write(workersAt(url, { weight: 2 }));
    const { status, body } = await self.reload();
    expect([status, body]).toMatchObject([
      200,
      { result: "applied", generation: 2, changed: ["workers.a"], restart_needed: [], warnings: [] },
    ]);
    self.write({ ...workersAt(url, { weight: 2 }), worker_selection: roundRobin });
    self.child.kill("SIGHUP");
    await until(async () => (await self.health()).config.generation === 3);
    expect((await self.health()).policies).toMatchObject([{ name: "turns" }]);
    expect((await self.config()).last_reload).toMatchObject({ result: "applied", by: "signal" });
    self.write(workersAt(url, { weight: 3 }));
    const reports = await Promise.all([self.reload(), self.reload(), self.reload(), self.reload()]);
    expect(reports.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const { generation } = (await self.health()).config;
    expect((await self.operate("GET", "/admin/workers/a")).body.weight).toBe(3);
    // A query that means nothing is no reload.
    expect((await self.operate("POST", "/admin/reload?force=1")).status).toBe(400);
    expect((await self.health()).config.generation).toBe(generation);
  });

  it("by many at once is read once, and once more for those that come while it takes effect", async () => {
    const built = new URL("../../build/host/cli/reloads.js", import.meta.url);
    const { Reloads } = (await import(built.href)) as typeof import("../../host/cli/reloads.js");
    const text = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";
    const file = join(directoryOf({ "hawser.yaml": text }), "hawser.yaml");
    const config = parseConfig(text, file).config!;
    const log = pino({ level: "silent" });
    const reloads = new Reloads({ config, text, warnings: [], log, clock: new VirtualClock() });
    const effects: (() => void)[] = [];
    reloads.begin(() => new Promise((resolve) => effects.push(() => resolve([]))));
    const first = reloads.reload("admin");
    expect([reloads.reload("signal"), reloads.reload("admin")]).toEqual([first, first]);
    await until(async () => effects.length === 1);
    const second = reloads.reload("admin");
    expect(reloads.reload("admin")).toBe(second);
    effects[0]!();
    expect((await first).generation).toBe(2);
    await until(async () => effects.length === 2);
    effects[1]!();
    expect((await second).generation).toBe(3);
  });

  it("with mistakes changes nothing, and is shown with its lines until it is mended (F4, G16)", async () => {
    const { url } = await upstream(serve);
    const good = encodeModule();
    const digest = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
    const manifest = "abi: 1\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\n";
    const own = (more: object = {}) => ({
      ...workersAt(url),
      policies: { path: ["mine"] },
      worker_selection: { aggregated: "own", instances: [{ name: "own", type: "own", ...more }] },
    });
    const self = await served(own(), undefined, { "mine/own.yaml": manifest, "mine/own.wasm": good });
    const module = (bytes: Uint8Array | string) =>
      writeFileSync(join(self.directory, "mine/own.wasm"), bytes);
    await until(async () => (await self.health()).status === "ok");
    const decision = async () =>
      (await post(self.url + CHAT, { model: "m" })).headers["x-hawser-decision"] as string;
    const first = await decision();

    const lineOf = (pattern: RegExp, file: string) => {
      const lines = readFileSync(join(self.directory, file), "utf8").split("\n");
      return lines.findIndex((line) => pattern.test(line)) + 1;
    };
    /** Expects the file, as it is now, to be refused at the line that has something. */
    const isRefused = async (message: RegExp, at: RegExp, file = "hawser.yaml") => {
      const { status, body } = await self.reload();
      expect([status, body.error.code]).toEqual([400, "invalid_config"]);
      expect(body.error.message).toMatch(message);
      const mistakes = await mistakesOf(self);
      expect(mistakes.join("\n")).toBe(body.error.message);
      expect(mistakes[0]).toMatch(new RegExp(`^(/.*/)?${file}:${lineOf(at, file)}:\\d+: `));
      expect(await self.health()).toMatchObject({ status: "degraded", config: { generation: 1 } });
      expect(await decision()).toBe(first);
    };
    self.write(`${stringify({ ...HERE, ...own() })}session: { ttl 5m }}\n`);
    await isRefused(/broken YAML/, /session/);
    self.write({ ...own(), limits: { bodi: "1MB" } });
    await isRefused(/unknown key "limits.bodi"|unknown key "bodi"/, /bodi/);
    self.write(own({ type: "sticki" }));
    await isRefused(/sticki.*sticky/, /sticki/);
    self.write(own());
    module("no module at all");
    await isRefused(/own\.wasm/, /module:/, "mine/own.yaml");
    module(encodeModule({ answer: 1 | (5 << 16) }));
    await isRefused(/dry run/, /type: own/);
    // What is pinned is another one than what stands there by now.
    module(encodeModule({ answer: 4 << 16 }));
    self.write(own({ sha256: digest(good) }));
    await isRefused(/is not the one that is pinned: its sha256 is/, /sha256/);
    // Whatever it was, it is mended by the file that is in force, too.
    module(good);
    self.write(own());
    expect((await self.reload()).body).toMatchObject({ result: "applied", generation: 2, changed: [] });
    expect([await mistakesOf(self), (await self.health()).status]).toEqual([[], "ok"]);
    expect(await decision()).toBe(first);
    // Another module behind the same file takes effect when somebody asks for it.
    module(encodeModule({ answer: 4 << 16 }));
    expect((await self.reload()).body).toMatchObject({ changed: ["worker_selection"] });
    expect(await decision()).not.toBe(first);
    expect((await self.operate("GET", "/admin/config")).body.last_reload.result).toBe("applied");
  });

  it("of seventeen megabytes is refused while it serves on", async () => {
    const { url } = await upstream(serve);
    const self = await served(workersAt(url));
    await until(async () => (await self.health()).status === "ok");
    self.write("- [{ key: }\n".repeat(1_600_000));
    const reload = self.reload();
    expect((await post(self.url + CHAT, { model: "m" })).status).toBe(200);
    const { status, body } = await reload;
    expect([status, body.error.message.length < 1_000]).toEqual([400, true]);
    expect(body.error.message).toMatch(/^hawser.yaml:1:1: cannot read the file: it has \d+ bytes, at most/);
    // As many lines that are wrong are not all told.
    self.write(`workers: 5\n${Array.from({ length: 500 }, (_, i) => `key${i}: 1\n`).join("")}`);
    const told = (await self.reload()).body.error.message.split("\n");
    expect([told.length, told.at(-1)]).toEqual([101, expect.stringMatching(/^and \d+ more$/)]);
    expect((await post(self.url + CHAT, { model: "m" })).status).toBe(200);
  });

  it("secrets are read anew and shown nowhere; what waits for a restart says so, and the rest applies", async () => {
    const seen: unknown[] = [];
    const { url } = await upstream((request, response) => {
      seen.push(request.headers.authorization);
      response.end("{}");
    });
    const hash = createHash("sha256").update("client-key").digest("hex");
    const token = { token: { file: "token" } };
    const keys = [{ name: "c", sha256: hash }];
    const config = (more: { listen?: object; admin?: object; session?: object } = {}) => ({
      listen: { port: 0, ...more.listen },
      admin: { port: 0, ...token, ...more.admin },
      session: more.session,
      ...workersAt(url, { api_key: { file: "key" } }),
      access: { keys },
    });
    const files = { token: "first-token-of-all\n", key: "first-worker-secret\n" };
    const self = await served(config(), undefined, files);
    const first = { authorization: "Bearer first-token-of-all" };
    const second = { authorization: "Bearer second-token-of-all" };
    const ready = () => until(async () => (await self.health()).status === "ok");
    const ask = async () => {
      await ready();
      return (await post(self.url + CHAT, { model: "m" }, { "x-api-key": "client-key" })).status;
    };
    expect([await ask(), seen.at(-1)]).toEqual([200, "Bearer first-worker-secret"]);
    writeFileSync(join(self.directory, "key"), "second-worker-secret\n");
    writeFileSync(join(self.directory, "token"), "second-token-of-all\n");
    expect((await self.reload(second)).status).toBe(401);
    expect((await self.reload(first)).body.changed).toEqual(["admin", "workers.a"]);
    expect((await self.reload(first)).status).toBe(401);
    expect([await ask(), seen.at(-1)]).toEqual([200, "Bearer second-worker-secret"]);

    const others = {
      listen: { port: 1 },
      admin: { host: "127.0.0.2" },
      session: { max_bindings: 9, ttl: "1m" },
    };
    self.write(config(others));
    const { body } = await self.reload(second);
    const needed = [
      { key: "listen.port", in_force: 0, in_file: 1 },
      { key: "admin.host", in_force: "127.0.0.1", in_file: "127.0.0.2" },
      { key: "session.max_bindings", in_force: 65_536, in_file: 9 },
    ];
    expect(body).toMatchObject({ result: "applied", changed: ["session"], restart_needed: needed });
    const shown = await self.config(second);
    expect(shown).toMatchObject({
      restart_needed: needed,
      config: {
        listen: { port: 0 },
        admin: { host: "127.0.0.1", token: { file: "token" } },
        session: { max_bindings: 65_536, ttl: "1m" },
      },
    });
    expect(await ask()).toBe(200);
    self.write(config());
    expect((await self.reload(second)).body.restart_needed).toEqual([]);
    // A secret that cannot be read, or is none, is told without it.
    writeFileSync(join(self.directory, "key"), "third worker secret\n");
    expect((await self.reload(second)).status).toBe(400);
    const told = [JSON.stringify([shown, await self.config(second), await self.health()]), ...self.log()];
    for (const secret of ["of-all", "worker-secret", "worker secret", "client-key", hash])
      expect(told.join("\n")).not.toContain(secret);
  });
});

describe("a config that differs in every key", () => {
  const HASHES = ["client-a", "client-b"].map((key) => createHash("sha256").update(key).digest("hex"));

  /** Both configs; whatever a config can say they say otherwise. `sha256` of an instance is shown in both. */
  function both(url: string): [RawConfig, RawConfig] {
    const first: RawConfig = {
      ...{
        listen: { host: "127.0.0.1", port: 0 },
        admin: { host: "127.0.0.1", port: 0, token: { file: "t1" } },
      },
      ...{ shutdown: { deadline: "20s" }, policies: { path: ["p1"] } },
      workers: [
        {
          ...{ id: "a", url, models: ["m"], weight: 1, max_num_seqs: 1, max_in_flight: 1 },
          api_key: { file: "t1" },
        },
      ],
      discovery: [
        {
          ...{
            dns: "one.invalid",
            type: "a",
            port: 1,
            scheme: "http",
            path: "/1",
            models: ["m1"],
            weight: 1,
          },
          ...{ max_num_seqs: 1, max_in_flight: 1, servers: ["127.0.0.1:9"], api_key: { file: "t1" } },
        },
        { file: "one.json" },
      ],
      session: {
        ...{ mode: "soft", full_determinism: false, ttl: "1m", max_bindings: 10, when_full: "evict-idle" },
        ...{
          binding: "session",
          first_placement: "policy",
          sources: ["default"],
          tenant: { header: "x-t1" },
        },
        ...{ model_suffixes: ["-1"], allow_pin: false, allow_affinity_header: false },
      },
      worker_selection: {
        ...{ aggregated: "one", fallback: "two", prefill: "one", decode: "one", encode: "one" },
        instances: [
          { name: "one", type: "sticky", parameters: { ties: "first" } },
          { name: "two", type: "least-loaded" },
        ],
      },
      limits: {
        body: "1MB",
        body_total: "2MB",
        stream_buffer: "1MB",
        answer_buffer: "1MB",
        buffered_total: "2MB",
      },
      timeouts: { connect: "1s", upload: "1m", first_byte: "1m", idle: "1m", total: "1h" },
      retries: { attempts: 2, on: ["connect"], budget: 0.1, stateful: false },
      ...{ streams: { peek: false, keep_alive: "1m" }, log: { requests: "sampled", sample: 0.1 } },
      decision_log: { file: "one.jsonl", sample: 1, columns: "read", max_size: "1MB", max_files: 1 },
      forward_credentials: ["cookie"],
      access: { keys: [{ name: "a", sha256: HASHES[0]!, max_in_flight: 1, requests_per_minute: 1 }] },
      health: {
        ...{
          path: "/1",
          interval: "1h",
          timeout: "1s",
          unhealthy_after: 1,
          healthy_after: 1,
          slow_start: "1s",
        },
      },
      breaker: {
        ...{ window: "1m", min_requests: 1, failure_ratio: 0.1, consecutive: 1, open: "1s", open_max: "1m" },
        half_open: 1,
      },
      signals: { path: "/1", interval: "1s", stale_after: "1m" },
      admission: { queue: 1, deadline: "1s", bound_first: false },
    };
    const second: RawConfig = {
      ...{
        listen: { host: "127.0.0.2", port: 1 },
        admin: { host: "127.0.0.2", port: 2, token: { file: "t2" } },
      },
      ...{ shutdown: { deadline: "30s" }, policies: { path: ["p2"] } },
      workers: [
        {
          ...{ id: "b", url: `${url}/x`, models: ["n"], weight: 2, max_num_seqs: 2, max_in_flight: 2 },
          api_key: { file: "t2" },
        },
      ],
      discovery: [
        {
          ...{
            dns: "two.invalid",
            type: "aaaa",
            port: 2,
            scheme: "https",
            path: "/2",
            models: ["m2"],
            weight: 2,
          },
          ...{ max_num_seqs: 2, max_in_flight: 2, servers: ["127.0.0.2:9"], api_key: { file: "t2" } },
        },
        { file: "two.json" },
      ],
      session: {
        ...{ mode: "hard", full_determinism: true, ttl: "2m", max_bindings: 20, when_full: "refuse-new" },
        ...{ binding: "parent-group", first_placement: "parent", sources: [{ header: "x-s" }] },
        ...{
          tenant: { header: "x-t2" },
          model_suffixes: ["-2"],
          allow_pin: true,
          allow_affinity_header: true,
        },
      },
      worker_selection: {
        ...{ aggregated: "uno", fallback: "due", prefill: "uno", decode: "uno", encode: "uno" },
        instances: [
          { name: "uno", type: "power-of-two", parameters: {} },
          { name: "due", type: "round-robin" },
        ],
      },
      limits: {
        body: "3MB",
        body_total: "4MB",
        stream_buffer: "3MB",
        answer_buffer: "3MB",
        buffered_total: "4MB",
      },
      timeouts: { connect: "3s", upload: "3m", first_byte: "3m", idle: "3m", total: "3h" },
      retries: { attempts: 3, on: ["reset"], budget: 0.3, stateful: true },
      ...{ streams: { peek: true, keep_alive: "3m" }, log: { requests: "all", sample: 0.3 } },
      decision_log: { file: "two.jsonl", sample: 0.5, columns: "all", max_size: "3MB", max_files: 3 },
      forward_credentials: ["authorization"],
      access: { keys: [{ name: "b", sha256: HASHES[1]!, max_in_flight: 3, requests_per_minute: 3 }] },
      health: {
        ...{
          path: "/3",
          interval: "3h",
          timeout: "3s",
          unhealthy_after: 3,
          healthy_after: 3,
          slow_start: "3s",
        },
      },
      breaker: {
        ...{ window: "3m", min_requests: 3, failure_ratio: 0.3, consecutive: 3, open: "3s", open_max: "3m" },
        half_open: 3,
      },
      signals: { path: "/3", interval: "3s", stale_after: "3m" },
      admission: { queue: 3, deadline: "3s", bound_first: true },
    };
    return [first, second];
  }

  it("takes effect whole but for what waits for a restart, which is told; a stream under way goes on (F5, F6)", async () => {
    const answers: Parameters<Answer>[1][] = [];
    const { url } = await upstream((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 0\n\n");
      answers.push(response);
    });
    const [first, second] = both(url);
    const files = {
      ...{ t1: "first-token-of-all", t2: "second-token-of-all", "p1/README": "", "p2/README": "" },
      ...{ "one.json": "[]", "two.json": "[]" },
    };
    const self = await served(first, undefined, files);
    const viewOf = (raw: RawConfig) => {
      const { config, mistakes } = parseConfig(stringify(raw), join(self.directory, "hawser.yaml"));
      expect(mistakes).toEqual([]);
      return config!.view;
    };
    const [before, after] = [viewOf(first), viewOf(second)];
    const same = keysOf().filter((key) => isDeepStrictEqual(valueAt(before, key), valueAt(after, key)));
    // Hashes are shown in no view.
    expect(same).toEqual(["access.keys.sha256"]);

    const client = { authorization: "Bearer client-a" };
    const message = await open(self.url + CHAT, { model: "m", stream: true }, client);
    self.write(second);
    const { body } = await self.reload({ authorization: "Bearer first-token-of-all" });
    const fixed = ["listen.host", "listen.port", "admin.host", "admin.port", "session.max_bindings"];
    const needed = body.restart_needed.map(({ key }: { key: string }) => key);
    expect(needed.filter((key: string) => !key.startsWith("decision_log"))).toEqual(fixed);
    const tops = [...new Set(keysOf().map((key) => key.split(".")[0]!))];
    const changed = tops.filter((key) => key !== "listen" && key !== "workers");
    expect(body.changed).toEqual([...changed, "workers.a", "workers.b"].sort());
    const { config } = await self.config({ authorization: "Bearer second-token-of-all" });
    const expected = keysOf().filter((key) => !needed.includes(key));
    for (const key of expected) expect([key, valueAt(config, key)]).toEqual([key, valueAt(after, key)]);
    for (const key of fixed) expect([key, valueAt(config, key)]).toEqual([key, valueAt(before, key)]);
    const health = await self.health();
    expect(health.policies).toMatchObject([{ name: "uno" }, { name: "due" }]);
    expect(health.workers.map(({ id }: { id: string }) => id)).toEqual(["b"]);
    expect(health.data_plane.requests_in_flight).toBe(1);
    answers[0]!.end("data: [DONE]\n\n");
    expect(await text(message)).toBe("data: 0\n\ndata: [DONE]\n\n");
    expect((await post(self.url + CHAT, { model: "m" }, client)).status).toBe(401);
  });
});

describe("at the ends of its life", () => {
  it("a signal before it listens is kept until it can be followed", async () => {
    const { url } = await upstream(serve);
    const next = stringify({ ...HERE, ...workersAt(url, { weight: 7 }) });
    const directory = directoryOf({
      "hawser.yaml": stringify({ ...HERE, ...workersAt(url) }),
      "next.yaml": next,
      // As soon as anything of it listens, which is what it warms up with.
      "early.cjs": `const { Server } = require("node:net");
        const { listen } = Server.prototype;
        Server.prototype.listen = function (...args) {
          Server.prototype.listen = listen;
          require("node:fs").renameSync("next.yaml", "hawser.yaml");
          process.kill(process.pid, "SIGHUP");
          return listen.apply(this, args);
        };`,
    });
    vi.stubEnv("NODE_OPTIONS", `--require ${join(directory, "early.cjs")}`);
    const self = await operated(await start(["serve", "--no-watch"], directory), directory);
    await until(async () => (await self.health()).config.generation === 2);
    expect((await self.operate("GET", "/admin/workers/a")).body.weight).toBe(7);
    await until(async () => (await self.health()).status === "ok");
  });

  it("a gateway that shuts down takes no config any more, and ends as it would have", async () => {
    const answers: Parameters<Answer>[1][] = [];
    const { url } = await upstream((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 0\n\n");
      answers.push(response);
    });
    const self = await served(workersAt(url));
    await until(async () => (await self.health()).status === "ok");
    const message = await open(self.url + CHAT, { model: "m", stream: true });
    const exit = once(self.child, "exit");
    self.child.kill("SIGTERM");
    await until(async () => (await self.health()).status === "shutting_down");
    self.write(workersAt(url, { weight: 7 }));
    const { status, body } = await self.reload();
    expect([status, body.error.message]).toEqual([400, "hawser.yaml:1:1: the gateway is shutting down"]);
    self.child.kill("SIGHUP");
    expect((await self.operate("GET", "/admin/workers/a")).body.weight).toBe(100);
    answers[0]!.end("data: [DONE]\n\n");
    expect(await text(message)).toBe("data: 0\n\ndata: [DONE]\n\n");
    expect(await exit).toEqual([0, null]);
  });
});
