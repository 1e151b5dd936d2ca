// The gateway: Fastify routes over one router and its fleet of workers.

import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Server as NetServer } from "node:net";
import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { NamedWorker } from "../fleet/fleet.js";
import type { RouterChange } from "../routing/requests.js";
import type { Worker } from "../routing/worker.js";
import { createAdmin } from "./admin.js";
import type { ConfigControl } from "./config-control.js";
import { answerGarbage, createHttp, type Door } from "./door.js";
import { errorBody, errorHeaders, type GatewayError, sendError, styleOf } from "./errors.js";
import { type Endpoint, Exchange, type ExchangeContext } from "./exchange.js";
import type { InFlight } from "./in-flight.js";
import { MAX_AT_ONCE, Pipelines } from "./pipeline.js";
import { Plane } from "./plane.js";
import { RequestRecord } from "./request-record.js";
import type { GatewayOptions, GatewaySettings } from "./settings.js";
import { discardBody } from "./upload.js";

/** Endpoints that are proxied, each with its error shapes. */
const ENDPOINTS: readonly Endpoint[] = [
  { path: "/v1/chat/completions", style: "openai", streams: true },
  { path: "/v1/completions", style: "openai", streams: true },
  { path: "/v1/responses", style: "responses", streams: true },
  { path: "/v1/embeddings", style: "openai", streams: false },
  { path: "/v1/messages", style: "anthropic", streams: true },
];

/** Milliseconds that clients get to read that their answers were cut. */
const CUT_MS = 1_000;
/** As many as make it unlikely that two gateways have the same. */
const VIA_BYTES = 8;
const LOOP: GatewayError = {
  status: 508,
  code: "loop_detected",
  message: "the gateway sent this request itself: the url of one of its workers leads back to it",
};
const TOO_MANY_PIPELINED: GatewayError = {
  status: 503,
  code: "too_many_pipelined",
  message: `one connection may have ${MAX_AT_ONCE} requests under way at once`,
};

/** How a gateway ended. */
export interface Drained {
  /** How many requests were cut. */
  readonly cut: number;
  /** What they were cut by, if any: the deadline, or a call of `close` before it. */
  readonly by: "deadline" | "close" | null;
}

/** A gateway that can be started once. */
export interface Gateway {
  /**
   * Listens, port 0 for a free one, and asks the workers. Resolves, when they have answered or failed to, to the address,
   * such as `http://127.0.0.1:8080`.
   */
  listen(host: string, port: number): Promise<string>;
  /**
   * Has other settings and policies take effect, between two requests: whole, or not at all. What is under way goes on by the old ones; bindings, counts, the health
   * of workers and what waits in line stay. Resolves to what of the workers could not be added, and why. Rejects with what `Router.prepare`
   * and its steps throw, and nothing is changed then. One at a time.
   */
  reconfigure(settings: GatewaySettings, change: RouterChange): Promise<string[]>;
  /** Listens for an operator, port 0 for a free one. Resolves to the address. */
  listenAdmin(host: string, port: number): Promise<string>;
  /**
   * Stops listening and lets what is under way finish, at most `deadlineMs`; then, or at the next call of `close`, cuts the
   * rest with an error. Resolves to how it ended.
   */
  drain(deadlineMs: number): Promise<Drained>;
  /** Stops listening and cuts everything that is open. */
  close(): Promise<void>;
  /**
   * Adds a worker. It is eligible when it answers. Throws what `Router.addWorker` throws, and a TypeError for a url that
   * cannot be read.
   */
  addWorker(worker: NamedWorker): Worker;
  /** Requests that wait for a worker with room. */
  readonly waiting: number;
  /** Removes a worker. Its requests under way go on to their end. */
  removeWorker(worker: Worker): void;
}

/**
 * Builds a gateway over a router that has no workers yet: it adds them, and decides which of them are eligible. Throws what
 * `addWorker` throws.
 */
