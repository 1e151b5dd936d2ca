// Workers that come, change and go by a file or by DNS, behind a gateway that has streams open.
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, it, onTestFinished } from "vitest";
import { parseWorkerEntry } from "../../host/config/worker-entry.js";
import type { DnsDiscoveryOptions } from "../../host/fleet/options.js";
import { createGateway } from "../../host/gateway/server.js";
import { createRouter, loadPolicy } from "../../host/index.js";
import { freePort } from "../bench/process.js";
import { directoryOf } from "../fixtures/directory.js";
import { type DnsRecord, DnsServer, SERVFAIL } from "../fleet/dns-server.js";
import { open, post, text } from "./client.js";
import { CHAT } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { dataPlane, fleet, type GatewayFixture, gateway, type RunningGateway, until } from "./fixture.js";
import { call, shown } from "./operator.js";
import { type Probed, probed } from "./probed.js";
import { VirtualClock } from "./virtual-clock.js";

const AN_HOUR = 3_600_000;
const A_SECOND = 1_000;

expectNothingUncaught();

interface Found {
  readonly running: RunningGateway;
  readonly clock: VirtualClock;
  /** Lets time pass until something is so. */
  pass(holds: () => boolean): Promise<void>;
}

async function finding(options: Partial<GatewayFixture>): Promise<Found> {
  const clock = new VirtualClock();
  const health = { intervalMs: AN_HOUR };
  const readWorker = (source: string) => {
    const { entry } = parseWorkerEntry(source);
    return entry ? { entry } : { mistakes: ["wrong"] };
  };
  const running = await gateway({ urls: [], clock, health, readWorker, ...options });
  return {
    ...{ running, clock },
    pass: (holds) =>
      until(() => {
        if (holds()) return true;
        clock.advance(A_SECOND);
        return false;
      }),
  };
}

/** Targets of a file: workers by their ids, each with labels. */
type Targets = Readonly<Record<string, { url: string; labels?: Record<string, string> }>>;

function textOf(targets: Targets): string {
  const groups = Object.entries(targets).map(([id, { url, labels }]) => ({
    targets: [new URL(url).host],
    labels: { hawser_id: id, ...labels },
  }));
  return JSON.stringify(groups);
}

/** A gateway that finds its workers in a file. */
async function byFile(targets: Targets, options: Partial<GatewayFixture> = {}) {
  const directory = directoryOf({ "workers.json": textOf(targets) });
  const file = join(directory, "workers.json");
  const found = await finding({ discovery: [{ kind: "file", file }], ...options });
  let count = 0;
  /** Puts another file in its place at once. */
  const replace = (content: string) => {
    const fresh = join(directory, `new-${count++}`);
    writeFileSync(fresh, content);
    renameSync(fresh, file);
  };
  const write = (next: Targets) => replace(textOf(next));
  return { ...found, file, replace, write, source: `file ${file}` };
}

/** The workers that can be chosen: `a b`. */
const eligible = ({ router }: RunningGateway) =>
  [...router.workers]
    .filter((worker) => worker.eligible)
    .map(({ id }) => id)
    .sort()
    .join(" ");

const workerOf = ({ router }: RunningGateway, id: string) =>
  [...router.workers].find((worker) => worker.id === id)!;

async function say({ url }: RunningGateway, key: string): Promise<string> {
  const { status, headers } = await post(url + CHAT, { model: "m" }, { "x-session-id": key });
  return [status, headers["x-hawser-worker"], headers["x-hawser-decision"]].join(" ");
}

function bind({ router }: RunningGateway, worker: string, ...keys: string[]): void {
  for (const key of keys) {
    const lease = router.acquire({ key, model: "m", pin: worker });
    lease.commit();
    lease.release();
  }
}

/** Opens a stream at a worker, whose head and first event have come. */
async function opened(running: RunningGateway, worker: Probed, id: string) {
  const count = worker.posted.length;
  const { onPost } = worker;
  worker.onPost = ({ response }) =>
    void response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
  const message = await open(running.url + CHAT, { model: "m", stream: true }, { "x-hawser-pin": id });
  worker.onPost = onPost;
  const { response } = worker.posted[count]!;
  return {
    /** Ends it; resolves to all that came. */
    end: () => {
      response.end("data: [DONE]\n\n");
      return text(message);
    },
  };
}

