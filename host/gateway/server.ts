// The gateway: Fastify routes over one router and its fleet of workers.

import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import { Server as NetServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Logger } from "pino";
import type { Router } from "../routing/router.js";
import type { Worker, WorkerOptions } from "../routing/worker.js";
import { RequestReader } from "../session/request-reader.js";
import { createAdmin } from "./admin.js";
import { Beat, type Clock, PROCESS_CLOCK } from "./clock.js";
import { errorBody, type GatewayError, sendError, styleOf } from "./errors.js";
import { type Endpoint, Exchange, type ExchangeContext } from "./exchange.js";
import { Fleet } from "./fleet.js";
import { droppedHeaders } from "./headers.js";
import { InFlight } from "./in-flight.js";
import type { DataPlaneOptions } from "./options.js";
import { Outcomes } from "./outcomes.js";
import type { Deadlines } from "./patience.js";
import { MAX_AT_ONCE, Pipelines, readOn } from "./pipeline.js";
import { PolicyWatch } from "./policy-watch.js";
import { RequestLog, RequestRecord } from "./request-log.js";
import { Retries } from "./retries.js";
import { ByteAccount, discardBody } from "./upload.js";

/** Endpoints that are proxied, each with its error shapes. */
const ENDPOINTS: readonly Endpoint[] = [
  { path: "/v1/chat/completions", style: "openai", streams: true },
  { path: "/v1/completions", style: "openai", streams: true },
  { path: "/v1/responses", style: "responses", streams: true },
  { path: "/v1/embeddings", style: "openai", streams: false },
  { path: "/v1/messages", style: "anthropic", streams: true },
];

const POLL_INTERVAL_MS = 5_000;
/** Milliseconds that clients get to read that their answers were cut. */
const CUT_MS = 1_000;
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
  /** What callers of the admin listener must show; default nothing, and then they must be on this machine. */
  readonly adminToken?: string | undefined;
  /** What is shown to workers that ask for an API key, by their ids. */
  readonly apiKeys?: ReadonlyMap<string, string>;
  /** Milliseconds between two questions to a worker; default 5,000. */
  readonly pollIntervalMs?: number;
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
   * Adds a worker, which must have a `url`; `apiKey` is shown to it. It is eligible when it answers. Throws what
   * `Router.addWorker` throws.
   */
  addWorker(options: WorkerOptions, apiKey?: string): Worker;
  /** Removes a worker. Its requests under way go on to their end. */
  removeWorker(worker: Worker): void;
}

/** Builds a gateway over a router whose workers have urls; it decides itself which of them are eligible. */
export function createGateway(options: GatewayOptions): Gateway {
  const { router, log, dataPlane, clock = PROCESS_CLOCK, apiKeys = new Map() } = options;
  const { allowPin = false, allowAffinityHeader = false, adminToken: token } = options;
  const { limits, timeouts, retries: retryOptions, streams } = dataPlane;
  const { pollIntervalMs = POLL_INTERVAL_MS } = options;
  const fleetOptions = { pollIntervalMs, connectMs: timeouts.connectMs, apiKeys };
  const fleet = new Fleet(router, fleetOptions, (worker, eligible, reason) => {
    log[eligible ? "info" : "warn"](
      { worker: worker.id, reason },
      eligible ? "worker is eligible" : "worker is not eligible",
    );
  });
  const ask = { reader: options.reader ?? new RequestReader(), allowPin, allowAffinityHeader };
  const app = createServer(new Pipelines((request, response) => refusePipelined(context, request, response)));
  const admin = createAdmin({ router, fleet, ask, bodyLimit: limits.bodyBytes, token });
  const watch = new PolicyWatch(router, log);
  const underWay = new InFlight(limits.bufferedTotalBytes);
  const beat = new Beat([
    timeouts.uploadMs,
    timeouts.firstByteMs,
    timeouts.idleMs,
    timeouts.totalMs,
    streams.keepAliveMs,
  ]);
  const hurry = new AbortController();
  const context: ExchangeContext = {
    ...{ router, fleet, ask, clock, underWay },
    options: dataPlane,
    deadlines: deadlines(beat, dataPlane),
    bodies: new ByteAccount(limits.bodyTotalBytes),
    retries: new Retries(retryOptions, () => underWay.size, clock),
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
      await fleet.start();
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
    addWorker: (worker, apiKey) => fleet.add(worker, apiKey),
    removeWorker: (worker) => fleet.remove(worker),
  };
}

