// What a router refuses, and how it says so.

import type { Pool } from "./pool.js";
import type { AcquireRequest, RouterOptions, SessionOptions } from "./requests.js";
import { NO_MODEL, type Worker } from "./worker.js";

/** Most models that a router serves. */
export const MAX_MODELS = 1_024;
/** Longest name of a model, in characters. */
export const MAX_MODEL_LENGTH = 256;
/** Longest session key, in bytes of UTF-8. */
export const MAX_KEY_LENGTH = 256;
/** Most bindings that a router can be told to hold. */
export const MAX_BINDINGS = 2 ** 24;
/** Longest name of a tenant, in characters. */
export const MAX_TENANT_LENGTH = 4_096;

/**
 * No worker can be had: `unknown_model` where none serves the model, `full` where some of its workers are ready but have as
 * many requests as they may, `no_worker` where none is ready, or all that are were excluded.
 */
export class NoWorkerError extends Error {
  override readonly name = "NoWorkerError";
  constructor(
    readonly code: "unknown_model" | "no_worker" | "full",
    message: string,
  ) {
    super(message);
  }
}

/** A session key that is longer than `MAX_KEY_LENGTH` bytes (`too_long`) or cannot be one (`malformed`), or such a `tenant`. */
export class SessionKeyError extends Error {
  override readonly name = "SessionKeyError";
  constructor(
    readonly code: "too_long" | "malformed" | "tenant",
    message: string,
  ) {
    super(message);
  }
}

/**
 * An explicit target that cannot be had: `unknown_worker` where the model has no such worker, `bound_elsewhere` where the
 * session is bound to another one.
 */
export class PinError extends Error {
  override readonly name = "PinError";
  constructor(
    readonly code: "unknown_worker" | "bound_elsewhere",
    message: string,
  ) {
    super(message);
  }
}

const CHOICES = {
  mode: ["soft", "hard", "off"],
  whenFull: ["evict-idle", "refuse-new"],
  binding: ["session", "parent-group"],
  firstPlacement: ["policy", "parent"],
} as const;

/** What `AcquireRequest.affinity` may be. */
export const AFFINITIES = ["off", "session", "parent-group"] as const;

/** Throws a RangeError for options of a router out of range. */
export function checkOptions({ session = {}, seed }: RouterOptions): void {
  checkSession(session);
  if (!Number.isSafeInteger(seed)) throw new RangeError(`seed must be a safe integer, found ${seed}`);
}

/** Throws a RangeError for options of its sessions out of range. */
export function checkSession(session: SessionOptions): void {
  const { ttlMs, maxBindings, modelSuffixes = [] } = session;
  for (const [name, choices] of Object.entries(CHOICES)) {
    const chosen = session[name as keyof typeof CHOICES];
    if (chosen === undefined || (choices as readonly string[]).includes(chosen)) continue;
    throw new RangeError(`session.${name} must be ${oneOf(choices)}, found ${JSON.stringify(chosen)}`);
  }
  if (ttlMs !== undefined && !(ttlMs > 0))
    throw new RangeError(`session.ttlMs must be above 0, found ${ttlMs}`);
  if (
    maxBindings !== undefined &&
    !(Number.isInteger(maxBindings) && maxBindings > 0 && maxBindings <= MAX_BINDINGS)
  ) {
    throw new RangeError(
      `session.maxBindings must be an integer from 1 to ${MAX_BINDINGS}, found ${maxBindings}`,
    );
  }
  if (
    !Array.isArray(modelSuffixes) ||
    !modelSuffixes.every((suffix) => typeof suffix === "string" && suffix !== "")
  )
    throw new RangeError("session.modelSuffixes must be a list of endings");
}

function oneOf(choices: readonly string[]): string {
  return `${choices.slice(0, -1).join(", ")} or ${choices.at(-1)}`;
}