const WHOLE = "data: 1\n\ndata: [DONE]\n\n";

const listed = async ({ admin }: RunningGateway) => (await call(admin, "GET", "/admin/workers")).body;

describe("workers in a file", () => {
  it("are there when the gateway has started", async () => {
    const [a, b] = [await probed(), await probed()];
    const { running, source, file } = await byFile({
      a: { url: a.url },
      b: { url: b.url, labels: { hawser_weight: "50", hawser_max_in_flight: "7", hawser_max_num_seqs: "9" } },
    });
    expect(eligible(running)).toBe("a b");
    expect(await say(running, "s")).toBe("200 a place");
    expect(await shown(running.admin, "b")).toMatchObject({
      ...{ url: b.url, source, state: "ready", weight: 50, max_in_flight: 7, max_num_seqs: 9 },
    });
    expect((await listed(running)).discovery).toEqual([
      { kind: "file", watches: file, workers: 2, age_ms: 0, error: null },
    ]);
  });

  it("come and go while streams run: counts, streams and others' sessions stay (C5)", async () => {
    const [a, b, c, d] = [await probed(), await probed(), await probed(), await probed()];
    const { running, write, pass } = await byFile(
      { a: { url: a.url }, b: { url: b.url }, c: { url: c.url } },
      { allowPin: true },
    );
    bind(running, "a", "s1", "s2");
    bind(running, "b", "s3");
    bind(running, "c", "s4");
    const [atA, atB] = [await opened(running, a, "a"), await opened(running, b, "b")];
    const [oldA, oldB] = [workerOf(running, "a"), workerOf(running, "b")];
    expect([oldA.activeRequests, oldB.activeRequests]).toEqual([1, 1]);
    write({ b: { url: b.url }, c: { url: c.url }, d: { url: d.url } });
    await pass(() => eligible(running) === "b c d");
    expect((await listed(running)).workers).toMatchObject([
      { id: "b", state: "ready", active_requests: 1, bound_sessions: 1 },
      { id: "c", state: "ready", active_requests: 0, bound_sessions: 1 },
      { id: "d", state: "ready", active_requests: 0, bound_sessions: 0 },
      { id: "a", state: "gone", active_requests: 1 },
    ]);
    expect(workerOf(running, "b")).toBe(oldB);
    // The sessions of the one that is gone are new to all.
    expect(running.router.status().bindings).toBe(2);
    for (const key of ["s1", "s2"]) expect(await say(running, key)).toMatch(/^200 [bcd] place$/);
    expect(await say(running, "s3")).toBe("200 b keep");
    expect(await say(running, "s4")).toBe("200 c keep");
    expect(await atA.end()).toBe(WHOLE);
    expect(await atB.end()).toBe(WHOLE);
    await until(() => oldA.activeRequests + oldB.activeRequests === 0);
    // It comes back as another one, without its sessions.
    write({ a: { url: a.url }, b: { url: b.url }, c: { url: c.url }, d: { url: d.url } });
    await pass(() => eligible(running) === "a b c d");
    expect(workerOf(running, "a")).not.toBe(oldA);
    expect(workerOf(running, "a").boundSessions).toBe(0);
    expect(await say(running, "s3")).toBe("200 b keep");
  });

  it("change in place, and become others where they are elsewhere", async () => {
    const [a, other] = [await probed(), await probed()];
    const { running, write, pass } = await byFile({ a: { url: a.url } }, { allowPin: true });
    bind(running, "a", "s");
    const first = workerOf(running, "a");
    const stream = await opened(running, a, "a");
    write({ a: { url: a.url, labels: { hawser_weight: "300", hawser_max_in_flight: "5" } } });
    await pass(() => first.weight === 300);
    expect(workerOf(running, "a")).toBe(first);
    expect(await shown(running.admin, "a")).toMatchObject({
      ...{ weight: 300, max_in_flight: 5, active_requests: 1, bound_sessions: 1, state: "ready" },
    });
    expect(await say(running, "s")).toBe("200 a keep");
    write({ a: { url: other.url } });
    await pass(() => workerOf(running, "a") !== first && eligible(running) === "a");
    expect(await say(running, "s")).toBe("200 a place");
    expect(other.posted).toHaveLength(1);
    expect([first.activeRequests, workerOf(running, "a").activeRequests]).toEqual([1, 0]);
    expect(await stream.end()).toBe(WHOLE);
    await until(() => first.activeRequests === 0);
  });

  it("stay where the file is bad, or gone, and that is shown with the age of what is known (F4, F9)", async () => {
    const [a, b] = [await probed(), await probed()];
    const { running, write, replace, pass, clock, source, file } = await byFile({ a: { url: a.url } });
    bind(running, "a", "s");
    replace('[{ "targets": ["nonsense:0"], "labels": { "hawser_weight": "heavy" } }]');
    const failures = () => running.log.filter((line) => line.includes("discovery failed"));
    await pass(() => failures().length === 1);
    expect(failures()[0]).toContain(source);
    expect(eligible(running)).toBe("a");
    expect(await say(running, "s")).toBe("200 a keep");
    clock.advance(60_000);
    const [bad] = (await listed(running)).discovery;
    expect(bad).toMatchObject({ kind: "file", watches: file, workers: 1 });
    clock.advance(0.5);
    const [{ age_ms: age }] = (await listed(running)).discovery;
    expect(age).toBeGreaterThanOrEqual(60_000);
    expect(Number.isInteger(age)).toBe(true);
    for (const mistake of ["nonsense:0", "hawser_weight"]) expect(bad.error).toContain(mistake);
    // The same is not told at every look.
    expect(failures()).toHaveLength(1);
    write({ a: { url: a.url }, b: { url: b.url } });
    await pass(() => eligible(running) === "a b");
    expect((await listed(running)).discovery).toMatchObject([{ workers: 2, error: null }]);
    expect(await say(running, "s")).toBe("200 a keep");
  });

  it("are shown the key of their source, in requests and in questions", async () => {
    const a = await probed();
    const seen: unknown[] = [];
    a.server.prependListener("request", ({ url, headers }) => seen.push([url, headers.authorization]));
    const directory = directoryOf({ "workers.json": textOf({ a: { url: a.url } }) });
    const file = join(directory, "workers.json");
    const { running } = await finding({ discovery: [{ kind: "file", file, apiKey: "sk-fleet" }] });
    expect(await say(running, "s")).toBe("200 a place");
    expect(seen).toContainEqual([CHAT, "Bearer sk-fleet"]);
    expect(new Set(seen.map((each) => (each as string[])[1]))).toEqual(new Set(["Bearer sk-fleet"]));
  });

  it("all go where the list is empty", async () => {
    const a = await probed();
    const { running, write, pass } = await byFile({ a: { url: a.url } });
    write({});
    await pass(() => [...running.router.workers].length === 0);
    expect(await say(running, "s")).toMatch(/^503 /);
    expect((await listed(running)).discovery).toMatchObject([{ workers: 0, error: null }]);
    write({ a: { url: a.url } });
    await pass(() => eligible(running) === "a");
    expect(await say(running, "s")).toBe("200 a place");
  });

  it("are the file's to change and to remove: an operator is told so, but may drain them", async () => {
    const [a, b] = [await probed(), await probed()];
    const { running, write, pass, source } = await byFile({ a: { url: a.url }, b: { url: b.url } });
    for (const method of ["DELETE", "PUT"]) {
      const body = method === "PUT" ? { url: b.url } : undefined;
      const answer = await call(running.admin, method, "/admin/workers/a", body);
      expect(answer).toMatchObject({ status: 409, body: { error: { code: "worker_discovered" } } });
      expect(answer.body.error.message).toContain(source);
    }
    expect((await call(running.admin, "POST", "/admin/workers/a/drain")).status).toBe(200);
    expect(eligible(running)).toBe("b");
    // A change by the file leaves it drained.
    write({ a: { url: a.url, labels: { hawser_weight: "7" } }, b: { url: b.url } });
    await pass(() => workerOf(running, "a").weight === 7);
    expect(await shown(running.admin, "a")).toMatchObject({ state: "draining", eligible: false });
    expect((await call(running.admin, "DELETE", "/admin/workers/a/drain")).status).toBe(200);
    expect(eligible(running)).toBe("a b");
  });
});

