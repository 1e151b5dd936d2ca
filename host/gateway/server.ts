// The gateway: Fastify routes over one router and its fleet of workers.

import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Server as NetServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { type Clock, PROCESS_CLOCK } from "../fleet/clock.js";
import { Fleet, type NamedWorker } from "../fleet/fleet.js";
import type { DiscoveryOptions, FleetOptions } from "../fleet/options.js";
import type { Router } from "../routing/router.js";
import type { Worker } from "../routing/worker.js";
import { RequestReader } from "../session/request-reader.js";
import { Access } from "./access.js";
import { createAdmin } from "./admin.js";
import type { ReadWorker } from "./admin-workers.js";
import { Admission } from "./admission.js";
import { Beat } from "./beat.js";
import { Discovery } from "./discovery.js";
import { answerGarbage, createHttp, type Door } from "./door.js";
import { errorBody, errorHeaders, type GatewayError, sendError, styleOf } from "./errors.js";
import { type Endpoint, Exchange, type ExchangeContext } from "./exchange.js";
import { droppedHeaders } from "./headers.js";
import { InFlight } from "./in-flight.js";
import type { AccessOptions, AdmissionOptions, DataPlaneOptions } from "./options.js";
import { Outcomes } from "./outcomes.js";
import type { Deadlines } from "./patience.js";
import { MAX_AT_ONCE, Pipelines } from "./pipeline.js";
import { PolicyWatch } from "./policy-watch.js";
import { RequestLog, RequestRecord } from "./request-log.js";
import { Retries } from "./retries.js";
import { ByteAccount, discardBody } from "./upload.js";
import { Upstream } from "./upstream.js";

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

