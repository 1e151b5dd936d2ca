// How long a decision may take while policies are replaced.

import { measureIn } from "./child.js";
import { quantile, table } from "./stats.js";
import { load, SUBJECTS } from "./subjects.js";
import type { SwapFigures, SwapTask } from "./swaps-child.js";

/** Most milliseconds of a decision. */
const LONGEST_AIM = 5;

/** Measures and prints; `quick` shows only that it runs. */
export async function printSwaps(quick: boolean): Promise<void> {
  const task: SwapTask = { subjects: SUBJECTS.map(load), swaps: quick ? 20 : 2_000, decisionsPerSwap: 300 };
  const figures = await measureIn<SwapFigures>("swaps-child.ts", JSON.stringify(task));
  const { decisions, failures, p999, longest, longestRun, overOne, compile, start } = figures;
  const ms = (value: number): string => value.toFixed(3);
  const row = [
    ...[
      String(task.swaps),
      String(decisions),
      String(failures),
      ms(p999),
      String(overOne),
      ms(longest),
      ms(longestRun),
    ],
    quick ? "" : `${longestRun <= LONGEST_AIM ? "met" : "MISSED"} (${LONGEST_AIM})`,
    ...[compile, start].flatMap((values) => [ms(quantile(values, 0.5)), ms(quantile(values, 1))]),
  ];
  process.stdout.write(`${table(HEADING, COLUMNS, [row])}\n`);
}

const HEADING =
  "Decisions of 64 workers while the policy is replaced, ms on the wall clock (running: without waiting for a processor)";
const COLUMNS = [
  ...["swaps", "decisions", "failures", "p99.9", "over 1 ms", "longest", "running", "aim"],
  ...["admit median", "longest", "start median", "longest"],
];
