// What a gateway works with: the parts that keep state as long as it lives, and what follows from its settings, which is made
// anew when they change. What is under way goes on by the settings that it began with.

import { isDeepStrictEqual } from "node:util";
import { DecisionLog } from "../decisions/log.js";
import { type Clock, PROCESS_CLOCK } from "../fleet/clock.js";
import { Fleet } from "../fleet/fleet.js";
import { RequestReader } from "../session/request-reader.js";
import { Access } from "./access.js";
import { Admission } from "./admission.js";
import { beatFor } from "./beat.js";
import { ConfiguredWorkers } from "./configured.js";
import { DecisionWatch } from "./decision-watch.js";
import { Discovery } from "./discovery.js";
import type { ExchangeContext } from "./exchange.js";
import { droppedHeaders } from "./headers.js";
import { InFlight } from "./in-flight.js";
import { GatewayMetrics } from "./metrics.js";
import { Outcomes } from "./outcomes.js";
import type { Deadlines } from "./patience.js";
import { PolicyWatch } from "./policy-watch.js";
import { RequestLog } from "./request-log.js";
import { Retries } from "./retries.js";
import type { GatewayOptions, GatewaySettings } from "./settings.js";
import { ByteAccount } from "./upload.js";
import { Upstream } from "./upstream.js";

/** All of one gateway but its listeners. */
export class Plane {
  readonly clock: Clock;
  readonly metrics: GatewayMetrics;
  readonly admission: Admission;
  readonly underWay: InFlight;
  readonly fleet: Fleet<Upstream>;
  readonly configured: ConfiguredWorkers;
  readonly discovery: Discovery;
  /** For the requests that come now. */
  context: ExchangeContext;
  settings: GatewaySettings;
  readonly #options: GatewayOptions;
  readonly #watch: PolicyWatch;
  readonly #bodies: ByteAccount;
  readonly #retries: Retries;
  readonly #outcomes = new Outcomes();
  readonly #decisions: DecisionWatch;
  #access: Access | undefined;
  #beatMs = 0;
  #stopBeating: () => void = () => {};

