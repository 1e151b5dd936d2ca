// What a decision costs: the policy in WebAssembly through the router's own path, with and without its meter, against
// the same rule in plain JavaScript.

import { measureIn } from "./child.js";
import type { Figures, Series, Task } from "./decision-child.js";
import type { Fuel } from "./fuel.js";
import type { RouterFigures } from "./router-child.js";
import type { Arm } from "./scene.js";
import { median, spread, table } from "./stats.js";
import { guard, type Kind, load, SUBJECTS, type Subject } from "./subjects.js";
import { printSwaps } from "./swaps.js";

export const SIZES: readonly number[] = [2, 8, 16, 64, 256, 1024, 4096];
const ROUNDS = 9;
/** Largest share of plain JavaScript's time that a look at every worker may take, by workers. */
const SEARCH_AIMS: Readonly<Record<number, number>> = { 64: 0.45, 1024: 0.15 };
/** Largest multiple of plain JavaScript's time that a decision may take that looks at one worker. */
const KEEP_AIM = 3;
/** Largest multiple of what it adds to the loop at one size that such a decision may add at another: its time is flat. */
const FLAT_AIM = 2;
/** Largest multiple of the time without the meter. */
const METER_AIM = 1.2;

/** Measures and prints; a quick run shows only that everything runs. Throws where the arms disagree on a choice. */
export async function benchDecision(quick: boolean): Promise<void> {
  const sizes = quick ? [2, 64] : SIZES;
  const rounds = quick ? 1 : ROUNDS;
  const first = await rowsOf(guard("first"), { sizes, pools: 1, rounds });
  const random = await rowsOf(guard("random"), { sizes: quick ? [8] : [8, 64, 1024], pools: 1, rounds });
  const three = await rowsOf(guard("first"), { sizes: [64], pools: 3, rounds });
  const guardRows = [
    ...guardCells(first, "1", "first"),
    ...guardCells(random, "1", "random"),
    ...guardCells(three, "3", "first"),
  ];
  print(GUARD_HEADING, GUARD_COLUMNS, guardRows);
  await printRequests(quick ? [2] : [2, 64, 1024], rounds);
  process.stdout.write(`${LEGEND}\n\n`);
  for (const subject of SUBJECTS) {
    const rows = subject === SUBJECTS[0] ? first : await rowsOf(subject, { sizes, pools: 1, rounds });
    print(titleOf(subject), POLICY_COLUMNS, rows.map(policyCells));
  }
  await printSwaps(quick);
}

/** What is known of one kind of decision at one size. */
interface Row {
  readonly size: number;
  readonly kind: Kind;
  readonly of: (arm: Arm) => Series;
  /** The faster of the plain forms. */
  readonly plain: Series;
  readonly fuel: Fuel;
  /** Whether its time is the same at all sizes. */
  readonly flat: boolean;
  /** Whether the figures mean something. */
  readonly judged: boolean;
}

async function rowsOf(subject: Subject, how: Omit<Task, "subject">): Promise<Row[]> {
  const task: Task = { subject: load(subject), ...how };
  const { series, fuel } = await measureIn<Figures>("decision-child.ts", JSON.stringify(task));
  const rows = fuel.map((used): Row => {
    const { size, kind } = used;
    const own = series.filter((one) => one.size === size && one.kind === kind);
    checkAgreement(own);
    const of = (arm: Arm): Series => own.find((one) => one.arm === arm)!;
    const plain = faster(of("and"), of("nested"));
    const flat = isFlat(series.filter((one) => one.kind === kind));
    return { size, kind, of, plain, fuel: used, flat, judged: how.rounds > 1 };
  });
  // By kind and then by size.
  return subject.paths.flatMap(({ kind }) => rows.filter((row) => row.kind === kind));
}

function checkAgreement(series: readonly Series[]): void {
  const sums = new Set(series.filter(({ arm }) => arm !== "nothing").map(({ sum }) => sum));
  if (sums.size > 1)
    throw new Error(`the arms chose different rows (${series[0]!.kind}): ${[...sums].join(", ")}`);
}

/**
 * Whether a decision takes about the same time at all sizes. The loop's own time is left out: its look-ups among more
 * workers miss the processor's caches more often.
 */
function isFlat(series: readonly Series[]): boolean {
  const own = (arm: Arm): Series[] => series.filter((one) => one.arm === arm);
  const loops = own("nothing");
  const added = own("metered").map(({ ns }, at) =>
    median(ns.map((value, round) => value - loops[at]!.ns[round]!)),
  );
  return Math.max(...added) <= FLAT_AIM * Math.min(...added);
}