function deadlines(beat: Beat, { timeouts, streams }: DataPlaneOptions): Deadlines {
  return {
    upload: beat.after(timeouts.uploadMs),
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

function createServer(pipelines: Pipelines): FastifyInstance {
  const app = Fastify({
    logger: false,
    forceCloseConnections: true,
    serverFactory: (handle) => createHttp(pipelines, handle),
    clientErrorHandler: (error, socket) => answerGarbage(pipelines, error, socket),
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

/** Node's server, every answer of which waits in its connection's pipeline as one of a limited number. */
function createHttp(
  pipelines: Pipelines,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  const options = {
    ...{ keepAliveTimeout: 75_000, headersTimeout: 60_000, requestTimeout: 0 },
    // What Node itself refuses it does not count.
    requireHostHeader: false,
  };
  const server = createHttpServer(options, (request, response) => {
    if (!pipelines.admits(request, response)) return;
    if (request.headers.host === undefined && request.httpVersionMinor === 1) sendBare(response, 400);
    else handle(request, response);
  });
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    if (pipelines.admits(request, response)) sendBare(response, 417);
  });
  return server.on("connection", readOn);
}

/** Answers as Node does what is no request to any route. */
function sendBare(response: ServerResponse, status: 400 | 417): void {
  discardBody(response);
  if (status === 400) response.shouldKeepAlive = false;
  response.writeHead(status).end();
}

function refusePipelined(
  { outcomes, requestLog, clock }: ExchangeContext,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const endpoint = ENDPOINTS.find(({ path }) => request.method === "POST" && path === pathOf(request.url!));
  if (endpoint) {
    const record = new RequestRecord(endpoint.path, clock);
    record.status = TOO_MANY_PIPELINED.status;
    outcomes.count(TOO_MANY_PIPELINED.code);
    requestLog.ended(record, TOO_MANY_PIPELINED.code, [], true);
  }
  sendError(response, styleOf(request.url!), TOO_MANY_PIPELINED);
}

const GARBAGE_STATUS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};

/** Answers what is no HTTP, and closes the connection; never into an answer under way, as Fastify's own handler does. */
function answerGarbage(pipelines: Pipelines, error: Error & { code?: string }, socket: Socket): void {
  // The rest of what was read last may be the half of a head, which Node waits for in vain.
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT" && pipelines.isClosed(socket)) return;
  // As Node does where nobody handles it.
  const { _httpMessage: answer } = socket as Socket & { _httpMessage?: ServerResponse | null };
  if (socket.writable && !answer?.headersSent && error.code !== "ECONNRESET") {
    const status = GARBAGE_STATUS[error.code ?? ""] ?? "400 Bad Request";
    socket.write(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
  }
  socket.destroy();
}

function sendUnknownPath(request: FastifyRequest, reply: FastifyReply): void {
  const message = `there is no ${request.method} ${request.url}`;
  sendOwn(request, reply, { status: 404, code: "unknown_path", message });
}

function sendOwn(request: FastifyRequest, reply: FastifyReply, error: GatewayError): void {
  discardBody(reply.raw);
  const body = errorBody(styleOf(request.url), error);
  void reply.code(error.status).type("application/json").send(body);
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
  const { router, fleet, underWay } = context;
  app.get("/v1/models", (_request, reply) => {
    discardBody(reply.raw);
    return reply.send({ object: "list", data: fleet.models() });
  });
  app.get("/health", (_request, reply) => {
    discardBody(reply.raw);
    const status = router.status();
    const ready = !underWay.isClosing && status.workers.some(({ eligible }) => eligible);
    const degraded = status.policies.some(({ state }) => state === "quarantined");
    const unready = underWay.isClosing ? "shutting_down" : "no_worker_eligible";
    const summary = !ready ? unready : degraded ? "degraded" : "ok";
    const known = [...router.workers];
    const workers = status.workers.map((worker, i) => ({ ...worker, reason: fleet.reason(known[i]!) }));
    const health = { status: summary, ...status, data_plane: dataPlaneView(context), workers };
    return reply.code(ready ? 200 : 503).send(health);
  });
}

/** What is under way, what it holds in memory, and how requests have ended so far. */
function dataPlaneView({ underWay, bodies, retries, outcomes }: ExchangeContext): object {
  underWay.buffers.recount();
  return {
    requests_in_flight: underWay.size,
    body_bytes: bodies.used,
    buffered_bytes: underWay.buffers.bytes,
    retries: retries.begun,
    retries_refused: retries.refused,
    outcomes: outcomes.counts,
  };
}
