// How the fleet is looked after, and how requests wait for it: the rules of these keys that need more than one value.
import type { FleetOptions } from "../fleet/options.js";
import type { AdmissionOptions } from "../gateway/options.js";
import type { Path } from "../yaml/parse.js";
import { describe, pathText } from "../yaml/words.js";
import { durationOrOff, parseDuration } from "./duration.js";
import { mapping, type Raw, type Remarks } from "./remarks.js";
import { DEFAULTS, type RawConfig } from "./schema.js";

/** Pairs of durations of which the first may not be longer than the second. */
const ORDERED = [
  [
    ["health", "timeout"],
    ["health", "interval"],
  ],
  [
    ["breaker", "open"],
    ["breaker", "open_max"],
  ],
  [
    ["signals", "interval"],
    ["signals", "stale_after"],
  ],
] as const;

/** Applies the rules to the root of a config. */
export function checkFleet(root: Raw, remarks: Remarks): void {
  for (const [lower, upper] of ORDERED) {
    const [low, high] = [msAt(root, lower), msAt(root, upper)];
    if (low === undefined || high === undefined || low <= high) continue;
    // The one that stands there is told; of both the first.
    const isLower = valueAt(root, lower) !== undefined;
    const [path, bound] = isLower ? [lower, upper] : [upper, lower];
    const relation = isLower ? "not be longer than" : "not be shorter than";
    const text = describe(valueAt(root, path));
    const message = `${pathText([...path])} must ${relation} ${pathText([...bound])}, which is ${textAt(root, bound)}, found ${text}`;
    remarks.mistake(path as unknown as Path, "value", message);
  }
}

type Place = (typeof ORDERED)[number][number];

function valueAt(root: Raw, [section, key]: Place): unknown {
  return mapping(root[section])[key];
}

function textAt(root: Raw, [section, key]: Place): string {
  const otherwise: Readonly<Record<string, unknown>> = DEFAULTS[section];
  return String(valueAt(root, [section, key] as unknown as Place) ?? otherwise[key]);
}

/** Milliseconds; undefined where no duration stands there, which is the shape's mistake. */
function msAt(root: Raw, place: Place): number | undefined {
  try {
    return parseDuration(textAt(root, place));
  } catch {
    return undefined;
  }
}

/** The options of the fleet that a file's content, whose shape is right, comes to. */
export function fleetOptions({ health = {}, breaker = {}, signals = {} }: RawConfig): FleetOptions {
  const { path, interval, timeout, slow_start, unhealthy_after, healthy_after } = {
    ...DEFAULTS.health,
    ...health,
  };
  const scrape = { ...DEFAULTS.signals, ...signals };
  const slowStartMs = durationOrOff(slow_start);
  return {
    health: {
      ...{ path: pathOrNull(path), intervalMs: parseDuration(interval), timeoutMs: parseDuration(timeout) },
      ...{ unhealthyAfter: unhealthy_after, healthyAfter: healthy_after },
      slowStartMs: slowStartMs === Number.POSITIVE_INFINITY ? 0 : slowStartMs,
    },
    breaker: breaker === "off" ? null : breakerOptions({ ...DEFAULTS.breaker, ...breaker }),
    signals: {
      path: pathOrNull(scrape.path),
      intervalMs: parseDuration(scrape.interval),
      staleAfterMs: parseDuration(scrape.stale_after),
    },
  };
}

function breakerOptions({
  window,
  min_requests: minRequests,
  failure_ratio: failureRatio,
  consecutive,
  open,
  open_max,
  half_open: halfOpen,
}: {
  readonly [key in keyof typeof DEFAULTS.breaker]: (typeof DEFAULTS.breaker)[key] extends number
    ? number
    : string;
}): FleetOptions["breaker"] {
  return {
    ...{ windowMs: parseDuration(window), minRequests, failureRatio, consecutive },
    ...{ openMs: parseDuration(open), openMaxMs: parseDuration(open_max), halfOpen },
  };
}

function pathOrNull(path: string): string | null {
  return path === "off" ? null : path;
}

/** How requests wait, as a file's content whose shape is right says. */
export function admissionOptions({ admission = {} }: RawConfig): AdmissionOptions {
  const { queue, deadline, bound_first } = { ...DEFAULTS.admission, ...admission };
  return { queue, deadlineMs: parseDuration(deadline), boundFirst: bound_first };
}