export function createGateway(options: GatewayOptions): Gateway {
  const { router } = options;
  const via = `1.1 hawser-${randomBytes(VIA_BYTES).toString("hex")}`;
  const plane = new Plane(
    options,
    via,
    ENDPOINTS.map(({ path }) => path),
  );
  const { fleet, discovery, underWay, admission } = plane;
  const app = createServer({
    pipelines: new Pipelines((request, response) => {
      refuse(plane.context, request, response, TOO_MANY_PIPELINED);
    }),
    via,
    onLoop: (request, response) => {
      discardBody(response);
      refuse(plane.context, request, response, LOOP);
    },
  });
  addProxy(app, plane);
  addOwnRoutes(app, plane, options.config);
  const admin = createAdmin({
    ...{ router, fleet, admission, discovery, clock: plane.clock, configured: plane.configured },
    ...{ isIncomplete: plane.isIncomplete, readWorker: options.readWorker, config: options.config },
    metrics: plane.metrics,
    settings: () => ({
      ask: plane.context.ask,
      bodyBytes: plane.settings.dataPlane.limits.bodyBytes,
      token: plane.settings.adminToken,
    }),
  });
  const hurry = new AbortController();
  const end = async (): Promise<void> => {
    await admin.close();
    await app.close();
    await plane.stop();
    await fleet.stop();
  };
  const drain = async (deadlineMs: number): Promise<Drained> => {
    underWay.isClosing = true;
    // Not by Node's own `close`: that breaks off what its client has not taken yet, once all of it is written.
    NetServer.prototype.close.call(app.server);
    const by = await whatCuts(underWay.empty(), deadlineMs, hurry.signal);
    const cut = underWay.size;
    if (by !== null) await cutAll(underWay);
    await end();
    return { cut, by };
  };
  let draining: Promise<Drained> | undefined;
  return {
    async listen(host, port) {
      const address = await app.listen({ host, port });
      await Promise.all([discovery.start(), fleet.start()]);
      // Those that discovery has found meanwhile.
      await fleet.settled();
      return address;
    },
    listenAdmin: (host, port) => admin.listen({ host, port }),
    async reconfigure(settings, change) {
      const preparation = router.prepare(change);
      // Requests get through between two pools.
      while (preparation.step()) await turn();
      router.apply(preparation);
      return plane.configure(settings);
    },
    drain(deadlineMs) {
      draining ??= drain(deadlineMs);
      return draining;
    },
    async close() {
      hurry.abort();
      await (draining ?? end());
    },
    addWorker: (worker) => fleet.add(worker, "admin"),
    get waiting() {
      return admission.size;
    },
    removeWorker: (worker) => fleet.remove(worker),
  };
}

/** What comes before a promise is fulfilled: its deadline, or the word to hurry; null where neither does. */
async function whatCuts(promise: Promise<void>, ms: number, hurry: AbortSignal): Promise<Drained["by"]> {
  const late = delay(ms, "deadline" as const, { signal: hurry, ref: false }).catch(() => "close" as const);
  return Promise.race([promise.then(() => null), late]);
}

/** Ends what is under way, and gives its clients a moment to hear of it. */
async function cutAll(underWay: InFlight): Promise<void> {
  underWay.cut();
  await Promise.race([underWay.empty(), delay(CUT_MS, undefined, { ref: false })]);
}

function createServer(door: Door): FastifyInstance {
  const app = Fastify({
    logger: false,
    forceCloseConnections: true,
    serverFactory: (handle) => createHttp(door, handle),
    clientErrorHandler: (error, socket) => answerGarbage(door.pipelines, error, socket),
    frameworkErrors: (_error, request, reply) => {
      const message = "the path is not a valid URL";
      sendOwn(request, reply, { status: 400, code: "invalid_request", message });
    },
  });
  // No route of the gateway's own takes a body: none is waited for.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  app.setNotFoundHandler(sendUnknownPath);
  app.setErrorHandler((error: { statusCode?: number; message: string }, request, reply) => {
    const status = error.statusCode ?? 500;
    const message = status < 500 ? error.message : "the gateway failed to handle the request";
    if (request.is404) sendUnknownPath(request, reply);
    else
      sendOwn(request, reply, { status, code: status < 500 ? "invalid_request" : "internal_error", message });
  });
  return app;
}