function faster(a: Series, b: Series): Series {
  return median(a.ns) <= median(b.ns) ? a : b;
}

/** What one arm takes of another's time, round by round. */
function ratios(one: Series, other: Series): number[] {
  return one.ns.map((value, round) => value / other.ns[round]!);
}

function ns(series: Series): string {
  return median(series.ns).toFixed(0);
}

const looksAtOne = (kind: Kind): boolean => kind === "keep" || kind === "turn";

/** The aim of a ratio to plain JavaScript. */
function aimOf({ size, kind, judged }: Row): number | undefined {
  if (!judged) return undefined;
  return looksAtOne(kind) ? KEEP_AIM : SEARCH_AIMS[size];
}

const GUARD_HEADING =
  "Decision of soft-affinity-load-guard, processor ns (medians; spread: 10%-90% of the rounds' ratios)";
const GUARD_COLUMNS = [
  ...["workers", "pools", "ties", "search wasm", "search js", "js form", "ratio", "spread", "aim"],
  ...["keep wasm", "keep js", "loop alone", "checksum"],
];

function guardCells(rows: readonly Row[], pools: string, ties: string): string[][] {
  const keeps = rows.filter(({ kind }) => kind === "keep");
  return rows
    .filter(({ kind }) => kind === "search")
    .map((row, index) => {
      const [keep, wasm] = [keeps[index]!, row.of("metered")];
      const all = ratios(wasm, row.plain);
      const aim = aimOf(row);
      return [
        ...[String(row.size), pools, ties, ns(wasm), ns(row.plain), row.plain.arm],
        ...[median(all).toFixed(2), spread(all, 2)],
        aim === undefined ? "" : `${median(all) <= aim ? "met" : "MISSED"} (${aim})`,
        ...[ns(keep.of("metered")), ns(keep.plain), ns(keep.of("nothing"))],
        (wasm.sum >>> 0).toString(16).padStart(8, "0"),
      ];
    });
}

const LEGEND = [
  "The shipped policies, processor ns per decision (medians), the measurement's own loop included. keep: the bound worker",
  "is looked at and kept; stay: kept after a look at all; search: another is found; draw: one by its number; turn: the next.",
  `Marked with ! where an aim is missed: metered / unmetered at most ${METER_AIM}; metered / plain JavaScript at most`,
  `${KEEP_AIM} for keep and turn, and otherwise ${SEARCH_AIMS[64]} at 64 workers and ${SEARCH_AIMS[1024]} at 1,024. flat: what keep and turn`,
  `add to the loop alone is nowhere over ${FLAT_AIM} times what it is elsewhere.`,
].join("\n");
const POLICY_COLUMNS = [
  ...["path", "workers", "metered", "unmetered", "ratio", "spread", "plain js", "form", "ratio", "spread"],
  ...["flat", "loop alone", "fuel", "of budget"],
];

/** A subject in a line. */
export function titleOf({ type, given }: Subject): string {
  const values = Object.entries(given).map(([name, value]) => `${name}: ${value}`);
  return [type, ...values].join(", ");
}

function policyCells(row: Row): string[] {
  const [metered, unmetered] = [row.of("metered"), row.of("unmetered")];
  const [meter, plain] = [ratios(metered, unmetered), ratios(metered, row.plain)];
  return [
    ...[row.kind, String(row.size), ns(metered), ns(unmetered)],
    ...[marked(median(meter), row.judged ? METER_AIM : undefined), spread(meter, 2)],
    ...[ns(row.plain), row.plain.arm, marked(median(plain), aimOf(row)), spread(plain, 2)],
    looksAtOne(row.kind) && row.judged ? (row.flat ? "yes" : "no!") : "",
    ...[ns(row.of("nothing")), String(row.fuel.units), `${(100 * row.fuel.share).toFixed(1)}%`],
  ];
}

function marked(ratio: number, aim: number | undefined): string {
  return `${ratio.toFixed(2)}${aim !== undefined && ratio > aim ? "!" : " "}`;
}

function print(heading: string, columns: readonly string[], rows: readonly (readonly string[])[]): void {
  process.stdout.write(`${table(heading, columns, rows)}\n`);
}

async function printRequests(sizes: readonly number[], rounds: number): Promise<void> {
  const rows: string[][] = [];
  for (const size of sizes) {
    const { ns, bytes } = await measureIn<RouterFigures>("router-child.ts", size, rounds);
    rows.push([String(size), median(ns).toFixed(0), spread(ns, 0), median(bytes).toFixed(0)]);
  }
  const heading = "Request of a bound session: acquire + commit + release";
  print(heading, ["workers", "ns", "spread", "bytes allocated"], rows);
}
