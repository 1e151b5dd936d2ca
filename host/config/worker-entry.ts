// A worker as an operator's call names it: the same keys, and the same mistakes, as in the config file.
import { compileCheck } from "../yaml/check.js";
import { type Mistake, sortMistakes } from "../yaml/mistake.js";
import { parseYaml } from "../yaml/parse.js";
import { mapping, Remarks } from "./remarks.js";
import { WorkerEntrySchema } from "./schema.js";
import { baseUrl, urlBreach } from "./url.js";

/** A worker without its id. */
export interface WorkerEntry {
  readonly url: string;
  readonly models?: readonly string[];
  readonly weight?: number;
  readonly slots?: number;
  readonly maxInFlight?: number;
}

const checkShape = compileCheck(WorkerEntrySchema, "the worker");

/** Reads a worker from JSON or YAML. Never throws for what is in it; all its mistakes are told. */
export function parseWorkerEntry(text: string): { entry?: WorkerEntry; mistakes: readonly Mistake[] } {
  const document = parseYaml(text, "body");
  if (document.value === undefined) return { mistakes: document.mistakes };
  const remarks = new Remarks(document);
  const { url, models, weight, max_num_seqs: slots, max_in_flight: maxInFlight } = mapping(document.value);
  const breach = typeof url === "string" ? urlBreach(url) : undefined;
  if (breach) remarks.mistake(["url"], "value", `url ${breach}`);
  const mistakes = [...document.mistakes, ...checkShape(document), ...remarks.mistakes];
  if (mistakes.length > 0) return { mistakes: sortMistakes(mistakes, "body") };
  const given = { models, weight, slots, maxInFlight };
  const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return { entry: { url: baseUrl(url as string), ...known }, mistakes: [] };
}
