// Parameters for a policy that is tried out before anybody has configured it.
import { PolicyError } from "../policy/load.js";
import { encode, type ParameterSpec, resolveParameters } from "../policy/parameters.js";

/** Values in manifest order, and the mapping that gives them where it is needed at all. */
export interface TrialParameters {
  readonly values: Float64Array;
  readonly given: Readonly<Record<string, unknown>> | undefined;
}

/**
 * What `given` says, else the defaults. A required parameter that `given` leaves out takes the smallest value it
 * allows. Throws a PolicyError where `given` is not allowed.
 */
export function trialParameters(
  specs: readonly ParameterSpec[],
  given: Readonly<Record<string, unknown>> | undefined,
): TrialParameters {
  const complete = specs.map((spec) =>
    spec.default === undefined ? { ...spec, default: smallest(spec) } : spec,
  );
  const { values, mistakes } = resolveParameters(complete, given);
  if (mistakes.length > 0)
    throw new PolicyError(mistakes.map(({ message }) => `--parameters: ${message}`).join("\n"));
  const isRequired = ({ name, default: fallback }: ParameterSpec) =>
    fallback === undefined && !name.includes(".");
  const required = specs.filter(isRequired).map((spec) => [spec.name, smallest(spec)] as const);
  const all = { ...Object.fromEntries(required), ...given };
  return { values, given: Object.keys(all).length > 0 ? all : undefined };
}

function smallest(spec: ParameterSpec): number | boolean | string | null {
  if (spec.nullable) return null;
  if (spec.type === "boolean") return false;
  if (spec.type === "enum") return spec.values![0]!;
  const { minimum, maximum, exclusiveMinimum } = spec;
  const above = exclusiveMinimum === undefined ? 0 : exclusiveMinimum + 1;
  const candidates = [minimum ?? above, 0, maximum ?? 0, between(exclusiveMinimum, maximum)];
  return candidates.find((value) => encode(spec, value) !== undefined) ?? 0;
}

function between(low = 0, high = low + 1): number {
  return (low + high) / 2;
}
