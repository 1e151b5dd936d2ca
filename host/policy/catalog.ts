// The policies that a config can name: manifests and modules found in directories, the shipped ones last.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, extname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Mistake, Position } from "../yaml/mistake.js";
import type { Path } from "../yaml/parse.js";
import { causeOf, readText } from "../yaml/read.js";
import { type ParsedManifest, parseManifest, parseManifestJson } from "./manifest.js";
import { admitFile, PolicyFile } from "./policy-file.js";

export { PolicyFile, PolicyFileError } from "./policy-file.js";

const START: Position = { line: 1, column: 1 };
/** Folder of this package's package.json. */
export const PACKAGE_ROOT = findPackageRoot();
/** Where the shipped manifests are. Their modules are in `build/`, where the compiler puts them. */
export const SHIPPED_POLICIES = join(PACKAGE_ROOT, "policies");
const SHIPPED_MODULES = join(PACKAGE_ROOT, "build");

/** The policies of some directories by type and alias. */
export class Catalog {
  /** Broken manifests, modules without a readable manifest, names taken twice, directories that cannot be read. */
  readonly mistakes: readonly Mistake[];
  readonly #byName = new Map<string, PolicyFile>();
  readonly #brokenNames = new Set<string>();
  readonly #shipped: Directory;

  /**
   * Searches the directories of `path` in order, then the shipped policies; the first directory that has a type or
   * alias wins. Modules are not compiled, save those that carry their own manifest.
   */
  static open(path: readonly string[]): Catalog {
    return new Catalog(path.map((directory) => readDirectory(directory)));
  }

  private constructor(directories: readonly Directory[]) {
    this.#shipped = shippedPolicies();
    const all = [...directories, this.#shipped];
    this.mistakes = all.flatMap(({ mistakes }) => mistakes);
    for (const { policies, brokenNames } of all) this.#add(policies, brokenNames);
  }

  #add(policies: ReadonlyMap<string, PolicyFile>, brokenNames: readonly string[]): void {
    const isFree = (name: string) => !this.#byName.has(name) && !this.#brokenNames.has(name);
    const [found, broken] = [[...policies].filter(([name]) => isFree(name)), brokenNames.filter(isFree)];
    for (const name of broken) this.#brokenNames.add(name);
    for (const [name, policy] of found) this.#byName.set(name, policy);
  }

  /** The policy of this type or alias. */
  find(typeOrAlias: string): PolicyFile | undefined {
    return this.#byName.get(typeOrAlias);
  }

  /** The shipped policy of this type, whatever the searched directories call by its name. */
  findShipped(type: string): PolicyFile | undefined {
    return this.#shipped.policies.get(type);
  }

  /** Whether a manifest that could not be used bears this name: then `mistakes` says why `find` has nothing. */
  isBroken(typeOrAlias: string): boolean {
    return this.#brokenNames.has(typeOrAlias) && !this.#byName.has(typeOrAlias);
  }

