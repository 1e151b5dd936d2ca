// What an operator sees of the workers, and does with them: adds, changes, drains and removes them while they serve.

import type { FastifyInstance } from "fastify";
import type { Clock } from "../fleet/clock.js";
import type { Fleet, NamedWorker } from "../fleet/fleet.js";
import type { Line } from "../fleet/line.js";
import type { MemberView } from "../fleet/member.js";
import type { Router } from "../routing/router.js";
import type { Worker } from "../routing/worker.js";
import { AdminError, refuseOthers } from "./admin-error.js";
import type { Admission } from "./admission.js";
import type { ConfiguredWorkers } from "./configured.js";
import type { Discovery } from "./discovery.js";

/** Reads a worker without its id; where it has mistakes all of them, a line each. */
export type ReadWorker = (
  text: string,
) => { entry: Omit<NamedWorker, "id"> } | { mistakes: readonly string[] };

/** What the routes work with. */
export interface AdminWorkersContext {
  readonly router: Router;
  readonly fleet: Fleet<Line>;
  readonly admission: Admission;
  readonly clock: Clock;
  readonly readWorker: ReadWorker | undefined;
  readonly discovery: Pick<Discovery, "views" | "givenUp">;
  readonly configured: Pick<ConfiguredWorkers, "keyOf">;
}

type Params = { Params: { id: string }; Querystring: Record<string, string | undefined> };

const ID = /^[!-~]{1,128}$/;
/** Largest description of a worker: 256 models of 64 characters and more. The parser takes its time for larger ones. */
const MAX_ENTRY_BYTES = 65_536;
/** As far ahead as a deadline may be: a day. */
const LONGEST_DRAIN_S = 86_400;

/** Adds the routes below `/admin/workers`. */
export function addWorkers(app: FastifyInstance, context: AdminWorkersContext): void {
  const { router, fleet, clock, discovery, admission } = context;
  app.get<Params>("/admin/workers", ({ query }) => {
    refuseOthers(query, []);
    return all();
  });
  const all = () => ({
    workers: fleet.views().map(({ worker, source, maxInFlight, view }) => {
      return workerView(worker, source, maxInFlight, view);
    }),
    discovery: discovery.views().map(({ ageMs, ...source }) => ({ ...source, age_ms: rounded(ageMs) })),
    queue: {
      waiting: Object.fromEntries(admission.sizes()),
      refused: admission.refused,
      expired: admission.expired,
    },
  });
  app.get<Params>("/admin/workers/:id", ({ params, query }) => {
    refuseOthers(query, []);
    return shown(existing(fleet, params.id));
  });
  app.put<Params>("/admin/workers/:id", { bodyLimit: MAX_ENTRY_BYTES }, ({ params, query, body }, reply) => {
    refuseOthers(query, []);
    const isNew = fleet.find(params.id) === undefined;
    const worker = put(context, params.id, body);
    return reply.code(isNew ? 201 : 200).send(shown(worker));
  });
  app.delete<Params>("/admin/workers/:id", ({ params, query }) => {
    refuseOthers(query, ["deadline"]);
    const ms = deadlineMs(query.deadline);
    const worker = remove(params.id, ms) ?? fleet.hurry(params.id, ms).at(-1) ?? existing(fleet, params.id);
    return { id: params.id, state: "gone", active_requests: worker.activeRequests };
  });
  app.post<Params>("/admin/workers/:id/drain", ({ params, query }) => {
    const worker = existing(fleet, params.id);
    refuseOthers(query, ["deadline"]);
    fleet.drain(worker, deadlineMs(query.deadline));
    return shown(worker);
  });
  app.delete<Params>("/admin/workers/:id/drain", ({ params, query }) => {
    refuseOthers(query, []);
    const worker = existing(fleet, params.id);
    fleet.resume(worker);
    return shown(worker);
  });

  function remove(id: string, ms: number): Worker | undefined {
    const worker = fleet.find(id);
    if (!worker) return undefined;
    refuseFound(fleet, id, "would come back: remove it there, or drain it here");
    fleet.remove(worker, ms);
    discovery.givenUp();
    return worker;
  }

  function shown(worker: Worker): object {
    const { source, maxInFlight, view } = fleet.views().find((each) => each.worker === worker)!;
    return workerView(worker, source, maxInFlight, view);
  }

  function workerView(
    worker: Worker,
    source: string,
    maxInFlight: number,
    { state, since, reason, breaker, heldOffMs, easing, drainMs, signals, restartedAt }: MemberView,
  ): object {
    const { id, url, models, eligible, activeRequests, boundSessions, weight, slots } = worker;
    const { running, waiting, kvUsed, elsewhere, blocks, blockSize, ageMs, lastError } = signals;
    return {
      ...{ id, url, source, state, since: at(since), reason, eligible, models, weight },
      max_num_seqs: slots || null,
      active_requests: activeRequests,
      max_in_flight: maxInFlight === Number.POSITIVE_INFINITY ? null : maxInFlight,
      bound_sessions: boundSessions,
      restarted: restartedAt === null ? null : at(restartedAt),
      held_off_ms: heldOffMs,
      slow_start_limit: easing,
      drain_ms: drainMs,
      breaker: breaker && {
        ...{ state: breaker.state, since: at(breaker.since), why: breaker.why },
        open_until: breaker.opensUntil === null ? null : at(breaker.opensUntil),
        ...{ successes: breaker.successes, failures: breaker.failures, failures_in_a_row: breaker.inARow },
      },
      signals: {
        ...{ running: known(running), waiting: known(waiting), kv_used: known(kvUsed), elsewhere },
        ...{ kv_blocks: blocks || null, block_tokens: blockSize || null, age_ms: rounded(ageMs) },
        error: lastError && { message: lastError.reason, age_ms: rounded(lastError.ageMs) },
      },
      columns: worker.removed ? null : router.columnsOf(worker),
    };
  }

  /** The time of day of a moment on the clock. */
  function at(moment: number): string {
    return new Date(Date.now() - clock.now() + moment).toISOString();
  }
}

