// One request on its way: body in, worker chosen, dispatched, answer streamed back, lease released, whatever happens.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Lease } from "../routing/lease.js";
import { NoWorkerError } from "../routing/refusals.js";
import type { Router } from "../routing/router.js";
import { ResponseIdReader } from "../session/response-id.js";
import { type Ask, type AskOptions, readAsk, refusalOf } from "./ask.js";
import { Attempt, type AttemptListener, type Head } from "./attempt.js";
import { discardBody, readBody } from "./body.js";
import { type ErrorStyle, errorEvent, type GatewayError, sendError } from "./errors.js";
import type { Fleet } from "./fleet.js";
import { requestHeaders, responseHeaders } from "./headers.js";
import type { InFlight } from "./in-flight.js";

/** Largest request body, in bytes. */
export const BODY_LIMIT = 64 * 1_048_576;
/** Most bytes of an event stream that wait for a slow client: minutes of tokens. */
const STREAM_BUFFER = 1_048_576;
/** The same for an answer that is not a stream of events and arrives at once. */
const ANSWER_BUFFER = 64 * 1_048_576;
/** Milliseconds that a client gets to read how its stream ended. */
const LINGER_MS = 5_000;
/** Answers by which a worker turns a request away that another one may take. */
const TURNED_AWAY: ReadonlySet<number> = new Set([429, 502, 503, 504]);

const SHUTTING_DOWN: GatewayError = {
  status: 503,
  code: "shutting_down",
  message: "the gateway is shutting down",
};

/** What an exchange works with. */
export interface ExchangeContext {
  readonly router: Router;
  readonly fleet: Fleet;
  readonly ask: AskOptions;
  readonly bodyLimit: number;
  /** All that are under way: until their last byte has gone to the client, or the client has gone. */
  readonly underWay: InFlight;
  /** Hears why a worker failed a request. */
  readonly onWorkerFailure: (lease: Lease, reason: string) => void;
  /** Hears of a request whose policy failed. */
  readonly onPolicyFailure: (lease: Lease) => void;
  /** Hears of a client that was cut because it did not read. */
  readonly onSlowClient: (lease: Lease) => void;
}

