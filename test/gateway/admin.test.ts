// The admin listener of a running gateway, over real sockets.
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import type { BindingView } from "../../host/index.js";
import { RequestReader } from "../../host/session/request-reader.js";
import { open, post } from "./client.js";
import { gateway, inFlight, type RunningGateway, until, upstream } from "./fixture.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [] };

/** The id of a session: what `printf 'm\0\0key' | sha256sum | cut -c1-16` prints. */
function idOf(key: string, tenant = ""): string {
  return createHash("sha256").update(`m\0${tenant}\0${key}`).digest("hex").slice(0, 16);
}

async function call(
  { admin }: RunningGateway,
  path: string,
  init: RequestInit = {},
  // biome-ignore lint/suspicious/noExplicitAny: any JSON
): Promise<{ status: number; headers: Headers; body: any }> {
  const response = await fetch(admin + path, init);
  return { status: response.status, headers: response.headers, body: await response.json() };
}

async function sessions(running: RunningGateway, query = ""): Promise<readonly BindingView[]> {
  return (await call(running, `/admin/sessions${query}`)).body.sessions;
}

const worker = () => upstream((_request, response) => response.end("{}"));

async function fleetOf(count: number, options: object = {}): Promise<RunningGateway> {
  const workers = await Promise.all(Array.from({ length: count }, worker));
  return gateway({ urls: workers.map(({ url }) => url), ...options });
}

const turn = (running: RunningGateway, key: string, headers: Record<string, string> = {}) =>
  post(running.url + CHAT, ask, { "x-session-id": key, ...headers });

describe("GET /admin/sessions", () => {
  it("shows what is bound, where, since when and why, by the hash that sha256sum prints", async () => {
    const running = await fleetOf(2);
    for (const key of ["s", "s", "t"]) await turn(running, key);
    const found = await call(running, `/admin/sessions/${idOf("s")}`);
    expect(found.status).toBe(200);
    expect(found.body).toEqual({
      id: idOf("s"),
      kind: "session",
      worker: expect.stringMatching(/^w[01]$/),
      age_s: expect.any(Number),
      idle_ms: expect.any(Number),
      leases: 0,
      turns: 2,
      moves: 0,
      why: "place",
      ending: false,
    });
    expect((await sessions(running)).map(({ id }) => id).sort()).toEqual([idOf("s"), idOf("t")].sort());
    expect(JSON.stringify(await sessions(running))).not.toContain('"s"');
  });

  it("pages, and lists those of one worker", async () => {
    const running = await fleetOf(2, { policy: "round-robin" });
    for (let i = 0; i < 7; i++) await turn(running, `s${i}`);
    const seen: string[] = [];
    let cursor: string | null = "0";
    while (cursor !== null) {
      const { body } = await call(running, `/admin/sessions?limit=3&cursor=${cursor}`);
      expect(body.sessions.length).toBeLessThanOrEqual(3);
      seen.push(...body.sessions.map(({ id }: BindingView) => id));
      cursor = body.next_cursor;
    }
    expect(new Set(seen).size).toBe(7);
    expect(seen.length).toBe(7);
    const [some, others] = [await sessions(running, "?worker=w0"), await sessions(running, "?worker=w1")];
    expect([some.length, others.length].sort()).toEqual([3, 4]);
    expect(some.every(({ worker }) => worker === "w0")).toBe(true);
  });

  it("finds a raw key, of a model or of all, of a tenant", async () => {
    const reader = new RequestReader({ tenant: { header: "x-tenant" } });
    const running = await fleetOf(1, { reader });
    await turn(running, "a&b", { "x-tenant": "t" });
    const found = await sessions(running, "?key=a%26b&tenant=t");
    expect(found.map(({ id }) => id)).toEqual([idOf("a&b", "t")]);
    expect(await sessions(running, "?key=a%26b&model=m&tenant=t")).toHaveLength(1);
    expect(await sessions(running, "?key=a%26b")).toEqual([]);
    expect(await sessions(running, "?key=a%26b&model=x&tenant=t")).toEqual([]);
  });

  it("finds the children of a parent by its raw key, which are bound together", async () => {
    const running = await fleetOf(2, { session: { binding: "parent-group" } });
    for (const child of ["c1", "c2"]) await turn(running, child, { "x-parent-session-id": "p" });
    await turn(running, "p");
    expect(await sessions(running, "?parent=p")).toMatchObject([{ kind: "parent-group", turns: 2 }]);
    expect(await sessions(running, "?key=p")).toMatchObject([{ kind: "session", turns: 1 }]);
    expect(await sessions(running, "?key=p&parent=p")).toHaveLength(2);
    expect(await sessions(running, "?key=c1")).toEqual([]);
  });

  it.each([
    ["/admin/sessions?model=m", 400, 'there is no parameter "model" here, allowed are worker, limit, cursor'],
    [
      "/admin/sessions?key=s&limit=1",
      400,
      'there is no parameter "limit" here, allowed are key, parent, model, tenant',
    ],
    ["/admin/sessions?limit=1&limit=2", 400, "the parameter limit is given more than once"],
    ["/admin/sessions?limit=0", 400, 'limit must be a whole number from 1 to 1000, found "0"'],
    ["/admin/sessions?cursor=x", 400, 'cursor must be a whole number from 0 to 2147483647, found "x"'],
    ["/admin/sessions?worker=w9", 404, 'there is no worker "w9"'],
    [`/admin/sessions?key=${"k".repeat(257)}`, 400, "a session key has 1 to 256 bytes, found 257"],
    ["/admin/sessions/0123456789abcdef", 404, "no such session is bound"],
    ["/admin/sessions/nonsense", 404, "no such session is bound"],
    ["/admin/nothing", 404, "there is no GET /admin/nothing"],
  ])("refuses %s", async (path, status, message) => {
    const reply = await call(await fleetOf(1), path);
    expect(reply.status).toBe(status);
    expect(reply.body.error.message).toBe(message);
  });
});