  /**
   * `via` says in every request to a worker who sends it; `endpoints` are the paths whose requests are counted. Throws what `Fleet.add`
   * throws.
   */
  constructor(options: GatewayOptions, via: string, endpoints: readonly string[]) {
    const { router, log, dataPlane, clock = PROCESS_CLOCK } = options;
    const { limits } = dataPlane;
    this.#options = options;
    this.settings = options;
    this.clock = clock;
    this.admission = new Admission(options.admission);
    this.underWay = new InFlight(limits.bufferedTotalBytes);
    this.fleet = new Fleet<Upstream>({
      ...{ router, options: options.fleet, clock },
      reach: (url, apiKey) => new Upstream(url, this.settings.dataPlane.timeouts.connectMs, via, apiKey),
      listener: {
        onState({ id }, { state, reason }) {
          log[state === "unhealthy" ? "warn" : "info"]({ worker: id, state, reason }, `worker is ${state}`);
        },
        onRestart: ({ id }) => log.warn({ worker: id }, "worker was restarted: its sessions start anew"),
        onChange: (models) => this.admission.move(models),
        onDeadline: (worker) => this.underWay.cutDrained(worker),
      },
    });
    this.configured = new ConfiguredWorkers(this.fleet, options.workers);
    this.discovery = new Discovery({ fleet: this.fleet, sources: options.discovery ?? [], clock, log });
    this.#watch = new PolicyWatch(router, log);
    this.#bodies = new ByteAccount(limits.bodyTotalBytes);
    this.#retries = new Retries(dataPlane.retries, () => this.underWay.size);
    this.metrics = new GatewayMetrics({
      ...{ router, fleet: this.fleet, admission: this.admission, discovery: this.discovery, endpoints },
      ...{ retries: this.#retries, underWay: this.underWay, bodies: this.#bodies, config: options.config },
      decisionLog: () => (this.#decisions.log ? this.#decisions.lines : undefined),
      ...{ version: options.version ?? "", withProcess: options.withProcess ?? false },
    });
    this.#decisions = new DecisionWatch(this.metrics);
    router.observer = this.#decisions;
    this.#logDecisions();
    this.context = this.#contextOf(options);
    this.#beat();
  }

  /** Whether workers may be there, or serve models, that are not known yet. */
  readonly isIncomplete = (): boolean => this.fleet.incomplete || this.discovery.incomplete;

  /** Has other settings take effect. Answers which workers could not be added, and why. */
  configure(settings: GatewaySettings): string[] {
    const { dataPlane, admission, fleet, workers, discovery = [] } = settings;
    const { limits, timeouts, retries } = dataPlane;
    this.settings = settings;
    this.admission.options = admission;
    this.underWay.buffers.limit = limits.bufferedTotalBytes;
    this.#bodies.limit = limits.bodyTotalBytes;
    this.#retries.configure(retries);
    this.#watch.begin();
    this.#logDecisions();
    this.context = this.#contextOf(settings);
    this.#beat();
    for (const upstream of this.fleet.lines()) upstream.connectMs = timeouts.connectMs;
    return this.fleet.change(() => {
      this.fleet.configure(fleet);
      const failures = this.configured.apply(workers, (id) => this.discovery.inherit(id));
      this.discovery.configure(discovery);
      this.discovery.givenUp();
      return failures;
    });
  }

  /** Resolves when all that is to be logged is. */
  async stop(): Promise<void> {
    this.#stopBeating();
    this.discovery.stop();
    await this.#decisions.replaceLog(null);
  }

  /** Logs decisions by the settings of now. */
  #logDecisions(): void {
    const { decisionLog: options } = this.settings;
    if (isDeepStrictEqual(this.#decisions.log?.options, options)) return;
    const { log } = this.#options;
    const onError = ({ message }: Error) =>
      log.error({ file: options?.file, error: message }, "the decision log cannot be written");
    void this.#decisions.replaceLog(options ? new DecisionLog(options, { onError }) : null);
  }

  #contextOf(settings: GatewaySettings): ExchangeContext {
    const { router, log } = this.#options;
    const { dataPlane, allowPin = false, allowAffinityHeader = false } = settings;
    // Also where nobody needs a key for a while, what is under way for one counts when it is needed again.
    if (settings.access) this.#access = new Access(settings.access, this.#access);
    return {
      ...{ router, fleet: this.fleet, clock: this.clock, underWay: this.underWay },
      ask: { reader: settings.reader ?? new RequestReader(), allowPin, allowAffinityHeader },
      isIncomplete: this.isIncomplete,
      access: settings.access && this.#access,
      options: dataPlane,
      admission: this.admission,
      deadlines: deadlinesOf(settings),
      bodies: this.#bodies,
      retries: this.#retries,
      ...{ outcomes: this.#outcomes, metrics: this.metrics, decisions: this.#decisions },
      requestLog: new RequestLog(log, dataPlane.log),
      droppedHeaders: droppedHeaders(dataPlane.forwardCredentials),
      onPolicyFailure: (lease) => this.#watch.failed(lease),
    };
  }

  /** Beats by the settings of now, for all that is under way. */
  #beat(): void {
    const { timeouts, streams } = this.settings.dataPlane;
    const { uploadMs, firstByteMs, idleMs, totalMs } = timeouts;
    const { deadlineMs } = this.settings.admission;
    const ms = beatFor([uploadMs, deadlineMs, firstByteMs, idleMs, totalMs, streams.keepAliveMs]);
    if (ms === this.#beatMs) return;
    this.#stopBeating();
    this.#beatMs = ms;
    this.#stopBeating = this.clock.every(ms, () => this.underWay.beat(ms));
  }
}

function deadlinesOf({ dataPlane: { timeouts, streams }, admission }: GatewaySettings): Deadlines {
  return {
    upload: timeouts.uploadMs,
    queue: admission.deadlineMs,
    firstByte: timeouts.firstByteMs,
    idle: timeouts.idleMs,
    drain: timeouts.idleMs,
    total: timeouts.totalMs,
    keepAlive: streams.keepAliveMs,
  };
}
