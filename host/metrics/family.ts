// What is exposed: families of samples that are read from where they are counted anyway, whenever somebody asks.

import type { Histogram } from "./histogram.js";

/** A sample: the values of its family's labels, in their order, and what it shows. */
export type Sample<T> = readonly [labels: readonly string[], value: T];

interface FamilyBase {
  readonly name: string;
  /** One sentence, without its full stop. */
  readonly help: string;
  /** The names of the labels. */
  readonly labels: readonly string[];
}

/** A number of its own, or one that only grows. */
export interface NumberFamily extends FamilyBase {
  readonly type: "counter" | "gauge";
  readonly read: () => Iterable<Sample<number>>;
}

export interface HistogramFamily extends FamilyBase {
  readonly type: "histogram";
  readonly read: () => Iterable<Sample<Histogram>>;
}

/** Samples of one name and one meaning. `read` gives each combination of label values once. */
export type Family = NumberFamily | HistogramFamily;

/** A number that goes up and down. */
export function gauge(
  name: string,
  help: string,
  labels: readonly string[],
  read: NumberFamily["read"],
): Family {
  return { type: "gauge", name, help, labels, read };
}

/** A number that only grows, but for a new beginning at 0. */
export function counter(
  name: string,
  help: string,
  labels: readonly string[],
  read: NumberFamily["read"],
): Family {
  return { type: "counter", name, help, labels, read };
}

export function histogram(
  name: string,
  help: string,
  labels: readonly string[],
  read: HistogramFamily["read"],
): Family {
  return { type: "histogram", name, help, labels, read };
}

/** The one sample of a family without labels. */
export function alone(value: number): Iterable<Sample<number>> {
  return [[[], value]];
}
