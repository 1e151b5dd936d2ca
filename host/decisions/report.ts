// A replay as people read it, and as programs do.

import type { Failure } from "../abi/reasons.js";
import type { AskedDecision } from "./entry.js";
import { type Decided, type ReplayInstance, reasonText, type Verdict } from "./replay.js";
import type { Endings, Summary } from "./tally.js";

/** One difference, where it is in the logs and why it is one. */
export interface Difference {
  readonly file: string;
  readonly line: number;
  readonly time: string;
  readonly model: string;
  readonly session: string | null;
  readonly run: string;
  readonly n: number;
  readonly whole: boolean;
  readonly workers: number;
  readonly logged: Side;
  readonly now: Side;
  /** The worker that the session is bound to; null without one. */
  readonly bound: Seen | null;
}

/** A worker as both saw it; null for what cannot be told. */
interface Seen {
  readonly worker: string;
  readonly eligible: boolean;
  readonly active_requests: number | null;
}

/** What one of the two decided. */
interface Side extends Seen {
  readonly row: number;
  readonly reason: string;
  readonly failure?: Failure;
  readonly answer: number | null;
}

/** What a terminal may take for a command, or for another line or direction of writing. */
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** One line of text, whatever names a log has: what cannot be seen is escaped as in JSON. */
export function plain(line: string): string {
  return line.replace(UNPRINTABLE, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Says how two decisions differ. */
export function differenceOf(
  file: string,
  line: number,
  logged: AskedDecision,
  { now, isWhole }: Verdict,
): Difference {
  const { time, model, session, run, n, workers, bound } = logged;
  return {
    ...{ file, line, time: timeText(time), model, session, run, n, whole: isWhole, workers: workers.length },
    logged: sideOf(logged, logged),
    now: sideOf(now, logged),
    bound: bound < 0 ? null : seenOf(bound, logged),
  };
}

function sideOf({ answer, row, reason, failure }: Decided, logged: AskedDecision): Side {
  return { ...seenOf(row, logged), row, reason, ...(failure && { failure }), answer };
}

function seenOf(row: number, { workers, columns }: AskedDecision): Seen {
  const { eligible, active_requests } = columns as Record<string, readonly number[] | undefined>;
  return {
    worker: workers[row] ?? `row ${row}`,
    eligible: Boolean(eligible?.[row]),
    active_requests: active_requests?.[row] ?? null,
  };
}

function timeText(time: number): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toISOString();
}

/** A difference in five lines. */
export function differenceText({ file, line, time, model, session, ...rest }: Difference): string {
  const { logged, now, bound, workers, whole } = rest;
  const of = `${model === "" ? "" : `model ${model}, `}${session === null ? "no session" : `session ${session}`}`;
  const seen: Seen[] = [logged, ...(now.worker === logged.worker ? [] : [now])];
  if (bound && !seen.some(({ worker }) => worker === bound.worker)) seen.push(bound);
  return [
    `${file}:${line}: ${time}, ${of}`,
    `  logged  ${sideText(logged)}`,
    `  now     ${sideText(now)}`,
    `  loads   ${seen.map(loadText).join(", ")}, of ${workers} workers; ${boundText(bound)}`,
    ...(whole ? [] : ["  what the policy could remember is not all in the log"]),
    "",
  ]
    .map(plain)
    .join("\n");
}

function sideText(side: Side): string {
  const told = side.answer === null ? "no answer" : `answer ${side.answer}`;
  return `${side.worker}: ${reasonText(side)}, ${told}`;
}

function loadText({ worker, active_requests, eligible }: Seen): string {
  return `${worker} ${active_requests ?? "unknown"}${eligible ? "" : " (not eligible)"}`;
}

function boundText(bound: Seen | null): string {
  return bound ? `bound to ${bound.worker}` : "not bound";
}

/** What a log's decisions were made by. */
export type Maker = Pick<AskedDecision, "policy" | "sha256" | "parameters">;

/** How the policy of a replay stands to that of a log. */
export function comparisonText(logged: Maker, { name, policy, parameters }: ReplayInstance): string {
  const { sha256 } = policy.admitted;
  const short = (hash: string | undefined) => hash?.slice(0, 12) ?? "unknown";
  const isSame = sha256 !== undefined && logged.sha256 === sha256;
  const modules = isSame
    ? `the same module (sha256 ${short(sha256)}), ${parametersText(logged, parameters)}`
    : `another module (sha256 ${short(sha256)}, logged ${short(logged.sha256)})`;
  const kind = policy.manifest.stateful ? "stateful" : "stateless";
  return plain(`${name} over decisions of ${logged.policy}: ${modules}, ${kind}`);
}

function parametersText({ parameters }: Maker, now: Float64Array): string {
  if (!parameters) return "with parameters that the log does not tell";
  const [before, after] = [JSON.stringify(parameters), JSON.stringify([...now])];
  return before === after ? "the same parameters" : `other parameters (${after}, logged ${before})`;
}

/** The last lines. */
export function summaryText(summary: Summary, isStateful: boolean): string {
  const { decisions, asked, notReplayed, identical, different, elsewhere, logged, now } = summary;
  const row = (name: string, ...cells: (string | number)[]) =>
    `  ${name.padEnd(24)}${cells.map((cell) => String(cell).padStart(14)).join("")}`;
  const lines = [
    `${decisions} decisions, ${asked + notReplayed} of them a policy's: ${identical} identical, ` +
      `${different} different (${elsewhere} on another worker)` +
      (notReplayed > 0 ? `, ${notReplayed} not replayed` : ""),
    ...(isStateful ? [wholeText(summary)] : []),
    ...changeLines(summary),
    row("", "logged", "now"),
    ...(["kept", "moved", "placed"] as const).map((stay) => row(stay, logged[stay], now[stay])),
  ];
  const { agreed, differed } = summary;
  if (agreed.requests + differed.requests === 0) return `${lines.join("\n")}\n`;
  const both = (name: string, text: (endings: Endings) => string | number) =>
    row(name, text(agreed), text(differed));
  lines.push(
    row("as it went", "identical", "different"),
    both("requests that ended", ({ requests }) => requests),
    both("accepted", ({ accepted, requests }) => share(requests > 0 ? accepted / requests : undefined)),
    both("median first byte", ({ firstByteMedian: ms }) =>
      ms === undefined ? "-" : `${threeDigits(ms)} ms`,
    ),
    both("tokens from the cache", ({ cachedShare }) => share(cachedShare)),
  );
  return `${lines.join("\n")}\n`;
}

function changeLines({ changes, otherChanges }: Summary): string[] {
  const line = (name: string, count: number) => `  ${name.padEnd(48)}${count}`;
  const lines = changes.map(({ from, to, count }) => line(plain(`${from} -> ${to}`), count));
  return otherChanges > 0 ? [...lines, line("other changes", otherChanges)] : lines;
}

function wholeText({ asked, whole, wholeDifferent }: Summary): string {
  const missing = asked - whole;
  if (missing === 0) return "the log has all that the policy could remember";
  return (
    `what the policy could remember is all in the log for ${whole} decisions (${wholeDifferent} different), not for ${missing}:` +
    " those before them are missing, or were not sampled; only the former can be expected to be identical"
  );
}

function share(value: number | undefined): string {
  return value === undefined ? "-" : `${(value * 100).toFixed(1)} %`;
}

function threeDigits(value: number): string {
  return value < 100 ? value.toPrecision(3) : String(Math.round(value));
}