/** Proxies one POST. */
export class Exchange implements AttemptListener {
  readonly #context: ExchangeContext;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #path: string;
  readonly #style: ErrorStyle;
  readonly #onClientGone = (): void => this.#finish("the client is gone");
  #ask: Ask | null = null;
  #body: Buffer | null = null;
  #attempt: Attempt | null = null;
  /** Whether a session that was kept on its worker was chosen another one. */
  #reselected = false;
  /** Whether the worker failed the request, or had no room for it. */
  #failed = false;
  /** The head for the client, until it is sent. */
  #head: { status: number; message: string | undefined; headers: string[] } | null = null;
  #isEventStream = false;
  #idReader: ResponseIdReader | null = null;
  #answerId: string | undefined;
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
    const { underWay } = this.#context;
    underWay.add(this, this.#request.socket, this.#response);
    if (underWay.isClosing) {
      this.#response.shouldKeepAlive = false;
      this.#fail(SHUTTING_DOWN);
      discardBody(this.#request);
      return;
    }
    if (hasStrangeCoding(this.#request)) {
      this.#refuseCoding();
      return;
    }
    readBody(this.#request, this.#context.bodyLimit, (body) => {
      if (body === "aborted") this.#finish("the client is gone");
      else if (body === "too_large") this.#refuseUpload();
      else this.#route(body);
    });
  }

  #refuseCoding(): void {
    const message = "a body may be sent in chunks or with its length, in no other transfer coding";
    this.#fail({ status: 501, code: "transfer_coding_unknown", message });
    discardBody(this.#request);
  }

  #refuseUpload(): void {
    const message = `the body is larger than the ${this.#context.bodyLimit} bytes allowed`;
    this.#fail({ status: 413, code: "body_too_large", message });
    discardBody(this.#request);
  }

  #route(body: Buffer): void {
    const { router, fleet, ask: options } = this.#context;
    const ask = readAsk(options, this.#request.headers, body);
    if ("status" in ask) {
      this.#fail(ask);
      return;
    }
    let lease: Lease;
    try {
      lease = router.acquire(ask.request);
    } catch (error) {
      this.#fail(refusalOf(error, ask.source, fleet.incomplete));
      return;
    }
    this.#ask = ask;
    this.#body = body;
    this.#dispatch(lease);
  }

  #dispatch(lease: Lease): void {
    const { fleet, onPolicyFailure } = this.#context;
    if (lease.failure) onPolicyFailure(lease);
    this.#attempt = new Attempt(lease, this);
    const headers = requestHeaders(this.#request.rawHeaders);
    fleet.upstream(lease.worker).dispatch(this.#path, headers, this.#body!, this.#attempt);
  }

  /** Ends the exchange because the gateway ends, with an error as honest as can still be told. */
  cut(): void {
    if (this.#over) return;
    const isAnswered = this.#response.headersSent;
    this.#finish("the gateway is shutting down");
    if (isAnswered) this.#breakOff(SHUTTING_DOWN);
    else sendError(this.#response, this.#style, SHUTTING_DOWN);
  }

  onHead({ lease }: Attempt, { status, message, headers, raw }: Head): void {
    if (TURNED_AWAY.has(status) && this.#reselect()) return;
    if (status < 400) {
      lease.commit();
      this.#expectId(headers);
    }
    this.#failed = status >= 500 || status === 429;
    const passed = responseHeaders(raw);
    passed.push("x-hawser-worker", lease.worker.id);
    passed.push("x-hawser-policy", lease.policy);
    passed.push("x-hawser-decision", lease.reason);
    this.#head = { status, message: passablePhrase(message), headers: passed };
    const type = String(headers["content-type"]);
    this.#isEventStream = type.startsWith("text/event-stream") && !headers["content-encoding"];
    // The client waits for the head; but where the body's first bytes came with it, one write carries both.
    setImmediate(this.#flushHead);
  }

  onData({ lease }: Attempt, chunk: Buffer): void {
    const response = this.#response;
    if (this.#idReader) this.#readId(lease, chunk);
    this.#sendHead();
    response.write(chunk);
    if (response.writableLength <= (this.#isEventStream ? STREAM_BUFFER : ANSWER_BUFFER)) return;
    // Never pause the worker's response: undici 7 aborts the process when a paused one meets a close.
    this.#context.onSlowClient(lease);
    this.#finish("the client reads too slowly");
    this.#breakOff({ status: 502, code: "client_too_slow", message: "the client reads too slowly" });
  }

  onEnd(): void {
    this.#sendHead();
    this.#finish();
    this.#response.end();
  }

  onFailure({ lease }: Attempt, error: Error): void {
    const isAnswered = this.#head !== null || this.#response.headersSent;
    this.#context.onWorkerFailure(lease, error.message);
    if (!isAnswered && this.#reselect()) return;
    this.#failed = true;
    if (!this.#response.headersSent) {
      const message = `worker "${lease.worker.id}" could not be reached or broke off before it answered`;
      this.#fail({ status: 502, code: "worker_unreachable", message });
      return;
    }
    this.#finish();
    const message = `worker "${lease.worker.id}" broke off in the middle of its answer`;
    this.#breakOff({ status: 502, code: "worker_failed", message });
  }

  /**
   * Ends an answer of which a part is out. A stream of events can say so; otherwise, and in any case at last, only a broken
   * connection tells the client that the rest is missing.
   */
  #breakOff(error: GatewayError): void {
    const response = this.#response;
    if (!this.#isEventStream) {
      response.destroy();
      return;
    }
    const timer = setTimeout(() => response.destroy(), LINGER_MS).unref();
    response.once("close", () => clearTimeout(timer));
    // What came last may be half an event: the empty line ends it.
    response.write(`\n\n${errorEvent(this.#style, error, this.#answerId)}`, () => response.destroy());
  }

  /**
   * Has a session that is kept on its worker as long as that serves it placed anew, once, because it does not; false
   * where there is no other worker.
   */
  #reselect(): boolean {
    const { router } = this.#context;
    const failed = this.#attempt!;
    if (this.#reselected || failed.lease.reason !== "hard") return false;
    let lease: Lease;
    try {
      lease = router.acquire({ ...this.#ask!.request, exclude: [failed.lease.worker] });
    } catch (error) {
      if (error instanceof NoWorkerError) return false;
      throw error;
    }
    this.#reselected = true;
    failed.abandon("another worker was chosen");
    failed.lease.release("failed");
    this.#dispatch(lease);
    return true;
  }

  #expectId(headers: Record<string, string | string[] | undefined>): void {
    const type = headers["content-type"];
    if (this.#style !== "responses" || typeof type !== "string" || headers["content-encoding"]) return;
    this.#idReader = new ResponseIdReader(type);
  }

  #readId(lease: Lease, chunk: Buffer): void {
    const id = this.#idReader!.push(chunk);
    if (id === undefined) return;
    this.#idReader = null;
    this.#answerId = id;
    lease.alias(id);
  }

  readonly #flushHead = (): void => {
    if (this.#over || !this.#head) return;
    this.#sendHead();
    this.#response.flushHeaders();
  };

  #sendHead(): void {
    if (!this.#head) return;
    if (this.#context.underWay.isClosing) this.#response.shouldKeepAlive = false;
    const { status, message, headers } = this.#head;
    this.#head = null;
    this.#response.writeHead(status, message, headers);
  }

  #fail(error: GatewayError): void {
    this.#finish();
    sendError(this.#response, this.#style, error);
  }

  /** Ends the exchange; the worker's request too, where a reason for that is given. */
  #finish(reason?: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#request.socket.off("close", this.#onClientGone);
    this.#attempt?.lease.release(this.#failed ? "failed" : "ended");
    if (reason !== undefined) this.#attempt?.abandon(reason);
  }
}

/** Whether a body comes in a transfer coding that Node takes off only in part: the rest would be passed on as the body. */
function hasStrangeCoding({ headers }: IncomingMessage): boolean {
  const coding = headers["transfer-encoding"];
  return coding !== undefined && coding.trim().toLowerCase() !== "chunked";
}

/** A worker's reason phrase, unless Node would refuse to send it. */
function passablePhrase(phrase: string | undefined): string | undefined {
  return phrase && /^[\t\x20-\x7e\x80-\xff]+$/.test(phrase) ? phrase : undefined;
}
