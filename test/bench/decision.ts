// What a decision costs: the policy in WebAssembly through the router's own path, against the same rule in plain JavaScript.

import { measureIn } from "./child.js";
import type { Series } from "./decision-child.js";
import type { Ties } from "./deck.js";
import type { RouterFigures } from "./router-child.js";
import type { Arm, Path } from "./scene.js";
import { median, spread, table } from "./stats.js";

const SIZES = [2, 8, 16, 64, 256, 1024, 4096];
/** Largest share of plain JavaScript's time that a full search may take, by workers. */
const AIMS: Readonly<Record<number, number>> = { 64: 0.6, 1024: 0.2 };
const ROUNDS = 11;

/** Measures and prints; a quick run shows only that everything runs. Throws where the arms disagree on a choice. */
export async function benchDecision(quick: boolean): Promise<void> {
  const sizes = quick ? [2, 64] : SIZES;
  const rounds = quick ? 1 : ROUNDS;
  const rows = [
    ...(await rowsOf(sizes, 1, "first", rounds)),
    ...(await rowsOf(quick ? [8] : [8, 64, 1024], 1, "random", rounds)),
    ...(await rowsOf([64], 3, "first", rounds)),
  ];
  process.stdout.write(`${table(HEADING, COLUMNS, rows)}\n`);
  await printRequests(quick ? [2] : [2, 64, 1024], rounds);
}

const HEADING =
  "Decision of soft-affinity-load-guard, processor ns (medians; spread: 10%-90% of the rounds' ratios)";
const COLUMNS = [
  ...["workers", "pools", "ties", "search wasm", "search js", "js form", "ratio", "spread", "aim"],
  ...["keep wasm", "keep js", "loop alone", "checksum"],
];

async function rowsOf(
  sizes: readonly number[],
  pools: number,
  ties: Ties,
  rounds: number,
): Promise<string[][]> {
  const rows: string[][] = [];
  for (const size of sizes) {
    const series = await measureIn<Series[]>("decision-child.ts", size, pools, ties, rounds);
    rows.push([String(size), String(pools), ties, ...cells(series, rounds > 1 ? AIMS[size] : undefined)]);
  }
  return rows;
}

function cells(series: readonly Series[], aim: number | undefined): string[] {
  const find = (arm: Arm, path: Path): Series => series.find((one) => one.arm === arm && one.path === path)!;
  const [wasm, js] = [find("wasm", "busy"), faster(find("and", "busy"), find("nested", "busy"))];
  const [keepWasm, keepJs] = [find("wasm", "calm"), faster(find("and", "calm"), find("nested", "calm"))];
  const ratio = median(wasm.ns) / median(js.ns);
  return [
    ...[ns(wasm), ns(js), js.arm, ratio.toFixed(2)],
    spread(
      wasm.ns.map((value, round) => value / js.ns[round]!),
      2,
    ),
    aim === undefined ? "" : `${ratio <= aim ? "met" : "MISSED"} (${aim})`,
    ...[ns(keepWasm), ns(keepJs), ns(find("nothing", "busy"))],
    checksum(series),
  ];
}

function faster(a: Series, b: Series): Series {
  return median(a.ns) <= median(b.ns) ? a : b;
}

function ns(series: Series): string {
  return median(series.ns).toFixed(0);
}

/** The folded choices of the searches, equal in all arms. */
function checksum(series: readonly Series[]): string {
  for (const path of ["busy", "calm"] as const) {
    const sums = series.filter((one) => one.path === path && one.arm !== "nothing").map(({ sum }) => sum);
    if (new Set(sums).size > 1)
      throw new Error(`the arms chose different rows (${path}): ${sums.join(", ")}`);
  }
  return (series[0]!.sum >>> 0).toString(16).padStart(8, "0");
}

async function printRequests(sizes: readonly number[], rounds: number): Promise<void> {
  const rows: string[][] = [];
  for (const size of sizes) {
    const { ns, bytes } = await measureIn<RouterFigures>("router-child.ts", size, rounds);
    rows.push([String(size), median(ns).toFixed(0), spread(ns, 0), median(bytes).toFixed(0)]);
  }
  const heading = "Request of a bound session: acquire + commit + release";
  process.stdout.write(`${table(heading, ["workers", "ns", "spread", "bytes allocated"], rows)}\n`);
}
