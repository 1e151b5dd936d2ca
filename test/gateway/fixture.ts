// A gateway in this process over upstreams that a test writes itself, all on real sockets.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import type { BreakerOptions, HealthOptions, SignalOptions } from "../../host/fleet/options.js";
import type { AdmissionOptions, DataPlaneOptions } from "../../host/gateway/options.js";
import { createGateway, type Gateway } from "../../host/gateway/server.js";
import type { GatewayOptions } from "../../host/gateway/settings.js";
import { createRouter, LeaseAudit, loadPolicy, type Router, type SessionOptions } from "../../host/index.js";

/** What an upstream of a test does with a POST, its body read. */
export type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

export interface Upstream {
  readonly url: string;
  readonly server: Server;
}

/** Starts an upstream that lists the model `m` and answers every POST with `answer`. */
export async function upstream(answer: Answer, port = 0): Promise<Upstream> {
  const server = createServer((request, response) => {
    if (request.method === "GET") {
      response.end(
        JSON.stringify({ object: "list", data: [{ id: "m", object: "model", owned_by: "test" }] }),
      );
      return;
    }
    const chunks: Buffer[] = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => answer(request, response, Buffer.concat(chunks)));
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => stop(server));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

/** Stops an upstream and cuts its connections; does nothing for one that is stopped. */
export function stop(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

export interface RunningGateway {
  readonly url: string;
  /** Where its admin listener is. */
  readonly admin: string;
  readonly router: Router;
  readonly gateway: Gateway;
  /** What it logged, a line each. */
  readonly log: string[];
  readonly audit: LeaseAudit;
}

type Partials<T> = { readonly [K in keyof T]?: T[K] extends readonly unknown[] ? T[K] : Partial<T[K]> };

/** What an operator gets who configures nothing. */
const CONFIG = parseConfig("workers: [{ id: a, url: http://127.0.0.1:1 }]", "defaults.yaml").config!;
const DEFAULTS = CONFIG.dataPlane;

/** What a test sets of the fleet. */
export interface FleetFixture {
  readonly health?: Partial<HealthOptions>;
  readonly breaker?: Partial<BreakerOptions> | null;
  readonly signals?: Partial<SignalOptions>;
  readonly admission?: Partial<AdmissionOptions>;
}

export interface GatewayFixture
  extends Omit<Partial<GatewayOptions>, "router" | "log" | "dataPlane" | "fleet" | "admission" | "workers">,
    Partials<DataPlaneOptions>,
    FleetFixture {
  readonly urls: readonly string[];
  /** What is shown to workers, by their ids. */
  readonly apiKeys?: ReadonlyMap<string, string>;
  /** Most requests of each worker. */
  readonly maxInFlight?: number;
  readonly policy?: string;
  readonly session?: SessionOptions;
  readonly models?: readonly string[];
}

/** Starts a gateway over workers w0, w1 ... at `urls`. A lease that is leaked, or released twice, fails the test. */
export async function gateway(options: GatewayFixture): Promise<RunningGateway> {
  const { urls, policy = "sticky", models, session, apiKeys, maxInFlight } = options;
  const { health, breaker, signals, admission, ...rest } = options;
  const audit = new LeaseAudit();
  const router = createRouter({
    policy: loadPolicy(policy),
    ...(session && { session }),
    audit,
  });
  const log: string[] = [];
  const running = createGateway({
    ...rest,
    router,
    log: pino({ level: "info" }, { write: (line: string) => void log.push(line) }),
    dataPlane: dataPlane(options),
    ...fleet(options),
    workers: urls.map((url, i) => ({ id: `w${i}`, url, models, maxInFlight, apiKey: apiKeys?.get(`w${i}`) })),
  });
  const url = await running.listen("127.0.0.1", 0);
  onTestFinished(async () => {
    await running.close();
    audit.check();
  });
  return { url, admin: await running.listenAdmin("127.0.0.1", 0), router, gateway: running, log, audit };
}

/** What has a gateway ask its workers for their models alone, once: where a test counts connections. */
export const QUIET = { health: { path: null, intervalMs: 3_600_000 }, signals: { path: null } } as const;

/** The defaults of the fleet, and over them what a test sets; no worker begins slowly unless it says so. */
export function fleet({ health, breaker, signals, admission }: FleetFixture = {}) {
  const defaults = CONFIG.fleet;
  return {
    fleet: {
      health: { ...defaults.health, slowStartMs: 0, ...health },
      breaker: breaker === null ? null : { ...defaults.breaker!, ...breaker },
      signals: { ...defaults.signals, ...signals },
    },
    admission: { ...CONFIG.admission, ...admission },
  };
}

/** The defaults, and over them what a test sets. */
export function dataPlane(options: Partials<DataPlaneOptions>): DataPlaneOptions {
  const { limits, timeouts, retries, streams, log, forwardCredentials } = DEFAULTS;
  return {
    limits: { ...limits, ...options.limits },
    timeouts: { ...timeouts, ...options.timeouts },
    retries: { ...retries, ...options.retries },
    streams: { ...streams, ...options.streams },
    log: { ...log, ...options.log },
    forwardCredentials: options.forwardCredentials ?? forwardCredentials,
  };
}

/** Resolves when `holds` does; for what another socket will make true in its own time. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Requests in flight over all workers. */
export function inFlight(router: Router): number {
  return router.status().workers.reduce((sum, { active_requests }) => sum + active_requests, 0);
}
