// What a client's request asks of the router, or why it cannot be asked.

import type { IncomingHttpHeaders } from "node:http";
import { AFFINITIES, MAX_KEY_LENGTH, NoWorkerError, PinError, SessionKeyError } from "../routing/refusals.js";
import type { AcquireRequest } from "../routing/requests.js";
import type { RequestIdentity, RequestReader } from "../session/request-reader.js";
import type { GatewayError } from "./errors.js";

/** What is read of a request, and which of the gateway's own headers count. */
export interface AskOptions {
  readonly reader: RequestReader;
  /** Whether `x-hawser-pin` counts. */
  readonly allowPin: boolean;
  /** Whether `x-hawser-affinity` counts. */
  readonly allowAffinityHeader: boolean;
}

/** A request as the router takes it, and where its key came from. */
export interface Ask {
  readonly request: AcquireRequest;
  /** `header x-session-id` and the like; undefined where there is no key. */
  readonly source: string | undefined;
  readonly isStream: boolean;
  readonly isStateful: boolean;
}

/** Reads a request; a GatewayError says what is wrong with it. */
export function readAsk(
  { reader, allowPin, allowAffinityHeader }: AskOptions,
  headers: IncomingHttpHeaders,
  body: Buffer,
): Ask | GatewayError {
  const identity = reader.read(headers, body);
  if (identity === "invalid" || identity === "not_object") {
    const message = identity === "invalid" ? "the body is not valid JSON" : "the body must be a JSON object";
    return { status: 400, code: "invalid_json", message };
  }
  if (identity.model === undefined)
    return { status: 400, code: "model_required", message: 'the body must name its "model" as a string' };
  const affinity = allowAffinityHeader ? own(headers, "x-hawser-affinity") : undefined;
  if (affinity !== undefined && !isAffinity(affinity)) {
    const message = "x-hawser-affinity must be off, session or parent-group";
    return { status: 400, code: "invalid_affinity", message };
  }
  const pin = allowPin ? own(headers, "x-hawser-pin") : undefined;
  const { source, isStream, isStateful } = identity;
  return { request: requestOf(identity, pin, affinity), source, isStream, isStateful };
}

function requestOf(
  { model, key, parent, tenant, previousResponse, isFinal }: RequestIdentity,
  pin: string | undefined,
  affinity: AcquireRequest["affinity"],
): AcquireRequest {
  return { model, key, parent, tenant, previousResponse, final: isFinal, pin, affinity };
}

function own(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return (typeof value === "string" ? value.trim() : undefined) || undefined;
}

function isAffinity(text: string): text is (typeof AFFINITIES)[number] {
  return (AFFINITIES as readonly string[]).includes(text);
}

/**
 * What to tell a client whose request the router refused; rethrows what is no refusal. `source` is where its key came from;
 * `isIncomplete` whether some worker has not said yet which models it serves.
 */
export function refusalOf(error: unknown, source: string | undefined, isIncomplete: boolean): GatewayError {
  if (error instanceof SessionKeyError) return keyRefusal(error, source);
  if (error instanceof PinError) {
    const code = error.code === "bound_elsewhere" ? "pin_conflict" : "unknown_worker";
    return { status: 400, code, message: error.message };
  }
  if (!(error instanceof NoWorkerError)) throw error;
  if (error.code === "full")
    return { status: 429, code: "workers_full", message: error.message, retryAfter: 1 };
  if (error.code === "no_worker") return { status: 503, code: "no_worker_eligible", message: error.message };
  if (!isIncomplete) return { status: 404, code: "model_not_found", message: error.message };
  const message = `${error.message} yet, but not all workers are known, or have said which models they serve`;
  return { status: 503, code: "no_worker_eligible", message };
}

/** The key itself is not repeated. */
function keyRefusal({ code, message }: SessionKeyError, source: string | undefined): GatewayError {
  const place = `the session key from the ${source}`;
  switch (code) {
    case "too_long": {
      const long = `${place} has more than the ${MAX_KEY_LENGTH} bytes allowed`;
      return { status: 400, code: "session_key_too_long", message: long };
    }
    case "malformed":
      return { status: 400, code: "session_key_invalid", message: `${place} has a NUL character` };
    case "tenant":
      return { status: 400, code: "tenant_invalid", message };
  }
}
