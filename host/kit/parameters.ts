// Parameters for a policy that is tried out before anybody has configured it.
import { PolicyError } from "../policy/load.js";
import { encode, type ParameterSpec, resolveParameters } from "../policy/parameters.js";

/**
 * Values in manifest order: what `given` says, else the defaults. A required parameter that `given` leaves out takes
 * the smallest value it allows. Throws a PolicyError where `given` is not allowed.
 */
export function trialParameters(
  specs: readonly ParameterSpec[],
  given: Record<string, unknown> | undefined,
): Float64Array {
  const optional = specs.map((spec) => ({
    ...spec,
    default: spec.default === undefined ? smallest(spec) : spec.default,
  }));
  const { values, mistakes } = resolveParameters(optional, given);
  if (mistakes.length > 0)
    throw new PolicyError(mistakes.map(({ message }) => `--parameters: ${message}`).join("\n"));
  return values;
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
