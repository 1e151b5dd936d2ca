// What the binding table costs: time and memory of a request by the number of sessions that are remembered.

import type { BindingFigures } from "./bindings-child.js";
import { measureIn } from "./child.js";
import { median, spread, table } from "./stats.js";

/** Aims at a million bindings: nanoseconds of a request and megabytes of the table. */
const AIM_NS = 1_500;
const AIM_MEGABYTES = 300;
const MILLION = 1_000_000;

/** Measures and prints; `quick` shows only that it runs. */
export async function benchBindings(quick: boolean): Promise<void> {
  const rows: string[][] = [];
  for (const bindings of quick ? [1_000] : [1_000, 65_536, MILLION]) {
    const figures = await measureIn<BindingFigures>("bindings-child.ts", bindings, quick ? 1 : 9);
    rows.push(cells(bindings, figures));
  }
  process.stdout.write(`${table(HEADING, COLUMNS, rows)}\n`);
}

function cells(bindings: number, figures: BindingFigures): string[] {
  const { megabytes, held, placeNs, turnNs, longestMs } = figures;
  const turn = median(turnNs);
  const judged = bindings === MILLION;
  return [
    ...[
      String(bindings),
      String(held),
      turn.toFixed(0),
      spread(turnNs, 0),
      verdict(judged, turn <= AIM_NS, AIM_NS),
    ],
    ...[placeNs.toFixed(0), longestMs.toFixed(2), megabytes.toFixed(0)],
    verdict(judged, megabytes <= AIM_MEGABYTES, AIM_MEGABYTES),
  ];
}

function verdict(judged: boolean, met: boolean, aim: number): string {
  return judged ? `${met ? "met" : "MISSED"} (${aim})` : "";
}

const HEADING =
  "Bindings: acquire + commit + release under the guard at 64 workers, processor ns; sessions at random";
const COLUMNS = [
  ...["bindings", "held", "a turn", "spread", "aim", "first request", "longest, ms", "MB", "aim"],
];