function known(value: number): number | null {
  return value < 0 ? null : value;
}

function rounded(ms: number | null): number | null {
  return ms === null ? null : Math.round(ms);
}

function existing(fleet: Fleet<Line>, id: string): Worker {
  const worker = fleet.find(id);
  if (worker) return worker;
  const message = `there is no worker ${JSON.stringify(id.slice(0, 128))}`;
  throw new AdminError({ status: 404, code: "unknown_worker", message });
}

/** A worker that a source of discovery has found is the source's to change and to remove. */
function refuseFound(fleet: Fleet<Line>, id: string, instead: string): void {
  const source = fleet.sourceOf(id) ?? "admin";
  if (source === "config" || source === "admin") return;
  const message = `worker ${JSON.stringify(id)} is named by ${source}, and ${instead}`;
  throw new AdminError({ status: 409, code: "worker_discovered", message });
}

function put({ fleet, readWorker, configured }: AdminWorkersContext, id: string, body: unknown): Worker {
  if (!readWorker) {
    const message = "this gateway takes no workers by this way";
    throw new AdminError({ status: 404, code: "unknown_path", message });
  }
  if (!ID.test(id))
    throw invalid("the id of a worker has 1 to 128 printable ASCII characters without spaces");
  refuseFound(fleet, id, "is changed there alone");
  const read = readWorker(Buffer.isBuffer(body) ? body.toString() : "");
  if ("mistakes" in read) throw invalid(read.mistakes.join("\n"));
  try {
    return fleet.put({ id, ...read.entry, apiKey: configured.keyOf(id, read.entry.url) }, "admin");
  } catch (error) {
    throw invalid((error as Error).message);
  }
}

/** Seconds, as `30s`, `5m` or `1h`; without one there is no deadline. */
function deadlineMs(text: string | undefined): number {
  if (text === undefined) return Number.POSITIVE_INFINITY;
  const [, digits, unit] = /^([0-9]{1,6})(s|m|h)$/.exec(text) ?? [];
  const seconds = Number(digits) * { s: 1, m: 60, h: 3_600 }[unit as "s"]!;
  if (seconds <= LONGEST_DRAIN_S) return seconds * 1_000;
  throw invalid(
    `deadline must be a duration of at most a day, such as 30s, 5m or 1h, found ${JSON.stringify(text.slice(0, 40))}`,
  );
}

function invalid(message: string): AdminError {
  return new AdminError({ status: 400, code: "invalid_worker", message });
}