describe("DELETE /admin/sessions/{id}", () => {
  it("forgets an idle session at once", async () => {
    const running = await fleetOf(2);
    await turn(running, "s");
    const path = `/admin/sessions/${idOf("s")}`;
    expect((await call(running, path, { method: "DELETE" })).body).toEqual({ id: idOf("s"), state: "ended" });
    expect((await call(running, path)).status).toBe(404);
    expect((await call(running, path, { method: "DELETE" })).status).toBe(404);
    expect((await turn(running, "s")).headers["x-hawser-decision"]).toBe("place");
  });

  it("forgets one in use when its last request ends, as a client's own end does", async () => {
    const waiting: ServerResponse[] = [];
    const slow = await upstream((request, response) => {
      if (request.headers["x-slow"]) waiting.push(response);
      else response.end("{}");
    });
    const running = await gateway({ urls: [slow.url] });
    await turn(running, "s");
    const held = [turn(running, "s", { "x-slow": "1" }), turn(running, "s", { "x-slow": "1" })];
    await until(() => waiting.length === 2);
    const reply = await call(running, `/admin/sessions/${idOf("s")}`, { method: "DELETE" });
    expect(reply.body).toEqual({ id: idOf("s"), state: "ending" });
    waiting[0]!.end("{}");
    await until(() => inFlight(running.router) === 1);
    expect(await sessions(running)).toMatchObject([{ leases: 1, ending: true }]);
    waiting[1]!.end("{}");
    await Promise.all(held);
    await until(() => running.router.status().bindings === 0);
    await turn(running, "s", { "x-dynamo-session-final": "true" });
    await until(() => running.router.status().bindings === 0);
  });
});

