// How requests and answers are carried: the rules of these keys that need more than one value, and what they come to.
import type { DataPlaneOptions, Retries, Timeouts } from "../gateway/options.js";
import type { Path } from "../yaml/parse.js";
import { describe, didYouMean, pathText, quote } from "../yaml/words.js";
import { durationOrOff, parseDuration } from "./duration.js";
import { list, mapping, type Raw, type Remarks } from "./remarks.js";
import { DEFAULTS, type RawConfig, RETRY_CAUSE_FORM, RETRY_CAUSES } from "./schema.js";
import { parseSize } from "./size.js";

/** The longest that a timer of Node runs, 24 days and some hours, in full hours: a longer one fires at once. */
const LONGEST_HOURS = 596;
/** What such timers run for; the other durations are counted. */
const TIMERS = [
  ["shutdown", "deadline"],
  ["timeouts", "connect"],
] as const;
/** The largest request body: places in it are counted in 32 bits with a sign. */
const LARGEST_BODY = "1GiB";

const RETRY_WORDS = RETRY_CAUSES.filter((cause) => typeof cause === "string");

type LimitKey = keyof typeof DEFAULTS.limits;

/** Limits of one thing, each with that of all together. The larger default comes first: it is the one to be told. */
const WITHIN: readonly (readonly [LimitKey, LimitKey])[] = [
  ["body", "body_total"],
  ["answer_buffer", "buffered_total"],
  ["stream_buffer", "buffered_total"],
];

/** Keys that count only where more than one worker may be tried. */
const OF_RETRIES = ["on", "budget", "stateful"] as const;

/** Applies the rules of the data plane's keys to the root of a config. */
export function checkDataPlane(root: Raw, remarks: Remarks): void {
  const retries = mapping(root.retries);
  checkLimits(mapping(root.limits), remarks);
  checkTimers(root, remarks);
  checkRetryCauses(list(retries.on), remarks);
  const credentials = new Map<string, Path>();
  for (const [index, name] of list(root.forward_credentials).entries()) {
    remarks.unique(["forward_credentials", index], name, credentials);
  }
  warnOfNoEffect(retries, mapping(root.log), remarks);
  warnOfLateDeadline(mapping(root.timeouts), remarks);
}

function checkLimits(limits: Raw, remarks: Remarks): void {
  const told = new Set<LimitKey>();
  const refuse = (key: LimitKey, bound: string) => {
    if (told.has(key)) return;
    told.add(key);
    const message = `limits.${key} must ${bound}, found ${describe(limits[key])}`;
    remarks.mistake(["limits", key], "value", message);
  };
  if (sizeOf(limits, "body") > parseSize(LARGEST_BODY)) refuse("body", `be at most ${LARGEST_BODY}`);
  for (const [part, total] of WITHIN) {
    if (!(sizeOf(limits, part) > sizeOf(limits, total))) continue;
    if (limits[part] !== undefined) refuse(part, `not be above ${boundText(limits, total)}`);
    else refuse(total, `not be below ${boundText(limits, part)}`);
  }
}

/** Bytes; NaN, which is above and below nothing, for what the shape refuses. */
function sizeOf(limits: Raw, key: LimitKey): number {
  const { [key]: value = DEFAULTS.limits[key] } = limits;
  return typeof value === "string" ? parseSize(value) : Number.NaN;
}

function boundText(limits: Raw, key: LimitKey): string {
  const isStated = limits[key] !== undefined;
  return `limits.${key}, which is ${isStated ? limits[key] : `${DEFAULTS.limits[key]} by default`}`;
}

function checkTimers(root: Raw, remarks: Remarks): void {
  for (const [group, key] of TIMERS) {
    const { [key]: value } = mapping(root[group]);
    if (typeof value !== "string" || !(parseDuration(value) > LONGEST_HOURS * 3_600_000)) continue;
    const message = `${group}.${key} must be at most ${LONGEST_HOURS}h, found ${quote(value)}`;
    remarks.mistake([group, key], "value", message);
  }
}

