// The gateway at the moment at which its metrics are asked for.

import type { BreakerState } from "../fleet/breaker.js";
import type { Fleet } from "../fleet/fleet.js";
import type { Line } from "../fleet/line.js";
import type { MemberView, WorkerState } from "../fleet/member.js";
import type { PolicyStatus, RouterStatus } from "../routing/requests.js";
import type { Router } from "../routing/router.js";
import type { Worker } from "../routing/worker.js";
import type { Admission } from "./admission.js";
import type { ConfigControl, ConfigStatus } from "./config-control.js";
import type { Discovery } from "./discovery.js";
import type { InFlight } from "./in-flight.js";
import type { Retries } from "./retries.js";
import type { ByteAccount } from "./upload.js";

/** What became of the lines of the decision log. */
export interface DecisionLogStatus {
  readonly written: number;
  readonly dropped: number;
}

/** Where the metrics are read from. */
export interface MetricsSources {
  readonly router: Pick<Router, "status" | "serves" | "policyMemory">;
  readonly fleet: Pick<Fleet<Line>, "views">;
  readonly admission: Pick<Admission, "sizes" | "refused" | "expired">;
  readonly discovery: Pick<Discovery, "views">;
  readonly retries: Pick<Retries, "begun" | "refused">;
  readonly underWay: Pick<InFlight, "size" | "buffers">;
  readonly bodies: Pick<ByteAccount, "used">;
  /** Left out where nobody reloads the config. */
  readonly config?: Pick<ConfigControl, "status"> | undefined;
  /** Undefined as long as decisions are not logged. */
  readonly decisionLog?: () => DecisionLogStatus | undefined;
}

/** A worker's name, and what is known under it. */
export interface WorkerScene {
  readonly worker: Worker;
  readonly view: MemberView;
  readonly maxInFlight: number;
  /** Those of workers included that are gone, and had its id. */
  activeRequests: number;
}

/** A model that some worker serves. */
export interface ModelScene {
  ready: number;
  eligible: number;
  readonly waiting: number;
}

/** All that one page is made of. */
export interface Scene {
  readonly status: RouterStatus;
  readonly workers: ReadonlyMap<string, WorkerScene>;
  readonly models: ReadonlyMap<string, ModelScene>;
  /** How many policies of a name are in which state: what a name stood for before its last change may stand by. */
  readonly policies: ReadonlyMap<string, ReadonlyMap<PolicyStatus["state"], number>>;
  readonly config: ConfigStatus | undefined;
  readonly decisionLog: DecisionLogStatus | undefined;
}

export const WORKER_STATES = Object.keys({
  starting: 0,
  ready: 0,
  draining: 0,
  unhealthy: 0,
  gone: 0,
} satisfies Record<WorkerState, 0>);

export const BREAKER_STATES = Object.keys({
  closed: 0,
  open: 0,
  half_open: 0,
} satisfies Record<BreakerState, 0>);

export const POLICY_STATES = Object.keys({
  deciding: 0,
  standby: 0,
  quarantined: 0,
} satisfies Record<PolicyStatus["state"], 0>) as PolicyStatus["state"][];

/** Looks at all of it. */
export function sceneOf({ router, fleet, admission, config, decisionLog }: MetricsSources): Scene {
  const status = router.status();
  const workers = workersOf(fleet);
  return {
    ...{ status, workers, models: modelsOf(workers, admission), policies: policiesOf(status) },
    ...{ config: config?.status(), decisionLog: decisionLog?.() },
  };
}

/** By id: of two with one id, all but the first are gone. */
function workersOf(fleet: MetricsSources["fleet"]): Map<string, WorkerScene> {
  const workers = new Map<string, WorkerScene>();
  for (const { worker, view, maxInFlight } of fleet.views()) {
    const { id, activeRequests } = worker;
    const known = workers.get(id);
    if (known) known.activeRequests += activeRequests;
    else workers.set(id, { worker, view, maxInFlight, activeRequests });
  }
  return workers;
}

function modelsOf(
  workers: ReadonlyMap<string, WorkerScene>,
  admission: MetricsSources["admission"],
): Map<string, ModelScene> {
  const waiting = admission.sizes();
  const models = new Map<string, ModelScene>();
  for (const { worker, view } of workers.values()) {
    for (const model of worker.models) {
      const scene = models.get(model) ?? { ready: 0, eligible: 0, waiting: waiting.get(model) ?? 0 };
      if (view.state === "ready") scene.ready++;
      if (worker.eligible) scene.eligible++;
      models.set(model, scene);
    }
  }
  return models;
}

function policiesOf({ policies }: RouterStatus): Map<string, Map<PolicyStatus["state"], number>> {
  const byName = new Map<string, Map<PolicyStatus["state"], number>>();
  for (const { name, state } of policies) {
    const states = byName.get(name) ?? new Map<PolicyStatus["state"], number>();
    states.set(state, (states.get(state) ?? 0) + 1);
    byName.set(name, states);
  }
  return byName;
}