/** Posts for a model and tells what came of it: `200`, or `503 no_worker_eligible`. */
async function told({ url }: RunningGateway, model: string): Promise<string> {
  const { status, headers, body } = await post(url + CHAT, { model });
  if (status < 400) return String(status);
  if (status === 503) expect(headers["retry-after"]).toBe("1");
  return `${status} ${JSON.parse(body).error.code}`;
}

describe("a model that nobody serves", () => {
  /** A file that is not there yet, and a way to put it there. */
  function missing() {
    const directory = directoryOf({});
    const file = join(directory, "workers.json");
    const write = (content: string) => {
      writeFileSync(join(directory, "new"), content);
      renameSync(join(directory, "new"), file);
    };
    return { file, write };
  }

  it("may be one of a source that was never heard: 503, until it was heard once", async () => {
    const [mine, found] = [await probed(), await probed()];
    const { file, write } = missing();
    const { running, pass } = await finding({ urls: [mine.url], discovery: [{ kind: "file", file }] });
    expect((await listed(running)).discovery).toMatchObject([{ workers: 0, age_ms: null }]);
    expect(await told(running, "m")).toBe("200");
    expect(await told(running, "other")).toBe("503 no_worker_eligible");
    write(textOf({ a: { url: found.url, labels: { hawser_models: "other" } } }));
    await pass(() => eligible(running) === "a w0");
    expect(await told(running, "other")).toBe("200");
    expect(await told(running, "third")).toBe("404 model_not_found");
    // That it fails now changes nothing of that.
    write("nonsense");
    await pass(() => running.log.filter((line) => line.includes("discovery failed")).length === 2);
    expect(await told(running, "third")).toBe("404 model_not_found");
  });

  it("is 404 where a source was heard that names nobody, and others are there", async () => {
    const mine = await probed();
    const { running } = await byFile({}, { urls: [mine.url] });
    expect(await told(running, "m")).toBe("200");
    expect(await told(running, "other")).toBe("404 model_not_found");
  });

  it("is 503 as long as nobody is there at all", async () => {
    const { file, write } = missing();
    const { running, clock } = await finding({ discovery: [{ kind: "file", file }] });
    expect(await told(running, "m")).toBe("503 no_worker_eligible");
    write("[]");
    for (let age = null; age === null; age = (await listed(running)).discovery[0].age_ms)
      clock.advance(A_SECOND);
    expect(await told(running, "m")).toBe("503 no_worker_eligible");
  });
});

