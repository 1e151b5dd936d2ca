// One request on its way: body in, worker chosen, dispatched, answer streamed back, lease released, whatever happens.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import type { Lease } from "../routing/lease.js";
import { MAX_KEY_LENGTH, NoWorkerError, SessionKeyError } from "../routing/refusals.js";
import type { Router } from "../routing/router.js";
import { sessionKey } from "../session/key.js";
import { discardBody, readBody } from "./body.js";
import { type ErrorStyle, type GatewayError, sendError } from "./errors.js";
import type { Fleet } from "./fleet.js";
import { requestHeaders, responseHeaders } from "./headers.js";
import { topLevelString } from "./json-scan.js";

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
  /** Hears of a request whose policy failed. */
  readonly onPolicyFailure: (lease: Lease) => void;
  /** Hears of a client that was cut because it did not read. */
  readonly onSlowClient: (lease: Lease) => void;
}

/** Proxies one POST; hears from undici as its dispatch handler, so that nothing stands between the two sockets. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly #context: ExchangeContext;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #path: string;
  readonly #style: ErrorStyle;
  readonly #onClientGone = (): void => this.#clientGone();
  #lease: Lease | null = null;
  /** The worker's head, until it is sent. */
  #head: { status: number; message: string | undefined; headers: string[] } | null = null;
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
    // The socket's `close`, not the response's: a response that waits behind another in a pipeline never has one.
    this.#request.socket.on("close", this.#onClientGone);
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
    if (this.#lease.failure) this.#context.onPolicyFailure(this.#lease);
    const headers = requestHeaders(this.#request.rawHeaders);
    this.#context.fleet.upstream(this.#lease.worker).dispatch(this.#path, headers, body, this);
  }

  #routingError(error: unknown): GatewayError {
    if (error instanceof SessionKeyError) {
      const message = `the header that names the session has more than the ${MAX_KEY_LENGTH} bytes allowed`;
      return { status: 400, code: "session_key_too_long", message };
    }
    if (!(error instanceof NoWorkerError)) throw error;
    if (error.code === "no_worker")
      return { status: 503, code: "no_worker_eligible", message: error.message };
    if (!this.#context.fleet.incomplete)
      return { status: 404, code: "model_not_found", message: error.message };
    const message = `${error.message} yet, but some worker has not said which models it serves`;
    return { status: 503, code: "no_worker_eligible", message };
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
    passed.push("x-hawser-worker", lease.worker.id);
    passed.push("x-hawser-policy", lease.policy);
    passed.push("x-hawser-decision", lease.reason);
    this.#head = { status, message: passablePhrase(statusMessage), headers: passed };
    if (String(headers["content-type"]).startsWith("text/event-stream")) this.#buffer = STREAM_BUFFER;
    // The client waits for the head; but where the body's first bytes came with it, one write carries both.
    setImmediate(this.#flushHead);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return;
    const response = this.#response;
    this.#sendHead();
    response.write(chunk);
    if (response.writableLength <= this.#buffer) return;
    // Never pause the worker's response: undici 7 aborts the process when a paused one meets a close.
    this.#context.onSlowClient(this.#lease!);
    this.#finish();
    response.destroy();
    controller.abort(new Error("the client reads too slowly"));
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#sendHead();
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

  readonly #flushHead = (): void => {
    if (this.#over || !this.#head) return;
    this.#sendHead();
    this.#response.flushHeaders();
  };

  #sendHead(): void {
    if (!this.#head) return;
    const { status, message, headers } = this.#head;
    this.#head = null;
    this.#response.writeHead(status, message, headers);
  }

  #clientGone(): void {
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
    this.#request.socket.off("close", this.#onClientGone);
    this.#lease?.release();
  }
}

/** A worker's reason phrase, unless Node would refuse to send it. */
function passablePhrase(phrase: string | undefined): string | undefined {
  return phrase && /^[\t\x20-\x7e\x80-\xff]+$/.test(phrase) ? phrase : undefined;
}

/** The model a body asks for, or what is wrong with the body. */
function readModel(body: Buffer): string | GatewayError {
  const model = topLevelString(body, "model");
  switch (model.kind) {
    case "invalid":
      return { status: 400, code: "invalid_json", message: "the body is not valid JSON" };
    case "not_object":
      return { status: 400, code: "invalid_json", message: "the body must be a JSON object" };
    case "string":
      if (model.value !== "") return model.value;
  }
  return { status: 400, code: "model_required", message: 'the body must name its "model" as a string' };
}
