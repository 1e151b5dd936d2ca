// What a router refuses, and how it says so.

import type { Pool } from "./pool.js";
import type { RouterOptions } from "./router.js";
import { NO_MODEL } from "./worker.js";

/** Most models that a router serves. */
export const MAX_MODELS = 1_024;
/** Longest name of a model, in characters. */
export const MAX_MODEL_LENGTH = 256;
/** Longest session key, in characters (bytes, where it came in a header). */
export const MAX_KEY_LENGTH = 256;

/** No worker can be had: `unknown_model` where none serves the model, `no_worker` where none of its workers is eligible. */
export class NoWorkerError extends Error {
  override readonly name = "NoWorkerError";
  constructor(
    readonly code: "unknown_model" | "no_worker",
    message: string,
  ) {
    super(message);
  }
}

/** A session key that is longer than `MAX_KEY_LENGTH`, or a tenant that cannot be told from a key. */
export class SessionKeyError extends Error {
  override readonly name = "SessionKeyError";
}

/** Throws a RangeError for options of a router out of range. */
export function checkOptions({ session = {}, seed }: RouterOptions): void {
  const { mode, ttlMs, maxBindings } = session;
  if (mode !== undefined && mode !== "soft" && mode !== "off") {
    throw new RangeError(`session.mode must be soft or off, found ${JSON.stringify(mode)}`);
  }
  if (ttlMs !== undefined && !(ttlMs > 0))
    throw new RangeError(`session.ttlMs must be above 0, found ${ttlMs}`);
  if (maxBindings !== undefined && !(Number.isInteger(maxBindings) && maxBindings > 0)) {
    throw new RangeError(`session.maxBindings must be an integer of at least 1, found ${maxBindings}`);
  }
  if (!Number.isSafeInteger(seed)) throw new RangeError(`seed must be a safe integer, found ${seed}`);
}

/** No worker serves the model, eligible or not. */
export function unserved(model: string): NoWorkerError {
  if (model.length > MAX_MODEL_LENGTH)
    return new NoWorkerError("unknown_model", "no worker serves a model of so long a name");
  const what = model === NO_MODEL ? "requests that name no model" : `the model ${JSON.stringify(model)}`;
  return new NoWorkerError("unknown_model", `no worker serves ${what}`);
}

/** The model has workers, at least one, and none of them is eligible. */
export function noneEligible({ workers }: Pool): NoWorkerError {
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

/** Throws a SessionKeyError where a key or a tenant cannot name a session. */
export function checkKey(key: string, tenant: string): void {
  if (typeof key !== "string" || typeof tenant !== "string")
    throw new SessionKeyError("a session key and a tenant are strings");
  if (key.length === 0 || key.length > MAX_KEY_LENGTH) {
    throw new SessionKeyError(`a session key has 1 to ${MAX_KEY_LENGTH} characters, found ${key.length}`);
  }
  if (key.includes("\0") || tenant.includes("\0"))
    throw new SessionKeyError("a session key and a tenant have no NUL character");
}
