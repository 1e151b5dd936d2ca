// Workers that an operator adds, changes and looks at while they serve.
import { describe, expect, it } from "vitest";
import { parseWorkerEntry } from "../../host/config/worker-entry.js";
import { formatMistake } from "../../host/yaml/mistake.js";
import { get, open, post, text } from "./client.js";
import { CHAT, type Crew, crew, hold, inTurn, refuse, serve } from "./crew.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { type GatewayFixture, until, upstream } from "./fixture.js";
import { type Answered, call } from "./operator.js";
import { probed } from "./probed.js";
import { VirtualClock } from "./virtual-clock.js";

expectNothingUncaught();

/** Reads an entry as the command does. */
function readWorker(source: string) {
  const { entry, mistakes } = parseWorkerEntry(source);
  return entry ? { entry } : { mistakes: mistakes.map(formatMistake) };
}

/** A crew whose operator may add workers. */
function staffed(
  deeds: Parameters<typeof crew>[0],
  options: Omit<GatewayFixture, "urls"> = {},
): Promise<Crew> {
  return crew(deeds, { readWorker, ...options });
}

const at = ({ running }: Crew, method: string, id: string, body?: string | object): Promise<Answered> =>
  call(running.admin, method, `/admin/workers/${id}`, body);

const late = (by = "late") => upstream((_request, response) => response.end(`{"by":"${by}"}`));

/** Waits until a worker has answered, and may be chosen. */
const ready = (self: Crew, id: string) => until(() => self.worker(id)?.eligible === true);

