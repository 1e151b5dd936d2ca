// The text of a file of targets, in the shape of Prometheus' file_sd -> the workers in it, or every mistake in it at
// its place.
import Type from "typebox";
import { compileCheck } from "../yaml/check.js";
import { type Mistake, sortMistakes } from "../yaml/mistake.js";
import { documentOf, type Path, parseYaml, type SourceDocument, type Where } from "../yaml/parse.js";
import { describe, pathText, quote, rangeText, unknownWord } from "../yaml/words.js";
import { ADDRESS_FORM, isAddress, urlAt } from "./address.js";
import type { FoundWorker } from "./discovery.js";

/** What a text of targets comes to. */
export type Targets =
  | { readonly workers: readonly FoundWorker[] }
  | { readonly mistakes: readonly Mistake[] };

/** As many as a policy can be shown. */
const MAX_WORKERS = 16_384;
const MAX_MODELS = 256;
const LARGEST_COUNT = 2 ** 31 - 1;

const ID_FORM = "1 to 128 printable ASCII characters without spaces, since it becomes a header";
const ID = /^[!-~]{1,128}$/;
/** No query, no fragment and no backslash. */
const PATH = /^\/[!"$->@-[\]-~]{0,1023}$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what a name must not have.
const MODEL = /^[^\u0000-\u001f\u007f]{1,256}$/;

// Labels are judged by the rules below; a Go program writes null where it has none.
const GroupsSchema = Type.Array(
  Type.Object(
    {
      targets: Type.Array(Type.String({ allowed: ADDRESS_FORM }), { allowed: "a list of targets" }),
      labels: Type.Optional(
        Type.Unsafe<unknown>({ type: ["object", "null"], allowed: "a mapping of labels" }),
      ),
    },
    { additionalProperties: false, allowed: "a group of targets, { targets: [...], labels: {...} }" },
  ),
  { allowed: "a list of groups of targets ([] for none)" },
);

const checkShape = compileCheck(GroupsSchema, "the file of targets");

/** What the labels of a group say of its workers. */
type Settings = Partial<Omit<FoundWorker, "url">> & { scheme?: "http" | "https"; path?: string };

interface Label {
  /** What its value must be, in words. */
  readonly allowed: string;
  /** What it sets; undefined for a value that it cannot have. */
  read(value: string): Settings | undefined;
}

/** Those that are ours. All others are between Prometheus and its users. */
const LABELS: Readonly<Record<string, Label>> = {
  hawser_id: { allowed: ID_FORM, read: (id) => (ID.test(id) ? { id } : undefined) },
  hawser_scheme: {
    allowed: "http or https",
    read: (scheme) => (scheme === "http" || scheme === "https" ? { scheme } : undefined),
  },
  hawser_path: {
    allowed: "a path that begins with a slash and has no query and no fragment, such as /llama",
    read: (path) => (PATH.test(path) ? { path } : undefined),
  },
  hawser_models: { allowed: `1 to ${MAX_MODELS} distinct model names, separated by commas`, read: modelsOf },
  hawser_weight: count("weight", 10_000),
  hawser_max_num_seqs: count("slots", LARGEST_COUNT),
  hawser_max_in_flight: count("maxInFlight", LARGEST_COUNT),
};
const OUR_PREFIX = "hawser_";

function count(key: "weight" | "slots" | "maxInFlight", maximum: number): Label {
  return {
    allowed: `an integer${rangeText({ minimum: 1, maximum })}`,
    read: (text) =>
      /^[1-9][0-9]{0,9}$/.test(text) && Number(text) <= maximum ? { [key]: Number(text) } : undefined,
  };
}

function modelsOf(text: string): Settings | undefined {
  const models = text.split(",").map((model) => model.trim());
  const isGood = models.length <= MAX_MODELS && models.every((model) => MODEL.test(model));
  return isGood && new Set(models).size === models.length ? { models } : undefined;
}

/**
 * The workers in a text, YAML or JSON by its content, in its order, or all mistakes in the order of its lines. `file`
 * names it in mistakes. Never throws.
 */
export function readTargets(text: string, file: string): Targets {
  const workers = workersInJson(text, file);
  if (workers) return { workers };
  const document = parseYaml(text, file);
  return document.value === undefined ? { mistakes: document.mistakes } : judge(document);
}

/**
 * The same of a text that is JSON and has no mistake, undefined for any other. All JSON is YAML, but JSON's own parser
 * takes a hundredth of the time, and knows no places. To it a repeated key is no mistake: as for Prometheus, the last
 * one counts.
 */
function workersInJson(text: string, file: string): readonly FoundWorker[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const targets = judge(documentOf(value, file));
  return "workers" in targets ? targets.workers : undefined;
}

function judge(document: SourceDocument): Targets {
  const rules = new TargetRules(document);
  rules.run();
  const found = [...document.mistakes, ...checkShape(document), ...rules.mistakes];
  return found.length === 0 ? { workers: rules.workers } : { mistakes: sortMistakes(found, document.file) };
}

/** The rules of groups. They pass over what has the wrong type, which is the shape's mistake. */
class TargetRules {
  readonly workers: FoundWorker[] = [];
  readonly mistakes: Mistake[] = [];
  /** Where each id stands first. */
  readonly #ids = new Map<string, Path>();
  #targets = 0;

  readonly #document: SourceDocument;

  constructor(document: SourceDocument) {
    this.#document = document;
  }

  run(): void {
    for (const [index, group] of list(this.#document.value).entries()) {
      if (isMapping(group)) this.#group([index], group);
    }
  }

  #group(path: Path, group: Readonly<Record<string, unknown>>): void {
    const targets = list(group.targets);
    const labels = [...path, "labels"];
    const { id, ...shared } = isMapping(group.labels) ? this.#settings(labels, group.labels) : {};
    if (id !== undefined && targets.length > 1) {
      const place = [...labels, "hawser_id"];
      this.#mistake(place, "key", `${pathText(place)} needs a group of one target, found ${targets.length}`);
    }
    const settings = id !== undefined && targets.length === 1 ? { ...shared, id } : shared;
    for (const [index, target] of targets.entries()) {
      if (typeof target === "string") this.#target([...path, "targets", index], target, settings);
    }
  }

  #settings(path: Path, labels: Readonly<Record<string, unknown>>): Settings {
    const settings: Settings = {};
    for (const [name, value] of Object.entries(labels)) {
      if (name.startsWith(OUR_PREFIX)) Object.assign(settings, this.#setting([...path, name], name, value));
    }
    return settings;
  }

  #setting(path: Path, name: string, value: unknown): Settings | undefined {
    if (!Object.hasOwn(LABELS, name)) {
      const what = `unknown label ${quote(name)} in ${pathText(path.slice(0, -1))}`;
      this.#mistake(path, "key", unknownWord(what, name, Object.keys(LABELS)));
      return undefined;
    }
    const { allowed, read } = LABELS[name]!;
    const isText = typeof value === "string" || typeof value === "number";
    const setting = isText ? read(String(value)) : undefined;
    if (!setting)
      this.#mistake(path, "value", `${pathText(path)} must be ${allowed}, found ${describe(value)}`);
    return setting;
  }

  #target(path: Path, target: string, settings: Settings): void {
    const { id = target, scheme = "http", path: below = "", ...rest } = settings;
    this.#targets++;
    if (this.#targets > MAX_WORKERS + 1) return;
    const breach = this.#breach(target, id);
    if (breach !== undefined) this.#mistake(path, "value", `${pathText(path)} ${breach}`);
    else {
      this.#ids.set(id, path);
      this.workers.push({ id, url: urlAt(scheme, target, below), ...rest });
    }
  }

  #breach(target: string, id: string): string | undefined {
    if (this.#targets > MAX_WORKERS)
      return `is one target too many: at most ${MAX_WORKERS} are allowed in a file`;
    if (!isAddress(target)) return `must be ${ADDRESS_FORM}, found ${quote(target)}${addressHint(target)}`;
    if (!ID.test(id)) return "is too long to be the id of a worker: the label hawser_id can name another";
    const first = this.#ids.get(id);
    if (first === undefined) return undefined;
    return `repeats the worker ${quote(id)}, first at line ${this.#document.positionOf(first, "value").line}`;
  }

  #mistake(path: Path, where: Where, message: string): void {
    const { file } = this.#document;
    this.mistakes.push({ file, ...this.#document.positionOf(path, where), message });
  }
}

function addressHint(target: string): string {
  if (target.includes("://")) return ", the scheme is a label: hawser_scheme";
  return target.includes("/") ? ", the path is a label: hawser_path" : "";
}

function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
