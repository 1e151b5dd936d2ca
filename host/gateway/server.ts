// The gateway: Fastify routes over one router and its fleet of workers.

import { setTimeout as delay } from "node:timers/promises";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Logger } from "pino";
import type { Router } from "../routing/router.js";
import { RequestReader } from "../session/request-reader.js";
import { createAdmin } from "./admin.js";
import { type ErrorStyle, errorBody, type GatewayError } from "./errors.js";
import { BODY_LIMIT, Exchange, type ExchangeContext } from "./exchange.js";
import { Fleet } from "./fleet.js";
import { InFlight } from "./in-flight.js";
import { PolicyWatch } from "./policy-watch.js";

/** Endpoints that are proxied, each with its error shapes. */
const ENDPOINTS: Readonly<Record<string, ErrorStyle>> = {
  "/v1/chat/completions": "openai",
  "/v1/completions": "openai",
  "/v1/responses": "responses",
  "/v1/embeddings": "openai",
  "/v1/messages": "anthropic",
};

const POLL_INTERVAL_MS = 5_000;
/** Milliseconds that clients get to read that their answers were cut. */
const CUT_MS = 1_000;

export interface GatewayOptions {
  readonly router: Router;
  readonly log: Logger;
  /** Reads the session of a request; default one with the default sources. */
  readonly reader?: RequestReader;
  /** Whether a client may choose the worker by `x-hawser-pin`; default false. */
  readonly allowPin?: boolean;
  /** Whether a client may choose how it is bound by `x-hawser-affinity`; default false. */
  readonly allowAffinityHeader?: boolean;
  /** What callers of the admin listener must show; default nothing, and then they must be on this machine. */
  readonly adminToken?: string | undefined;
  /** Largest request body in bytes; default 64 MiB. */
  readonly bodyLimit?: number;
  /** Milliseconds between two questions to a worker; default 5,000. */
  readonly pollIntervalMs?: number;
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
   * rest with an error. Resolves to how many were cut.
   */
  drain(deadlineMs: number): Promise<number>;
  /** Stops listening and cuts everything that is open. */
  close(): Promise<void>;
}

/** Builds a gateway over a router whose workers have urls; it decides itself which of them are eligible. */
export function createGateway(options: GatewayOptions): Gateway {
  const { router, log } = options;
  const fleet = new Fleet(router, options.pollIntervalMs ?? POLL_INTERVAL_MS, (worker, eligible, reason) => {
    log[eligible ? "info" : "warn"](
      { worker: worker.id, reason },
      eligible ? "worker is eligible" : "worker is not eligible",
    );
  });
  const {
    bodyLimit = BODY_LIMIT,
    allowPin = false,
    allowAffinityHeader = false,
    adminToken: token,
  } = options;
  const ask = { reader: options.reader ?? new RequestReader(), allowPin, allowAffinityHeader };
  const app = createServer();
  const admin = createAdmin({ router, fleet, ask, bodyLimit, token });
  const watch = new PolicyWatch(router, log);
  const underWay = new InFlight();
  const hurry = new AbortController();
  let closing = false;
  addProxy(app, {
    router,
    fleet,
    ask,
    bodyLimit,
    underWay,
    onWorkerFailure: ({ worker, session }, reason) => {
      if (closing) return;
      log.warn({ worker: worker.id, session, reason }, "worker failed a request");
      fleet.suspect(worker);
    },
    onPolicyFailure: (lease) => watch.failed(lease),
    onSlowClient: ({ worker, session }) =>
      log.warn({ worker: worker.id, session }, "a client that reads too slowly was cut"),
  });
  addOwnRoutes(app, router, fleet, underWay);
  const end = async (): Promise<void> => {
    closing = true;
    await admin.close();
    await app.close();
    await fleet.stop();
  };
  const drain = async (deadlineMs: number): Promise<number> => {
    underWay.isClosing = true;
    app.server.close();
    const isOver = await endsBefore(underWay.empty(), deadlineMs, hurry.signal);
    const cut = underWay.size;
    if (!isOver) await cutAll(underWay);
    await end();
    return cut;
  };
  let draining: Promise<number> | undefined;
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
  };
}

/** Whether a promise is fulfilled within a time, and before `hurry` is heard. */
async function endsBefore(promise: Promise<void>, ms: number, hurry: AbortSignal): Promise<boolean> {
  const late = delay(ms, false, { signal: hurry, ref: false }).catch(() => false);
  return Promise.race([promise.then(() => true), late]);
}

/** Ends what is under way, and gives its clients a moment to hear of it. */
async function cutAll(underWay: InFlight): Promise<void> {
  underWay.cut();
  await Promise.race([underWay.empty(), delay(CUT_MS, undefined, { ref: false })]);
}

function createServer(): FastifyInstance {
  const app = Fastify({
    logger: false,
    keepAliveTimeout: 75_000,
    requestTimeout: 0,
    forceCloseConnections: true,
    http: { headersTimeout: 60_000 },
    frameworkErrors: (_error, request, reply) => {
      sendOwn(request, reply, {
        status: 400,
        code: "invalid_request",
        message: "the path is not a valid URL",
      });
    },
  });
  // Every pipelined request on a connection listens for its end.
  app.server.on("connection", (socket) => socket.setMaxListeners(0));
  app.setNotFoundHandler((request, reply) => {
    sendOwn(request, reply, {
      status: 404,
      code: "unknown_path",
      message: `there is no ${request.method} ${request.url}`,
    });
  });
  app.setErrorHandler((error: { statusCode?: number; message: string }, request, reply) => {
    const status = error.statusCode ?? 500;
    const message = status < 500 ? error.message : "the gateway failed to handle the request";
    sendOwn(request, reply, { status, code: status < 500 ? "invalid_request" : "internal_error", message });
  });
  return app;
}

function sendOwn(request: FastifyRequest, reply: FastifyReply, error: GatewayError): void {
  const style = request.url.startsWith("/v1/messages") ? "anthropic" : "openai";
  void reply.code(error.status).type("application/json").send(errorBody(style, error));
}

function addProxy(app: FastifyInstance, context: ExchangeContext): void {
  for (const [path, style] of Object.entries(ENDPOINTS)) {
    // Taken over in the first hook: whatever Fastify would do with the body or its type is not wanted here.
    const onRequest = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
      reply.hijack();
      const query = request.url.indexOf("?");
      const target = query < 0 ? path : path + request.url.slice(query);
      new Exchange(context, request.raw, reply.raw, target, style).start();
      done();
    };
    app.post(path, { onRequest }, () => {});
  }
}

function addOwnRoutes(app: FastifyInstance, router: Router, fleet: Fleet, underWay: InFlight): void {
  app.get("/v1/models", (_request, reply) => reply.send({ object: "list", data: fleet.models() }));
  app.get("/health", (_request, reply) => {
    const status = router.status();
    const ready = !underWay.isClosing && status.workers.some(({ eligible }) => eligible);
    const degraded = status.policies.some(({ state }) => state === "quarantined");
    const unready = underWay.isClosing ? "shutting_down" : "no_worker_eligible";
    const summary = !ready ? unready : degraded ? "degraded" : "ok";
    const known = [...router.workers];
    const workers = status.workers.map((worker, i) => ({ ...worker, reason: fleet.reason(known[i]!) }));
    return reply.code(ready ? 200 : 503).send({ status: summary, ...status, workers });
  });
}
