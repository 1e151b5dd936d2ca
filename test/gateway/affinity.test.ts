// Which session a request belongs to and where that lives, through a running gateway on real sockets.
import type { ServerResponse } from "node:http";
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { RequestReader } from "../../host/session/request-reader.js";
import { DEFAULT_SOURCES } from "../../host/session/sources.js";
import { open, post, text } from "./client.js";
import { gateway, inFlight, type RunningGateway, stop, until, upstream } from "./fixture.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [{ role: "user", content: "Hello" }] };

/** Workers that answer every POST with `{}`. */
async function fleetOf(count: number, options: object = {}): Promise<RunningGateway> {
  const workers = await Promise.all(
    Array.from({ length: count }, () => upstream((_request, response) => response.end("{}"))),
  );
  return gateway({ urls: workers.map(({ url }) => url), ...options });
}

/** Who answered a request and why: `w0 place`. */
async function turn(
  { url }: RunningGateway,
  headers: Record<string, string>,
  body: object = ask,
  path = CHAT,
): Promise<string> {
  const reply = await post(url + path, body, headers);
  if (reply.status !== 200) return `${reply.status} ${reply.body}`;
  return `${reply.headers["x-hawser-worker"]} ${reply.headers["x-hawser-decision"]}`;
}

describe("whose session it is", () => {
  it("takes the sources in the order that is configured, under every policy (B2)", async () => {
    for (const policy of ["sticky", "soft-affinity-load-guard", "affinity-break-margin"]) {
      const reader = new RequestReader({ sources: [{ body: "rid" }, { header: "x-session-id" }] });
      const running = await fleetOf(1, { reader, policy });
      const both = { ...ask, rid: "b" };
      expect(await turn(running, { "x-session-id": "h" }, both)).toBe("w0 place");
      expect(await turn(running, { "x-session-id": "other" }, both)).toBe("w0 keep");
      expect(await turn(running, { "x-session-id": "b" })).toBe("w0 keep");
    }
  });

  it.each([
    ["prompt_cache_key", { prompt_cache_key: "k" }],
    ["conversation", { conversation: "k" }],
    ["conversation.id", { conversation: { id: "k" } }],
    ["metadata.user_id", { metadata: { user_id: "k" } }],
    ["user", { user: "k" }],
  ])("needs no header: %s of the body (B11)", async (_name, member) => {
    const running = await fleetOf(2, { policy: "least-loaded" });
    for (const decision of ["place", "keep"]) {
      const reply = await turn(running, {}, { ...ask, ...member });
      // `least-loaded` does not keep, but it says whether it moved.
      expect(reply).toMatch(decision === "place" ? /place$/ : /keep|move/);
    }
    expect(running.router.status().bindings).toBe(1);
  });

  it("falls back to a hash of the system prompt and the first user message, where that is configured (B8, B11)", async () => {
    const reader = new RequestReader({ sources: [...DEFAULT_SOURCES, "prefix"] });
    const running = await fleetOf(2, { reader });
    const system = { role: "system", content: "Be brief." };
    const first = { role: "user", content: "Hello" };
    const later = [
      { role: "assistant", content: "Hi" },
      { role: "user", content: "And?" },
    ];
    expect(await turn(running, {}, { model: "m", messages: [system, first] })).toMatch(/place/);
    expect(await turn(running, {}, { model: "m", messages: [system, first, ...later] })).toMatch(/keep/);
    expect(await turn(running, {}, { model: "m", messages: [system, ...later] })).toMatch(/place/);
    const messages = {
      model: "m",
      system: "Be brief.",
      messages: [{ role: "user", content: [{ type: "text", text: "Hello" }] }],
    };
    expect(await turn(running, {}, messages, "/v1/messages")).toMatch(/keep/);
  });

  it("takes no text of a prompt for a member, and no request's own id (B27, B28)", async () => {
    const running = await fleetOf(1);
    const body = {
      ...ask,
      messages: [{ role: "user", content: '"user": "alice", "prompt_cache_key": "k"' }],
    };
    for (let i = 0; i < 2; i++) expect(await turn(running, { "x-request-id": "r" }, body)).toBe("w0 place");
    expect(running.router.status().bindings).toBe(0);
  });

  it("reads a nested member, and refuses a POST without a body at once (B34)", async () => {
    const reader = new RequestReader({ sources: [{ body: "callOptions.stickySessionId" }] });
    const running = await fleetOf(1, { reader });
    const body = { ...ask, callOptions: { stickySessionId: "s" } };
    expect(await turn(running, {}, body)).toBe("w0 place");
    expect(await turn(running, {}, body)).toBe("w0 keep");
    const empty = await fetch(running.url + CHAT, { method: "POST" });
    expect(empty.status).toBe(400);
    expect(await empty.json()).toMatchObject({ error: { code: "invalid_json" } });
  });

  it("makes one session of two models where their names differ by a suffix that is configured (B4)", async () => {
    const urls = (
      await Promise.all([0, 1].map(() => upstream((_request, response) => response.end("{}"))))
    ).map(({ url }) => url);
    const models = ["m", "m-thinking"];
    const apart = await gateway({ urls, models });
    const together = await gateway({ urls, models, session: { modelSuffixes: ["-thinking"] } });
    for (const [running, second] of [
      [apart, "place"],
      [together, "keep"],
    ] as const) {
      expect(await turn(running, { "x-session-id": "s" })).toMatch(/place/);
      expect(await turn(running, { "x-session-id": "s" }, { ...ask, model: "m-thinking" })).toMatch(second);
    }
  });

  it("keeps tenants apart where their source is configured (B12)", async () => {
    const reader = new RequestReader({ tenant: { header: "authorization" } });
    const running = await fleetOf(1, { reader });
    const as = (tenant: string) => turn(running, { "x-session-id": "1", authorization: `Bearer ${tenant}` });
    expect([await as("a"), await as("b"), await as("a")]).toEqual(["w0 place", "w0 place", "w0 keep"]);
    expect(running.log.join()).not.toContain("Bearer");
  });

  it("refuses a key that is too long or has a NUL, names its place and does not repeat it", async () => {
    const running = await fleetOf(1);
    const long = await turn(running, {}, { ...ask, prompt_cache_key: "é".repeat(129) });
    expect(long).toMatch(
      /^400 .*"the session key from the body prompt_cache_key has more than the 256 bytes allowed"/,
    );
    expect(long).toContain("session_key_too_long");
    expect(await turn(running, { "x-session-id": "k".repeat(257) })).toContain("the header x-session-id");
    expect(await turn(running, {}, { ...ask, user: "a\0b" })).toContain("session_key_invalid");
    expect(await turn(running, { "x-session-id": "k".repeat(256) })).toBe("w0 place");
  });
});