describe("those in line for a worker that a file replaces", () => {
  it.each([
    ["names its models", { hawser_models: "m" }],
    ["leaves its models to itself", {}],
  ])(
    "are told to come again when it is known not to be there, not that there is no such model: one that %s",
    async (_name, labels) => {
      const [old, fresh] = [await probed(), await probed()];
      old.onPost = () => {};
      fresh.pages["/health"] = "silence";
      const limit = { hawser_max_in_flight: "1" };
      // Somebody is there all the time, and serves another model.
      const other = await probed();
      other.pages["/v1/models"] = [200, '{"data":[{"id":"other"}]}'];
      const { running, write, pass } = await byFile(
        { a: { url: old.url, labels: limit } },
        {
          ...{ urls: [other.url], admission: { deadlineMs: AN_HOUR } },
          health: { intervalMs: 1_000, timeoutMs: 20 },
        },
      );
      const first = told(running, "m");
      await until(() => old.posted.length === 1);
      const second = told(running, "m");
      await until(() => running.gateway.waiting === 1);
      write({ b: { url: fresh.url, labels: { ...limit, ...labels } } });
      await pass(() => running.gateway.waiting === 0);
      expect(await second).toBe("503 no_worker_eligible");
      old.posted[0]!.response.end("{}");
      expect(await first).toBe("200");
    },
  );
});

