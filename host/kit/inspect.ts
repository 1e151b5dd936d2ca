// What a module is made of, and whether the gateway would take it: admission, the manifest, and a metered dry run.
import { extname } from "node:path";
import { CaseRunner } from "../policy/case.js";
import { loadPolicyFile, type PolicyFile } from "../policy/catalog.js";
import { FILLED } from "../policy/filled.js";
import { PolicyStartError } from "../policy/live.js";
import { admitFile } from "../policy/policy-file.js";
import { type AdmissionReport, budgetOf } from "../sandbox/admit.js";
import { formatMistake } from "../yaml/mistake.js";
import { trialParameters } from "./parameters.js";

/** Rows for which a dry run makes room: the smallest pool. */
const DRY_CAPACITY = 64;
/** Pools of these many workers are tried, each with every binding. */
const DRY_ROWS = [1, 4, DRY_CAPACITY];

/** One decision of a dry run. */
export interface DryDecision {
  readonly rows: number;
  readonly bound: number;
  readonly row: number | null;
  readonly reason: string;
  readonly failure?: string;
  /** Units. */
  readonly fuel: number;
}

export interface DryRun {
  /** Units that a decision may use at this capacity. */
  readonly budget: number;
  readonly capacity: number;
  /** Most units that a decision used. */
  readonly mostFuel: number;
  readonly decisions: readonly DryDecision[];
}

export interface Inspection {
  readonly file: string;
  /** Why the gateway would not take the policy; none: it would. */
  readonly refusals: readonly string[];
  readonly sha256: string | undefined;
  /** Absent where the module is not admitted. */
  readonly report: AdmissionReport | undefined;
  readonly policy: PolicyFile | undefined;
  readonly dryRun: DryRun | undefined;
}

/** Inspects a module (`.wasm`, its manifest inside it or beside it) or a manifest. Never throws for what the file holds. */
export function inspectFile(file: string): Inspection {
  const { policy, mistakes } = loadPolicyFile(file);
  const module = policy?.admitted ?? (extname(file) === ".wasm" ? admitFile(file) : undefined);
  const admitted = typeof module === "object" ? module : undefined;
  const refusals = mistakes.map(formatMistake);
  if (policy) refusals.push(...unfilled(policy.manifest));
  let dryRun: DryRun | undefined;
  if (policy) {
    const outcome = tryDry(policy);
    if (typeof outcome === "string") refusals.push(outcome);
    else {
      dryRun = outcome;
      refusals.push(...failuresOf(outcome));
    }
  }
  return { file, refusals, sha256: admitted?.sha256, report: admitted?.report, policy, dryRun };
}

/** Why `serve` refuses what a manifest reads; none: it does not. */
export function unfilled({ type, reads }: Pick<PolicyFile["manifest"], "type" | "reads">): string[] {
  const names = reads.filter((name) => !FILLED.has(name));
  if (names.length === 0) return [];
  return [`the policy ${type} reads ${names.join(", ")}, which this host cannot fill`];
}

function tryDry(policy: PolicyFile): DryRun | string {
  try {
    return dryRun(policy);
  } catch (error) {
    if (error instanceof PolicyStartError) return error.message;
    throw error;
  }
}

/**
 * Starts the policy with its defaults and lets it decide for pools of 1, 4 and 64 workers and every binding. Throws a
 * PolicyStartError where it does not start.
 */
export function dryRun(policy: Pick<PolicyFile, "manifest" | "admitted">): DryRun {
  const { values } = trialParameters(policy.manifest.parameters, undefined);
  const runner = new CaseRunner(policy, values, DRY_CAPACITY);
  const decisions = DRY_ROWS.flatMap((rows) => {
    const loads = Array.from({ length: rows }, (_, row) => (row * 5 + 3) % 7);
    return [-1, ...loads.keys()].map((bound) => {
      const decision = runner.run({ loads, bound });
      return { rows, bound, ...decision, fuel: runner.fuelUsed };
    });
  });
  const mostFuel = Math.max(...decisions.map(({ fuel }) => fuel));
  return { budget: budgetOf(DRY_CAPACITY), capacity: DRY_CAPACITY, mostFuel, decisions };
}

/** Each kind of failure once. */
function failuresOf({ decisions }: DryRun): string[] {
  const failed = decisions.filter(({ failure }) => failure !== undefined);
  const kinds = new Map(failed.map((one) => [one.failure, one] as const).reverse());
  return [...kinds].map(
    ([kind, { rows, bound }]) => `select fails in the dry run with ${rows} rows and bound ${bound}: ${kind}`,
  );
}