describe("PUT /admin/workers/{id}", () => {
  it("adds a worker, which is served by it as soon as it has answered", async () => {
    const self = await staffed([serve], { policy: "least-loaded" });
    const { url } = await late();
    const answer = await at(self, "PUT", "new", { url, weight: 200, max_num_seqs: 64, max_in_flight: 8 });
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({
      ...{ id: "new", url, source: "admin", state: "starting", eligible: false, models: [] },
      ...{ weight: 200, max_num_seqs: 64, max_in_flight: 8, active_requests: 0, bound_sessions: 0 },
    });
    await ready(self, "new");
    expect((await at(self, "GET", "new")).body).toMatchObject({
      ...{ state: "ready", reason: "it answers", models: ["m"] },
      columns: { weight: 200, slots: 64, active_requests: 0 },
    });
    const busy = self.running.router.acquire({ model: "m", pin: "w0" });
    expect(await self.say()).toBe("200 new place");
    busy.release();
    expect(self.running.log.join()).toContain("worker is ready");
  });

  it("is the same worker where nothing is changed: counts and bindings stay", async () => {
    const self = await staffed([serve]);
    const { url } = await late();
    const entry = { url, weight: 50, models: ["m"] };
    expect((await at(self, "PUT", "new", entry)).status).toBe(201);
    await ready(self, "new");
    self.bind("new", "a");
    const worker = self.worker("new");
    const lease = self.running.router.acquire({ model: "m", pin: "new" });
    const again = await at(self, "PUT", "new", entry);
    expect(again.status).toBe(200);
    expect(again.body).toMatchObject({
      ...{ state: "ready", weight: 50, active_requests: 1, bound_sessions: 1, eligible: true },
    });
    expect(self.worker("new")).toBe(worker);
    lease.release();
    expect(await self.say("a")).toBe("200 new keep");
    expect((await at(self, "GET", "new")).body.active_requests).toBe(0);
  });

  it("changes weight, seats, limit and models in place: bindings and requests stay", async () => {
    const self = await staffed([serve]);
    const { url } = await late();
    await at(self, "PUT", "new", { url, models: ["m"] });
    await ready(self, "new");
    const worker = self.worker("new");
    self.bind("new", "a");
    const lease = self.running.router.acquire({ model: "m", pin: "new" });
    const changed = { url, models: ["m", "other"], weight: 300, max_num_seqs: 4, max_in_flight: 1 };
    expect(await at(self, "PUT", "new", changed)).toMatchObject({
      status: 200,
      body: {
        ...{ state: "ready", models: ["m", "other"], weight: 300, max_num_seqs: 4, max_in_flight: 1 },
        ...{ active_requests: 1, bound_sessions: 1, eligible: false },
        columns: { weight: 300, slots: 4, active_requests: 1 },
      },
    });
    expect(self.worker("new")).toBe(worker);
    lease.release();
    expect(await self.say("a")).toBe("200 new keep");
    expect(await self.say("x", { model: "other" })).toBe("200 new place");
    // What is left out is as at the beginning.
    expect((await at(self, "PUT", "new", { url, models: ["other"] })).body).toMatchObject({
      ...{ models: ["other"], weight: 100, max_num_seqs: null, max_in_flight: null },
    });
    expect(self.worker("new")).toBe(worker);
    expect(await self.say("a")).toBe("200 w0 place");
    const { data } = (await get(`${self.running.url}/v1/models`)).body as { data: { id: string }[] };
    expect(data.map(({ id }) => id).sort()).toEqual(["m", "other"]);
  });

  it("with another limit lets those in line go on", async () => {
    const self = await staffed([hold], { maxInFlight: 1 });
    const said = [self.say("a"), self.say("b")];
    await until(() => self.asked.length === 1 && self.waiting === 1);
    const { url } = self.upstreams[0]!;
    expect((await at(self, "PUT", "w0", { url, max_in_flight: 2 })).status).toBe(200);
    await until(() => self.asked.length === 2);
    for (const asked of self.asked) serve(asked);
    for (const reply of await Promise.all(said)) expect(reply).toBe("200 w0 place");
  });

  it("with another model lets those go on that wait for it", async () => {
    const self = await staffed([hold], { maxInFlight: 1 });
    const { url } = await late();
    await at(self, "PUT", "new", { url, models: ["other"] });
    await ready(self, "new");
    const said = [self.say("a"), self.say("b")];
    await until(() => self.asked.length === 1 && self.waiting === 1);
    await at(self, "PUT", "new", { url, models: ["other", "m"] });
    const replies = Promise.any(said);
    expect(await replies).toBe("200 new place");
    serve(self.asked[0]!);
    await Promise.all(said);
  });

  it("without the model that some wait for tells them so", async () => {
    const self = await staffed([hold]);
    const { url } = self.upstreams[0]!;
    await at(self, "PUT", "w0", { url, models: ["m"], max_in_flight: 1 });
    await ready(self, "w0");
    const first = self.say("a");
    await until(() => self.asked.length === 1);
    const second = self.say("b");
    await until(() => self.waiting === 1);
    await at(self, "PUT", "w0", { url, models: ["other"], max_in_flight: 1 });
    expect(await second).toMatch(/^404 .*model_not_found/);
    serve(self.asked[0]!);
    expect(await first).toBe("200 w0 place");
  });

  it("with another url is another worker: the old request ends on the old one (A9)", async () => {
    const self = await staffed([hold]);
    self.bind("w0", "a");
    const old = self.worker("w0");
    const message = open(self.running.url + CHAT, { model: "m", stream: true }, { "x-session-id": "s" });
    await until(() => self.asked.length === 1);
    self.asked[0]!.response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    const stream = await message;
    const { url } = await late();
    const answer = await at(self, "PUT", "w0", { url });
    expect(answer).toMatchObject({ status: 200, body: { url, state: "starting", active_requests: 0 } });
    await ready(self, "w0");
    const fresh = self.worker("w0");
    expect(fresh).not.toBe(old);
    const { body } = await call(self.running.admin, "GET", "/admin/workers");
    expect(body.workers).toMatchObject([
      { id: "w0", url, state: "ready", active_requests: 0, bound_sessions: 0 },
      { id: "w0", url: old.url, state: "gone", active_requests: 1 },
    ]);
    expect(await self.say("a")).toBe("200 w0 place");
    expect(self.asked).toHaveLength(1);
    expect([old.activeRequests, fresh.activeRequests]).toEqual([1, 0]);
    self.asked[0]!.response.end("data: [DONE]\n\n");
    expect(await text(stream)).toBe("data: 1\n\ndata: [DONE]\n\n");
    await until(() => old.activeRequests === 0);
    expect(fresh.activeRequests).toBe(0);
  });

  it("leaves a worker the key that it is shown, but shows it nowhere else", async () => {
    const shown: (string | undefined)[] = [];
    const self = await staffed([serve], { apiKeys: new Map([["w0", "sk-0"]]) });
    const { url, server } = self.upstreams[0]!;
    server.prependListener("request", ({ headers }) => shown.push(headers.authorization));
    const worker = self.worker("w0");
    self.bind("w0", "a");
    expect((await at(self, "PUT", "w0", { url, weight: 200 })).body).toMatchObject({ bound_sessions: 1 });
    expect(self.worker("w0")).toBe(worker);
    expect(await self.say("a")).toBe("200 w0 keep");
    expect(new Set(shown)).toEqual(new Set(["Bearer sk-0"]));
    const elsewhere: (string | undefined)[] = [];
    const other = await late();
    other.server.prependListener("request", ({ headers }) => elsewhere.push(headers.authorization));
    await at(self, "PUT", "w0", { url: other.url });
    await ready(self, "w0");
    expect(await self.say("a")).toBe("200 w0 place");
    expect(elsewhere.length).toBeGreaterThanOrEqual(3);
    expect(new Set(elsewhere)).toEqual(new Set([undefined]));
  });

  it("shows a worker of the config its key again where it is put back as it was, and nobody else", async () => {
    const self = await staffed([serve], { apiKeys: new Map([["w0", "sk-0"]]) });
    const [mine, other] = [self.upstreams[0]!, await late()];
    /** What each of them is shown from now on. */
    const shown = { mine: new Set<unknown>(), other: new Set<unknown>() };
    mine.server.prependListener("request", ({ headers }) => shown.mine.add(headers.authorization));
    other.server.prependListener("request", ({ headers }) => shown.other.add(headers.authorization));
    const put = async (id: string, url: string) => {
      expect((await at(self, "PUT", id, { url })).status).toBe(201);
      await ready(self, id);
      expect(await self.say()).toBe(`200 ${id} place`);
      expect((await at(self, "DELETE", id)).status).toBe(200);
    };
    expect((await at(self, "DELETE", "w0")).status).toBe(200);
    await put("w0", other.url);
    expect([...shown.other]).toEqual([undefined]);
    await put("w0", mine.url);
    expect([...shown.mine]).toEqual(["Bearer sk-0"]);
    shown.mine.clear();
    await put("w1", mine.url);
    expect([...shown.mine]).toEqual([undefined]);
  });

  it("takes the default of whatever is left out, whatever was said before", async () => {
    const self = await staffed([serve], { maxInFlight: 7 });
    const { url } = self.upstreams[0]!;
    const entry = { url, models: ["m"], weight: 300, max_num_seqs: 4, max_in_flight: 1 };
    expect((await at(self, "PUT", "w0", entry)).body).toMatchObject({
      ...{ weight: 300, max_num_seqs: 4, max_in_flight: 1 },
    });
    expect(await at(self, "PUT", "w0", { url, models: ["m"] })).toMatchObject({
      status: 200,
      body: { weight: 100, max_num_seqs: null, max_in_flight: null },
    });
    await ready(self, "w0");
    expect((await at(self, "GET", "w0")).body).toMatchObject({
      ...{ weight: 100, max_num_seqs: null, max_in_flight: null },
      columns: { weight: 100, slots: 0 },
    });
  });

  it("takes a body of 64 KiB, and none that is larger", async () => {
    const self = await staffed([serve]);
    const { url } = await late();
    const entry = JSON.stringify({ url });
    const bodyOf = (bytes: number) => entry.padEnd(bytes, " ");
    const large = await at(self, "PUT", "new", bodyOf(65_537));
    expect(large).toMatchObject({ status: 413, body: { error: { type: "invalid_request_error" } } });
    expect((await at(self, "GET", "new")).status).toBe(404);
    expect((await at(self, "PUT", "new", bodyOf(65_536))).status).toBe(201);
    // Nothing else is as narrow: it takes what a client may send.
    const ask = { model: "m", messages: [{ role: "user", content: "x".repeat(70_000) }] };
    expect((await call(self.running.admin, "POST", "/admin/explain", ask)).status).toBe(200);
  });

  it("names all mistakes at once, and changes nothing by them", async () => {
    const self = await staffed([serve]);
    const wrong = { url: "ftp://x", weight: 0, max_in_flight: "many", models: [], colour: "red" };
    const answer = await at(self, "PUT", "w0", wrong);
    expect(answer).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_worker", type: "invalid_request_error" } },
    });
    const lines: string[] = answer.body.error.message.split("\n");
    expect(lines.length).toBeGreaterThanOrEqual(5);
    for (const name of ["url", "weight", "max_in_flight", "models", "colour"])
      expect(answer.body.error.message).toContain(name);
    expect((await at(self, "GET", "w0")).body).toMatchObject({
      source: "config",
      state: "ready",
      weight: 100,
    });
  });

  it.each([
    ["nothing", ""],
    ["no mapping", "[]"],
    ["no JSON and no YAML", "{"],
    ["no url", "{}"],
    ["a url that is none", '{"url":"nonsense"}'],
    ["an id of its own", '{"id":"x","url":"http://127.0.0.1:1"}'],
  ])("is refused with %s", async (_name, body) => {
    const self = await staffed([serve]);
    const answer = await at(self, "PUT", "new", body);
    expect(answer).toMatchObject({ status: 400, body: { error: { code: "invalid_worker" } } });
    expect(answer.body.error.message).not.toBe("");
    expect((await at(self, "GET", "new")).status).toBe(404);
    expect(await self.say()).toBe("200 w0 place");
  });

  it.each([
    "a%2Fb",
    "100%25",
    "..%2f..",
    "%22quoted%22",
    "a%3Fb%23c",
    "~!*'();:@&=+$,",
    "%5B::1%5D:80",
    "x".repeat(128),
    "%78".repeat(128),
    "%25".repeat(128),
  ])("takes the id %s, shows it, drains and removes it", async (encoded) => {
    const self = await staffed([serve]);
    const id = decodeURIComponent(encoded);
    const { url } = await late();
    expect(await at(self, "PUT", encoded, { url })).toMatchObject({ status: 201, body: { id } });
    await ready(self, id);
    expect(await at(self, "GET", encoded)).toMatchObject({ status: 200, body: { id, state: "ready" } });
    const drained = await call(self.running.admin, "POST", `/admin/workers/${encoded}/drain`);
    expect(drained).toMatchObject({ status: 200, body: { id, state: "draining" } });
    const back = await call(self.running.admin, "DELETE", `/admin/workers/${encoded}/drain`);
    expect(back).toMatchObject({ status: 200, body: { id, state: "ready" } });
    expect(await at(self, "DELETE", encoded)).toMatchObject({ status: 200, body: { id, state: "gone" } });
    expect((await at(self, "GET", encoded)).status).toBe(404);
  });

  it.each(["a%20b", "%C3%BC", "a%0Ab", "%00", "%7F"])("refuses the id %s", async (encoded) => {
    const self = await staffed([serve]);
    const answer = await at(self, "PUT", encoded, { url: "http://127.0.0.1:1" });
    expect(answer).toMatchObject({ status: 400, body: { error: { code: "invalid_worker" } } });
    expect(answer.body.error.message).toContain("1 to 128 printable ASCII characters");
  });

  it("refuses an id that is longer, or cannot be decoded, in its own shape", async () => {
    const self = await staffed([serve]);
    for (const id of ["x".repeat(129), "%zz", ""]) {
      const answer = await at(self, "PUT", id, { url: "http://127.0.0.1:1" });
      expect([400, 404, 414]).toContain(answer.status);
      expect(answer.body.error.type).toBe("invalid_request_error");
    }
  });

  it("is nothing that a gateway without a reader knows", async () => {
    const self = await crew([serve]);
    expect(await at(self, "PUT", "new", { url: "http://127.0.0.1:1" })).toMatchObject({
      status: 404,
      body: { error: { code: "unknown_path" } },
    });
  });
});