/** No worker serves the model, eligible or not. */
export function unserved(model: string): NoWorkerError {
  if (model.length > MAX_MODEL_LENGTH)
    return new NoWorkerError("unknown_model", "no worker serves a model of so long a name");
  const what = model === NO_MODEL ? "requests that name no model" : `the model ${JSON.stringify(model)}`;
  return new NoWorkerError("unknown_model", `no worker serves ${what}`);
}

/** The model has workers, at least one, and none of them is eligible; those in `exclude` are not to be waited for. */
export function noneEligible({ workers }: Pool, exclude: readonly Worker[] = []): NoWorkerError {
  if (workers.some((worker) => worker.ready && !worker.hasRoom && !exclude.includes(worker)))
    return new NoWorkerError("full", "every worker of the model has as many requests in flight as it may");
  const none = workers.length === 1 ? "the only worker" : `none of the ${workers.length} workers`;
  return new NoWorkerError(
    "no_worker",
    `${none} of the model is ${workers.length === 1 ? "not " : ""}eligible`,
  );
}

/** Throws a RangeError where a worker's models are not a list of names. */
export function checkModels(models: readonly string[]): void {
  const isName = (model: unknown) =>
    typeof model === "string" && model.length <= MAX_MODEL_LENGTH && !model.includes("\0");
  if (Array.isArray(models) && models.every(isName)) return;
  throw new RangeError(
    `a worker's models must be a list of names of at most ${MAX_MODEL_LENGTH} characters without NUL`,
  );
}

/** The worker that a request is pinned to is there, but not eligible. */
export function pinNotEligible({ id, ready, hasRoom, maxInFlight }: Worker): NoWorkerError {
  const pinned = `worker "${id}", to which the request is pinned,`;
  if (!ready || hasRoom) return new NoWorkerError("no_worker", `${pinned} is not eligible`);
  const why =
    maxInFlight === 0 ? "is to be left alone for a while" : "has as many requests in flight as it may";
  return new NoWorkerError("full", `${pinned} ${why}`);
}

/** The model has no worker of the name that a request is pinned to. */
export function pinUnknown(id: unknown): PinError {
  const name = typeof id === "string" && id.length <= 128 ? JSON.stringify(id) : "so odd a name";
  return new PinError("unknown_worker", `the model has no worker ${name} to pin the request to`);
}

/** The session of a pinned request is bound to another worker. */
export function pinElsewhere(id: string, bound: string): PinError {
  return new PinError(
    "bound_elsewhere",
    `the request is pinned to worker "${id}", but its session is bound to worker "${bound}"`,
  );
}

/** Throws what is wrong with the names in a request: a SessionKeyError, or a RangeError for a kind of affinity that is none. */
export function checkRequest({ key, parent, tenant = "", affinity }: AcquireRequest): void {
  if (key !== undefined) checkKey("session key", key);
  if (parent !== undefined) checkKey("parent's session key", parent);
  if (typeof tenant !== "string" || tenant.length > MAX_TENANT_LENGTH || tenant.includes("\0"))
    throw new SessionKeyError(
      "tenant",
      `a tenant is a string of at most ${MAX_TENANT_LENGTH} characters without NUL`,
    );
  if (affinity !== undefined && !(AFFINITIES as readonly unknown[]).includes(affinity))
    throw new RangeError(`affinity must be off, session or parent-group, found ${JSON.stringify(affinity)}`);
}

function checkKey(what: string, key: string): void {
  if (typeof key !== "string" || key === "")
    throw new SessionKeyError("malformed", `a ${what} is a string that is not empty`);
  // No character of UTF-16 has more than three bytes: short keys, nearly all, need no counting.
  const bytes = key.length * 3 <= MAX_KEY_LENGTH ? key.length : Buffer.byteLength(key);
  if (bytes > MAX_KEY_LENGTH)
    throw new SessionKeyError("too_long", `a ${what} has 1 to ${MAX_KEY_LENGTH} bytes, found ${bytes}`);
  if (key.includes("\0")) throw new SessionKeyError("malformed", `a ${what} has no NUL character`);
}
