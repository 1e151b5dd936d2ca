// One request on its way: body in, worker chosen, dispatched, answer streamed back, lease released, whatever happens.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Fleet } from "../fleet/fleet.js";
import type { Lease } from "../routing/lease.js";
import type { Worker } from "../routing/worker.js";
import { ResponseIdReader } from "../session/response-id.js";
import { type AnswerHead, fieldOf } from "../transport/answer.js";
import type { Access, Admitted } from "./access.js";
import { type Ask, type AskOptions, readAsk } from "./ask.js";
import { Attempt, type AttemptListener } from "./attempt.js";
import { type ErrorStyle, type GatewayError, isClientsFault } from "./errors.js";
import { HeldStream } from "./first-event.js";
import { hasStrangeCoding, isEventStream, requestHeaders, responseHeaders } from "./headers.js";
import type { InFlight, UnderWay } from "./in-flight.js";
import { LateAnswer } from "./late-answer.js";
import type { DataPlaneOptions } from "./options.js";
import { type Deadlines, Patience } from "./patience.js";
import { Reply } from "./reply.js";
import { type RecordContext, RequestRecord } from "./request-record.js";
import { type Cause, type Retries, retryAfterMs } from "./retries.js";
import { Trail } from "./trail.js";
import { type ByteAccount, Upload } from "./upload.js";
import type { Upstream } from "./upstream.js";
import { type SearchContext, type SearchListener, WorkerSearch } from "./worker-search.js";

/** Answers that may say, by Retry-After, how long their worker wants to be left alone. */
const BACKPRESSURE: ReadonlySet<number> = new Set([429, 503]);

const SHUTTING_DOWN: GatewayError = {
  status: 503,
  code: "shutting_down",
  message: "the gateway is shutting down",
};

/** An endpoint that is proxied. */
export interface Endpoint {
  readonly path: string;
  readonly style: ErrorStyle;
  /** Whether it answers `stream: true` with a stream of events. */
  readonly streams: boolean;
}

/** What an exchange works with. */
export interface ExchangeContext extends SearchContext, RecordContext {
  readonly fleet: Fleet<Upstream>;
  readonly ask: AskOptions;
  /** Undefined where anybody may use the gateway. */
  readonly access: Access | undefined;
  readonly options: DataPlaneOptions;
  readonly deadlines: Deadlines;
  /** All that are under way: until their last byte has gone to the client, or the client has gone. */
  readonly underWay: InFlight;
  /** The bodies of all requests. */
  readonly bodies: ByteAccount;
  readonly retries: Retries;
  /** The client's headers that are not passed on. */
  readonly droppedHeaders: ReadonlySet<string>;
  /** Hears of a request whose policy failed. */
  readonly onPolicyFailure: (lease: Lease) => void;
}

/** Proxies one POST. */
export class Exchange implements SearchListener, AttemptListener, UnderWay {
  /** Written by `Buffers` alone. */
  noted = 0;
  /** Written by `InFlight` alone. */
  place = -1;
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
  readonly #trail: Trail;
  readonly #patience: Patience;
  readonly #record: RequestRecord;
  #admitted: Admitted | null = null;
  #ask: Ask | null = null;
  #body: Buffer | null = null;
  #search: WorkerSearch | null = null;
  #attempt: Attempt | null = null;
  /** When the attempt began. */
  #begunAt = 0;
  /** Whether the worker's answer has begun, and is none of an error. */
  #isGood = false;
  /** Whether the worker failed the request, or had no room for it. */
  #failed = false;
  #held: HeldStream | null = null;
  #late: LateAnswer | null = null;
  #idReader: ResponseIdReader | null = null;
  /** Bytes of workers' answers, but for what the client has not been given. */
  #received = 0;
  /** Whether it will be seen in a moment whether its reader is too slow. */
  #isSuspect = false;
  #over = false;
  /** Whether all of the worker's answer has come, and its reader takes what there is of it still. */
  #isComplete = false;