describe("POST /admin/explain", () => {
  it("answers what would be chosen and why, and changes nothing", async () => {
    const running = await fleetOf(2, { policy: "round-robin" });
    await turn(running, "s");
    const before = [running.router.status(), running.router.session(idOf("s"))?.turns];
    const explain = (headers: Record<string, string>) =>
      call(running, "/admin/explain", { method: "POST", headers, body: JSON.stringify(ask) });
    const first = await explain({ "x-session-id": "s" });
    expect(first.status).toBe(200);
    expect(first.body).toMatchObject({
      worker: "w1",
      decision: "move_load",
      policy: "round-robin",
      key_source: "header x-session-id",
      session: idOf("s"),
      bound_to: "w0",
      binding: { id: idOf("s"), worker: "w0", turns: 1 },
      binds: true,
      candidates: [
        { worker: "w0", columns: { eligible: 1, active_requests: 0, bound_sessions: 1, weight: 100 } },
        { worker: "w1", columns: { eligible: 1, active_requests: 0, bound_sessions: 0, weight: 100 } },
      ],
    });
    expect((await explain({ "x-session-id": "s" })).body.worker).toBe("w1");
    expect(await explain({})).toMatchObject({
      body: { worker: "w1", key_source: null, session: null, binding: null, binds: false },
    });
    expect([running.router.status(), running.router.session(idOf("s"))?.turns]).toEqual(before);
    expect((await turn(running, "s")).headers["x-hawser-worker"]).toBe("w1");
  });

  it("reads no tenant from the operator's token, and takes the client's as a parameter", async () => {
    const token = "a-token-of-16-chars";
    const reader = new RequestReader({ tenant: { header: "authorization" } });
    const running = await fleetOf(2, { adminToken: token, reader });
    await turn(running, "s", { authorization: "Bearer client" });
    const explain = (query: string) =>
      call(running, `/admin/explain${query}`, {
        ...{ method: "POST", body: JSON.stringify(ask) },
        headers: { authorization: `Bearer ${token}`, "x-session-id": "s" },
      });
    expect((await explain("?tenant=Bearer%20client")).body).toMatchObject({
      decision: "keep",
      session_by: "key",
    });
    expect((await explain("")).body).toMatchObject({ decision: "place", session: idOf("s"), bound_to: null });
    expect((await explain("?tenants=x")).status).toBe(400);
  });

  it("tells a new child's parent, and a session that an earlier answer named", async () => {
    const running = await fleetOf(3, { policy: "round-robin", session: { firstPlacement: "parent" } });
    await turn(running, "other");
    await turn(running, "p");
    running.router.acquire({ model: "m", key: "p" }).release();
    const explain = async (headers: Record<string, string>, member: object = {}) =>
      (
        await call(running, "/admin/explain", {
          method: "POST",
          headers,
          body: JSON.stringify({ ...ask, ...member }),
        })
      ).body;
    const child = await explain({ "x-session-id": "c", "x-parent-session-id": "p" });
    expect(child).toMatchObject({ bound_to: null, shown_bound_to: "w1", session_by: "key" });
    const lease = running.router.acquire({ model: "m", key: "p" });
    lease.commit();
    lease.alias("resp_1");
    lease.release();
    const named = await explain({}, { previous_response_id: "resp_1" });
    expect(named).toMatchObject({ session_by: "previous_response", session: idOf("p"), key_source: null });
  });

  it("says what the gateway would refuse, in the same words", async () => {
    const running = await fleetOf(1, { allowPin: true });
    const explain = (body: string, headers: Record<string, string> = {}) =>
      call(running, "/admin/explain", { method: "POST", headers, body });
    expect(await explain("{")).toMatchObject({ status: 400, body: { error: { code: "invalid_json" } } });
    expect(await explain("{}")).toMatchObject({ status: 400, body: { error: { code: "model_required" } } });
    const unknown = await explain('{"model":"x"}');
    expect(unknown).toMatchObject({ status: 404, body: { error: { code: "model_not_found" } } });
    const pinned = await explain('{"model":"m"}', { "x-hawser-pin": "w7" });
    expect(pinned).toMatchObject({ status: 400, body: { error: { code: "unknown_worker" } } });
  });
});

