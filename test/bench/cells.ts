// What the tables of the gateway's bench are made of: cells that are measured in turn, compared round by round.

import type { Target } from "./proxies.js";
import { DIRECT, type Sample } from "./stand.js";
import { median } from "./stats.js";

/** One target under one load, with a sample of every round. */
export interface Cell<Load, Outcome> {
  readonly load: Load;
  readonly target: Target;
  readonly samples: Sample<Outcome>[];
}

type Of<Outcome> = (sample: Sample<Outcome>) => number;

/**
 * Measures every load through every target, so many times, all once before any again, and back and forth: what disturbs
 * the machine for a while disturbs all alike.
 */
export async function measureInTurn<Load, Outcome>(
  loads: readonly Load[],
  targets: readonly Target[],
  rounds: number,
  measure: (load: Load, target: Target) => Promise<Sample<Outcome>>,
): Promise<Cell<Load, Outcome>[]> {
  const cells = loads.flatMap((load) =>
    targets.map((target): Cell<Load, Outcome> => ({ load, target, samples: [] })),
  );
  for (let round = 0; round < rounds; round++) {
    for (const cell of round % 2 ? [...cells].reverse() : cells)
      cell.samples.push(await measure(cell.load, cell.target));
  }
  return cells;
}

/** The median over the rounds. */
export function typical<Outcome>(cell: Cell<unknown, Outcome>, of: Of<Outcome>, digits: number): string {
  return median(cell.samples.map(of)).toFixed(digits);
}

/** How many times a target's figure is that of the target with a name under the same load, in each round. */
export function ratios<Load, Outcome>(
  cell: Cell<Load, Outcome>,
  cells: readonly Cell<Load, Outcome>[],
  name: string,
  of: Of<Outcome>,
): number[] {
  return compared(cell, cells, name, (own, other) => of(own) / of(other));
}

/** By how much a target's figure is above that of the upstream alone under the same load, in each round. */
export function added<Load, Outcome>(
  cell: Cell<Load, Outcome>,
  cells: readonly Cell<Load, Outcome>[],
  of: Of<Outcome>,
): number[] {
  return compared(cell, cells, DIRECT, (own, other) => of(own) - of(other));
}

/** Empty where there is no such target, and for the upstream alone, which costs no proxy anything. */
function compared<Load, Outcome>(
  cell: Cell<Load, Outcome>,
  cells: readonly Cell<Load, Outcome>[],
  name: string,
  compare: (own: Sample<Outcome>, other: Sample<Outcome>) => number,
): number[] {
  const other = cells.find(({ load, target }) => load === cell.load && target.name === name);
  if (!other || cell.target.name === DIRECT) return [];
  // A moment's processor time may be less than the kernel's accounting sees, and then there is no ratio.
  return cell.samples.map((own, round) => compare(own, other.samples[round]!)).filter(Number.isFinite);
}

/** The median of what the rounds gave; a dash for nothing. */
export function medianOf(values: readonly number[], digits: number): string {
  return values.length === 0 ? "-" : median(values).toFixed(digits);
}

/** In two columns the median and the range, such as `97-104`, of what the rounds gave; dashes for nothing. */
export function twoColumns(values: readonly number[], digits: number): [string, string] {
  const ends = [Math.min(...values), Math.max(...values)];
  const range = ends.map((end) => end.toFixed(digits)).join("-");
  return [medianOf(values, digits), values.length === 0 ? "-" : range];
}

/** Per cent of the time that a processor was busy with the work, typical of the rounds. */
export function busy<Outcome extends { seconds: number }>(
  cell: Cell<unknown, Outcome>,
  cpu: Of<Outcome>,
): string {
  return `${typical(cell, (sample) => cpu(sample) / sample.outcome.seconds / 10_000, 0)}%`;
}

/** An aim and whether the figures meet it: `3.8 met`, `3.8 missed`; the aim alone where there are none. */
export function aimed(values: readonly number[], aim: number): string {
  const verdict = values.length === 0 ? "" : median(values) <= aim ? " met" : " missed";
  return `${aim.toFixed(1)}${verdict}`;
}