describe("previous_response_id", () => {
  /** A worker of the Responses API that answers with `id`, streaming where it is asked to. */
  const responder = (ids: string[]) =>
    upstream((_request, response, body) => {
      const id = ids.shift() ?? "resp_x";
      if (!JSON.parse(body.toString()).stream) {
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify({ object: "response", id, output: [] }));
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      const created = JSON.stringify({ type: "response.created", response: { id, object: "response" } });
      response.write(`event: response.created\ndata: ${created.slice(0, 40)}`);
      setImmediate(() => response.end(`${created.slice(40)}\n\nevent: response.completed\ndata: {}\n\n`));
    });

  it.each([false, true])("stands for the session of the answer, a stream: %s", async (stream) => {
    const ids = ["resp_1", "resp_2", "resp_3"];
    const running = await gateway({ urls: [(await responder(ids)).url, (await responder(ids)).url] });
    const say = (member: object, headers: Record<string, string> = {}) =>
      turn(running, headers, { model: "m", input: "Hello", stream, ...member }, "/v1/responses");
    const first = await say({}, { "x-session-id": "s" });
    expect(await say({ previous_response_id: "resp_1" })).toBe(first.replace("place", "keep"));
    expect(await say({ previous_response_id: "resp_2" })).toBe(first.replace("place", "keep"));
    expect(running.router.status().bindings).toBe(1);
    expect(running.router.sessions(10).views).toMatchObject([{ turns: 3 }]);
    expect(await say({ previous_response_id: "resp_unknown" })).toMatch(/place/);
    expect(await say({ previous_response_id: "resp_unknown", user: "s" })).toBe(
      first.replace("place", "keep"),
    );
  });

  it("holds a conversation together that names no session at all, with OpenAI's client", async () => {
    const ids = ["resp_1", "resp_2"];
    const running = await gateway({ urls: [(await responder(ids)).url, (await responder(ids)).url] });
    const client = new OpenAI({ baseURL: `${running.url}/v1`, apiKey: "none" });
    const workerOf = async (previous?: string) => {
      const asked = client.responses.create({
        model: "m",
        input: "Hello",
        previous_response_id: previous ?? null,
      });
      const { data, response } = await asked.withResponse();
      return [data.id, response.headers.get("x-hawser-worker"), response.headers.get("x-hawser-decision")];
    };
    const [id, worker] = await workerOf();
    expect(await workerOf(id!)).toEqual(["resp_2", worker, "keep"]);
  });

  it("means nothing where the answer was an error, nor to other tenants", async () => {
    const reader = new RequestReader({ tenant: { header: "x-tenant" } });
    const running = await gateway({ urls: [(await responder(["resp_1"])).url], reader });
    const say = (member: object, headers: Record<string, string>) =>
      turn(running, headers, { model: "m", input: "Hello", ...member }, "/v1/responses");
    await say({}, { "x-session-id": "s", "x-tenant": "a" });
    expect(await say({ previous_response_id: "resp_1" }, { "x-tenant": "b" })).toBe("w0 place");
    expect(await say({ previous_response_id: "resp_1" }, { "x-tenant": "a" })).toBe("w0 keep");
  });
});

