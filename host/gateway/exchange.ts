// One request on its way: body in, worker chosen, dispatched, answer streamed back, lease released, whatever happens.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Lease } from "../routing/lease.js";
import { NoWorkerError } from "../routing/refusals.js";
import type { Router } from "../routing/router.js";
import type { Worker } from "../routing/worker.js";
import { ResponseIdReader } from "../session/response-id.js";
import { type Ask, type AskOptions, readAsk, refusalOf } from "./ask.js";
import { Attempt, type AttemptListener, type Head } from "./attempt.js";
import type { Clock } from "./clock.js";
import type { ErrorStyle, GatewayError } from "./errors.js";
import { FirstEventReader } from "./first-event.js";
import type { Fleet } from "./fleet.js";
import { requestHeaders, responseHeaders } from "./headers.js";
import type { InFlight, UnderWay } from "./in-flight.js";
import { LateAnswer } from "./late-answer.js";
import type { DataPlaneOptions } from "./options.js";
import type { Outcomes } from "./outcomes.js";
import { Reply } from "./reply.js";
import type { RequestLog } from "./request-log.js";
import type { Cause, Retries } from "./retries.js";
import { type ByteAccount, discardBody, Upload } from "./upload.js";

/** Answers by which a worker turns away a session that is kept on it. */
const TURNED_AWAY: ReadonlySet<Cause> = new Set<Cause>(["connect", "reset", 429, 502, 503, 504]);
/** Answers that may say, by Retry-After, how long their worker wants to be left alone. */
const BACKPRESSURE: ReadonlySet<number> = new Set([429, 503]);

const SHUTTING_DOWN: GatewayError = {
  status: 503,
  code: "shutting_down",
  message: "the gateway is shutting down",
};

/** What is waited for, each with a deadline of its own. */
type Phase = "upload" | "firstByte" | "idle" | "drain";

/** Deadlines in beats. */
export type Deadlines = Readonly<Record<Phase | "total" | "keepAlive", number>>;

/** An endpoint that is proxied. */
export interface Endpoint {
  readonly path: string;
  readonly style: ErrorStyle;
  /** Whether it answers `stream: true` with a stream of events. */
  readonly streams: boolean;
}

/** What an exchange works with. */
export interface ExchangeContext {
  readonly router: Router;
  readonly fleet: Fleet;
  readonly ask: AskOptions;
  readonly options: DataPlaneOptions;
  readonly deadlines: Deadlines;
  readonly clock: Clock;
  /** All that are under way: until their last byte has gone to the client, or the client has gone. */
  readonly underWay: InFlight;
  /** The bodies of all requests. */
  readonly bodies: ByteAccount;
  readonly retries: Retries;
  readonly outcomes: Outcomes;
  readonly requestLog: RequestLog;
  /** The client's headers that are not passed on. */
  readonly droppedHeaders: ReadonlySet<string>;
  /** Hears of a request whose policy failed. */
  readonly onPolicyFailure: (lease: Lease) => void;
}

/** A 200 stream whose head is held back until its first event is known. */
interface Held {
  readonly head: Head;
  readonly reader: FirstEventReader;
  readonly chunks: Buffer[];
}