describe("the paths of workers", () => {
  it.each([
    ["GET", "/admin/workers"],
    ["GET", "/admin/workers/w0"],
    ["PUT", "/admin/workers/w0"],
    ["DELETE", "/admin/workers/w0"],
    ["POST", "/admin/workers/w0/drain"],
    ["DELETE", "/admin/workers/w0/drain"],
  ])("know no parameter that would change nothing: %s %s", async (method, path) => {
    const self = await staffed([serve]);
    const body = method === "PUT" ? { url: self.upstreams[0]!.url, weight: 7 } : undefined;
    const answer = await call(self.running.admin, method, `${path}?force=1`, body);
    expect(answer).toMatchObject({ status: 400, body: { error: { code: "invalid_query" } } });
    expect(answer.body.error.message).toContain('there is no parameter "force" here');
    expect((await at(self, "GET", "w0")).body).toMatchObject({ state: "ready", weight: 100 });
  });

  it("tell what is not there", async () => {
    const self = await staffed([serve]);
    for (const method of ["GET", "DELETE"]) {
      const answer = await at(self, method, "w9");
      expect(answer).toMatchObject({
        status: 404,
        body: { error: { code: "unknown_worker", message: 'there is no worker "w9"' } },
      });
    }
  });

  it.each([
    ["POST", "/admin/workers"],
    ["PUT", "/admin/workers"],
    ["DELETE", "/admin/workers"],
    ["POST", "/admin/workers/w0"],
    ["PATCH", "/admin/workers/w0"],
    ["GET", "/admin/workers/w0/drain"],
    ["PUT", "/admin/workers/w0/drain"],
    ["POST", "/admin/workers/w0/resume"],
  ])("know no %s %s", async (method, path) => {
    const self = await staffed([serve]);
    const answer = await call(self.running.admin, method, path);
    expect(answer).toMatchObject({ status: 404, body: { error: { code: "unknown_path" } } });
    expect((await at(self, "GET", "w0")).body).toMatchObject({ state: "ready" });
  });

  it("want the token where there is one, for whatever is asked", async () => {
    const token = "a-token-of-16-chars";
    const self = await staffed([serve], { adminToken: token });
    const calls = [
      ["GET", "/admin/workers"],
      ["GET", "/admin/workers/w0"],
      ["PUT", "/admin/workers/new"],
      ["DELETE", "/admin/workers/w0"],
      ["POST", "/admin/workers/w0/drain"],
      ["DELETE", "/admin/workers/w0/drain"],
    ] as const;
    for (const [method, path] of calls) {
      const body = method === "PUT" ? { url: "http://127.0.0.1:1" } : undefined;
      const answer = await call(self.running.admin, method, path, body);
      expect(answer).toMatchObject({ status: 401, body: { error: { code: "unauthorized" } } });
    }
    expect([...self.running.router.workers].map(({ id }) => id)).toEqual(["w0"]);
    expect(await self.say()).toBe("200 w0 place");
    const headers = { authorization: `Bearer ${token}` };
    const drained = await call(self.running.admin, "POST", "/admin/workers/w0/drain", "", headers);
    expect(drained.status).toBe(200);
  });

  it("refuse a page of another origin in a browser on this machine, whatever it sends, without a token", async () => {
    const self = await staffed([serve]);
    const { host } = new URL(self.running.admin);
    const calls = [
      ["POST", "/admin/workers/w0/drain"],
      ["DELETE", "/admin/workers/w0"],
      ["DELETE", "/admin/workers/w0/drain"],
      ["PUT", "/admin/workers/new"],
      ["GET", "/admin/workers"],
    ] as const;
    const foreign = [
      "http://evil.example",
      "null",
      "http://localhost:1",
      `https://${host}`,
      `http://${host}.evil.example`,
      "",
    ];
    for (const origin of foreign) {
      for (const [method, path] of calls) {
        const answer = await call(self.running.admin, method, path, "", { origin });
        expect(answer).toMatchObject({ status: 403, body: { error: { code: "strange_origin" } } });
      }
    }
    expect((await at(self, "GET", "w0")).body).toMatchObject({ state: "ready" });
    const own = await call(self.running.admin, "POST", "/admin/workers/w0/drain", "", {
      origin: `http://${host}`,
    });
    expect(own.status).toBe(200);
  });
});

