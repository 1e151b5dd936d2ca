// A strict reader of the page that Prometheus reads: what it would refuse or drop, this refuses.

export interface ExposedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ExposedFamily {
  readonly type: string;
  readonly help: string;
  readonly samples: ExposedSample[];
}

const HEAD = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([+-]?(?:\d[\d.e+-]*|Inf|Nan))$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\"n])*)"(,|$)/y;
const ENDINGS: Readonly<Record<string, readonly string[]>> = { histogram: ["_bucket", "_sum", "_count"] };

/** A page. */
export class Exposition {
  readonly families = new Map<string, ExposedFamily>();

  /** Throws an Error for a line that is none, a sample that belongs to no family, and one that is there twice. */
  constructor(text: string) {
    const seen = new Set<string>();
    let name = "";
    let help = "";
    if (!text.endsWith("\n")) throw new Error("the last line has no end");
    for (const line of text.slice(0, -1).split("\n")) {
      const head = HEAD.exec(line);
      if (line === "") continue;
      if (head?.[1] === "HELP") {
        [, , name, help] = head as unknown as [string, string, string, string];
        if (this.families.has(name)) throw new Error(`${name} is there twice`);
      } else if (head) {
        if (head[2] !== name) throw new Error(`a type of another: ${line}`);
        this.families.set(name, { type: head[3]!, help, samples: [] });
      } else this.#add(name, line, seen);
    }
    for (const [family, { type, samples }] of this.families)
      if (type === "histogram") checkHistogram(family, samples);
  }

  #add(family: string, line: string, seen: Set<string>): void {
    const [, name, labels = "", value] = SAMPLE.exec(line) ?? [];
    if (name === undefined) throw new Error(`no sample: ${line}`);
    const { type, samples } = this.families.get(family)!;
    const names = (ENDINGS[type] ?? [""]).map((ending) => family + ending);
    if (!names.includes(name)) throw new Error(`${name} is none of ${family}`);
    const key = line.slice(0, line.lastIndexOf(" "));
    if (seen.has(key)) throw new Error(`there twice: ${key}`);
    seen.add(key);
    samples.push({ name, labels: readLabels(labels), value: Number(value!.replace("Inf", "Infinity")) });
  }

  /** The samples of a name, with its ending, that have these labels among theirs. */
  find(name: string, labels: Readonly<Record<string, string>> = {}): ExposedSample[] {
    const family = this.families.get(name) ?? this.families.get(name.replace(/_(bucket|sum|count)$/, ""));
    const wanted = Object.entries(labels);
    return (family?.samples ?? []).filter((sample) => {
      return sample.name === name && wanted.every(([label, value]) => sample.labels[label] === value);
    });
  }

  /** The value of the one sample with these labels among its own; undefined where there is none, or are several. */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number | undefined {
    const found = this.find(name, labels);
    return found.length === 1 ? found[0]!.value : undefined;
  }

  /** The values of one label among the samples of a name. */
  valuesOf(name: string, label: string): string[] {
    return [...new Set(this.find(name).map(({ labels }) => labels[label]!))];
  }
}

function readLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < text.length) {
    const found = LABEL.exec(text);
    if (!found || found[1]! in labels) throw new Error(`broken labels: ${text}`);
    labels[found[1]!] = found[2]!.replace(/\\(.)/g, (_, mark: string) => (mark === "n" ? "\n" : mark));
  }
  return labels;
}

/** Buckets never fall, and the last of them is all there are. */
function checkHistogram(family: string, samples: readonly ExposedSample[]): void {
  const byLabels = new Map<string, ExposedSample[]>();
  for (const sample of samples) {
    const { le: _, ...labels } = sample.labels;
    const key = JSON.stringify(labels);
    byLabels.set(key, [...(byLabels.get(key) ?? []), sample]);
  }
  for (const [labels, all] of byLabels) {
    const buckets = all.filter(({ name }) => name.endsWith("_bucket"));
    const bounds = buckets.map(({ labels: { le } }) => Number(le!.replace("Inf", "Infinity")));
    const count = all.find(({ name }) => name.endsWith("_count"))!.value;
    const rises = buckets.every(({ value }, i) => i === 0 || value >= buckets[i - 1]!.value);
    const ascends = bounds.every((bound, i) => i === 0 || bound > bounds[i - 1]!);
    const isWhole = bounds.at(-1) === Number.POSITIVE_INFINITY && buckets.at(-1)!.value === count;
    const hasSum = all.some(({ name }) => name.endsWith("_sum"));
    if (!rises || !ascends || !isWhole || !hasSum) throw new Error(`a broken histogram: ${family}${labels}`);
  }
}