/** Proxies one POST. */
export class Exchange implements AttemptListener, UnderWay {
  /** Written by `Buffers` alone. */
  noted = 0;
  readonly #context: ExchangeContext;
  readonly #request: IncomingMessage;
  readonly #reply: Reply;
  readonly #endpoint: Endpoint;
  readonly #query: string;
  readonly #upload: Upload;
  readonly #onClientGone = (): void => {
    this.#finish("client_gone");
    this.#reply.destroy();
  };
  #ask: Ask | null = null;
  #body: Buffer | null = null;
  #attempt: Attempt | null = null;
  /** Workers that failed it, and how each did. */
  readonly #tried: Worker[] = [];
  readonly #failures: string[] = [];
  /** Whether it is counted as a retry under way. */
  #isRetry = false;
  /** Whether a session that was kept on its worker was chosen another one. */
  #reselected = false;
  /** Whether the worker failed the request, or had no room for it. */
  #failed = false;
  #held: Held | null = null;
  #late: LateAnswer | null = null;
  #idReader: ResponseIdReader | null = null;
  #over = false;
  #isComplete = false;
  // Time, in beats: since it came, since something moved, since the client heard of it.
  #phase: Phase = "upload";
  #age = 0;
  #quiet = 0;
  #silent = 0;
  /** Bytes of the worker's answer; what moved when it was last looked at. */
  #received = 0;
  #moved = 0;
  readonly #cameAt: number;
  #bodyAt: number | undefined;
  #firstByteAt: number | undefined;
  #status = 0;

  /** `query` is what follows the endpoint's path, with its question mark. */
  constructor(
    context: ExchangeContext,
    request: IncomingMessage,
    response: ServerResponse,
    endpoint: Endpoint,
    query: string,
  ) {
    const { clock, options, bodies, underWay } = context;
    this.#context = context;
    this.#request = request;
    this.#reply = new Reply(response, endpoint.style);
    this.#endpoint = endpoint;
    this.#query = query;
    this.#upload = new Upload(request, options.limits.bodyBytes, bodies);
    this.#cameAt = clock.now();
    // The socket's `close`, not the response's: a response that waits behind another in a pipeline never has one.
    request.socket.on("close", this.#onClientGone);
    underWay.add(this, request.socket, response);
  }

  get buffered(): number {
    return this.#reply.buffered;
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** Runs the exchange. */
  start(): void {
    if (this.#context.underWay.isClosing) {
      this.#reply.closeBehind();
      this.#refuseUpload(SHUTTING_DOWN);
    } else if (hasStrangeCoding(this.#request)) {
      const message = "a body may be sent in chunks or with its length, in no other transfer coding";
      this.#refuseUpload({ status: 501, code: "transfer_coding_unknown", message });
    } else {
      this.#upload.read((body) => {
        if (body === "aborted") this.#onClientGone();
        else if (body === "too_large") this.#refuseUpload(tooLarge(this.#context));
        else if (body === "no_room") this.#refuseUpload(noRoom(this.#context));
        else this.#route(body);
      });
    }
  }

  #refuseUpload(error: GatewayError): void {
    this.#fail(error);
    discardBody(this.#request);
  }

  #route(body: Buffer): void {
    const { router, fleet, ask: options, clock } = this.#context;
    this.#bodyAt = clock.now();
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
    const { fleet, onPolicyFailure, droppedHeaders } = this.#context;
    if (lease.failure) onPolicyFailure(lease);
    this.#enter("firstByte");
    this.#attempt = new Attempt(lease, this);
    const headers = requestHeaders(this.#request.rawHeaders, droppedHeaders);
    const path = this.#endpoint.path + this.#query;
    fleet.upstream(lease.worker).dispatch(path, headers, this.#body!, this.#attempt);
  }

  onHead({ lease }: Attempt, head: Head): void {
    const { status, headers } = head;
    const { retries, options } = this.#context;
    if (BACKPRESSURE.has(status)) retries.holdOff(lease.worker, headers["retry-after"]);
    if (this.#next(status, `status ${status}`)) return;
    const isStream = isEventStream(head);
    if (this.#reply.isSent) this.#acceptLate(head, isStream);
    else if (options.streams.peek && status === 200 && isStream)
      this.#held = { head, reader: new FirstEventReader(), chunks: [] };
    else this.#accept(head, isStream);
  }

  onData(_attempt: Attempt, chunk: Buffer): void {
    if (this.#phase === "firstByte") {
      this.#enter("idle");
      this.#firstByteAt = this.#context.clock.now();
    }
    this.#received += chunk.length;
    if (this.#held) this.#look(this.#held, chunk);
    else if (this.#late) this.#late.push(chunk);
    else this.#pass(chunk);
  }

  onEnd(): void {
    this.#letGo();
    if (this.#late) {
      this.#fail(this.#late.error());
      return;
    }
    this.#finish("complete");
    this.#isComplete = true;
    this.#reply.end();
  }

  onFailure({ lease, isConnected }: Attempt, error: Error): void {
    const { worker } = lease;
    this.#context.fleet.suspect(worker);
    const cause = isConnected ? "reset" : "connect";
    const isAnswered = this.#held !== null || this.#reply.hasHead;
    if (!isAnswered && this.#next(cause, error.message)) return;
    this.#note(lease, error.message);
    const message = this.#reply.isSent
      ? `worker "${worker.id}" broke off in the middle of its answer`
      : `worker "${worker.id}" could not be reached or broke off before it answered`;
    this.#fail({
      ...{ status: 502, message },
      code: this.#reply.isSent ? "worker_failed" : "worker_unreachable",
    });
  }

  /** Ends it because the gateway ends. */
  cut(): void {
    if (!this.#over) this.#fail(SHUTTING_DOWN);
  }

  /** Ends it because its reader is too slow. The worker's answer is never paused: undici 7 aborts the process when a paused one meets a close. */
  cutSlow(): void {
    if (this.#over) return;
    this.#fail({ status: 502, code: "client_too_slow", message: "the client reads too slowly" });
  }

  destroy(): void {
    // What ended well for its worker has ended badly for its reader after all.
    if (this.#isComplete) this.#context.outcomes.count("client_too_slow");
    this.#isComplete = false;
    this.#reply.destroy();
  }

  beat(): void {
    const { deadlines } = this.#context;
    this.#age++;
    const moved = this.#progress();
    this.#quiet = moved === this.#moved ? this.#quiet + 1 : 0;
    this.#moved = moved;
    if (this.#over) {
      if (this.#quiet >= deadlines.drain) this.destroy();
    } else if (this.#age >= deadlines.total) {
      const message = "the request took longer than the gateway allows";
      this.#fail({ status: 504, code: "request_timeout", message });
    } else if (this.#quiet >= deadlines[this.#phase]) this.#timeOut();
    else if (this.#awaitsStream && ++this.#silent >= deadlines.keepAlive) this.#keepAlive();
  }

  /** Whether the client waits for the first bytes of a stream of events. */
  get #awaitsStream(): boolean {
    return this.#phase === "firstByte" && this.#endpoint.streams && this.#ask!.isStream;
  }

  /** What changes whenever that moves which is waited for. */
  #progress(): number {
    if (this.#over) return this.#reply.buffered;
    return this.#phase === "upload" ? this.#upload.size : this.#received;
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#quiet = 0;
    this.#moved = this.#progress();
  }

  #timeOut(): void {
    if (this.#phase === "upload") {
      this.#reply.closeBehind();
      const message = "the body of the request came to a halt";
      this.#refuseUpload({ status: 408, code: "upload_timeout", message });
      return;
    }
    const { lease } = this.#attempt!;
    this.#context.fleet.suspect(lease.worker);
    this.#note(lease, `timeout ${this.#phase === "idle" ? "idle" : "first_byte"}`);
    const message = `worker "${lease.worker.id}" sent nothing for longer than the gateway waits`;
    this.#fail({ status: 504, code: "worker_timeout", message });
  }

  /** Tells a client that waits for a stream that it goes on. What was held back cannot be tried again then. */
  #keepAlive(): void {
    this.#silent = 0;
    this.#letGo();
    const reply = this.#reply;
    if (!reply.hasHead) {
      this.#status = 200;
      const headers = ["content-type", "text/event-stream; charset=utf-8", "cache-control", "no-cache"];
      reply.begin({ status: 200, message: undefined, headers: this.#signed(headers), isEventStream: true });
    }
    if (reply.isEventStream) reply.comment();
  }

  /** Has another worker try, where nothing has gone to the client and that is allowed; false where it is not. */
  #next(cause: Cause, reason: string): boolean {
    const { router, retries } = this.#context;
    const { request, isStateful } = this.#ask!;
    const failed = this.#attempt!;
    const { lease } = failed;
    if (this.#reply.isSent || request.pin !== undefined) return false;
    // A session that is kept on its worker as long as that serves it is placed anew, once, whatever is configured.
    const isReselection =
      lease.reason === "hard" &&
      !this.#reselected &&
      TURNED_AWAY.has(cause) &&
      retries.isSafe(cause, isStateful);
    if (!isReselection && !this.#mayRetry(cause, isStateful)) return false;
    const exclude = [...this.#tried, lease.worker, ...retries.heldOff()];
    const next = orNone(() => router.acquire({ ...request, exclude }));
    if (!next) return false;
    this.#reselected ||= isReselection;
    retries.begun++;
    if (cause !== "connect" && !isReselection) this.#countRetry();
    this.#note(lease, reason);
    this.#tried.push(lease.worker);
    failed.abandon("another worker was chosen");
    lease.release("failed");
    this.#held = null;
    this.#failed = false;
    this.#dispatch(next);
    return true;
  }

  #mayRetry(cause: Cause, isStateful: boolean): boolean {
    const { retries } = this.#context;
    if (!retries.allows(cause, isStateful) || this.#tried.length + 1 >= retries.attempts) return false;
    return this.#isRetry || cause === "connect" || retries.hasRoom();
  }

  #countRetry(): void {
    if (!this.#isRetry) this.#context.retries.begin();
    this.#isRetry = true;
  }

  #endRetry(): void {
    if (this.#isRetry) this.#context.retries.end();
    this.#isRetry = false;
  }

  /** Remembers that a worker failed the request, and how. */
  #note(lease: Lease, reason: string): void {
    this.#failed = true;
    this.#failures.push(`${lease.worker.id}: ${reason}`);
  }

  /** Takes the next bytes of a stream whose head is held back. */
  #look(held: Held, chunk: Buffer): void {
    held.chunks.push(chunk);
    const first = held.reader.push(chunk);
    if (first === "incomplete") return;
    if (first === "good") {
      this.#letGo();
      return;
    }
    const refusal = `an error event, status ${first}`;
    if (refusalBy(first) === undefined || !this.#next("event", refusal)) this.#letGo(refusal);
  }

  /** Passes on what was held back; `refusal` says that it is no answer but an error. */
  #letGo(refusal?: string): void {
    if (!this.#held) return;
    const { head, chunks } = this.#held;
    this.#held = null;
    this.#accept(head, true, refusal);
    for (const chunk of chunks) if (!this.#over) this.#pass(chunk);
  }

  /** Passes a worker's head on: what comes behind it is the answer. */
  #accept(head: Head, isStream: boolean, refusal?: string): void {
    this.#settle(head, refusal);
    const { status, message, raw } = head;
    const headers = this.#signed(responseHeaders(raw));
    this.#status = status;
    this.#reply.begin({ status, message: passablePhrase(message), headers, isEventStream: isStream });
    if (this.#context.underWay.isClosing) this.#reply.closeBehind();
  }

  /** The client has got a head already: a stream of events can follow it, any other answer only as an error. */
  #acceptLate(head: Head, isStream: boolean): void {
    this.#settle(head);
    if (head.status >= 400 || !isStream)
      this.#late = new LateAnswer(this.#attempt!.lease.worker.id, head.status);
  }

  #settle({ status, headers }: Head, refusal = refusalBy(status)): void {
    const { lease } = this.#attempt!;
    this.#endRetry();
    if (refusal !== undefined) this.#note(lease, refusal);
    if (refusal !== undefined || status >= 400) return;
    lease.commit();
    const type = headers["content-type"];
    const isReadable = typeof type === "string" && !headers["content-encoding"];
    if (this.#endpoint.style === "responses" && isReadable) this.#idReader = new ResponseIdReader(type);
  }

  /** Headers that say who answers, and why, added to others. */
  #signed(headers: string[]): string[] {
    const { worker, policy, reason } = this.#attempt!.lease;
    headers.push("x-hawser-worker", worker.id, "x-hawser-policy", policy, "x-hawser-decision", reason);
    return headers;
  }

  #pass(chunk: Buffer): void {
    if (this.#idReader) this.#readId(chunk);
    const reply = this.#reply;
    reply.write(chunk);
    const { options, underWay } = this.#context;
    const { streamBufferBytes, answerBufferBytes } = options.limits;
    if (reply.buffered > (reply.isEventStream ? streamBufferBytes : answerBufferBytes)) this.cutSlow();
    else underWay.buffers.note(this);
  }

  #readId(chunk: Buffer): void {
    const id = this.#idReader!.push(chunk);
    if (id === undefined) return;
    this.#idReader = null;
    this.#reply.answerId = id;
    this.#attempt!.lease.alias(id);
  }

  #fail(error: GatewayError): void {
    if (!this.#reply.isSent) this.#status = error.status;
    this.#finish(error.code, error.status >= 500);
    this.#reply.fail(error);
  }

  /** Ends the exchange, and with it the worker's request where that is still under way. */
  #finish(outcome: string, isError = false): void {
    if (this.#over) return;
    this.#context.outcomes.count(outcome);
    this.#log(outcome, isError || this.#failures.length > 0);
    this.#over = true;
    this.#request.socket.off("close", this.#onClientGone);
    this.#upload.stop();
    this.#attempt?.lease.release(this.#failed ? "failed" : "ended");
    this.#attempt?.abandon(outcome);
    this.#endRetry();
    this.#upload.free();
    this.#body = null;
    this.#enter("drain");
  }

  #log(outcome: string, isError: boolean): void {
    const { requestLog, clock } = this.#context;
    if (!requestLog.wants(isError)) return;
    const lease = this.#attempt?.lease;
    const since = (at: number | undefined) => (at === undefined ? undefined : at - this.#cameAt);
    requestLog.write(
      {
        path: this.#endpoint.path,
        outcome,
        status: this.#status,
        model: lease && this.#ask!.request.model,
        worker: lease?.worker.id,
        policy: lease?.policy,
        decision: lease?.reason,
        session: lease?.session,
        failed: this.#failures,
        bodyMs: since(this.#bodyAt),
        firstByteMs: since(this.#firstByteAt),
        totalMs: clock.now() - this.#cameAt,
      },
      isError,
    );
  }
}

/** What `acquire` answers; undefined where there is no worker. */
function orNone(acquire: () => Lease): Lease | undefined {
  try {
    return acquire();
  } catch (error) {
    if (error instanceof NoWorkerError) return undefined;
    throw error;
  }
}

function tooLarge({ options }: ExchangeContext): GatewayError {
  const message = `the body is larger than the ${options.limits.bodyBytes} bytes allowed`;
  return { status: 413, code: "body_too_large", message };
}

function noRoom({ options }: ExchangeContext): GatewayError {
  const message = `the bodies of all requests would take more than ${options.limits.bodyTotalBytes} bytes`;
  return { status: 503, code: "too_many_bytes", message };
}

/** How a worker fails a request by the status of its answer; undefined where it does not, and the client may have. */
function refusalBy(status: number): string | undefined {
  return status >= 500 || status === 429 ? `status ${status}` : undefined;
}

/** Whether more events may be added to an answer. */
function isEventStream({ headers }: Head): boolean {
  return String(headers["content-type"]).startsWith("text/event-stream") && !headers["content-encoding"];
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
