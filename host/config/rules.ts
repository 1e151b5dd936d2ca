// The rules of workers and policies that need more than one value, or the disk: names, references, URLs, modules.
// They run whether or not the shape is right, so that one run shows every mistake: what has the wrong type is
// passed over here, since it is reported already.
import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { capacityFor, MAX_CAPACITY } from "../abi/frame.js";
import { Catalog, type PolicyFile, SHIPPED_POLICIES } from "../policy/catalog.js";
import { type DryRunFault, dryRun } from "../policy/dry-run.js";
import { FILLED } from "../policy/filled.js";
import { resolveParameters } from "../policy/parameters.js";
import type { Path, SourceDocument } from "../yaml/parse.js";
import { causeOf } from "../yaml/read.js";
import { didYouMean, pathText, quote, unknownWord } from "../yaml/words.js";
import { isMapping, list, mapping, type Raw, type Remarks } from "./remarks.js";
import { baseUrl, urlBreach } from "./url.js";

/** What decides where no instance is selected, under this name, with its defaults. */
const DEFAULT_INSTANCE = "default";
/** As many as a router makes pools for. */
const MAX_MODELS = 1_024;
const DEFAULT_TYPE = "soft-affinity-load-guard";
/** Roles of a disaggregated deployment, which a config may have in common with other routers. */
const UNUSED_ROLES = ["prefill", "decode", "encode"] as const;

/** A policy with its parameters, under the name that headers, metrics and logs show. */
export interface InstanceConfig {
  readonly name: string;
  readonly policy: PolicyFile;
  /** In manifest order, as the frame holds them. */
  readonly parameters: Float64Array;
}

/** What dry runs found, by capacity and parameters: an instance reserves much address space, so none is made twice. */
const tried = new WeakMap<PolicyFile, Map<string, DryRunFault | undefined>>();

/** What a policy does wrong in a pool of so many workers: tried here, so that no pool meets it later. */
function faultOf(
  policy: PolicyFile,
  parameters: Float64Array | undefined,
  workers: number,
): DryRunFault | undefined {
  const capacity = capacityFor(Math.min(workers, MAX_CAPACITY));
  const found = tried.get(policy) ?? new Map<string, DryRunFault | undefined>();
  tried.set(policy, found);
  const key = `${capacity}: ${parameters?.join() ?? "none"}`;
  if (!found.has(key)) found.set(key, dryRun(policy, parameters, capacity));
  return found.get(key);
}

/** Applies the rules of workers and policies to one file. What it found is to be used only where there are no mistakes. */
export class Rules {
  readonly instances: InstanceConfig[] = [];
  selected: InstanceConfig | undefined;
  fallback: InstanceConfig | undefined;
  readonly #root: Raw;
  readonly #checked = new Set<PolicyFile>();
  readonly #unstartable = new Set<PolicyFile>();

  readonly #document: SourceDocument;
  readonly #remarks: Remarks;

  constructor(document: SourceDocument, remarks: Remarks) {
    this.#document = document;
    this.#remarks = remarks;
    this.#root = mapping(document.value);
  }