/** Refuses a request to whatever route, before anything of it is looked at. */
function refuse(
  context: ExchangeContext,
  request: IncomingMessage,
  response: ServerResponse,
  error: GatewayError,
): void {
  const endpoint = ENDPOINTS.find(({ path }) => request.method === "POST" && path === pathOf(request.url!));
  if (endpoint) {
    const record = new RequestRecord(endpoint.path, context);
    record.status = error.status;
    record.ended(error.code, [], true);
  }
  sendError(response, styleOf(request.url!), error);
}

function sendUnknownPath(request: FastifyRequest, reply: FastifyReply): void {
  const message = `there is no ${request.method} ${request.url}`;
  sendOwn(request, reply, { status: 404, code: "unknown_path", message });
}

function sendOwn(request: FastifyRequest, reply: FastifyReply, error: GatewayError): void {
  discardBody(reply.raw);
  void reply
    .code(error.status)
    .headers(errorHeaders(error))
    .type("application/json")
    .send(errorBody(styleOf(request.url), error));
}

/** The path of a request's target, without its query. */
function pathOf(url: string): string {
  return url.split("?", 1)[0]!;
}

function addProxy(app: FastifyInstance, plane: Plane): void {
  for (const endpoint of ENDPOINTS) {
    // Taken over in the first hook: whatever Fastify would do with the body or its type is not wanted here.
    const onRequest = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
      reply.hijack();
      const at = request.url.indexOf("?");
      const query = at < 0 ? "" : request.url.slice(at);
      new Exchange(plane.context, request.raw, reply.raw, endpoint, query).start();
      done();
    };
    app.post(endpoint.path, { onRequest }, () => {});
  }
}

function addOwnRoutes(app: FastifyInstance, plane: Plane, config: ConfigControl | undefined): void {
  const { fleet, underWay } = plane;
  app.get("/v1/models", (request, reply) => {
    const refusal = plane.context.access?.check(request.headers);
    if (refusal) {
      sendOwn(request, reply, refusal);
      return;
    }
    discardBody(reply.raw);
    void reply.send({ object: "list", data: fleet.models() });
  });
  app.get("/health", (_request, reply) => {
    discardBody(reply.raw);
    const { router } = plane.context;
    const status = router.status();
    const known = [...router.workers];
    const reload = config?.status();
    const mistakes = reload?.lastReload?.mistakes ?? [];
    const ready = !underWay.isClosing && known.some((worker) => worker.ready);
    const degraded = mistakes.length > 0 || status.policies.some(({ state }) => state === "quarantined");
    const unready = underWay.isClosing ? "shutting_down" : "no_worker_eligible";
    const summary = !ready ? unready : degraded ? "degraded" : "ok";
    const workers = status.workers.map((worker, i) => ({ ...worker, reason: fleet.reason(known[i]!) }));
    const health = {
      ...{ status: summary, ...status, data_plane: dataPlaneView(plane.context), workers },
      ...(reload && { config: { generation: reload.generation, mistakes: mistakes.map(forEverybody) } }),
    };
    return reply.code(ready ? 200 : 503).send(health);
  });
}

/** A mistake of the config for whoever asks: its place, without the directories, and what is wrong, without what is quoted. */
function forEverybody(mistake: string): string {
  return mistake.replace(/^.*?[\\/](?=[^\\/:]*:\d+:\d+: )/, "").replace(/"(?:[^"\\]|\\.)*"/g, '"***"');
}

/** What is under way, what it holds in memory, and how requests have ended so far. */
function dataPlaneView({ underWay, admission, bodies, retries, outcomes }: ExchangeContext): object {
  underWay.buffers.recount();
  return {
    requests_in_flight: underWay.size,
    requests_waiting: admission.size,
    body_bytes: bodies.used,
    buffered_bytes: underWay.buffers.bytes,
    retries: retries.begun,
    retries_refused: retries.refused,
    outcomes: outcomes.counts,
  };
}
