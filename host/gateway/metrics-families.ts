// Every metric of the gateway: its name, what it says, and where it is read from.

import type { SourceView } from "../fleet/discovery.js";
import { alone, counter, type Family, gauge, histogram, type Sample } from "../metrics/family.js";
import type { Histogram } from "../metrics/histogram.js";
import type { Tally } from "../metrics/tally.js";
import type { ConfigStatus } from "./config-control.js";
import {
  BREAKER_STATES,
  type DecisionLogStatus,
  type MetricsSources,
  type ModelScene,
  POLICY_STATES,
  type Scene,
  WORKER_STATES,
  type WorkerScene,
} from "./metrics-scene.js";
import type { ModelSeries, PolicySeries } from "./metrics-series.js";

/** What the families are read from. */
export interface MetricsReading extends MetricsSources {
  /** The moment that is shown. */
  readonly scene: () => Scene;
  readonly requests: ReadonlyMap<string, Tally>;
  readonly models: ReadonlyMap<string, ModelSeries>;
  readonly policies: ReadonlyMap<string, PolicySeries>;
  readonly version: string;
}

const MS = 1_000;

/** All of them. */
export function familiesOf(reading: MetricsReading): Family[] {
  return [
    gauge("hawser_build_info", "1, with the version of the gateway and of Node", ["version", "node"], () => [
      [[reading.version, process.version], 1],
    ]),
    ...traffic(reading),
    ...times(reading),
    ...affinity(reading),
    ...policies(reading),
    ...models(reading),
    ...workers(reading),
    ...engines(reading),
    ...discovery(reading),
    ...config(reading),
    ...decisionLog(reading),
  ];
}

function traffic({ requests, underWay, bodies, retries, admission }: MetricsReading): Family[] {
  return [
    counter("hawser_requests_total", "Requests by how they ended", ["endpoint", "outcome"], () =>
      talliesOf(requests, (tally) => tally),
    ),
    gauge("hawser_requests_in_flight", "Requests under way, until their last byte has left", [], () =>
      alone(underWay.size),
    ),
    gauge("hawser_body_bytes", "Bytes held of the bodies of requests", [], () => alone(bodies.used)),
    gauge("hawser_buffered_bytes", "Bytes of answers that their readers have not taken yet", [], () => {
      underWay.buffers.recount();
      return alone(underWay.buffers.bytes);
    }),
    counter("hawser_retries_total", "Requests tried on another worker", [], () => alone(retries.begun)),
    counter("hawser_retries_refused_total", "Retries that the budget did not allow", [], () =>
      alone(retries.refused),
    ),
    counter("hawser_queue_refused_total", "Requests for which the waiting line was full", [], () =>
      alone(admission.refused),
    ),
    counter("hawser_queue_expired_total", "Requests that waited for as long as they may", [], () =>
      alone(admission.expired),
    ),
  ];
}

function times({ models }: MetricsReading): Family[] {
  const by = (take: (series: ModelSeries) => Histogram) => () => each(models, take);
  return [
    histogram(
      "hawser_time_to_first_token_seconds",
      "From the arrival of a request for a stream of events until its first byte",
      ["model"],
      by(({ firstByte }) => firstByte),
    ),
    histogram(
      "hawser_inter_chunk_seconds",
      "Between two chunks of a stream of events",
      ["model"],
      by(({ chunks }) => chunks),
    ),
    histogram(
      "hawser_request_duration_seconds",
      "From the arrival of a request until its end",
      ["model"],
      by(({ duration }) => duration),
    ),
  ];
}

function affinity({ scene }: MetricsReading): Family[] {
  const alike = (name: string, help: string, take: (status: Scene["status"]) => number) =>
    counter(name, help, [], () => alone(take(scene().status)));
  return [
    counter(
      "hawser_affinity_total",
      "Accepted requests that stayed on their session's worker, left it although it was eligible, or had none to stay on",
      ["result"],
      () => {
        const { affinity_kept: kept, affinity_broken: broken, affinity_placed: placed } = scene().status;
        return countsOf({ kept, broken, placed });
      },
    ),
    gauge("hawser_bindings", "Bindings held", [], () => alone(scene().status.bindings)),
    alike(
      "hawser_bindings_evicted_total",
      "Bindings that gave way to new ones before their time",
      (status) => {
        return status.bindings_evicted;
      },
    ),
    alike("hawser_bindings_refused_total", "Requests served unbound because the table was full", (status) => {
      return status.bindings_refused;
    }),
    alike(
      "hawser_rebinds_lost_total",
      "Accepted moves that lost to another one of the same session",
      (status) => {
        return status.rebinds_lost;
      },
    ),
  ];
}