/** The shape has let pass any text and any number, so that what is meant can be told. */
function checkRetryCauses(items: readonly unknown[], remarks: Remarks): void {
  const seen = new Map<unknown, Path>();
  for (const [index, item] of items.entries()) {
    const path = ["retries", "on", index];
    if (typeof item !== "string" && typeof item !== "number") continue;
    const breach = isRetryCause(item) ? undefined : `must be ${RETRY_CAUSE_FORM}, found ${describe(item)}`;
    const first = seen.get(item);
    if (breach !== undefined) {
      remarks.mistake(path, "value", `${pathText(path)} ${breach}${causeHint(item)}`);
    } else if (first !== undefined) {
      const message = `${pathText(path)} repeats ${describe(item)}, first at line ${remarks.lineOf(first)}`;
      remarks.mistake(path, "value", message);
    } else seen.set(item, path);
  }
}

function isRetryCause(item: unknown): boolean {
  return RETRY_CAUSES.some((cause) => cause === item);
}

function causeHint(item: string | number): string {
  if (typeof item === "number") return "";
  if (isRetryCause(Number(item))) return ` (without quotes it is a number: ${Number(item)})`;
  return didYouMean(item, RETRY_WORDS);
}

/** Of the keys that the file states. */
function warnOfNoEffect(retries: Raw, log: Raw, remarks: Remarks): void {
  const warn = (group: string, key: string, cause: string) =>
    remarks.warning([group, key], "key", `${group}.${key} has no effect: ${cause}`);
  const stated = OF_RETRIES.filter((key) => retries[key] !== undefined);
  if (retries.attempts === 1) {
    for (const key of stated) warn("retries", key, "retries.attempts is 1, and no other worker is tried");
  }
  if (log.sample !== undefined && (log.requests === "errors" || log.requests === "all")) {
    warn("log", "sample", `log.requests is ${log.requests}`);
  }
}

/** Of a stated `first_byte` that `total` never lets come; the default, and `off`, say nothing of the two together. */
function warnOfLateDeadline({ first_byte: firstByte, total }: Raw, remarks: Remarks): void {
  if (typeof firstByte !== "string" || typeof total !== "string") return;
  if (!(parseDuration(firstByte) > parseDuration(total))) return;
  const message = `timeouts.first_byte has no effect: it is longer than timeouts.total, which is ${total}`;
  remarks.warning(["timeouts", "first_byte"], "key", message);
}

/** What a config whose shape is right says of the data plane. */
export function dataPlane(raw: RawConfig): DataPlaneOptions {
  const limits = { ...DEFAULTS.limits, ...raw.limits };
  const streams = { ...DEFAULTS.streams, ...raw.streams };
  return {
    limits: {
      bodyBytes: parseSize(limits.body),
      bodyTotalBytes: parseSize(limits.body_total),
      streamBufferBytes: parseSize(limits.stream_buffer),
      answerBufferBytes: parseSize(limits.answer_buffer),
      bufferedTotalBytes: parseSize(limits.buffered_total),
    },
    timeouts: timeoutsOf(raw),
    retries: retriesOf(raw),
    streams: { peek: streams.peek, keepAliveMs: durationOrOff(streams.keep_alive) },
    log: { ...DEFAULTS.log, ...raw.log },
    forwardCredentials: raw.forward_credentials ?? DEFAULTS.forwardCredentials,
  };
}

function timeoutsOf(raw: RawConfig): Timeouts {
  const timeouts = { ...DEFAULTS.timeouts, ...raw.timeouts };
  return {
    connectMs: parseDuration(timeouts.connect),
    uploadMs: durationOrOff(timeouts.upload),
    firstByteMs: durationOrOff(timeouts.first_byte),
    idleMs: durationOrOff(timeouts.idle),
    totalMs: durationOrOff(timeouts.total),
  };
}

function retriesOf(raw: RawConfig): Retries {
  const { attempts, on, budget, stateful } = { ...DEFAULTS.retries, ...raw.retries };
  const causes: readonly (string | number)[] = on;
  return {
    attempts,
    connect: causes.includes("connect"),
    reset: causes.includes("reset"),
    statuses: causes.filter((cause) => typeof cause === "number"),
    budget,
    stateful,
  };
}
