// What the demo prints: a head that says what is replayed, and a table with a row per policy.
import { type Plan, sumOf } from "./plan.js";
import type { Outcome } from "./replay.js";

const NUMBER = new Intl.NumberFormat("en-US");
/** Failures printed per policy; the table has their number. */
const FAILURES_SHOWN = 5;

const COLUMNS = [
  "policy",
  "turns",
  "failed",
  "hit rate",
  "evicted",
  "moved",
  "kept",
  "broken",
  "TTFT p50",
  "p90",
  "wall",
  "requests per worker",
  "prompt tokens per worker",
] as const;

const LEGEND = `hit rate: prompt tokens found in the worker's KV cache; evicted: prompt tokens it had computed before but no
longer had; moved: turns on another worker than the session's turn before; kept, broken: as GET /health counts them;
TTFT, wall: as measured; per worker: each one's share, in brackets the largest over the mean; ideal: one worker that
never evicts.
`;

/** What is replayed, from `source`, and how it was scaled. */
export function formatHead(plan: Plan, source: string): string {
  const { options, worker } = plan;
  const { scale, speed } = options;
  const all = plan.turnsLeftOut === 0 ? "all" : `at most ${options.maxTurns}`;
  const left = plan.turnsLeftOut === 0 ? "" : `, later ones left out: ${n(plan.turnsLeftOut)}`;
  return `Replayed: ${n(plan.sessions.length)} sessions of ${source}, ${all} turns of each: ${n(plan.turns)} turns${left}.
Scale: prompts, answers and KV pools 1/${scale}, so ${n(plan.promptTokens)} prompt tokens stand for ${n(plan.promptTokens * scale)}; time ${n(speed)} times faster.
Think time capped at ${n(options.maxThink)} s, ${n(plan.thinksCapped)} of ${n(plan.thinks)} turns; up to ${n(options.concurrency)} sessions open.
Workers: ${options.workers}, each with a KV pool of ${n(options.kvTokens)} tokens (scaled: ${n(worker.kvBlocks)} blocks of ${worker.blockSize}), ${worker.maxNumSeqs} seats,
${n(options.prefillRate)} prefill tokens/s (scaled: ${n(worker.prefillRate)}), ${n(options.tpot)} ms per output token (scaled: ${n(round(worker.tpotMs))} ms).
`;
}

/** The table, its legend and the first failures. */
export function formatOutcomes(plan: Plan, outcomes: readonly Outcome[]): string {
  const ideal = ["ideal", n(plan.turns), "", percent(plan.idealCachedTokens, plan.promptTokens)];
  const rows = [[...COLUMNS], ...outcomes.map(row), ideal];
  const parameters = outcomes.map(({ policy }) => `  ${policy.type} ${JSON.stringify(policy.parameters)}\n`);
  return `${align(rows)}\n${LEGEND}Parameters:\n${parameters.join("")}${outcomes.map(failures).join("")}`;
}

function row(outcome: Outcome): string[] {
  const { policy, turns, failures, promptTokens, ttftsMs, workers } = outcome;
  const shares = [...workers.values()];
  return [
    policy.type,
    n(turns),
    n(failures.length),
    percent(outcome.cachedTokens, promptTokens),
    percent(outcome.evictedTokens, promptTokens),
    n(outcome.moved),
    n(outcome.kept),
    n(outcome.broken),
    `${Math.round(percentile(ttftsMs, 0.5))} ms`,
    `${Math.round(percentile(ttftsMs, 0.9))} ms`,
    `${(outcome.wallMs / 1000).toFixed(1)} s`,
    load(
      shares.map(({ requests }) => requests),
      n,
    ),
    load(
      shares.map(({ promptTokens: tokens }) => tokens),
      (tokens) => `${n(Math.round(tokens / 1000))}k`,
    ),
  ];
}

function load(shares: readonly number[], format: (share: number) => string): string {
  const mean = sumOf(shares, (share) => share) / shares.length;
  const ratio = mean === 0 ? "-" : (Math.max(...shares) / mean).toFixed(2);
  return `${shares.map(format).join(" ")} (${ratio})`;
}

/** The nearest rank; NaN for an empty list. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

/** The first column to the left, the others to the right. */
function align(rows: readonly (readonly string[])[]): string {
  const widths = COLUMNS.map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    cells.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]) : cell.padStart(widths[at]))).join("  ");
  return rows.map((cells) => `${line(cells).trimEnd()}\n`).join("");
}

function failures({ policy, failures }: Outcome): string {
  const shown = failures.slice(0, FAILURES_SHOWN).map((failure) => `  ${failure}\n`);
  const more = failures.length - shown.length;
  if (more > 0) shown.push(`  and ${n(more)} more\n`);
  return shown.length === 0 ? "" : `Failed under ${policy.type}:\n${shown.join("")}`;
}

function percent(part: number, whole: number): string {
  return whole === 0 ? "-" : `${((part / whole) * 100).toFixed(1)} %`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function n(value: number): string {
  return NUMBER.format(value);
}