  run(): void {
    this.#workers();
    const { catalog, isComplete } = this.#catalog();
    const selection = mapping(this.#root.worker_selection);
    for (const [index, raw] of list(selection.instances).entries()) {
      this.#instance(["worker_selection", "instances", index], mapping(raw), catalog, isComplete);
    }
    this.#instanceNames(selection);
    this.#roles(selection, catalog);
  }

  #workers(): void {
    const all = new Set<unknown>();
    const ids = new Map<string, Path>();
    const urls = new Map<string, Path>();
    for (const [index, raw] of list(this.#root.workers).entries()) {
      const { id, url, models } = mapping(raw);
      const path = ["workers", index];
      this.#remarks.unique([...path, "id"], id, ids);
      const breach = typeof url === "string" ? urlBreach(url) : undefined;
      if (breach) this.#remarks.mistake([...path, "url"], "value", `${pathText([...path, "url"])} ${breach}`);
      else if (typeof url === "string") this.#doubtUrl([...path, "url"], baseUrl(url), urls);
      const known = new Map<string, Path>();
      for (const [i, model] of list(models).entries()) {
        this.#remarks.unique([...path, "models", i], model, known);
        if (all.size === MAX_MODELS && !all.has(model)) this.#tooManyModels([...path, "models", i]);
        all.add(model);
      }
    }
  }

  #tooManyModels(path: Path): void {
    this.#remarks.mistake(
      path,
      "value",
      `${pathText(path)} is one model too many: at most ${MAX_MODELS} can be served in all`,
    );
  }

  /** What is allowed, but hardly ever meant. */
  #doubtUrl(path: Path, url: string, seen: Map<string, Path>): void {
    const place = pathText(path);
    const first = seen.get(url);
    if (/\/v1$/.test(url)) {
      const message = `${place} ends in /v1, below which the gateway would ask for /v1/models and the like: leave it out`;
      this.#remarks.warning(path, "value", message);
    }
    if (first === undefined) seen.set(url, path);
    else {
      const message = `${place} is the address of ${pathText(first)}, too: requests to it are counted as if to two workers`;
      this.#remarks.warning(path, "value", message);
    }
  }

  /** Complete: every directory could be searched, so that a type that is not found does not exist. */
  #catalog(): { catalog: Catalog; isComplete: boolean } {
    const paths = list(mapping(this.#root.policies).path);
    const directories = paths.flatMap((directory, index) => {
      if (typeof directory !== "string" || directory === "") return [];
      const path = resolve(dirname(this.#document.file), directory);
      const breach = directoryBreach(path);
      if (breach === undefined) return [path];
      this.#remarks.mistake(
        ["policies", "path", index],
        "value",
        `policies.path[${index}]: cannot search ${quote(path)}: ${breach}`,
      );
      return [];
    });
    const catalog = Catalog.open(directories);
    this.#remarks.mistakes.push(...catalog.mistakes);
    return { catalog, isComplete: directories.length === paths.length };
  }

  #instance(path: Path, raw: Raw, catalog: Catalog, isComplete: boolean): void {
    const { name, type, parameters } = raw;
    if (typeof type !== "string" || type === "") return;
    const policy = catalog.find(type);
    if (policy) {
      this.#policy(policy, path);
      this.#digest(policy, path, raw.sha256);
      const label = typeof name === "string" ? name : pathText(path);
      if (parameters === undefined || isMapping(parameters)) this.#resolve(path, label, policy, parameters);
      else this.#try(policy, path, label, undefined);
    } else if (!catalog.isBroken(type) && (isComplete || didYouMean(type, namesIn(catalog)))) {
      // Where a directory could not be searched a type may be in it, unless it looks like another one misspelt.
      this.#unknownType([...path, "type"], type, catalog);
    }
  }

  #unknownType(path: Path, type: string, catalog: Catalog): void {
    const known =
      catalog
        .list()
        .map(({ manifest }) => manifest.type)
        .join(", ") || "<none>";
    const message = `${pathText(path)} is the unknown policy type ${quote(type)}${didYouMean(type, namesIn(catalog))}`;
    this.#remarks.mistake(path, "value", `${message} (known types: ${known})`);
  }

  #digest(policy: PolicyFile, instance: Path, pinned: unknown): void {
    if (typeof pinned !== "string" || policy.check().length > 0) return;
    const { sha256 } = policy.admitted;
    if (!/^[0-9a-f]{64}$/.test(pinned) || pinned === sha256) return;
    const message = `the module ${policy.modulePath} is not the one that is pinned: its sha256 is ${sha256}`;
    this.#remarks.mistake([...instance, "sha256"], "value", message);
  }

  /** What is wrong with a policy itself is told once, however many instances it has. */
  #policy(policy: PolicyFile, instance: Path): void {
    if (this.#checked.has(policy)) return;
    this.#checked.add(policy);
    const broken = policy.check();
    this.#remarks.mistakes.push(...broken);
    const { type } = policy.manifest;
    const unfilled = unfilledOf(policy);
    if (unfilled.length === 0) return;
    const filled = [...FILLED].sort().join(", ");
    const message = `the policy ${type} reads ${unfilled.join(", ")}, which this host cannot fill (it fills: ${filled})`;
    this.#remarks.mistake([...instance, "type"], "value", message);
  }

  /** That a policy cannot be started is told once, too. An instance without parameters to decide with is started alone. */
  #try(policy: PolicyFile, instance: Path, name: string, parameters: Float64Array | undefined): void {
    if (this.#unstartable.has(policy) || policy.check().length > 0) return;
    const canDecide = unfilledOf(policy).length === 0;
    const fault = faultOf(policy, canDecide ? parameters : undefined, list(this.#root.workers).length);
    if (fault === undefined) return;
    const { type } = policy.manifest;
    if ("start" in fault) this.#unstartable.add(policy);
    const message =
      "start" in fault
        ? `the policy ${type} cannot be started: ${fault.start}`
        : `instance ${quote(name)} of policy ${type} fails its dry run: ${fault.decision}`;
    this.#remarks.mistake([...instance, "type"], "value", message);
  }

  #resolve(path: Path, name: string, policy: PolicyFile, given: Record<string, unknown> | undefined): void {
    const { type, parameters: specs } = policy.manifest;
    const { values, mistakes } = resolveParameters(specs, given);
    for (const { path: at, where, message } of mistakes) {
      this.#remarks.mistake(
        [...path, "parameters", ...at],
        where,
        `instance ${quote(name)} of policy ${type}: ${message}`,
      );
    }
    this.#try(policy, path, name, mistakes.length === 0 ? values : undefined);
    this.instances.push({ name, policy, parameters: values });
  }

  #instanceNames({ instances }: Raw): void {
    const names = new Map<string, Path>();
    for (const [index, raw] of list(instances).entries()) {
      const path = ["worker_selection", "instances", index, "name"];
      const { name } = mapping(raw);
      this.#remarks.unique(path, name, names);
      if (name === DEFAULT_INSTANCE) {
        this.#remarks.mistake(
          path,
          "value",
          `${pathText(path)} must not be "default", which means the built-in choice`,
        );
      }
    }
  }

  #roles(selection: Raw, catalog: Catalog): void {
    const { aggregated = DEFAULT_INSTANCE, fallback } = selection;
    this.selected = this.#choice(selection, "aggregated", aggregated, catalog);
    if (fallback !== undefined) this.fallback = this.#choice(selection, "fallback", fallback, catalog);
    if (fallback === aggregated) {
      const message = `worker_selection.fallback must be another instance than aggregated, found ${quote(String(fallback))} for both`;
      this.#remarks.mistake(["worker_selection", "fallback"], "value", message);
    }
    if (selection.aggregated === undefined && list(selection.instances).length > 0) {
      const message =
        "worker_selection.aggregated is left out: none of the instances decides, but the default policy does";
      this.#remarks.warning(["worker_selection", "instances"], "key", message);
    }
    for (const role of UNUSED_ROLES) {
      if (selection[role] === undefined || !this.#isInstance(selection, role, catalog)) continue;
      const message = `worker_selection.${role} is not used: all requests are routed by worker_selection.aggregated`;
      this.#remarks.warning(["worker_selection", role], "key", message);
    }
  }

  #choice(selection: Raw, role: string, name: unknown, catalog: Catalog): InstanceConfig | undefined {
    if (name === DEFAULT_INSTANCE) return this.#default(role, catalog);
    if (!this.#isInstance(selection, role, catalog)) return undefined;
    return this.instances.find((instance) => instance.name === name);
  }

  #default(role: string, catalog: Catalog): InstanceConfig | undefined {
    const place = ["worker_selection", role];
    const policy = catalog.findShipped(DEFAULT_TYPE);
    if (policy) {
      this.#policy(policy, place);
      const { values } = resolveParameters(policy.manifest.parameters, undefined);
      this.#try(policy, place, DEFAULT_INSTANCE, values);
      return { name: DEFAULT_INSTANCE, policy, parameters: values };
    }
    if (!catalog.isBroken(DEFAULT_TYPE)) {
      this.#remarks.mistake(
        place,
        "value",
        `the default policy ${DEFAULT_TYPE} is missing from ${SHIPPED_POLICIES}`,
      );
    }
    return undefined;
  }

  /** Whether a role names an instance; says so where it does not. */
  #isInstance(selection: Raw, role: string, catalog: Catalog): boolean {
    const name = selection[role];
    const { instances = [] } = selection;
    const names = list(instances).map((raw) => mapping(raw).name);
    // Where a name cannot be read, that is the mistake, and the role may well mean it.
    if (typeof name !== "string" || name === "" || !Array.isArray(instances)) return false;
    if (name === DEFAULT_INSTANCE || names.includes(name)) return true;
    const readable = names.filter((candidate) => typeof candidate === "string");
    if (readable.length < names.length) return false;
    const what = `worker_selection.${role} names the unknown instance ${quote(name)}`;
    const message = catalog.find(name)
      ? `${what}, which is a policy type: ${remedyFor(name, list(instances))}`
      : unknownWord(what, name, readable, "instances");
    this.#remarks.mistake(["worker_selection", role], "value", message);
    return false;
  }
}

/** What to write where a policy type stands for an instance: the one there is of that type, or one to add. */
function remedyFor(type: string, instances: readonly unknown[]): string {
  const instance = instances.map(mapping).find((candidate) => candidate.type === type);
  if (instance) return `its instance is ${quote(String(instance.name))}`;
  return `add the instance - { name: ${type}, type: ${type} } to worker_selection.instances`;
}

function unfilledOf({ manifest }: PolicyFile): string[] {
  return manifest.reads.filter((name) => !FILLED.has(name));
}

function namesIn(catalog: Catalog): string[] {
  return catalog.list().flatMap(({ manifest }) => [manifest.type, ...manifest.aliases]);
}

function directoryBreach(path: string): string | undefined {
  try {
    return statSync(path).isDirectory() ? undefined : "it is not a directory";
  } catch (error) {
    return causeOf(error);
  }
}
