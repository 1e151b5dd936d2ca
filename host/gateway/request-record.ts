// What is known of one request, for all that tell of requests: counters, metrics, the log of requests and that of decisions.

import type { Clock } from "../fleet/clock.js";
import type { Lease } from "../routing/lease.js";
import { UsageReader } from "../session/usage.js";
import type { DecisionWatch } from "./decision-watch.js";
import type { GatewayMetrics } from "./metrics.js";
import type { ModelSeries } from "./metrics-series.js";
import type { Outcomes } from "./outcomes.js";
import type { RequestLog } from "./request-log.js";

/** Whom a record tells. */
export interface RecordContext {
  readonly clock: Clock;
  readonly outcomes: Outcomes;
  readonly metrics: GatewayMetrics;
  readonly requestLog: RequestLog;
  readonly decisions: DecisionWatch;
}

/** One request, from its arrival on. No prompt, no key, no secret: the session is told by its hash. */
export class RequestRecord {
  readonly path: string;
  /** The status that the client was sent, 0 for none. */
  status = 0;
  /** The name of the client's access key, where it showed one that is known. */
  client: string | undefined;
  /** Who served it and why; undefined where no worker did. */
  decision: object | undefined;
  readonly #context: RecordContext;
  readonly #cameAt: number;
  #model: string | undefined;
  #series: ModelSeries | null = null;
  #bodyAt = Number.NaN;
  #firstByteAt = Number.NaN;
  /** When the latest bytes of a stream of events came; NaN where the answer is none. */
  #chunkAt = Number.NaN;
  #isEventStream = false;
  /** Under which number the log of decisions knows of the last lease, 0 for none; when that was taken, and what came of it. */
  #trace = 0;
  #leasedAt = 0;
  #isAccepted = false;
  #usage: UsageReader | null = null;

  constructor(path: string, context: RecordContext) {
    this.path = path;
    this.#context = context;
    this.#cameAt = context.clock.now();
  }

  /** Set where some worker serves it: any other name is the client's invention. */
  get model(): string | undefined {
    return this.#model;
  }

  set model(model: string | undefined) {
    if (model === undefined || model === this.#model) return;
    this.#model = model;
    this.#series = this.#context.metrics.model(model);
  }

  /** Its body is whole. */
  bodyCame(): void {
    this.#bodyAt = this.#context.clock.now();
  }

  /** A worker was chosen. */
  leased({ trace }: Lease): void {
    this.#trace = trace;
    this.#leasedAt = this.#context.clock.now();
  }

  /** The worker failed it, and another one is tried. */
  failedOver(cause: string): void {
    this.#logDecision(cause, undefined);
    this.#trace = 0;
  }

  /** The worker's answer begins. `isReadable`: not compressed. */
  answered(isAccepted: boolean, isEventStream: boolean, isReadable: boolean): void {
    this.#isAccepted = isAccepted;
    this.#isEventStream = isEventStream && isAccepted;
    if (this.#trace > 0 && isAccepted && isReadable) this.#usage = new UsageReader();
  }

  /** Bytes of its answer. */
  chunkCame(chunk: Buffer): void {
    this.#usage?.push(chunk);
    if (this.#isEventStream) this.#eventsCame();
    else if (Number.isNaN(this.#firstByteAt)) this.#firstByteAt = this.#context.clock.now();
  }

  #eventsCame(): void {
    const now = this.#context.clock.now();
    const series = this.#series!;
    if (Number.isNaN(this.#firstByteAt)) {
      this.#firstByteAt = now;
      series.firstByte.observe(now - this.#cameAt);
    } else series.chunks.observe(now - this.#chunkAt);
    this.#chunkAt = now;
  }

  /** Its last lease, while that is held. */
  decided({ worker, policy, reason, session }: Lease): void {
    this.decision = { worker: worker.id, policy, decision: reason, session };
  }

  /**
   * It has ended; tells all. `outcome` is `complete`, `client_gone` or the code of an error; `failures` how workers failed it; `isError`
   * whether the gateway or a worker did.
   */
  ended(outcome: string, failures: readonly string[], isError: boolean): void {
    const { clock, outcomes, metrics, requestLog } = this.#context;
    outcomes.count(outcome);
    metrics.requestEnded(this.path, this.#kindOf(outcome), this.#model, clock.now() - this.#cameAt);
    requestLog.ended(this, outcome, failures, isError);
    this.#logDecision(outcome, this.status);
  }

  /** Milliseconds since it came, in tenths; undefined for what has not been. */
  times(): Readonly<Record<"body" | "first_byte" | "total", number | undefined>> {
    const since = (at: number) => (Number.isNaN(at) ? undefined : Math.round((at - this.#cameAt) * 10) / 10);
    return {
      body: since(this.#bodyAt),
      first_byte: since(this.#firstByteAt),
      total: since(this.#context.clock.now()),
    };
  }

  /** An answer that was passed on whole may have been its worker's error. */
  #kindOf(outcome: string): string {
    if (outcome !== "complete") return outcome;
    if (this.status >= 500) return "worker_answered_5xx";
    return this.status === 429 ? "answered_429" : outcome;
  }

  #logDecision(outcome: string, status: number | undefined): void {
    if (this.#trace === 0) return;
    const { clock, decisions } = this.#context;
    const firstByteMs = this.#firstByteAt - this.#leasedAt;
    decisions.log?.ended(this.#trace, {
      ...{ outcome, status: status || undefined, accepted: this.#isAccepted },
      firstByteMs: Number.isNaN(firstByteMs) ? undefined : firstByteMs,
      totalMs: clock.now() - this.#leasedAt,
      usage: this.#usage?.read(),
    });
  }
}
