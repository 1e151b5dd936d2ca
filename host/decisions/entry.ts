// A line of a decision log, read back.

import { MAX_CAPACITY } from "../abi/frame.js";
import { FAILURES, type Failure } from "../abi/reasons.js";

/** Deeper than any line is nested, with room for members that are not known yet. */
const MAX_DEPTH = 32;
/** Longer than any name of a reason. Those of a log are kept to be counted. */
const MAX_REASON_LENGTH = 1_000;

/** What every line has. */
interface Entry {
  /** The process that wrote it, in 8 hex digits. */
  readonly run: string;
  /** The decision's number in that process. */
  readonly n: number;
  /** Milliseconds since 1970. */
  readonly time: number;
}

/** A decision that the host made without asking a policy, or by its own rule in the place of one. */
export interface OwnDecision extends Entry {
  readonly kind: "decision";
  readonly asked: false;
}

/** A decision that a policy was asked for. */
export interface AskedDecision extends Entry {
  readonly kind: "decision";
  readonly asked: true;
  readonly model: string;
  /** The id of the session, null without one. */
  readonly session: string | null;
  /** The name of the instance, and what is known of its module and its parameters; null is a parameter's null. */
  readonly policy: string;
  readonly sha256?: string;
  readonly parameters?: readonly (number | null)[];
  /** Which instance of the module in the process, and how many decisions it had made before. */
  readonly instance: number;
  readonly call: number;
  readonly capacity: number;
  readonly workers: readonly string[];
  readonly bound: number;
  /** As cases have them; not checked. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly columns: Readonly<Record<string, unknown>>;
  /** Null where it trapped. */
  readonly answer: number | null;
  readonly row: number;
  readonly reason: string;
  readonly failure?: Failure;
}

/** What became of a decision. */
export interface OutcomeEntry extends Entry {
  readonly kind: "outcome";
  readonly outcome: string;
  readonly accepted: boolean;
  readonly ms?: { readonly first_byte?: number };
  readonly tokens?: { readonly prompt?: number; readonly cached?: number };
}

export type LogEntry = OwnDecision | AskedDecision | OutcomeEntry;

type Check = (value: unknown) => boolean;
type Checks = Readonly<Record<string, Check>>;

const isText: Check = (value) => typeof value === "string";
const isNumber: Check = (value) => typeof value === "number";
const isObject: Check = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isListOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);
const isFrom =
  (least: number, most = Number.MAX_SAFE_INTEGER): Check =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const orNone =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);

const isCount = orNone(isFrom(0));

const isReason: Check = (value) => isText(value) && (value as string).length <= MAX_REASON_LENGTH;
const isRun: Check = (value) => isText(value) && /^[0-9a-f]{8}$/.test(value as string);

const ENTRY: Checks = { run: isRun, n: isFrom(1), time: isNumber };

const ASKED: Checks = {
  ...{ model: isText, session: orNull(isText), policy: isText, sha256: orNone(isText) },
  parameters: orNone(isListOf(orNull(isNumber))),
  ...{ instance: isFrom(1), call: isFrom(0), capacity: isFrom(1, MAX_CAPACITY) },
  ...{ workers: isListOf(isText), bound: isFrom(-1), fields: isObject, columns: isObject },
  ...{ answer: orNull(isFrom(-(2 ** 31), 2 ** 31 - 1)), row: isFrom(0), reason: isReason },
  failure: orNone((value) => FAILURES.includes(value as Failure)),
};

const OUTCOME: Checks = {
  ...{ outcome: isText, accepted: (value) => typeof value === "boolean" },
  ms: orNone((value) => isObject(value) && orNone(isNumber)((value as Counts).first_byte)),
  tokens: orNone(
    (value) => isObject(value) && isCount((value as Counts).prompt) && isCount((value as Counts).cached),
  ),
};

type Counts = Record<string, unknown>;

/** Reads a line; a text says what is wrong with it. */
export function readEntry(text: string): LogEntry | string {
  // A list in a list in a list takes hundreds of times its text in memory.
  if (isDeep(text)) return `it is nested in more than ${MAX_DEPTH} levels`;
  let value: Counts;
  try {
    value = JSON.parse(text);
  } catch {
    return "it is no whole JSON text";
  }
  if (!isObject(value)) return "it is no JSON object";
  const { kind, asked } = value;
  if (kind !== "decision" && kind !== "outcome") return 'its "kind" is neither "decision" nor "outcome"';
  if (kind === "decision" && typeof asked !== "boolean") return wrong("asked");
  const more = kind === "outcome" ? OUTCOME : asked ? ASKED : {};
  const broken = Object.entries({ ...ENTRY, ...more }).find(([name, check]) => !check(value[name]));
  return broken ? wrong(broken[0]) : (value as unknown as LogEntry);
}

function isDeep(text: string): boolean {
  let depth = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') isInString = !isInString;
    else if (isInString) at += Number(character === "\\");
    else if (character === "{" || character === "[") depth++;
    else if (character === "}" || character === "]") depth--;
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

function wrong(name: string): string {
  return `its "${name}" is missing or not of its kind`;
}