describe("headers of the gateway's own", () => {
  it("let one request be sticky over a policy that is not, and one not be (B5, B6)", async () => {
    const running = await fleetOf(2, { policy: "round-robin", allowAffinityHeader: true });
    const say = (affinity: string) => turn(running, { "x-session-id": "s", "x-hawser-affinity": affinity });
    const first = await say("session");
    expect(first).toMatch(/place/);
    for (let i = 0; i < 3; i++) expect(await say("session")).toBe(first.replace("place", "hard"));
    const free = new Set([await say("off"), await say("off")]);
    expect(free).toEqual(new Set(["w0 place", "w1 place"]));
    expect(running.router.sessions(10).views).toMatchObject([{ turns: 4, moves: 0 }]);
    expect(await say("sticky")).toMatch(/^400 .*x-hawser-affinity must be off, session or parent-group/);
  });

  it("bind all children of one parent where one of them asks for it", async () => {
    const running = await fleetOf(2, { policy: "round-robin", allowAffinityHeader: true });
    const child = (agent: string) =>
      turn(running, {
        "x-claude-code-session-id": "c",
        "x-claude-code-agent-id": agent,
        "x-hawser-affinity": "parent-group",
      });
    const first = await child("a1");
    for (const agent of ["a2", "a3"]) expect(await child(agent)).toBe(first.replace("place", "hard"));
    expect(running.router.sessions(10).views).toMatchObject([{ kind: "parent-group", turns: 3 }]);
  });

  it("choose the worker, but never against the session", async () => {
    const running = await fleetOf(2, { allowPin: true });
    const pinned = (worker: string, key: string) =>
      turn(running, { "x-session-id": key, "x-hawser-pin": worker });
    expect(await pinned("w1", "s")).toBe("w1 explicit");
    expect(await turn(running, { "x-session-id": "s" })).toBe("w1 keep");
    expect(await pinned("w0", "s")).toMatch(/^400 .*"pin_conflict"/);
    expect(await pinned("w7", "t")).toMatch(/^400 .*the model has no worker \\"w7\\" to pin the request to/);
    running.router.status();
    const [, w1] = [...running.router.workers];
    w1!.ready = false;
    expect(await pinned("w1", "s")).toMatch(/^503 .*not eligible/);
    expect(await pinned("w0", "s")).toBe("w0 explicit");
    expect(await turn(running, { "x-session-id": "s" })).toBe("w0 keep");
  });

  it("count for nothing where they are not allowed, and reach no worker", async () => {
    const seen: string[] = [];
    const worker = await upstream((request, response) => {
      seen.push(...request.rawHeaders);
      response.end("{}");
    });
    const running = await gateway({ urls: [worker.url] });
    const headers = { "x-session-id": "s", "x-hawser-pin": "w7", "x-hawser-affinity": "nonsense" };
    expect(await turn(running, headers)).toBe("w0 place");
    expect(seen.join()).not.toMatch(/x-hawser/i);
  });
});

