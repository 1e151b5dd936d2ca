// What an expression of PromQL asks for, held against a page of metrics: that it can be parsed, that what it names is there, and
// which labels its result has.

import type { SyntaxNode } from "@lezer/common";
import { parser } from "@prometheus-io/lezer-promql";
import type { Exposition } from "../metrics/exposition.js";

/** Labels that Prometheus adds itself. */
const TARGET = ["job", "instance"];
/** Functions of the growth of a counter, and those of anything over time. */
const GROWTH: ReadonlySet<string> = new Set(["rate", "increase", "irate"]);
const OVER_TIME = /_over_time$|^changes$|^delta$/;
const SETS: ReadonlySet<string> = new Set(["And", "Or", "Unless"]);

/** The labels of a vector; null for a number. */
type Labels = ReadonlySet<string> | null;

/** An expression that was read. */
export interface Examined {
  /** The names of samples in it. */
  readonly names: ReadonlySet<string>;
  /** The labels of what it results in. */
  readonly labels: ReadonlySet<string>;
}

/** Reads an expression. Throws an Error, with its text, where it cannot be parsed or asks for what is not on the page. */
export function examine(text: string, page: Exposition): Examined {
  const examination = new Examination(text, page);
  const labels = examination.labelsOf(parser.parse(text).topNode);
  return { names: examination.names, labels: labels ?? new Set() };
}

class Examination {
  readonly names = new Set<string>();
  readonly #text: string;
  readonly #page: Exposition;

  constructor(text: string, page: Exposition) {
    this.#text = text;
    this.#page = page;
  }

  labelsOf(node: SyntaxNode): Labels {
    const children = childrenOf(node);
    switch (node.name) {
      case "PromQL":
      case "ParenExpr":
        return this.#only(children);
      case "NumberDurationLiteral":
      case "StringLiteral":
        return null;
      case "VectorSelector":
        return this.#select(node);
      case "MatrixSelector":
        return this.labelsOf(children[0]!);
      case "FunctionCall":
        return this.#call(node);
      case "AggregateExpr":
        return this.#aggregate(node);
      case "BinaryExpr":
        return this.#combine(children);
      default:
        return this.#refuse(`${node.name} is not understood`);
    }
  }

  #only(children: readonly SyntaxNode[]): Labels {
    if (children.length !== 1) this.#refuse("it cannot be parsed");
    return this.labelsOf(children[0]!);
  }

  #select(node: SyntaxNode): Labels {
    const name = this.#of(node.getChild("Identifier")!);
    // Of Prometheus' own, one for each that it scrapes.
    if (name === "up") return new Set(["job", "instance"]);
    const samples = this.#page.find(name);
    if (samples.length === 0) this.#refuse(`${name} is not on the page`);
    this.names.add(name);
    const labels = new Set([...Object.keys(samples[0]!.labels), ...TARGET]);
    const matchers = node.getChild("LabelMatchers")?.getChildren("UnquotedLabelMatcher") ?? [];
    const tests = matchers.map((matcher) => {
      const [label, op, value] = childrenOf(matcher).map((child) => this.#of(child)) as [
        string,
        string,
        string,
      ];
      this.#need(label, labels, name);
      const wanted = value.slice(1, -1);
      return wanted.startsWith("$") || TARGET.includes(label) ? () => true : fitter(label, op, wanted);
    });
    if (!samples.some((sample) => tests.every((holds) => holds(sample.labels))))
      this.#refuse(`no sample of ${name} has such labels`);
    return labels;
  }

  #call(node: SyntaxNode): Labels {
    const name = this.#of(node.getChild("FunctionIdentifier")!);
    const args = childrenOf(node.getChild("FunctionCallBody")!);
    const over = args.at(-1)!;
    const labels = this.labelsOf(over);
    if ((GROWTH.has(name) || OVER_TIME.test(name)) !== (over.name === "MatrixSelector"))
      this.#refuse(`${name} is of another kind of vector`);
    if (GROWTH.has(name)) this.#needGrowth(over);
    if (name === "absent") return new Set();
    if (name !== "histogram_quantile") return labels;
    this.#need("le", labels!, name);
    return without(labels!, ["le"]);
  }

  #aggregate(node: SyntaxNode): Labels {
    const labels = this.labelsOf(childrenOf(node.getChild("FunctionCallBody")!).at(-1)!)!;
    const modifier = node.getChild("AggregateModifier");
    const grouping = modifier ? this.#grouping(modifier) : [];
    for (const label of grouping) this.#need(label, labels, this.#of(node));
    return modifier?.getChild("Without") ? without(labels, grouping) : new Set(grouping);
  }

  #combine(children: readonly SyntaxNode[]): Labels {
    const [left, op] = children as [SyntaxNode, SyntaxNode];
    const [mine, others] = [this.labelsOf(left), this.labelsOf(children.at(-1)!)];
    if (mine === null || others === null) return mine ?? others;
    const modifier = children.find(({ name }) => name === "MatchingModifierClause");
    const on = modifier?.getChild("On") ? this.#grouping(modifier) : undefined;
    for (const label of on ?? []) for (const side of [mine, others]) this.#need(label, side, "on");
    // Without a modifier both sides must have the same labels, or nothing ever matches.
    const isAlike = mine.size === others.size && [...mine].every((label) => others.has(label));
    if (!modifier && !isAlike) this.#refuse(`the sides of ${this.#of(op)} have other labels`);
    if (!on || SETS.has(op.name) || modifier!.getChild("GroupLeft")) return mine;
    return new Set(on);
  }

  #needGrowth(selector: SyntaxNode): void {
    const name = this.#of(selector.firstChild!.getChild("Identifier")!);
    const family = this.#page.families.get(name);
    if (family?.type === "gauge") this.#refuse(`${name} is a gauge, whose growth says nothing`);
  }

  #grouping(modifier: SyntaxNode): string[] {
    const [labels] = modifier.getChildren("GroupingLabels");
    return childrenOf(labels!).map((label) => this.#of(label));
  }

  #need(label: string, labels: ReadonlySet<string>, what: string): void {
    if (!labels.has(label)) this.#refuse(`${what} has no label ${label}`);
  }

  #of({ from, to }: SyntaxNode): string {
    return this.#text.slice(from, to);
  }

  #refuse(why: string): never {
    throw new Error(`${why}: ${this.#text}`);
  }
}

/** Throws an Error for one that the parser did not understand. */
function childrenOf(node: SyntaxNode): SyntaxNode[] {
  const children: SyntaxNode[] = [];
  for (let child = node.firstChild; child; child = child.nextSibling) {
    if (child.type.isError) throw new Error(`it cannot be parsed at character ${child.from}`);
    if (child.name !== "LineComment") children.push(child);
  }
  return children;
}

function fitter(label: string, op: string, wanted: string): (labels: Record<string, string>) => boolean {
  const pattern = new RegExp(`^(?:${wanted})$`);
  const isAlike = (value = "") => (op.endsWith("~") ? pattern.test(value) : value === wanted);
  return (labels) => isAlike(labels[label]) !== op.startsWith("!");
}

function without(labels: ReadonlySet<string>, dropped: readonly string[]): Set<string> {
  return new Set([...labels].filter((label) => !dropped.includes(label)));
}
