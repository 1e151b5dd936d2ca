// The admin listener: what an operator asks of a running gateway. Apart from the data plane, and never open to the network
// without a token.

import { createHash, timingSafeEqual } from "node:crypto";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { BindingView } from "../routing/bindings.js";
import { SessionKeyError } from "../routing/refusals.js";
import type { Router } from "../routing/router.js";
import { addConfig } from "./admin-config.js";
import { AdminError, type Query, refuseOthers } from "./admin-error.js";
import { type AdminWorkersContext, addWorkers } from "./admin-workers.js";
import { type AskOptions, readAsk, refusalOf } from "./ask.js";
import type { ConfigControl } from "./config-control.js";
import { errorBody, type GatewayError } from "./errors.js";
import type { GatewayMetrics } from "./metrics.js";
import { addMetrics } from "./metrics-route.js";
import { discardBody } from "./upload.js";

/** What the admin routes work with. */
export interface AdminContext extends AdminWorkersContext {
  /** What they go by now. */
  readonly settings: () => AdminSettings;
  readonly config: ConfigControl | undefined;
  readonly metrics: GatewayMetrics;
  /** As of a search for a worker. */
  readonly isIncomplete: () => boolean;
}

/** What changes while they serve. */
export interface AdminSettings {
  readonly ask: AskOptions;
  /** Largest body of a request that is explained, in bytes; of others there are smaller ones. */
  readonly bodyBytes: number;
  /** What callers must show; without one only callers on this machine are answered. */
  readonly token: string | undefined;
}

/** As large as `limits.body` can be. */
const MAX_BODY_BYTES = 2 ** 30;
const REQUEST_TIMEOUT_MS = 30_000;
const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;
const NO_SESSION: GatewayError = {
  status: 404,
  code: "unknown_session",
  message: "no such session is bound",
};

/** Builds the admin server. */
export function createAdmin(context: AdminContext): FastifyInstance {
  const app = Fastify({
    logger: false,
    forceCloseConnections: true,
    bodyLimit: MAX_BODY_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    frameworkErrors: (error, _request, reply) => refuse(reply, toError(error)),
    // A worker's id has at most 128 characters, each of which may be escaped.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 3 * 128 },
  });
  // A body is a client's request: it is read as such, whatever its type says.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
  app.addHook("onRequest", (request, _reply, done) => {
    request.raw.headers["content-type"] = "application/octet-stream";
    const { token, bodyBytes } = context.settings();
    const refusal =
      (token === undefined ? (strangeHost(request) ?? strangeOrigin(request)) : badToken(request, token)) ??
      tooLarge(request, bodyBytes);
    done(refusal && new AdminError(refusal));
  });
  app.setErrorHandler((error: Error & { statusCode?: number }, _request, reply) => {
    refuse(reply, toError(error));
  });
  app.setNotFoundHandler((request, reply) => {
    const message = `there is no ${request.method} ${request.url.split("?", 1)[0]}`;
    refuse(reply, { status: 404, code: "unknown_path", message });
  });
  addSessions(app, context);
  addWorkers(app, context);
  if (context.config) addConfig(app, context.config);
  addMetrics(app, context.metrics);
  app.post("/admin/explain", (request) => explain(context, request));
  return app;
}

function addSessions(app: FastifyInstance, { router }: AdminContext): void {
  app.get<{ Querystring: Record<string, string | undefined> }>("/admin/sessions", ({ query }) => {
    const { key, parent } = query;
    if (key === undefined && parent === undefined) {
      refuseOthers(query, ["worker", "limit", "cursor"]);
      return listSessions(router, query);
    }
    refuseOthers(query, ["key", "parent", "model", "tenant"]);
    return { sessions: findSessions(router, query), next_cursor: null };
  });
  app.get<{ Params: { id: string } }>("/admin/sessions/:id", ({ params }) => {
    const session = router.session(params.id);
    if (!session) throw new AdminError(NO_SESSION);
    return session;
  });
  app.delete<{ Params: { id: string } }>("/admin/sessions/:id", ({ params }) => {
    const { id } = params;
    if (!router.endSession(id)) throw new AdminError(NO_SESSION);
    return { id, state: router.session(id) ? "ending" : "ended" };
  });
}

interface SessionList {
  readonly sessions: readonly BindingView[];
  /** To be asked for as `cursor`; null at the end. */
  readonly next_cursor: string | null;
}