describe("an id that two name", () => {
  it("belongs to the config, whatever a file says of it", async () => {
    const [mine, theirs, other] = [await probed(), await probed(), await probed()];
    const { running, write, pass, source } = await byFile({ w0: { url: theirs.url } }, { urls: [mine.url] });
    const conflicts = () =>
      running.log.filter((line) => line.includes("a worker of that id is there already"));
    expect(conflicts()).toHaveLength(1);
    expect(JSON.parse(conflicts()[0]!)).toMatchObject({ source, worker: "w0", owner: "config" });
    expect(await shown(running.admin, "w0")).toMatchObject({ url: mine.url, source: "config" });
    write({ other: { url: other.url } });
    await pass(() => eligible(running) === "other w0");
    expect(await shown(running.admin, "w0")).toMatchObject({ url: mine.url, source: "config" });
    expect(theirs.posted).toHaveLength(0);
  });

  it("is a file's again as soon as an operator gives it up", async () => {
    const [mine, theirs] = [await probed(), await probed()];
    const { running, source } = await byFile({ w0: { url: theirs.url } }, { urls: [mine.url] });
    expect((await call(running.admin, "DELETE", "/admin/workers/w0")).status).toBe(200);
    await until(() => eligible(running) === "w0");
    expect(await shown(running.admin, "w0")).toMatchObject({ url: theirs.url, source });
  });

  it("belongs to the source that named it first, and to the other one when that names it no more", async () => {
    const [one, two] = [await probed(), await probed()];
    const directory = directoryOf({
      "1.json": textOf({ w: { url: one.url } }),
      "2.json": textOf({ w: { url: two.url } }),
    });
    const files = ["1.json", "2.json"].map((name) => join(directory, name));
    const { running, pass } = await finding({
      discovery: files.map((file) => ({ kind: "file" as const, file })),
    });
    const { source, url } = await shown(running.admin, "w");
    const owner = files.findIndex((file) => source === `file ${file}`);
    expect(url).toBe([one, two][owner]!.url);
    expect((await listed(running)).workers).toHaveLength(1);
    expect((await listed(running)).discovery).toMatchObject([{ workers: 1 }, { workers: 1 }]);
    const fresh = join(directory, "new");
    writeFileSync(fresh, "[]");
    renameSync(fresh, files[owner]!);
    const rest = [one, two][1 - owner]!;
    await pass(() => eligible(running) === "w" && workerOf(running, "w").url === rest.url);
    expect(await shown(running.admin, "w")).toMatchObject({ source: `file ${files[1 - owner]}` });
  });
});