function policies({ scene, policies, router }: MetricsReading): Family[] {
  const by = (take: (series: PolicySeries) => Histogram) => () => each(policies, take);
  return [
    counter("hawser_decisions_total", "Choices of a worker by why", ["policy", "decision"], () =>
      talliesOf(policies, ({ decisions }) => decisions),
    ),
    counter(
      "hawser_policy_failures_total",
      "Answers of a policy that were not used",
      ["policy", "kind"],
      () => talliesOf(policies, ({ failures }) => failures),
    ),
    gauge(
      "hawser_policy_state",
      "How many policies of a name are in a state: more than one where it stood for another one before",
      ["policy", "state"],
      () => states(scene().policies, POLICY_STATES, (all, state) => all.get(state) ?? 0),
    ),
    histogram(
      "hawser_decision_time_microseconds",
      "What a call of the policy took",
      ["policy"],
      by(({ time }) => time),
    ),
    histogram(
      "hawser_policy_fuel_ratio",
      "What a call of the policy used of its budget of fuel",
      ["policy"],
      by(({ fuel }) => fuel),
    ),
    counter("hawser_policy_fuel_used_total", "Units of fuel that the policy used", ["policy"], () =>
      each(policies, ({ fuelUsed }) => fuelUsed),
    ),
    gauge(
      "hawser_policy_instances",
      "Live instances of the policy: one for each model, and of what its name stood for before",
      ["policy"],
      () => memoryOf(({ instances }) => instances),
    ),
    gauge("hawser_policy_memory_bytes", "Bytes of the memories of these instances", ["policy"], () =>
      memoryOf(({ bytes }) => bytes),
    ),
  ];

  function memoryOf(take: (held: { instances: number; bytes: number }) => number): Iterable<Sample<number>> {
    const held = router.policyMemory();
    return each(scene().policies, (_, name) => take(held.get(name) ?? { instances: 0, bytes: 0 }));
  }
}

function models({ scene }: MetricsReading): Family[] {
  const by = (name: string, help: string, take: (model: ModelScene) => number) =>
    gauge(name, help, ["model"], () => each(scene().models, take));
  return [
    by("hawser_requests_waiting", "Requests that wait for a worker with room", ({ waiting }) => waiting),
    by("hawser_model_ready_workers", "Workers of the model that are ready", ({ ready }) => ready),
    by("hawser_model_eligible_workers", "Workers of the model that are ready and have room", (model) => {
      return model.eligible;
    }),
  ];
}

function workers({ scene }: MetricsReading): Family[] {
  const by = (name: string, help: string, take: (worker: WorkerScene) => number | null) =>
    gauge(name, help, ["worker"], () => known(scene().workers, take));
  return [
    gauge("hawser_workers", "Workers by state", ["state"], () => {
      const all = [...scene().workers.values()];
      return WORKER_STATES.map((state) => [[state], all.filter(({ view }) => view.state === state).length]);
    }),
    gauge("hawser_worker_state", "1 for the state that the worker is in", ["worker", "state"], () =>
      states(scene().workers, WORKER_STATES, ({ view }, state) => Number(view.state === state)),
    ),
    gauge(
      "hawser_worker_breaker",
      "1 for the state that the worker's breaker is in",
      ["worker", "state"],
      () =>
        states(scene().workers, BREAKER_STATES, ({ view }, state) => {
          return view.breaker && Number(view.breaker.state === state);
        }),
    ),
    by("hawser_worker_eligible", "Whether the worker may be chosen", ({ worker }) => Number(worker.eligible)),
    by(
      "hawser_worker_active_requests",
      "Requests in flight at the worker",
      (worker) => worker.activeRequests,
    ),
    by(
      "hawser_worker_max_in_flight",
      "Most requests that the worker is given, where there is a limit",
      (worker) => {
        return Number.isFinite(worker.maxInFlight) ? worker.maxInFlight : null;
      },
    ),
    by("hawser_worker_bound_sessions", "Sessions bound to the worker", ({ worker }) => worker.boundSessions),
    by("hawser_worker_held_off_seconds", "How long the worker asked to be left alone still", ({ view }) => {
      return view.heldOffMs / MS;
    }),
  ];
}

/** What of it is not known is left out. */
function engines({ scene }: MetricsReading): Family[] {
  const by = (name: string, help: string, take: (signals: WorkerScene["view"]["signals"]) => number) =>
    gauge(name, help, ["worker"], () =>
      known(scene().workers, ({ view }) => {
        const value = take(view.signals);
        return value < 0 ? null : value;
      }),
    );
  return [
    by("hawser_worker_engine_running", "Requests that the worker's engine runs", ({ running }) => running),
    by("hawser_worker_engine_waiting", "Requests that wait in the worker's engine", ({ waiting }) => waiting),
    by(
      "hawser_worker_kv_used_ratio",
      "Use of the KV cache of the worker's engine",
      ({ kvUsed }) => kvUsed / MS,
    ),
  ];
}