function listSessions(router: Router, { worker: id, limit, cursor }: Query): SessionList {
  const worker = id === undefined ? null : [...router.workers].find((candidate) => candidate.id === id);
  if (worker === undefined)
    throw new AdminError({
      status: 404,
      code: "unknown_worker",
      message: `there is no worker ${JSON.stringify(id)}`,
    });
  const most = wholeNumber("limit", limit, DEFAULT_LIMIT, 1, MAX_LIMIT);
  const after = wholeNumber("cursor", cursor, 0, 0, 2 ** 31 - 1);
  const { views, next } = router.sessions(most, after, worker);
  return { sessions: views, next_cursor: next === 0 ? null : String(next) };
}

/** The sessions of a raw key, and those of the children of a raw parent's key: of one model, or of all. */
function findSessions(router: Router, { key, parent, model, tenant = "" }: Query): BindingView[] {
  const all = model === undefined ? [...router.workers].flatMap(({ models }) => models) : [model];
  const ids = all
    .filter((name) => router.serves(name))
    .flatMap((name) => [
      ...(key === undefined ? [] : [router.sessionIdOf(key, name, tenant)]),
      ...(parent === undefined ? [] : [router.sessionIdOf(parent, name, tenant, true)]),
    ]);
  return [...new Set(ids)].map((id) => router.session(id)).filter((session) => session !== undefined);
}

function wholeNumber(
  name: string,
  text: string | undefined,
  otherwise: number,
  least: number,
  most: number,
): number {
  if (text === undefined) return otherwise;
  const number = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= least && number <= most) return number;
  const message = `${name} must be a whole number from ${least} to ${most}, found ${JSON.stringify(text.slice(0, 40))}`;
  throw new AdminError({ status: 400, code: "invalid_query", message });
}

/** What would be chosen for the request that was sent here in place of its own path. */
function explain({ router, isIncomplete, settings }: AdminContext, request: FastifyRequest): object {
  const { ask: options, token, bodyBytes } = settings();
  const query = request.query as Query;
  refuseOthers(query, ["tenant"]);
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  if (body.length > bodyBytes) throw new AdminError(bodyTooLarge(bodyBytes));
  // The operator's token is not the client's.
  const { authorization, ...others } = request.headers;
  const ask = readAsk(options, token === undefined ? request.headers : others, body);
  if ("status" in ask) throw new AdminError(ask);
  const asked = query.tenant === undefined ? ask.request : { ...ask.request, tenant: query.tenant };
  try {
    return { ...router.explain(asked), key_source: ask.source ?? null };
  } catch (error) {
    throw new AdminError(refusalOf(error, ask.source, isIncomplete()));
  }
}

/** A body of more bytes than it may have, of which the length is told: it is not read. */
function tooLarge({ headers }: FastifyRequest, bodyBytes: number): GatewayError | undefined {
  return Number(headers["content-length"] ?? 0) > bodyBytes ? bodyTooLarge(bodyBytes) : undefined;
}

function bodyTooLarge(bodyBytes: number): GatewayError {
  const message = `the body is larger than the ${bodyBytes} bytes allowed`;
  return { status: 413, code: "body_too_large", message };
}

/** Digests of one length are compared, in a time that tells nothing of where they differ. */
function badToken({ headers }: FastifyRequest, token: string): GatewayError | undefined {
  const given = /^Bearer (.+)$/i.exec(headers.authorization ?? "")?.[1] ?? "";
  if (timingSafeEqual(digest(given), digest(token))) return undefined;
  return {
    status: 401,
    code: "unauthorized",
    message: "the admin listener wants its token: authorization: Bearer TOKEN",
  };
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** A page in a browser on this machine may reach the listener by a name of its own: such a request is not the operator's. */
function strangeHost({ hostname }: FastifyRequest): GatewayError | undefined {
  if (/^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/.test(hostname)) return undefined;
  const message = "without a token the admin listener answers only to 127.0.0.1, localhost and [::1]";
  return { status: 403, code: "strange_host", message };
}

/** A page from elsewhere may send what it cannot read the answer to; its browser says where it is from. */
function strangeOrigin({ headers: { origin, host } }: FastifyRequest): GatewayError | undefined {
  if (origin === undefined || origin === `http://${host}`) return undefined;
  const message = "without a token the admin listener answers no page in a browser but one of its own";
  return { status: 403, code: "strange_origin", message };
}

function toError(error: Error & { statusCode?: number }): GatewayError {
  if (error instanceof AdminError) return error.error;
  if (error instanceof SessionKeyError) return { status: 400, code: "invalid_query", message: error.message };
  const status = error.statusCode ?? 500;
  if (status < 500) return { status, code: "invalid_request", message: error.message };
  return { status: 500, code: "internal_error", message: "the gateway failed to handle the request" };
}

function refuse(reply: FastifyReply, error: GatewayError): void {
  discardBody(reply.raw);
  if (error.status === 401) void reply.header("www-authenticate", "Bearer");
  void reply.code(error.status).type("application/json").send(errorBody("openai", error));
}