describe("GET /admin/workers", () => {
  it("shows all that is known of a worker, and how old it is (F9)", async () => {
    const clock = new VirtualClock();
    const self = await staffed([inTurn(refuse(500), serve), serve], { clock, allowPin: true });
    const engine = await probed();
    engine.pages["/metrics"] = [200, "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n"];
    await at(self, "PUT", "engine", { url: engine.url });
    await ready(self, "engine");
    await until(() => self.worker("engine").report.queueDepth === 2);
    for (let i = 0; i < 2; i++) await self.say("a", {}, { "x-hawser-pin": "w0" });
    clock.advance(1_500);
    const { body } = await call(self.running.admin, "GET", "/admin/workers");
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(body.workers[0]).toEqual({
      ...{ id: "w0", url: self.upstreams[0]!.url, source: "config" },
      ...{ state: "ready", since: time, reason: "it answers", eligible: true },
      ...{ models: ["m"], weight: 100, max_num_seqs: null, max_in_flight: null },
      ...{ active_requests: 0, bound_sessions: 1, held_off_ms: 0, slow_start_limit: null, drain_ms: null },
      restarted: null,
      breaker: {
        ...{ state: "closed", since: time, why: "status 500", open_until: null },
        ...{ successes: 1, failures: 1, failures_in_a_row: 0 },
      },
      signals: {
        ...{ running: null, waiting: null, kv_used: null, elsewhere: 0, kv_blocks: null, block_tokens: null },
        age_ms: null,
        error: {
          message: "its answer to GET /metrics has none of the metrics that are known",
          age_ms: 1_500,
        },
      },
      columns: expect.objectContaining({ eligible: 1, active_requests: 0, queue_depth: -1, kv_used: -1 }),
    });
    expect(body.workers[2]).toMatchObject({
      ...{ id: "engine", source: "admin", state: "ready" },
      signals: { running: 3, waiting: 2, elsewhere: 5, age_ms: 1_500, error: null },
      columns: { active_requests: 5, queue_depth: 2 },
    });
    expect(body).toMatchObject({ discovery: [], queue: { waiting: {}, refused: 0, expired: 0 } });
    // A state that began a while ago says so.
    const age = Date.now() - Date.parse(body.workers[0].since);
    expect(age).toBeGreaterThanOrEqual(1_400);
  });

  it("shows how many wait for which model", async () => {
    const self = await staffed([hold], { maxInFlight: 1, admission: { queue: 2 } });
    const said = [self.say("a"), self.say("b"), self.say("c")];
    await until(() => self.waiting === 2);
    expect(await self.say("d")).toMatch(/^429 /);
    const { body } = await call(self.running.admin, "GET", "/admin/workers");
    expect(body).toMatchObject({
      queue: { waiting: { m: 2 }, refused: 1, expired: 0 },
      workers: [{ id: "w0", eligible: false, active_requests: 1, max_in_flight: 1 }],
    });
    for (let i = 0; i < 3; i++) {
      await until(() => self.asked.length > i);
      serve(self.asked[i]!);
    }
    await Promise.all(said);
  });

  it("shows no API key, neither of a worker nor in what it refuses", async () => {
    const self = await staffed([serve], { apiKeys: new Map([["w0", "sk-very-secret-0"]]) });
    const { url } = await late();
    const answer = await at(self, "PUT", "new", { url, api_key: "sk-very-secret" });
    expect(answer.status).toBe(400);
    const { body } = await call(self.running.admin, "GET", "/admin/workers");
    expect(JSON.stringify([answer, body])).not.toContain("sk-very-secret");
  });
});

it("a worker that is removed and put again begins anew, with its sessions placed wherever they come", async () => {
  const self = await staffed([serve, serve]);
  self.bind("w0", "a");
  self.bind("w1", "b");
  const { url } = self.upstreams[0]!;
  expect(await at(self, "DELETE", "w0")).toMatchObject({ body: { state: "gone", active_requests: 0 } });
  expect((await at(self, "PUT", "w0", { url })).status).toBe(201);
  await ready(self, "w0");
  expect((await at(self, "GET", "w0")).body).toMatchObject({ source: "admin", bound_sessions: 0 });
  expect(await self.say("b")).toBe("200 w1 keep");
  expect(await self.say("a")).toMatch(/^200 w[01] place$/);
  expect((await post(self.running.url + CHAT, { model: "m" })).status).toBe(200);
});
