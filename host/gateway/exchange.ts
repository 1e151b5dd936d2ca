// One request on its way: body in, worker chosen, dispatched, answer streamed back, lease released, whatever happens.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import type { Lease } from "../routing/lease.js";
import { NoWorkerError, type Router, SessionKeyError } from "../routing/router.js";
import { sessionKey } from "../session/key.js";
import { discardBody, readBody } from "./body.js";
import { type ErrorStyle, type GatewayError, sendError } from "./errors.js";
import type { Fleet } from "./fleet.js";
import { requestHeaders, responseHeaders } from "./headers.js";

/** Largest request body, in bytes. */
export const BODY_LIMIT = 64 * 1_048_576;
/** Most bytes of an event stream that wait for a slow client: minutes of tokens. */
const STREAM_BUFFER = 1_048_576;
/** The same for an answer that is not a stream of events and arrives at once. */
const ANSWER_BUFFER = 64 * 1_048_576;

/** What an exchange works with. */
export interface ExchangeContext {
  readonly router: Router;
  readonly fleet: Fleet;
  readonly bodyLimit: number;
  /** Hears why a worker failed a request. */
  readonly onWorkerFailure: (lease: Lease, error: Error) => void;
}

/** Proxies one POST; hears from undici as its dispatch handler, so that nothing stands between the two sockets. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly #context: ExchangeContext;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #path: string;
  readonly #style: ErrorStyle;
  #lease: Lease | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #buffer = ANSWER_BUFFER;
  #over = false;

  /** `path` is what the worker is asked for, query included. */
  constructor(
    context: ExchangeContext,
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    style: ErrorStyle,
  ) {
    this.#context = context;
    this.#request = request;
    this.#response = response;
    this.#path = path;
    this.#style = style;
  }

  /** Runs the exchange. */
  start(): void {
    // `close` of the response, not `aborted` of the request: it also comes when the client leaves later.
    this.#response.on("close", () => this.#clientClosed());
    this.#response.on("error", () => {});
    readBody(this.#request, this.#context.bodyLimit, (body) => {
      if (body === "aborted") this.#finish();
      else if (body === "too_large") this.#refuseUpload();
      else this.#route(body);
    });
  }

  #refuseUpload(): void {
    const message = `the body is larger than the ${this.#context.bodyLimit} bytes allowed`;
    this.#fail({ status: 413, code: "body_too_large", message });
    discardBody(this.#request);
  }

  #route(body: Buffer): void {
    const model = readModel(body);
    if (typeof model !== "string") {
      this.#fail(model);
      return;
    }
    try {
      this.#lease = this.#context.router.acquire({ key: sessionKey(this.#request.headers), model });
    } catch (error) {
      this.#fail(this.#routingError(error));
      return;
    }
    const headers = requestHeaders(this.#request.rawHeaders);
    this.#context.fleet.upstream(this.#lease.worker).dispatch(this.#path, headers, body, this);
  }

  #routingError(error: unknown): GatewayError {
    if (error instanceof SessionKeyError)
      return { status: 400, code: "session_key_too_long", message: error.message };
    if (!(error instanceof NoWorkerError)) throw error;
    // A worker that has not answered yet may turn out to serve the model.
    if (error.code === "unknown_model" && !this.#context.fleet.incomplete) {
      return { status: 404, code: "model_not_found", message: error.message };
    }
    return { status: 503, code: "no_worker_eligible", message: error.message };
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new Error("the client is gone"));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    statusMessage?: string,
  ): void {
    if (status < 200 || this.#over) return;
    const lease = this.#lease!;
    if (status < 400) lease.commit();
    const passed = responseHeaders(controller.rawHeaders as Buffer[]);
    passed.push(
      "x-hawser-worker",
      lease.worker.id,
      "x-hawser-policy",
      lease.policy,
      "x-hawser-decision",
      lease.reason,
    );
    this.#response.writeHead(status, statusMessage, passed);
    if (!String(headers["content-type"]).startsWith("text/event-stream")) return;
    this.#buffer = STREAM_BUFFER;
    // The client of a stream waits for the head; but where the first event came with it, one write carries both.
    setImmediate(() => this.#over || this.#response.flushHeaders());
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return;
    const response = this.#response;
    response.write(chunk);
    if (response.writableLength > this.#buffer) {
      // Never pause the worker's response: undici 7 aborts the process when a paused one meets a close.
      controller.abort(new Error("the client reads too slowly"));
    }
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#finish();
    this.#response.end();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    const lease = this.#lease!;
    this.#context.onWorkerFailure(lease, error);
    if (!this.#response.headersSent) {
      const message = `worker "${lease.worker.id}" could not be reached or broke off before it answered`;
      this.#fail({ status: 502, code: "worker_unreachable", message });
      return;
    }
    this.#finish();
    // Part of the answer is out: only a broken connection tells the client that the rest is missing.
    this.#response.destroy();
  }

  #clientClosed(): void {
    if (this.#over) return;
    this.#finish();
    this.#controller?.abort(new Error("the client is gone"));
  }

  #fail(error: GatewayError): void {
    this.#finish();
    sendError(this.#response, this.#style, error);
  }

  #finish(): void {
    this.#over = true;
    this.#lease?.release();
  }
}

/** The model a body asks for, or what is wrong with the body. */
function readModel(body: Buffer): string | GatewayError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    return { status: 400, code: "invalid_json", message: "the body is not valid JSON" };
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    return { status: 400, code: "invalid_json", message: "the body must be a JSON object" };
  }
  const { model } = parsed as { model?: unknown };
  if (typeof model === "string" && model !== "") return model;
  return { status: 400, code: "model_required", message: 'the body must name its "model" as a string' };
}