describe("GET /admin/workers", () => {
  it("shows state, counts and columns", async () => {
    const workers = await Promise.all([worker(), worker()]);
    const running = await gateway({
      urls: [...workers.map(({ url }) => url), "http://127.0.0.1:1"],
      health: { intervalMs: 20 },
    });
    await turn(running, "s");
    await until(() => running.log.some((line) => line.includes("worker is unhealthy")));
    const { body } = await call(running, "/admin/workers");
    expect(body.workers).toHaveLength(3);
    expect(body.workers[2]).toMatchObject({ id: "w2", state: "unhealthy", models: [], columns: null });
    const bound = body.workers.find((each: { bound_sessions: number }) => each.bound_sessions === 1);
    expect(bound).toMatchObject({
      state: "ready",
      reason: "it answers",
      models: ["m"],
      active_requests: 0,
      columns: { eligible: 1, active_requests: 0, bound_sessions: 1, weight: 100, slots: 0 },
    });
    expect(bound.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  });
});

describe("who may ask", () => {
  it("wants the token where there is one, and tells nothing without it", async () => {
    const running = await fleetOf(1, { adminToken: "a-token-of-16-chars" });
    for (const authorization of [
      undefined,
      "Bearer wrong",
      "Basic a-token-of-16-chars",
      "a-token-of-16-chars",
    ]) {
      const reply = await call(running, "/admin/workers", {
        headers: authorization ? { authorization } : {},
      });
      expect(reply.status).toBe(401);
      expect(reply.headers.get("www-authenticate")).toBe("Bearer");
      expect(JSON.stringify(reply.body)).not.toContain("a-token-of-16-chars");
    }
    const headers = { authorization: "Bearer a-token-of-16-chars" };
    expect((await call(running, "/admin/workers", { headers })).status).toBe(200);
  });

  it("without one answers only to names of this machine: no page in a browser gets through by a name of its own", async () => {
    const running = await fleetOf(1);
    const { port } = new URL(running.admin);
    const as = async (host: string) =>
      (await open(`${running.admin}/admin/explain`, ask, { host, "x-session-id": "s" })).statusCode;
    expect(await as(`evil.example:${port}`)).toBe(403);
    expect(await as("localhost.evil.example")).toBe(403);
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, "[::1]:80"])
      expect(await as(host)).toBe(200);
  });

  it("is not on the data plane", async () => {
    const running = await fleetOf(1);
    expect((await fetch(`${running.url}/admin/workers`)).status).toBe(404);
    expect((await fetch(`${running.admin}/v1/models`)).status).toBe(404);
  });

  it("answers what it cannot read in its own shape, whatever is sent with it", async () => {
    const running = await fleetOf(1);
    for (const path of ["/admin/sessions/%zz", `/admin/sessions/${"x".repeat(200)}`]) {
      const { status, body } = await call(running, path);
      expect([400, 404, 414]).toContain(status);
      expect(body.error).toMatchObject({ type: "invalid_request_error", message: expect.any(String) });
    }
    for (const type of ["", "nonsense", "text/plain", "application/json; charset=x"]) {
      const message = await open(`${running.admin}/admin/explain`, ask, { "content-type": type });
      expect(message.statusCode).toBe(200);
      message.destroy();
    }
  });

  it("cuts a caller that is refused and goes on sending", { timeout: 60_000 }, async () => {
    const running = await fleetOf(1, { adminToken: "a-token-of-16-chars" });
    const { hostname, port } = new URL(running.admin);
    const socket = connect(Number(port), hostname);
    socket.on("error", () => {});
    socket.write("POST /admin/explain HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n");
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 401 /);
    const drip = setInterval(() => socket.write("x"), 100);
    await once(socket, "close");
    clearInterval(drip);
  });
});