  /** `query` is what follows the endpoint's path, with its question mark. */
  constructor(
    context: ExchangeContext,
    request: IncomingMessage,
    response: ServerResponse,
    endpoint: Endpoint,
    query: string,
  ) {
    const { options, bodies, underWay, retries, deadlines } = context;
    this.#context = context;
    this.#request = request;
    this.#reply = new Reply(response, endpoint.style);
    this.#endpoint = endpoint;
    this.#query = query;
    this.#upload = new Upload(request, options.limits.bodyBytes, bodies);
    this.#trail = new Trail(retries);
    this.#patience = new Patience(deadlines);
    this.#record = new RequestRecord(endpoint.path, context);
    // The socket's `close`, not the response's: a response that waits behind another in a pipeline never has one.
    request.socket.on("close", this.#onClientGone);
    underWay.add(this, request.socket, response);
  }

  get buffered(): number {
    return this.#reply.buffered + (this.#held?.size ?? 0) + (this.#late?.size ?? 0);
  }

  get isOver(): boolean {
    return this.#over;
  }

  get worker(): Worker | null {
    return this.#over || !this.#attempt ? null : this.#attempt.lease.worker;
  }

  /** Runs the exchange. */
  start(): void {
    const { underWay, access } = this.#context;
    if (underWay.isClosing) {
      this.#reply.closeBehind();
      this.#refuseUpload(SHUTTING_DOWN);
    } else if (access && !this.#admit(access)) {
      return;
    } else if (hasStrangeCoding(this.#request.headers)) {
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

  /** Counts it for its client; false where it was refused. */
  #admit(access: Access): boolean {
    const admission = access.admit(this.#request.headers);
    this.#record.client = admission.client;
    if ("status" in admission) {
      this.#refuseUpload(admission);
      return false;
    }
    this.#admitted = admission;
    return true;
  }

  #refuseUpload(error: GatewayError): void {
    this.#fail(error);
    this.#reply.discardBody();
  }

  #route(body: Buffer): void {
    this.#record.bodyCame();
    const ask = readAsk(this.#context.ask, this.#request.headers, body);
    if ("status" in ask) {
      this.#fail(ask);
      return;
    }
    this.#ask = ask;
    this.#body = body;
    this.#search = new WorkerSearch(this.#context, ask, this);
    this.#search.start();
  }

  onLine(): void {
    this.#record.model = this.#ask!.request.model;
    this.#patience.enter("queue", this.#received);
  }

  onRefusal(error: GatewayError, isServed: boolean): void {
    if (isServed) this.#record.model = this.#ask!.request.model;
    this.#fail(error);
  }

  onLease(lease: Lease): void {
    const { fleet, clock, onPolicyFailure, droppedHeaders } = this.#context;
    this.#record.model = this.#ask!.request.model;
    this.#record.leased(lease);
    if (lease.failure) onPolicyFailure(lease);
    this.#begunAt = clock.now();
    this.#patience.enter("firstByte", this.#received);
    this.#attempt = new Attempt(lease, this);
    const headers = requestHeaders(this.#request.rawHeaders, droppedHeaders);
    const path = this.#endpoint.path + this.#query;
    this.#attempt.start(fleet.line(lease.worker), path, headers, this.#body!);
  }

  onHead({ lease }: Attempt, head: AnswerHead): void {
    const { status, fields } = head;
    const { fleet, options } = this.#context;
    if (BACKPRESSURE.has(status)) fleet.busy(lease.worker, retryAfterMs(fieldOf(fields, "retry-after")));
    if (isFault(status)) fleet.failed(lease.worker, this.#begunAt, `status ${status}`);
    if (this.#next(status, `status ${status}`)) return;
    const isStream = isEventStream(fields);
    if (this.#reply.isSent) this.#acceptLate(head, isStream);
    else if (options.streams.peek && status === 200 && isStream) this.#held = new HeldStream(head);
    else this.#accept(head, isStream);
  }

  onData(_attempt: Attempt, chunk: Buffer): void {
    if (this.#held) this.#look(this.#held, chunk);
    else if (this.#late) this.#hearOut(this.#late, chunk);
    else this.#pass(chunk);
  }

  onEnd(): void {
    this.#letGo();
    if (this.#over) return;
    if (this.#late) {
      this.#fail(this.#late.error());
      return;
    }
    this.#isComplete = true;
    if (this.#isGood) this.#context.fleet.completed(this.#attempt!.lease.worker);
    this.#finish("complete");
    this.#reply.end();
  }

  onFailure(attempt: Attempt, error: Error): void {
    const { lease, isConnected } = attempt;
    const { worker } = lease;
    const { fleet } = this.#context;
    if (isConnected) this.#report(error.message);
    else fleet.disconnected(worker, this.#begunAt, error.message);
    const cause = isConnected ? "reset" : "connect";
    if (this.#isUnheard(attempt) && this.#next(cause, error.message)) return;
    this.#blame(error.message);
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
    if (this.#over) this.#tellEnd(SHUTTING_DOWN.code, true);
    else this.#fail(SHUTTING_DOWN);
  }

  left(isWhole: boolean): void {
    this.#tellEnd(isWhole ? "complete" : "client_gone");
  }

  /** Ends it because the time of its worker, which is drained, is over. */
  cutDrained(): void {
    const message = "the worker is taken out of service, and the time for its last requests is over";
    if (this.#over || (this.#isUnheard(this.#attempt!) && this.#next("drained", "drained"))) return;
    this.#fail({ status: 503, code: "worker_drained", message });
  }

  /** Ends it because its reader is too slow. The worker's answer is never paused. */
  cutSlow(): void {
    if (this.#over) return;
    this.#fail({ status: 502, code: "client_too_slow", message: "the client reads too slowly" });
  }

  destroy(): void {
    this.#tellEnd("client_too_slow", true);
    this.#reply.destroy();
  }

  beat(ms: number): void {
    switch (this.#patience.beat(this.#progress(), ms)) {
      case "nothing":
        return;
      case "total": {
        const message = "the request took longer than the gateway allows";
        this.#giveUp({ status: 504, code: "request_timeout", message });
        return;
      }
      case "silence":
        if (!this.#over) this.#timeOut();
        else if (this.#reply.waiting > 0) this.#leaveReader();
        return;
      case "keepAlive":
        if (this.#endpoint.streams && this.#ask!.isStream) this.#keepAlive();
    }
  }

  /** Breaks with a reader that takes nothing. Where nothing is there to be taken the answer waits for its turn. */
  #leaveReader(): void {
    this.destroy();
    // What it waits behind is not read either.
    this.#request.socket.destroy();
  }

  #progress(): number {
    if (this.#over) return this.#reply.waiting;
    return this.#patience.phase === "upload" ? this.#upload.size : this.#received;
  }

  #timeOut(): void {
    const { phase } = this.#patience;
    if (phase === "upload") {
      const message = "the body of the request came to a halt";
      this.#giveUp({ status: 408, code: "upload_timeout", message });
      return;
    }
    if (phase === "queue") {
      this.#fail(this.#search!.expire());
      return;
    }
    if (this.#late) {
      this.#fail(this.#late.error());
      return;
    }
    const { worker } = this.#attempt!.lease;
    const what = phase === "idle" ? "idle timeout" : "first byte timeout";
    this.#report(what);
    this.#blame(what);
    const message = `worker "${worker.id}" sent nothing for longer than the gateway waits`;
    this.#fail({ status: 504, code: "worker_timeout", message });
  }

  /** Ends it because of the time it takes. A client that is still sending is not to keep its connection. */
  #giveUp(error: GatewayError): void {
    if (this.#patience.phase === "upload") {
      this.#reply.closeBehind();
      this.#refuseUpload(error);
    } else this.#fail(error);
  }

  /** Tells a client that waits for a stream that it goes on. What was held back cannot be tried again then. */
  #keepAlive(): void {
    this.#letGo();
    if (this.#over) return;
    const reply = this.#reply;
    if (!reply.hasHead) {
      this.#record.status = 200;
      const headers = ["content-type", "text/event-stream; charset=utf-8", "cache-control", "no-cache"];
      reply.begin({ status: 200, message: undefined, headers: this.#signed(headers), isEventStream: true });
    }
    if (reply.isEventStream) reply.comment();
  }

  /** Whether nothing of its answer is known that another worker's could not begin with. */
  #isUnheard(attempt: Attempt): boolean {
    return !attempt.isAnswered || this.#held !== null;
  }

  /** Has another worker try, where nothing has gone to the client and that is allowed; false where it is not. */
  #next(cause: Cause, reason: string): boolean {
    const { admission, fleet } = this.#context;
    const { request, isStateful } = this.#ask!;
    const search = this.#search!;
    const trail = this.#trail;
    const failed = this.#attempt!;
    const { lease } = failed;
    if (this.#reply.isSent || request.pin !== undefined) return false;
    if (!trail.mayGoOn(lease, cause, isStateful)) return false;
    const exclude = trail.closedTo(lease);
    const next = search.another(exclude);
    if (next === "none") return false;
    trail.goOn(lease, cause, isStateful);
    trail.note(lease, reason);
    this.#record.failedOver(reason);
    failed.abandon();
    lease.release("failed");
    fleet.ended(lease.worker, this.#begunAt);
    this.#attempt = null;
    this.#held = null;
    if (next === "full") search.standInLine(exclude);
    else this.onLease(next);
    admission.move(lease.worker.models);
    return true;
  }

  /** Has the fleet know that the worker failed the request. */
  #report(why: string): void {
    const { fleet } = this.#context;
    const { worker } = this.#attempt!.lease;
    if (this.#isGood) fleet.brokeOff(worker, this.#begunAt, why);
    else fleet.failed(worker, this.#begunAt, why);
  }

  /** Holds against the worker that it failed the request. */
  #blame(reason: string): void {
    this.#failed = true;
    this.#trail.note(this.#attempt!.lease, reason);
  }

  /** Takes the next bytes of a stream whose head is held back. */
  #look(held: HeldStream, chunk: Buffer): void {
    const first = held.push(chunk);
    if (first === "incomplete") {
      this.#context.underWay.buffers.note(this);
      return;
    }
    if (first === "good") {
      this.#letGo();
      return;
    }
    const { fleet } = this.#context;
    const { worker } = this.#attempt!.lease;
    if (BACKPRESSURE.has(first)) fleet.busy(worker, Number.NaN);
    if (isFault(first)) this.#report(`an error event, status ${first}`);
    const refusal = refusalBy(first) && `an error event, status ${first}`;
    if (refusal === undefined || !this.#next("event", refusal)) this.#letGo(true, refusal);
  }

  /** Passes on what was held back: an answer, or an error, by which the worker may have failed. */
  #letGo(isError = false, refusal?: string): void {
    if (!this.#held) return;
    const { head, bytes } = this.#held;
    this.#held = null;
    this.#accept(head, true, isError, refusal);
    if (bytes.length > 0) this.#pass(bytes);
  }

  /** Takes the next bytes of an error that comes too late to be passed on: as long as its message may be among them. */
  #hearOut(late: LateAnswer, chunk: Buffer): void {
    if (late.push(chunk)) this.#context.underWay.buffers.note(this);
    else this.#fail(late.error());
  }

  /** Passes a worker's head on: what comes behind it is the answer. */
  #accept(
    head: AnswerHead,
    isStream: boolean,
    isError = head.status >= 400,
    refusal = refusalBy(head.status),
  ): void {
    this.#settle(head, isError, refusal);
    const { status, message, fields } = head;
    // A length would take the event by which a stream that breaks off ends for a part of the answer.
    const headers = this.#signed(responseHeaders(fields, isStream));
    this.#record.status = status;
    this.#reply.begin({ status, message: message || undefined, headers, isEventStream: isStream });
    if (this.#context.underWay.isClosing) this.#reply.closeBehind();
  }

  /** The client has got a head already: a stream of events can follow it, any other answer only as an error. */
  #acceptLate(head: AnswerHead, isStream: boolean): void {
    const isError = head.status >= 400 || !isStream;
    this.#settle(
      head,
      isError,
      head.status < 400 && isError ? "no stream of events" : refusalBy(head.status),
    );
    if (!isError) return;
    this.#late = new LateAnswer(this.#attempt!.lease.worker.id, head.status);
    // Time for all of it: that it trickles in does not count.
    this.#patience.enter("firstByte", this.#received);
  }

  #settle({ fields }: AnswerHead, isError: boolean, refusal: string | undefined): void {
    const { lease } = this.#attempt!;
    this.#trail.arrive();
    if (refusal !== undefined) this.#blame(refusal);
    const isReadable = !fieldOf(fields, "content-encoding");
    this.#record.answered(!isError, isEventStream(fields), isReadable);
    if (isError) return;
    this.#isGood = true;
    this.#context.fleet.succeeded(lease.worker, this.#begunAt);
    lease.commit();
    if (this.#endpoint.style !== "responses") return;
    const type = fieldOf(fields, "content-type");
    if (type !== undefined && isReadable) this.#idReader = new ResponseIdReader(type);
  }

  /** Headers that say who answers, and why, added to others. */
  #signed(headers: string[]): string[] {
    const { worker, policy, reason } = this.#attempt!.lease;
    headers.push("x-hawser-worker", worker.id, "x-hawser-policy", policy, "x-hawser-decision", reason);
    return headers;
  }

  #pass(chunk: Buffer): void {
    this.#received += chunk.length;
    if (this.#patience.phase === "firstByte") this.#patience.enter("idle", this.#received);
    this.#record.chunkCame(chunk);
    if (this.#idReader) this.#readId(chunk);
    this.#reply.write(chunk);
    this.#context.underWay.buffers.note(this);
    if (this.#holdsTooMuch() && !this.#isSuspect) {
      // What was written in this turn has not left yet, however fast the reader is.
      this.#isSuspect = true;
      setImmediate(this.#judge);
    }
  }

  readonly #judge = (): void => {
    this.#isSuspect = false;
    if (this.#holdsTooMuch()) this.cutSlow();
  };

  #holdsTooMuch(): boolean {
    const { streamBufferBytes, answerBufferBytes } = this.#context.options.limits;
    const { buffered, isEventStream } = this.#reply;
    return buffered > (isEventStream ? streamBufferBytes : answerBufferBytes);
  }

  #readId(chunk: Buffer): void {
    const id = this.#idReader!.push(chunk);
    if (id === undefined) return;
    this.#idReader = null;
    this.#reply.answerId = id;
    this.#attempt!.lease.alias(id);
  }

  #fail(error: GatewayError): void {
    if (!this.#reply.isSent) this.#record.status = error.status;
    this.#finish(error.code, !isClientsFault(error));
    this.#reply.fail(error);
  }

  /** Ends the exchange, and with it the worker's request where that is still under way. */
  #finish(outcome: string, isError = false): void {
    if (this.#over) return;
    const { admission, fleet } = this.#context;
    const lease = this.#attempt?.lease;
    if (lease) this.#record.decided(lease);
    // What ended well for its worker may end badly for its reader after all.
    if (!this.#isComplete) this.#tell(outcome, isError);
    this.#over = true;
    this.#held = null;
    this.#late = null;
    this.#admitted?.release();
    this.#request.socket.off("close", this.#onClientGone);
    this.#upload.stop();
    lease?.release(this.#failed ? "failed" : "ended");
    this.#attempt?.abandon();
    this.#trail.arrive();
    this.#upload.free();
    this.#body = null;
    this.#patience.enter("drain", this.#reply.waiting);
    this.#search?.stop();
    if (!lease) return;
    fleet.ended(lease.worker, this.#begunAt);
    admission.move(lease.worker.models);
  }

  /** Tells how a request ended whose worker's answer had come; nothing where that is told. */
  #tellEnd(outcome: string, isError = false): void {
    if (this.#isComplete) this.#tell(outcome, isError);
    this.#isComplete = false;
  }

  /** Has it told how the request ended. */
  #tell(outcome: string, isError: boolean): void {
    const { failures } = this.#trail;
    this.#record.ended(outcome, failures, isError || failures.length > 0);
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

/** Whether a status speaks against the worker: 503 says that it is busy, 501 that it is no worker for such a request. */
function isFault(status: number): boolean {
  return status >= 500 && status !== 501 && status !== 503;
}

/** How a worker fails a request by the status of its answer; undefined where it does not, and the client may have. */
function refusalBy(status: number): string | undefined {
  return status >= 500 || status === 429 ? `status ${status}` : undefined;
}
