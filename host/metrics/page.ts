// The page that Prometheus reads: prom-client's text, of families that are counted elsewhere.

import { setImmediate as turn } from "node:timers/promises";
import { collectDefaultMetrics, type Metric, Registry } from "prom-client";
import type { Family, HistogramFamily, NumberFamily } from "./family.js";

interface Value {
  readonly metricName?: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

/** Samples that are put into text in one turn of the loop: with thousands of workers all at once would hold up streams. */
const AT_ONCE = 1_000;

/** What prom-client's registry asks of a metric. Its own classes look labels up at every change, and build strings for that. */
class Exposed {
  readonly name: string;
  /** Whether all samples have been given since `begin`. */
  isWhole = false;
  readonly #family: Family;
  #rest: Iterator<Value> = [][Symbol.iterator]();

  constructor(family: Family) {
    this.name = family.name;
    this.#family = family;
  }

  /** Reads the family from its beginning. */
  begin(): void {
    this.isWhole = false;
    this.#rest = this.#family.type === "histogram" ? bars(this.#family) : numbers(this.#family);
  }

  /** Gives the next samples. */
  async get() {
    const { name, help, type } = this.#family;
    const values: Value[] = [];
    while (values.length < AT_ONCE && !this.isWhole) {
      const { done, value } = this.#rest.next();
      if (done) this.isWhole = true;
      else values.push(value);
    }
    return { name, help, type, values };
  }
}

/** All that is exposed. */
export class Page {
  readonly families: readonly Family[];
  readonly #registry = new Registry();
  readonly #exposed: readonly Exposed[];
  readonly #ofProcess: readonly string[];

  /** `withProcess` adds what prom-client tells of a Node process: to be had of one page of a process, for good. */
  constructor(families: readonly Family[], withProcess: boolean) {
    const registry = this.#registry;
    this.families = families;
    if (withProcess) collectDefaultMetrics({ register: registry });
    this.#ofProcess = (registry.getMetricsAsArray() as unknown as { name: string }[]).map(({ name }) => name);
    this.#exposed = families.map((family) => new Exposed(family));
    for (const exposed of this.#exposed) registry.registerMetric(exposed as unknown as Metric);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** The text, as it becomes in several turns of the loop. To be asked for again when it is there. */
  async text(): Promise<string> {
    const parts: string[] = [];
    for (const exposed of this.#exposed) parts.push(await this.#textOf(exposed));
    for (const name of this.#ofProcess) {
      parts.push(await this.#registry.getSingleMetricAsString(name));
      await turn();
    }
    return `${parts.join("\n\n")}\n`;
  }

  async #textOf(exposed: Exposed): Promise<string> {
    const { name } = exposed;
    exposed.begin();
    let text = await this.#registry.getSingleMetricAsString(name);
    for (await turn(); !exposed.isWhole; await turn())
      text += withoutHead(await this.#registry.getSingleMetricAsString(name));
    return text;
  }
}

/** The samples, each behind the end of a line: HELP and TYPE stand once. */
function withoutHead(text: string): string {
  const type = text.indexOf("\n");
  const samples = text.indexOf("\n", type + 1);
  return samples < 0 ? "" : text.slice(samples);
}

function* numbers({ labels, read }: NumberFamily): Iterator<Value> {
  for (const [values, value] of read()) yield { labels: named(labels, values), value };
}

function* bars({ name, labels, read }: HistogramFamily): Iterator<Value> {
  for (const [values, histogram] of read()) {
    const own = named(labels, values);
    const { bounds, sum } = histogram;
    const counts = histogram.cumulated();
    for (const [i, le] of bounds.entries())
      yield { metricName: `${name}_bucket`, labels: { le, ...own }, value: counts[i]! };
    const count = counts.at(-1)!;
    yield { metricName: `${name}_bucket`, labels: { le: "+Inf", ...own }, value: count };
    yield { metricName: `${name}_sum`, labels: own, value: sum };
    yield { metricName: `${name}_count`, labels: own, value: count };
  }
}

function named(names: readonly string[], values: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name, i) => [name, values[i]!]));
}