  /** Every policy that its own type leads to, sorted by type. */
  list(): PolicyFile[] {
    const found = [...this.#byName].filter(([name, { manifest }]) => name === manifest.type);
    return found.map(([, policy]) => policy).sort((a, b) => (a.manifest.type < b.manifest.type ? -1 : 1));
  }
}

/**
 * The policy of one FILE: a manifest, or a module with its manifest beside it (same name, `.yaml`) or inside it.
 * The module is checked too. Without mistakes there is a policy.
 */
export function loadPolicyFile(path: string): { policy?: PolicyFile; mistakes: readonly Mistake[] } {
  const beside = extname(path) === ".wasm" ? manifestBeside(path) : path;
  const { policy, parsed, mistakes } = beside === undefined ? fromModule(path) : fromManifest(beside);
  if (!policy) return { mistakes: mistakes.length > 0 ? mistakes : [noManifest(path)] };
  if (beside !== undefined && beside !== path && resolve(policy.modulePath) !== resolve(path)) {
    const place = parsed?.document.positionOf(["module"], "value") ?? START;
    return {
      mistakes: [{ file: beside, ...place, message: `module must be "${basename(path)}", the file beside` }],
    };
  }
  const wrong = policy.check();
  return wrong.length > 0 ? { mistakes: wrong } : { policy, mistakes: [] };
}

interface Found {
  readonly policy?: PolicyFile;
  readonly parsed?: ParsedManifest;
  readonly mistakes: readonly Mistake[];
}

function fromManifest(file: string): Found {
  const read = readText(file);
  if ("mistake" in read) return { mistakes: [read.mistake] };
  const parsed = parseManifest(read.text, file);
  if (!parsed.manifest) return { parsed, mistakes: parsed.mistakes };
  const modulePath = join(moduleDirectoryOf(dirname(file)), parsed.manifest.module!);
  const place = parsed.document.positionOf(["module"], "value");
  return { parsed, policy: new PolicyFile(parsed.manifest, file, modulePath, place), mistakes: [] };
}

function fromModule(file: string): Found {
  const admitted = admitFile(file);
  if (typeof admitted === "string") {
    return { mistakes: [{ file, ...START, message: `cannot use the module: ${admitted}` }] };
  }
  if (admitted.manifestJson === null) return { mistakes: [] };
  const parsed = parseManifestJson(admitted.manifestJson, file);
  if (!parsed.manifest) return { parsed, mistakes: parsed.mistakes };
  return { parsed, policy: new PolicyFile(parsed.manifest, file, file, START, admitted), mistakes: [] };
}

function noManifest(path: string): Mistake {
  const name = basename(path, ".wasm");
  return {
    file: path,
    ...START,
    message: `the module has no manifest: neither inside it nor in ${name}.yaml beside it`,
  };
}

function manifestBeside(module: string): string | undefined {
  const name = `${basename(module, ".wasm")}.yaml`;
  const directory = dirname(module);
  const isShipped = resolve(directory) === SHIPPED_MODULES;
  const file = join(isShipped ? SHIPPED_POLICIES : directory, name);
  return existsSync(file) ? file : undefined;
}

function moduleDirectoryOf(directory: string): string {
  return resolve(directory) === SHIPPED_POLICIES ? SHIPPED_MODULES : directory;
}

let shipped: Directory | undefined;

/** The shipped policies do not change while a process lives: their files are read and compiled once. */
function shippedPolicies(): Directory {
  shipped ??= readDirectory(SHIPPED_POLICIES);
  return shipped;
}

interface Directory {
  /** By type and alias. */
  readonly policies: ReadonlyMap<string, PolicyFile>;
  readonly brokenNames: readonly string[];
  readonly mistakes: readonly Mistake[];
}

function readDirectory(directory: string): Directory {
  let names: string[];
  try {
    names = readdirSync(directory)
      .filter((name) => isFile(join(directory, name)))
      .sort();
  } catch (error) {
    const message = `cannot read the directory: ${causeOf(error)}`;
    return { policies: new Map(), brokenNames: [], mistakes: [{ file: directory, ...START, message }] };
  }
  const paths = (extension: string) =>
    names.filter((name) => extname(name) === extension).map((name) => join(directory, name));
  const manifests = paths(".yaml").map(fromManifest).filter(isManifest);
  const claimed = new Set(manifests.map(moduleNameOf));
  const modules = paths(".wasm")
    .filter((file) => !claimed.has(basename(file)))
    .map(fromModule);
  return collect([...manifests, ...modules]);
}

/** A regular file, also behind a link. Anything else is no policy, and reading a pipe would never end. */
function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

/** Other YAML may lie about in a directory, such as the config itself. */
function isManifest({ parsed }: Found): boolean {
  const value = parsed?.document.value;
  if (value === undefined) return true;
  return (
    typeof value === "object" &&
    value !== null &&
    ["abi", "type", "module"].some((key) => Object.hasOwn(value, key))
  );
}

/** The module that a manifest speaks for, even a broken one. */
function moduleNameOf({ policy, parsed }: Found): string {
  if (policy) return basename(policy.modulePath);
  const named = (parsed?.document.value as { module?: unknown } | undefined)?.module;
  return typeof named === "string" ? named : `${basename(parsed?.document.file ?? "", ".yaml")}.wasm`;
}

function collect(found: readonly Found[]): Directory {
  const policies = new Map<string, PolicyFile>();
  const mistakes: Mistake[] = [];
  for (const { policy, parsed, mistakes: own } of found) {
    mistakes.push(...own);
    if (!policy || !parsed) continue;
    const names = namesOf(policy);
    const taken = names.find(([name]) => policies.has(name));
    if (taken) mistakes.push(nameTaken(taken, policies.get(taken[0])!, policy, parsed));
    else for (const [name] of names) policies.set(name, policy);
  }
  return { policies, mistakes, brokenNames: found.flatMap(brokenNamesOf) };
}

function namesOf({ manifest }: PolicyFile): [string, Path][] {
  return [
    [manifest.type, ["type"]],
    ...manifest.aliases.map((alias, i): [string, Path] => [alias, ["aliases", i]]),
  ];
}

function nameTaken(
  [name, path]: [string, Path],
  first: PolicyFile,
  second: PolicyFile,
  parsed: ParsedManifest,
): Mistake {
  const place = parsed.document.positionOf(path, "value");
  const message = `the policy type "${name}" is defined twice, in ${second.file} and in ${first.file}`;
  return { file: second.file, ...place, message };
}

/** What a broken manifest would have been found by: its type and aliases where they can be read, else its file's name. */
function brokenNamesOf({ policy, parsed, mistakes }: Found): string[] {
  if (policy || mistakes.length === 0) return [];
  const { type, aliases } = (parsed?.document.value ?? {}) as { type?: unknown; aliases?: unknown };
  const names = [type, ...(Array.isArray(aliases) ? aliases : [])].filter((name) => typeof name === "string");
  return names.length > 0 ? names : [basename(mistakes[0].file, extname(mistakes[0].file))];
}

function findPackageRoot(): string {
  let directory = dirname(fileURLToPath(import.meta.url));
  while (!isPackageRoot(directory)) {
    const parent = dirname(directory);
    if (parent === directory)
      throw new Error(`no package.json of hawser above ${fileURLToPath(import.meta.url)}`);
    directory = parent;
  }
  return directory;
}

function isPackageRoot(directory: string): boolean {
  const file = join(directory, "package.json");
  return existsSync(file) && JSON.parse(readFileSync(file, "utf8")).name === "hawser";
}
