// Metrics over a router and a fleet whose workers are reached by nobody: what a test does to them is on the page.
import type { SourceView } from "../../host/fleet/discovery.js";
import { Fleet } from "../../host/fleet/fleet.js";
import type { Line } from "../../host/fleet/line.js";
import { Admission } from "../../host/gateway/admission.js";
import type { ConfigStatus } from "../../host/gateway/config-control.js";
import { InFlight } from "../../host/gateway/in-flight.js";
import { GatewayMetrics } from "../../host/gateway/metrics.js";
import type { DecisionLogStatus } from "../../host/gateway/metrics-scene.js";
import { Retries } from "../../host/gateway/retries.js";
import { ByteAccount } from "../../host/gateway/upload.js";
import type { Program } from "../../host/policy/live.js";
import type { Manifest } from "../../host/policy/manifest.js";
import { resolveParameters } from "../../host/policy/parameters.js";
import type { PolicyInstance } from "../../host/routing/contenders.js";
import { Router } from "../../host/routing/router.js";
import { Exposition } from "../metrics/exposition.js";
import { shipped } from "../routing/fixture.js";
import { dataPlane, fleet as fleetOptions } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

/** What the gateway's config and discovery would say. */
export interface Told {
  config?: ConfigStatus;
  decisionLog?: DecisionLogStatus;
  views: SourceView[];
}

/** What engines say of themselves, as vLLM does. */
const ENGINE = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.25\n";

/** Answers everything that is asked of a worker. */
const LINE: Line = {
  show: () => {},
  get: async (path) => ({ status: 200, text: path === "/metrics" ? ENGINE : "" }),
  // As one whose requests never end.
  close: () => new Promise(() => {}),
  destroy: async () => {},
};

const ENDPOINTS = ["/v1/chat/completions", "/v1/embeddings"];

/** An instance of a shipped policy, or of another one, with the defaults of its parameters. */
export function instanceOf(
  name: string,
  policy: Program & { readonly manifest: Pick<Manifest, "parameters"> } = shipped("sticky"),
): PolicyInstance {
  return { name, policy, parameters: resolveParameters(policy.manifest.parameters, undefined).values };
}

export interface MeteredOptions {
  readonly instance?: PolicyInstance;
  readonly fallback?: PolicyInstance;
  readonly withProcess?: boolean;
}

/** Metrics of workers w0, w1 ..., that serve the models that are given for each. */
export function metered(models: readonly (readonly string[])[], options: MeteredOptions = {}) {
  const { instance = instanceOf("sticky"), fallback, withProcess = false } = options;
  const clock = new VirtualClock();
  const router = new Router({ instance, fallback, seed: 1, clock: () => clock.now() });
  const ignore = () => {};
  const { fleet: ofFleet, admission: ofAdmission } = fleetOptions();
  const fleet = new Fleet({
    ...{ router, options: ofFleet, clock, reach: () => LINE },
    listener: { onState: ignore, onRestart: ignore, onChange: ignore, onDeadline: ignore },
  });
  for (const [i, served] of models.entries())
    fleet.add({ id: `w${i}`, url: `http://10.0.0.${i}:8000`, models: [...served] }, "config");
  const { limits, retries: retryOptions } = dataPlane({});
  const admission = new Admission(ofAdmission);
  const underWay = new InFlight(limits.bufferedTotalBytes);
  const retries = new Retries(retryOptions, () => 0);
  const told: Told = { views: [] };
  const metrics = new GatewayMetrics({
    ...{ router, fleet, admission, underWay, retries, bodies: new ByteAccount(limits.bodyTotalBytes) },
    discovery: { views: () => told.views },
    config: { status: () => told.config! },
    decisionLog: () => told.decisionLog,
    ...{ version: "1.2.3", endpoints: ENDPOINTS, withProcess },
  });
  const page = async () => new Exposition(await metrics.text());
  return { clock, router, fleet, admission, retries, metrics, told, page };
}

/** What the gateway's config and discovery say where all of it is there. */
export const ALL_TOLD: Required<Told> = {
  config: {
    ...{ file: "hawser.yaml", generation: 3, loadedAt: 1_700_000_000_500, view: {}, warnings: [] },
    ...{ restartNeeded: [{ key: "listen.port", in_force: 1, in_file: 2 }], applied: 2, failed: 1 },
    lastReload: { result: "failed", at: 1_700_000_001_000, by: "watch", mistakes: ["a mistake"] },
  },
  decisionLog: { written: 12, dropped: 1 },
  views: [
    { kind: "file", watches: "/etc/workers.json", workers: 2, ageMs: 1_500, error: null },
    { kind: "dns", watches: "the A records of vllm", workers: 0, ageMs: null, error: "no answer" },
    { kind: "dns", watches: "the A records of vllm", workers: 3, ageMs: 10, error: null },
  ],
};