function discovery({ discovery }: MetricsReading): Family[] {
  const by = (name: string, help: string, take: (view: SourceView) => number | null) =>
    gauge(name, help, ["source"], () => known(named(discovery.views()), take));
  return [
    by("hawser_discovery_workers", "Workers that the source names", (view) => view.workers),
    by("hawser_discovery_age_seconds", "How long ago these were last known to be right", ({ ageMs }) => {
      return ageMs === null ? null : ageMs / MS;
    }),
    by("hawser_discovery_failing", "Whether the source cannot tell its workers", ({ error }) => {
      return Number(error !== null);
    }),
  ];
}

/** Sources by what they watch, which two may have in common that name different ports; in the order of the config. */
function named(views: readonly SourceView[]): ReadonlyMap<string, SourceView> {
  const byName = new Map<string, SourceView>();
  for (const view of views) {
    const { watches } = view;
    const alike = views.slice(0, views.indexOf(view)).filter((other) => other.watches === watches).length;
    byName.set(alike === 0 ? watches : `${watches} (${alike + 1})`, view);
  }
  return byName;
}

/** Without samples where nobody reloads the config. */
function config({ scene }: MetricsReading): Family[] {
  const by = (name: string, help: string, take: (status: ConfigStatus) => number | null) =>
    gauge(name, help, [], () => given(scene().config, take));
  return [
    by(
      "hawser_config_generation",
      "The number of the config that is in force",
      (status) => status.generation,
    ),
    by("hawser_config_loaded_timestamp_seconds", "When that took effect, since 1970", (status) => {
      return status.loadedAt / MS;
    }),
    counter("hawser_config_reloads_total", "Reloads of the config by what came of them", ["result"], () => {
      const status = scene().config;
      return status ? countsOf({ applied: status.applied, failed: status.failed }) : [];
    }),
    by("hawser_config_last_reload_timestamp_seconds", "When it was reloaded last, since 1970", (status) => {
      return status.lastReload && status.lastReload.at / MS;
    }),
    by(
      "hawser_config_last_reload_successful",
      "Whether the last reload was applied, with all workers of the config, or there was none",
      (status) => {
        return Number((status.lastReload?.mistakes ?? []).length === 0);
      },
    ),
    by(
      "hawser_config_restart_needed",
      "Whether the config says what only a restart has take effect",
      (status) => {
        return Number(status.restartNeeded.length > 0);
      },
    ),
  ];
}

/** Without samples where decisions are not logged. */
function decisionLog({ scene }: MetricsReading): Family[] {
  const by = (name: string, help: string, take: (status: DecisionLogStatus) => number) =>
    counter(name, help, [], () => given(scene().decisionLog, take));
  return [
    by("hawser_decision_log_lines_total", "Lines written to the decision log", ({ written }) => written),
    by("hawser_decision_log_dropped_total", "Lines that the decision log lost", ({ dropped }) => dropped),
  ];
}

/** The sample of what there is, where it is known. */
function given<T>(one: T | undefined, take: (one: T) => number | null): Iterable<Sample<number>> {
  const value = one === undefined ? null : take(one);
  return value === null ? [] : alone(value);
}

/** A sample of each number, by its name. */
function countsOf(numbers: Readonly<Record<string, number>>): Sample<number>[] {
  return Object.entries(numbers).map(([name, value]) => [[name], value]);
}

/** One sample of each. */
function* each<T, V>(all: ReadonlyMap<string, T>, take: (one: T, name: string) => V): Iterable<Sample<V>> {
  for (const [name, one] of all) yield [[name], take(one, name)];
}

/** The same without those of which it is not known. */
function* known<T>(all: ReadonlyMap<string, T>, take: (one: T) => number | null): Iterable<Sample<number>> {
  for (const [name, one] of all) {
    const value = take(one);
    if (value !== null) yield [[name], value];
  }
}

/** A sample of each in each state. */
function* states<T, S extends string>(
  all: ReadonlyMap<string, T>,
  words: readonly S[],
  take: (one: T, state: S) => number | null,
): Iterable<Sample<number>> {
  for (const [name, one] of all) {
    for (const state of words) {
      const value = take(one, state);
      if (value !== null) yield [[name, state], value];
    }
  }
}

function* talliesOf<T>(all: ReadonlyMap<string, T>, take: (one: T) => Tally): Iterable<Sample<number>> {
  for (const [name, one] of all) for (const [word, count] of take(one)) yield [[name, word], count];
}
