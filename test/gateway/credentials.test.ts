// Who shows what to a worker: the gateway its API key, a client its own credentials only where they are asked for.
import type { IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { CREDENTIALS } from "../../host/gateway/options.js";
import { APIS } from "./apis.js";
import { post } from "./client.js";
import { AN_HOUR } from "./fault-cells.js";
import {
  type Answer,
  type GatewayFixture,
  gateway,
  type RunningGateway,
  until,
  upstream,
} from "./fixture.js";

const KEY = "sk-worker-0";
const CLIENT = { authorization: "Bearer client", "x-api-key": "client-key", cookie: "sid=1; b=2" };
const ask = { model: "m", messages: [] };
const PATHS = APIS.map(({ path }) => path);
const CHAT = PATHS[0]!;

/** A worker, and the heads of the requests that it got; `lists` are those for its models. */
interface Recorded {
  readonly url: string;
  readonly posts: IncomingHttpHeaders[];
  readonly lists: IncomingHttpHeaders[];
  /** Names and values of the latest POST as they came. */
  raw: readonly string[];
}

async function recorded(answer: Answer = (_request, response) => response.end("{}")): Promise<Recorded> {
  const self: Recorded = { url: "", posts: [], lists: [], raw: [] };
  const { url, server } = await upstream((request, response, body) => {
    self.posts.push(request.headers);
    self.raw = request.rawHeaders;
    answer(request, response, body);
  });
  server.prependListener("request", (request) => {
    if (request.method === "GET") self.lists.push(request.headers);
  });
  return Object.assign(self, { url });
}

async function started(
  options: Partial<GatewayFixture> = {},
): Promise<{ worker: Recorded; running: RunningGateway }> {
  const worker = await recorded();
  return {
    worker,
    running: await gateway({ urls: [worker.url], health: { intervalMs: AN_HOUR }, ...options }),
  };
}

/** The credentials among headers. */
const credentials = (headers: IncomingHttpHeaders) =>
  Object.fromEntries(CREDENTIALS.filter((name) => name in headers).map((name) => [name, headers[name]]));

/** All values of a header in a flat list. */
const valuesOf = (raw: readonly string[], name: string) =>
  raw.filter((_, i) => i % 2 === 1 && raw[i - 1]!.toLowerCase() === name);

describe("a worker's API key", () => {
  const apiKeys = new Map([["w0", KEY]]);

  it.each(PATHS)("goes to it with each request: %s", async (path) => {
    const { worker, running } = await started({ apiKeys });
    for (const stream of [false, true]) await post(running.url + path, { ...ask, stream });
    expect(worker.posts.map(credentials)).toEqual(Array(2).fill({ authorization: `Bearer ${KEY}` }));
  });

  it("goes to it when it is asked for its models, every time", async () => {
    const { worker } = await started({ apiKeys, health: { intervalMs: 20 } });
    await until(() => worker.lists.length >= 3);
    for (const headers of worker.lists)
      expect(credentials(headers)).toEqual({ authorization: `Bearer ${KEY}` });
  });

  it("opens a worker that turns away who does not show it", async () => {
    const guarded = await upstream(() => {});
    guarded.server.removeAllListeners("request");
    guarded.server.on("request", (request, response) => {
      const isKnown = request.headers.authorization === `Bearer ${KEY}`;
      request.resume();
      response.writeHead(isKnown ? 200 : 401).end('{"object":"list","data":[{"id":"m"}]}');
    });
    const urls = [guarded.url];
    const open = await gateway({ urls, apiKeys });
    const shut = await gateway({ urls, models: ["m"], health: { unhealthyAfter: 1 } });
    const asked = await Promise.all([open, shut].map(({ url }) => post(url + CHAT, ask, CLIENT)));
    expect(asked.map(({ status }) => status)).toEqual([200, 503]);
    expect(shut.log.join()).toContain("status 401");
  });

  it("goes to it alone, also where it failed and another one is tried", async () => {
    const workers = [
      await recorded((_request, response) => response.writeHead(503).end("{}")),
      await recorded((request) => request.socket.destroy()),
      await recorded(),
    ];
    const { url } = await gateway({
      urls: workers.map((each) => each.url),
      apiKeys: new Map([
        ["w0", "sk-0"],
        ["w2", "sk-2"],
      ]),
    });
    const reply = await post(url + CHAT, ask, CLIENT);
    expect(reply.headers["x-hawser-worker"]).toBe("w2");
    const shown = [{ authorization: "Bearer sk-0" }, {}, { authorization: "Bearer sk-2" }];
    expect(workers.map(({ posts }) => posts.map(credentials))).toEqual(shown.map((each) => [each]));
    for (const [i, { lists }] of workers.entries())
      for (const list of lists) expect(credentials(list)).toEqual(shown[i]);
  });

  it("stands in the place of an authorization that is forwarded, however it is spelt and however often it comes", async () => {
    const { worker, running } = await started({ apiKeys, forwardCredentials: [...CREDENTIALS] });
    const body = JSON.stringify(ask);
    const head = [
      ...[`POST ${CHAT} HTTP/1.1`, "host: h", "AUTHORIZATION: Bearer one", "Authorization: Bearer two"],
      ...["X-Api-Key: client-key", "authorization: Basic three", `content-length: ${body.length}`, "", body],
    ];
    const socket = connect(Number(new URL(running.url).port), "127.0.0.1");
    socket.write(head.join("\r\n"));
    await until(() => worker.posts.length === 1);
    socket.destroy();
    expect(valuesOf(worker.raw, "authorization")).toEqual([`Bearer ${KEY}`]);
    // The others are no rivals of it.
    expect(valuesOf(worker.raw, "x-api-key")).toEqual(["client-key"]);
  });

  it("is not seen by the client, not even where the worker has it in its own answer's head", async () => {
    const { running } = await started({ apiKeys });
    const reply = await post(running.url + CHAT, ask);
    expect(JSON.stringify(reply)).not.toContain(KEY);
    expect(await (await fetch(`${running.url}/v1/models`)).text()).not.toContain(KEY);
  });
});

describe("a client's credentials", () => {
  it.each(PATHS)("stay at the gateway: %s", async (path) => {
    const { worker, running } = await started();
    await post(running.url + path, ask, { ...CLIENT, "x-other": "kept" });
    expect(worker.posts.map(credentials)).toEqual([{}]);
    expect(worker.posts[0]!["x-other"]).toBe("kept");
  });

  it.each(CREDENTIALS)("are forwarded by name: %s alone", async (name) => {
    const { worker, running } = await started({ forwardCredentials: [name] });
    await post(running.url + CHAT, ask, CLIENT);
    expect(worker.posts.map(credentials)).toEqual([{ [name]: CLIENT[name] }]);
  });

  it("are forwarded to every worker that is tried, unchanged", async () => {
    const workers = [
      await recorded((_request, response) => response.writeHead(503).end("{}")),
      await recorded(),
    ];
    const { url } = await gateway({
      urls: workers.map((each) => each.url),
      forwardCredentials: [...CREDENTIALS],
    });
    await post(url + CHAT, ask, CLIENT);
    expect(workers.map(({ posts }) => posts.map(credentials))).toEqual([[CLIENT], [CLIENT]]);
  });

  it("are never shown when a worker is asked for its models", async () => {
    const { worker, running } = await started({
      forwardCredentials: [...CREDENTIALS],
      health: { intervalMs: 20 },
    });
    await post(running.url + CHAT, ask, CLIENT);
    await fetch(`${running.url}/v1/models`, { headers: CLIENT });
    const { length } = worker.lists;
    await until(() => worker.lists.length > length);
    expect(worker.lists.map(credentials)).toEqual(worker.lists.map(() => ({})));
  });

  it("of a proxy are never forwarded", async () => {
    const { worker, running } = await started({ forwardCredentials: [...CREDENTIALS] });
    await post(running.url + CHAT, ask, { "proxy-authorization": "Basic x" });
    expect(worker.posts[0]).not.toHaveProperty("proxy-authorization");
  });
});