describe("workers by DNS", () => {
  const NAME = "vllm.test";
  const srv = ({ port }: Probed): DnsRecord => ({ type: "SRV", name: "127.0.0.1", port });

  const optionsFor = (server: DnsServer, options: Partial<DnsDiscoveryOptions>): DnsDiscoveryOptions => ({
    ...{ kind: "dns", name: NAME, type: "srv", port: 0, scheme: "http", path: "" },
    ...{ models: undefined, weight: undefined, slots: undefined, maxInFlight: undefined },
    servers: [server.address],
    ...options,
  });

  async function byDns(
    options: Partial<DnsDiscoveryOptions>,
    reply: DnsServer["reply"],
    more: Partial<GatewayFixture> = {},
  ) {
    const server = await DnsServer.start();
    server.reply = reply;
    const discovery = [optionsFor(server, options)];
    const found = await finding({ allowPin: true, discovery, ...more });
    return { ...found, server };
  }

  it("are not known where the server fails from the start: 503, and 404 once it has answered", async () => {
    const [mine, a] = [await probed(), await probed()];
    const { running, server, pass } = await byDns(
      { models: ["other"] },
      { code: SERVFAIL },
      { urls: [mine.url] },
    );
    expect(await told(running, "m")).toBe("200");
    for (const model of ["other", "third"]) expect(await told(running, model)).toBe("503 no_worker_eligible");
    server.reply = { records: [srv(a)] };
    await pass(() => eligible(running).includes(new URL(a.url).host));
    expect(await told(running, "other")).toBe("200");
    expect(await told(running, "third")).toBe("404 model_not_found");
  });

  it("keep nobody waiting who is configured, where the server is silent at the start", async () => {
    const mine = await probed();
    const server = await DnsServer.start();
    server.reply = null;
    const running = createGateway({
      ...{ router: createRouter({ policy: loadPolicy("sticky") }), log: pino({ level: "silent" }) },
      ...{ dataPlane: dataPlane({}), ...fleet() },
      workers: [{ id: "w0", url: mine.url }],
      discovery: [optionsFor(server, {})],
    });
    onTestFinished(() => running.close());
    const admin = await running.listenAdmin("127.0.0.1", 0);
    const port = await freePort();
    let isUp = false;
    const listening = running.listen("127.0.0.1", port).then(() => {
      isUp = true;
    });
    while ((await shown(admin, "w0")).state !== "ready");
    const reply = await post(`http://127.0.0.1:${port}${CHAT}`, { model: "m" });
    expect([reply.status, reply.headers["x-hawser-worker"]]).toEqual([200, "w0"]);
    expect((await fetch(`http://127.0.0.1:${port}/health`)).status).toBe(200);
    // It has been asked, and the gateway waits for it still.
    expect([server.questions.length > 0, isUp]).toEqual([true, false]);
    server.reply = { records: [] };
    await running.close();
    await listening;
  });

  it("come and go while streams run: counts, streams and others' sessions stay (C5)", async () => {
    const [a, b, c] = [await probed(), await probed(), await probed()];
    const ids = [a, b, c].map(({ url }) => new URL(url).host);
    const { running, server, pass } = await byDns({ weight: 70 }, { records: [srv(a), srv(b)] });
    expect(eligible(running)).toBe([ids[0], ids[1]].sort().join(" "));
    expect(await shown(running.admin, ids[0]!)).toMatchObject({
      ...{ url: a.url, state: "ready", weight: 70, source: `dns srv ${NAME}` },
    });
    bind(running, ids[0]!, "s1");
    bind(running, ids[1]!, "s2");
    const [atA, atB] = [await opened(running, a, ids[0]!), await opened(running, b, ids[1]!)];
    const [oldA, oldB] = [workerOf(running, ids[0]!), workerOf(running, ids[1]!)];
    server.reply = { records: [srv(b), srv(c)] };
    await pass(() => eligible(running) === [ids[1], ids[2]].sort().join(" "));
    expect([oldA.activeRequests, oldB.activeRequests]).toEqual([1, 1]);
    expect(workerOf(running, ids[1]!)).toBe(oldB);
    expect(await say(running, "s2")).toBe(`200 ${ids[1]} keep`);
    expect(await say(running, "s1")).toMatch(/ place$/);
    expect([await atA.end(), await atB.end()]).toEqual([WHOLE, WHOLE]);
    await until(() => oldA.activeRequests + oldB.activeRequests === 0);
    expect((await listed(running)).workers).toHaveLength(2);
  });

  it("stay where the server fails, and that is shown with the age of what is known (F9)", async () => {
    const a = await probed();
    const { running, server, pass } = await byDns({}, { records: [srv(a)] });
    server.reply = { code: SERVFAIL };
    await pass(() => running.log.some((line) => line.includes("SERVFAIL")));
    const { discovery } = await listed(running);
    expect(discovery).toMatchObject([
      {
        kind: "dns",
        watches: `the SRV records of ${NAME}`,
        workers: 1,
        error: expect.stringContaining("SERVFAIL"),
      },
    ]);
    expect(discovery[0].age_ms).toBeGreaterThanOrEqual(30_000);
    expect(await say(running, "s")).toMatch(/^200 .* place$/);
    server.reply = { records: [srv(a)] };
    const before = server.questions.length;
    await pass(() => server.questions.length > before);
    let error: unknown = "";
    while (error !== null) error = (await listed(running)).discovery[0].error;
    expect(await say(running, "s")).toMatch(/ keep$/);
  });

  it("are reached at the addresses of a name, all on one port (C16)", async () => {
    const first = await probed();
    const second = await probed(first.port, "127.0.0.2");
    const records: DnsRecord[] = ["127.0.0.1", "127.0.0.2"].map((address) => ({
      type: "A",
      address,
      ttl: 60,
    }));
    const { running, server, pass } = await byDns({ type: "a", port: first.port }, { records });
    const ids = [first, second].map(({ url }) => new URL(url).host);
    expect(eligible(running)).toBe(ids.join(" "));
    bind(running, ids[1]!, "s");
    server.reply = { records: records.slice(1) };
    await pass(() => eligible(running) === ids[1]);
    expect(await say(running, "s")).toBe(`200 ${ids[1]} keep`);
    expect(second.posted).toHaveLength(1);
  });
});
