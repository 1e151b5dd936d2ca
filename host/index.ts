// The library's front door: routing without a gateway. A program brings its own HTTP client and clock-bound world.

import { randomInt } from "node:crypto";
import type { PolicyFile } from "./policy/catalog.js";
import { PolicyError } from "./policy/load.js";
import { resolveParameters } from "./policy/parameters.js";
import type { LeaseAudit } from "./routing/audit.js";
import type { PolicyInstance } from "./routing/contenders.js";
import type { DecisionObserver } from "./routing/observer.js";
import type { SessionOptions } from "./routing/requests.js";
import { Router } from "./routing/router.js";
import type { WorkerOptions } from "./routing/worker.js";

export type { Failure } from "./abi/reasons.js";
export type { PolicyFile } from "./policy/catalog.js";
export { PolicyStartError } from "./policy/live.js";
export { loadPolicy, PolicyError } from "./policy/load.js";
export { loadPolicyAside } from "./policy/load-aside.js";
export type { Manifest } from "./policy/manifest.js";
export { LeaseAudit } from "./routing/audit.js";
export type { BindingView } from "./routing/bindings.js";
export type { PolicyInstance } from "./routing/contenders.js";
export type { Lease } from "./routing/lease.js";
export type { DecisionObserver } from "./routing/observer.js";
export type { Preparation } from "./routing/preparation.js";
export { MAX_KEY_LENGTH, NoWorkerError, PinError, SessionKeyError } from "./routing/refusals.js";
export type {
  AcquireRequest,
  ColumnValues,
  Explanation,
  PolicyStatus,
  RouterChange,
  RouterStatus,
  SessionOptions,
} from "./routing/requests.js";
export type { Router } from "./routing/router.js";
export type { Worker, WorkerOptions } from "./routing/worker.js";

/** A policy for a router. */
export interface PolicyChoice {
  /** From `loadPolicy`. */
  readonly policy: PolicyFile;
  /** Parameters by name, as a config file has them; those left out take their defaults. */
  readonly parameters?: Record<string, unknown>;
  /** The name under which leases and status show the policy; default its type. */
  readonly name?: string;
}

export interface CreateRouterOptions extends PolicyChoice {
  /** Takes over when the policy is quarantined; default the built-in least-loaded rule. */
  readonly fallback?: PolicyChoice;
  readonly workers?: readonly WorkerOptions[];
  readonly session?: SessionOptions;
  /** Monotonic milliseconds; default `performance.now`. */
  readonly clock?: () => number;
  /** Starts the generator of the random bits that policies see; any safe integer, default a random one. */
  readonly seed?: number;
  /** Hears of every decision. */
  readonly observer?: DecisionObserver;
  /** Hears of every lease: for tests, which fail on its `check` where one is leaked or released twice. */
  readonly audit?: LeaseAudit;
}

/**
 * Builds a router. Throws a PolicyError for parameters that the policy does not take, a PolicyStartError where it does
 * not start, a RangeError for a worker id used twice.
 */
export function createRouter(options: CreateRouterOptions): Router {
  const { fallback, workers, session } = options;
  return new Router({
    instance: policyInstance(options),
    fallback: fallback && policyInstance(fallback),
    ...(workers && { workers }),
    ...(session && { session }),
    clock: options.clock ?? (() => performance.now()),
    seed: options.seed ?? randomInt(2 ** 47),
    audit: options.audit,
    observer: options.observer,
  });
}

/** A policy as `Router.prepare` takes it. Throws a PolicyError for parameters that it does not take. */
export function policyInstance({ policy, parameters, name }: PolicyChoice): PolicyInstance {
  const { type, parameters: specs } = policy.manifest;
  const { values, mistakes } = resolveParameters(specs, parameters);
  if (mistakes.length > 0)
    throw new PolicyError(mistakes.map(({ message }) => `${type}: ${message}`).join("\n"));
  return { name: name ?? type, policy, parameters: values };
}
