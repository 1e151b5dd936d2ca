// What is measured of the shipped policies: with which parameters, for which sessions.

import { loadPolicy } from "../../host/policy/load.js";
import type { Manifest } from "../../host/policy/manifest.js";
import { resolveParameters } from "../../host/policy/parameters.js";
import { type Bound, BUSY_LOAD, CALM_LOAD } from "./deck.js";

/**
 * A kind of decision: `keep` looks at the bound worker only, `stay` keeps it after a look at all, `search` finds another
 * worker, `draw` takes one by its number among the eligible ones, `turn` takes the next one.
 */
export type Kind = "keep" | "stay" | "search" | "draw" | "turn";

export interface Path {
  readonly kind: Kind;
  readonly bound: Bound;
}

/** A policy under parameters for which its paths are told apart by the session alone. */
export interface Subject {
  readonly type: string;
  readonly given: Readonly<Record<string, unknown>>;
  readonly paths: readonly Path[];
}

const BETWEEN = (CALM_LOAD + BUSY_LOAD) / 2;
const keep: Path = { kind: "keep", bound: "calm" };
const stay: Path = { kind: "stay", bound: "calm" };
const search: Path = { kind: "search", bound: "busy" };

/** The guard: over 32 requests a session moves to a worker that has at least 2 fewer. */
export function guard(ties: "first" | "random"): Subject {
  const given = { max_active_requests: BETWEEN, move_margin: 2, ties };
  return { type: "soft-affinity-load-guard", given, paths: [keep, search] };
}

/** Every shipped policy, some twice. */
export const SUBJECTS: readonly Subject[] = [
  guard("first"),
  { type: "soft-pin-repin", given: { max_active_requests: BETWEEN }, paths: [keep, search] },
  { type: "affinity-break-margin", given: {}, paths: [keep] },
  { type: "affinity-break-margin", given: { affinity_break_margin: CALM_LOAD - 8 }, paths: [stay, search] },
  { type: "sticky", given: {}, paths: [keep, { kind: "search", bound: "none" }] },
  { type: "imbalance-gate", given: { balance_abs_threshold: 1_000 }, paths: [stay] },
  { type: "imbalance-gate", given: { balance_abs_threshold: 4 }, paths: [search] },
  { type: "least-loaded", given: {}, paths: [search] },
  { type: "power-of-two", given: {}, paths: [{ kind: "draw", bound: "calm" }] },
  { type: "random", given: {}, paths: [{ kind: "draw", bound: "calm" }] },
  { type: "round-robin", given: {}, paths: [{ kind: "turn", bound: "calm" }] },
];

/** A subject as JSON, so that a process that measures loads no more than what it measures. */
export interface Loaded {
  readonly type: string;
  readonly reads: Manifest["reads"];
  readonly modulePath: string;
  /** In manifest order; null for NaN. */
  readonly parameters: readonly (number | null)[];
  readonly paths: readonly Path[];
}

/** Throws a PolicyError where the policy cannot be loaded. */
export function load({ type, given, paths }: Subject): Loaded {
  const { manifest, modulePath } = loadPolicy(type);
  const values = [...resolveParameters(manifest.parameters, given).values];
  const parameters = values.map((value) => (Number.isNaN(value) ? null : value));
  return { type, reads: manifest.reads, modulePath, parameters, paths };
}
