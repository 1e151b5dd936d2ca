// The gateway: Fastify routes over one router and its fleet of workers.

import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Logger } from "pino";
import type { Router } from "../routing/router.js";
import { type ErrorStyle, errorBody, type GatewayError } from "./errors.js";
import { BODY_LIMIT, Exchange, type ExchangeContext } from "./exchange.js";
import { Fleet } from "./fleet.js";

/** Endpoints that are proxied, each with its error shape. */
const ENDPOINTS: Readonly<Record<string, ErrorStyle>> = {
  "/v1/chat/completions": "openai",
  "/v1/completions": "openai",
  "/v1/responses": "openai",
  "/v1/embeddings": "openai",
  "/v1/messages": "anthropic",
};

const POLL_INTERVAL_MS = 5_000;

export interface GatewayOptions {
  readonly router: Router;
  readonly log: Logger;
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
  const app = createServer();
  addProxy(app, {
    router,
    fleet,
    bodyLimit: options.bodyLimit ?? BODY_LIMIT,
    onWorkerFailure: (lease, error) => {
      log.warn({ worker: lease.worker.id, reason: error.message }, "worker failed a request");
      fleet.suspect(lease.worker);
    },
  });
  addOwnRoutes(app, router, fleet);
  return {
    async listen(host, port) {
      const address = await app.listen({ host, port });
      await fleet.start();
      return address;
    },
    async close() {
      await app.close();
      await fleet.stop();
    },
  };
}

function createServer(): FastifyInstance {
  const app = Fastify({
    logger: false,
    keepAliveTimeout: 75_000,
    requestTimeout: 0,
    forceCloseConnections: true,
    http: { headersTimeout: 60_000 },
  });
  // The exchange reads bodies itself.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
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
  const style = ENDPOINTS[request.url.split("?", 1)[0]!] ?? "openai";
  void reply.code(error.status).type("application/json").send(errorBody(style, error));
}

function addProxy(app: FastifyInstance, context: ExchangeContext): void {
  for (const [path, style] of Object.entries(ENDPOINTS)) {
    app.post(path, (request, reply) => {
      reply.hijack();
      const query = request.url.indexOf("?");
      const target = query < 0 ? path : path + request.url.slice(query);
      new Exchange(context, request.raw, reply.raw, target, style).start();
    });
  }
}

function addOwnRoutes(app: FastifyInstance, router: Router, fleet: Fleet): void {
  app.get("/v1/models", (_request, reply) => reply.send({ object: "list", data: fleet.models() }));
  app.get("/health", (_request, reply) => {
    const status = router.status();
    const ready = status.workers.some(({ eligible }) => eligible);
    const degraded = status.policies.some(({ state }) => state === "quarantined");
    const summary = !ready ? "no_worker_eligible" : degraded ? "degraded" : "ok";
    return reply.code(ready ? 200 : 503).send({ status: summary, ...status });
  });
}