export interface GatewayOptions {
  readonly router: Router;
  readonly log: Logger;
  readonly dataPlane: DataPlaneOptions;
  /** Reads the session of a request; default one with the default sources. */
  readonly reader?: RequestReader;
  /** Whether a client may choose the worker by `x-hawser-pin`; default false. */
  readonly allowPin?: boolean;
  /** Whether a client may choose how it is bound by `x-hawser-affinity`; default false. */
  readonly allowAffinityHeader?: boolean;
  /** The keys that clients must show; default none, and anybody may use the gateway. */
  readonly access?: AccessOptions | undefined;
  /** What callers of the admin listener must show; default nothing, and then they must be on this machine. */
  readonly adminToken?: string | undefined;
  /** The workers at the start. */
  readonly workers: readonly NamedWorker[];
  /** Where more workers are found; default nowhere. */
  readonly discovery?: readonly DiscoveryOptions[];
  /** Reads what an operator sends to add a worker; default nobody can. */
  readonly readWorker?: ReadWorker | undefined;
  readonly fleet: FleetOptions;
  readonly admission: AdmissionOptions;
  /** By which deadlines are kept; default the process's. */
  readonly clock?: Clock;
}

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
  const { router, log, dataPlane, clock = PROCESS_CLOCK } = options;
  const { allowPin = false, allowAffinityHeader = false, adminToken: token } = options;
  const { limits, timeouts, retries: retryOptions, streams } = dataPlane;
  const via = `1.1 hawser-${randomBytes(VIA_BYTES).toString("hex")}`;
  const admission = new Admission(options.admission);
  const underWay = new InFlight(limits.bufferedTotalBytes);
  const fleet = new Fleet<Upstream>({
    ...{ router, options: options.fleet, clock },
    reach: (url, apiKey) => new Upstream(url, timeouts.connectMs, via, apiKey),
    listener: {
      onState({ id }, { state, reason }) {
        log[state === "unhealthy" ? "warn" : "info"]({ worker: id, state, reason }, `worker is ${state}`);
      },
      onRestart: ({ id }) => log.warn({ worker: id }, "worker was restarted: its sessions start anew"),
      onChange: (models) => admission.move(models),
      onDeadline: (worker) => underWay.cutDrained(worker),
    },
  });
  for (const worker of options.workers) fleet.add(worker, "config");
  const discovery = new Discovery({ fleet, sources: options.discovery ?? [], clock, log });
  const ask = { reader: options.reader ?? new RequestReader(), allowPin, allowAffinityHeader };
  const app = createServer({
    pipelines: new Pipelines((request, response) => refuse(context, request, response, TOO_MANY_PIPELINED)),
    via,
    onLoop: (request, response) => {
      discardBody(response);
      refuse(context, request, response, LOOP);
    },
  });
  const isIncomplete = () => fleet.incomplete || discovery.incomplete;
  const admin = createAdmin({
    ...{ router, fleet, admission, clock, ask, token, isIncomplete },
    bodyLimit: limits.bodyBytes,
    readWorker: options.readWorker,
    discovery,
  });
  const watch = new PolicyWatch(router, log);
  const beat = new Beat([
    timeouts.uploadMs,
    options.admission.deadlineMs,
    timeouts.firstByteMs,
    timeouts.idleMs,
    timeouts.totalMs,
    streams.keepAliveMs,
  ]);
  const hurry = new AbortController();
  const context: ExchangeContext = {
    ...{ router, fleet, ask, clock, underWay },
    isIncomplete,
    access: options.access && new Access(options.access),
    options: dataPlane,
    admission,
    deadlines: deadlines(beat, dataPlane, options.admission),
    bodies: new ByteAccount(limits.bodyTotalBytes),
    retries: new Retries(retryOptions, () => underWay.size),
    outcomes: new Outcomes(),
    requestLog: new RequestLog(log, dataPlane.log),
    droppedHeaders: droppedHeaders(dataPlane.forwardCredentials),
    onPolicyFailure: (lease) => watch.failed(lease),
  };
  addProxy(app, context);
  addOwnRoutes(app, context);
  const stopBeating = clock.every(beat.ms, () => underWay.beat());
  const end = async (): Promise<void> => {
    await admin.close();
    await app.close();
    stopBeating();
    discovery.stop();
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

function deadlines(
  beat: Beat,
  { timeouts, streams }: DataPlaneOptions,
  { deadlineMs }: AdmissionOptions,
): Deadlines {
  return {
    upload: beat.after(timeouts.uploadMs),
    queue: beat.after(deadlineMs),
    firstByte: beat.after(timeouts.firstByteMs),
    idle: beat.after(timeouts.idleMs),
    drain: beat.after(timeouts.idleMs),
    total: beat.after(timeouts.totalMs),
    keepAlive: beat.before(streams.keepAliveMs),
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
  { outcomes, requestLog, clock }: ExchangeContext,
  request: IncomingMessage,
  response: ServerResponse,
  error: GatewayError,
): void {
  const endpoint = ENDPOINTS.find(({ path }) => request.method === "POST" && path === pathOf(request.url!));
  if (endpoint) {
    const record = new RequestRecord(endpoint.path, clock);
    record.status = error.status;
    outcomes.count(error.code);
    requestLog.ended(record, error.code, [], true);
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

function addProxy(app: FastifyInstance, context: ExchangeContext): void {
  for (const endpoint of ENDPOINTS) {
    // Taken over in the first hook: whatever Fastify would do with the body or its type is not wanted here.
    const onRequest = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
      reply.hijack();
      const at = request.url.indexOf("?");
      const query = at < 0 ? "" : request.url.slice(at);
      new Exchange(context, request.raw, reply.raw, endpoint, query).start();
      done();
    };
    app.post(endpoint.path, { onRequest }, () => {});
  }
}

function addOwnRoutes(app: FastifyInstance, context: ExchangeContext): void {
  const { router, fleet, underWay, access } = context;
  app.get("/v1/models", (request, reply) => {
    const refusal = access?.check(request.headers);
    if (refusal) {
      sendOwn(request, reply, refusal);
      return;
    }
    discardBody(reply.raw);
    void reply.send({ object: "list", data: fleet.models() });
  });
  app.get("/health", (_request, reply) => {
    discardBody(reply.raw);
    const status = router.status();
    const known = [...router.workers];
    const ready = !underWay.isClosing && known.some((worker) => worker.ready);
    const degraded = status.policies.some(({ state }) => state === "quarantined");
    const unready = underWay.isClosing ? "shutting_down" : "no_worker_eligible";
    const summary = !ready ? unready : degraded ? "degraded" : "ok";
    const workers = status.workers.map((worker, i) => ({ ...worker, reason: fleet.reason(known[i]!) }));
    const health = { status: summary, ...status, data_plane: dataPlaneView(context), workers };
    return reply.code(ready ? 200 : 503).send(health);
  });
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