describe("mode hard", () => {
  const hard = { policy: "least-loaded", session: { mode: "hard" } } as const;

  it("keeps whatever the policy thinks, with the decision `hard`", async () => {
    const running = await fleetOf(2, hard);
    const first = await turn(running, { "x-session-id": "s" });
    const held = [...running.router.workers].find(({ id }) => first.startsWith(id))!;
    held.addRequests(50);
    expect(await turn(running, { "x-session-id": "s" })).toBe(first.replace("place", "hard"));
    held.addRequests(-50);
  });

  it.each([429, 502, 503, 504])(
    "has a session whose worker answers %s placed anew in the same request, once (B7, B13)",
    async (status) => {
      let refused = 0;
      let failing = false;
      const workers = await Promise.all(
        [0, 1].map(() =>
          upstream((_request, response) => {
            if (failing) {
              refused++;
              response.writeHead(status, { "retry-after": "5" });
            }
            response.end("{}");
          }),
        ),
      );
      const running = await gateway({ urls: workers.map(({ url }) => url), ...hard });
      const first = await turn(running, { "x-session-id": "s" });
      failing = true;
      expect(await turn(running, { "x-session-id": "s" })).toMatch(new RegExp(`^${status} `));
      expect(refused).toBe(2);
      expect(inFlight(running.router)).toBe(0);
      failing = false;
      expect(await turn(running, { "x-session-id": "s" })).toMatch(/ (hard|place)$/);
      expect(first).toMatch(/place/);
    },
  );

  it("moves the session to the worker that takes it when its own turns it away", async () => {
    const busy = new Set<number>();
    const workers = await Promise.all(
      [0, 1, 2].map((i) =>
        upstream((_request, response) => {
          if (busy.has(i)) response.statusCode = 503;
          response.end("{}");
        }),
      ),
    );
    const running = await gateway({ urls: workers.map(({ url }) => url), ...hard });
    const bound = Number((await turn(running, { "x-session-id": "s" })).charAt(1));
    busy.add(bound);
    const moved = await turn(running, { "x-session-id": "s" });
    expect(moved).toMatch(/^w\d place$/);
    expect(moved).not.toContain(`w${bound}`);
    busy.clear();
    expect(await turn(running, { "x-session-id": "s" })).toBe(moved.replace("place", "hard"));
  });

  it("goes elsewhere when the worker is gone, also in mid-answer of its head; a lone worker's failure is told", async () => {
    const workers = await Promise.all([0, 1].map(() => upstream((_request, response) => response.end("{}"))));
    const running = await gateway({ urls: workers.map(({ url }) => url), ...hard });
    const bound = Number((await turn(running, { "x-session-id": "s" })).charAt(1));
    await stop(workers[bound]!.server);
    expect(await turn(running, { "x-session-id": "s" })).toBe(`w${1 - bound} place`);
    expect(running.log.join()).toMatch(/"session":"[0-9a-f]{16}","failed":\["w\d: .*ECONNREFUSED/);
    await stop(workers[1 - bound]!.server);
    expect(await turn(running, { "x-session-id": "s" })).toMatch(/^50[23] /);
    expect(inFlight(running.router)).toBe(0);
  });

  it("is not what soft does: without retries a failure is the client's to see, and the binding stays (B16)", async () => {
    let failing = false;
    const worker = () =>
      upstream((_request, response) => {
        if (failing) response.statusCode = 503;
        response.end("{}");
      });
    const urls = [(await worker()).url, (await worker()).url];
    const running = await gateway({ urls, retries: { attempts: 1 } });
    const first = await turn(running, { "x-session-id": "s" });
    failing = true;
    expect(await turn(running, { "x-session-id": "s" })).toMatch(/^503 /);
    failing = false;
    expect(await turn(running, { "x-session-id": "s" })).toBe(first.replace("place", "keep"));
  });
});

describe("parallel first requests", () => {
  it("go elsewhere once the worker has turned one of them away, though others still wait for it", async () => {
    const waiting: ServerResponse[] = [];
    const workers = await Promise.all(
      [0, 1].map(() => upstream((_request, response) => void waiting.push(response))),
    );
    const running = await gateway({ urls: workers.map(({ url }) => url), retries: { attempts: 1 } });
    const ask1 = turn(running, { "x-session-id": "s" });
    await until(() => waiting.length === 1);
    const ask2 = turn(running, { "x-session-id": "s" });
    await until(() => waiting.length === 2);
    waiting[0]!.writeHead(503).end();
    expect(await ask1).toMatch(/^503/);
    const ask3 = turn(running, { "x-session-id": "s" });
    await until(() => waiting.length === 3);
    for (const response of waiting.slice(1)) response.end("{}");
    const [second, third] = [await ask2, await ask3];
    expect(second).toMatch(/keep$/);
    expect(third).toMatch(/place$/);
    expect(third[1]).not.toBe(second[1]);
  });

  it.each([false, true])(
    "fifty of one key land on one worker, though half of them are cancelled; streaming: %s (B17, B18, B19)",
    async (stream) => {
      const waiting: { worker: number; response: ServerResponse }[] = [];
      const workers = await Promise.all(
        [0, 1, 2].map((worker) =>
          upstream((_request, response) => {
            waiting.push({ worker, response });
            if (!stream) return;
            response.writeHead(200, { "content-type": "text/event-stream" });
            response.flushHeaders();
          }),
        ),
      );
      const running = await gateway({ urls: workers.map(({ url }) => url) });
      const aborts = Array.from({ length: 50 }, () => new AbortController());
      const replies = aborts.map(({ signal }) =>
        fetch(running.url + CHAT, {
          method: "POST",
          headers: { "x-session-id": "s" },
          body: JSON.stringify({ ...ask, stream }),
          signal,
        }).then(async (response) => [response.headers.get("x-hawser-worker"), await response.text()]),
      );
      const settled = Promise.allSettled(replies);
      await until(() => waiting.length === 50);
      expect(inFlight(running.router)).toBe(50);
      // The first, which chose the worker, among them.
      const cancelled = aborts.filter((_, i) => i % 2 === 0);
      for (const abort of cancelled) abort.abort();
      await until(() => inFlight(running.router) === 25);
      for (const { response } of waiting) if (!response.destroyed) response.end("data: x\n\n");
      const served = (await settled).flatMap((reply) =>
        reply.status === "fulfilled" ? [reply.value[0]] : [],
      );
      expect(served.length).toBe(25);
      expect(new Set(served).size).toBe(1);
      expect(new Set(waiting.map(({ worker }) => worker)).size).toBe(1);
      await until(() => inFlight(running.router) === 0);
      expect(running.router.sessions(10).views).toMatchObject([{ worker: served[0], moves: 0, leases: 0 }]);
      expect(await turn2(running)).toBe(`${served[0]} keep`);
      async function turn2({ url }: RunningGateway): Promise<string> {
        const next = open(url + CHAT, ask, { "x-session-id": "s" });
        await until(() => waiting.length === 51);
        waiting[50]!.response.end("{}");
        const reply = await next;
        await text(reply);
        return `${reply.headers["x-hawser-worker"]} ${reply.headers["x-hawser-decision"]}`;
      }
    },
  );
});
