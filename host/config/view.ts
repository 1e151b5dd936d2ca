// What is in force, as an operator is shown it: the file's own keys with every default, and no secret.
import { isDeepStrictEqual } from "node:util";
import type { ParameterSpec } from "../policy/parameters.js";
import type { Config } from "./config.js";
import { isMapping, list, type Raw } from "./remarks.js";
import type { InstanceConfig } from "./rules.js";
import { ConfigSchema, DEFAULT, type RawConfig } from "./schema.js";
import { baseUrl } from "./url.js";

/** Plain data, its keys in the order of the schema. A key that says nothing where it is left out is left out here. */
export type ConfigView = Raw;

/** Stands for what is not shown. */
const MASK = "***";

type Chosen = Pick<Config, "policy" | "fallback" | "instances">;

/** What a schema is made of, as far as defaults are concerned. */
interface Shape {
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly items?: Shape;
  readonly required?: readonly string[];
}

/**
 * The view of a file's content whose shape is right; `chosen` is what its instances came to. Secrets are shown by the
 * place where they are, workers by the address in use, instances with every parameter by its name in the manifest.
 */
export function configView(raw: RawConfig, chosen: Chosen): ConfigView {
  // These have defaults that are no business of the shape.
  const { policies, session, worker_selection } = raw;
  const given = {
    ...raw,
    policies: { path: [], ...policies },
    workers: (raw.workers ?? []).map((worker) => ({ ...worker, url: baseUrl(worker.url) })),
    session: { sources: [DEFAULT], model_suffixes: [], ...session },
    worker_selection: { aggregated: DEFAULT, ...worker_selection, instances: instancesOf(chosen) },
    ...(raw.access && { access: { keys: raw.access.keys.map((key) => ({ ...key, sha256: MASK })) } }),
  };
  const view = filled(ConfigSchema as unknown as Shape, given) as ConfigView;
  return raw.discovery ? { ...view, discovery: sourcesOf(view, raw.discovery) } : view;
}

/** What stands there with the defaults of all that does not; undefined for what takes more than defaults to be there. */
function filled(shape: Shape, given: unknown = shape.default): unknown {
  const { properties, items, required = [] } = shape;
  if (given === undefined && required.length > 0) return undefined;
  if (items && Array.isArray(given)) return given.map((item) => filled(items, item));
  if (!properties || (given !== undefined && !isMapping(given))) return given;
  const entries = Object.entries(properties).map(
    ([key, child]) => [key, filled(child, given?.[key])] as const,
  );
  const stated = entries.filter(([, value]) => value !== undefined);
  return given === undefined && stated.length === 0 ? undefined : Object.fromEntries(stated);
}

/** Of a file of targets its labels say what the defaults say of a name. */
function sourcesOf(view: ConfigView, raw: NonNullable<RawConfig["discovery"]>): readonly unknown[] {
  return list(view.discovery).map((source, index) => (raw[index]!.file === undefined ? source : raw[index]));
}

/** The file's instances, before them the shipped one where it has a role. */
function instancesOf({ policy, fallback, instances }: Chosen): readonly Raw[] {
  const roles = [policy, ...(fallback ? [fallback] : [])];
  const shipped = roles.filter((instance) => !instances.includes(instance));
  return [...shipped, ...instances].map(instanceView);
}

function instanceView({ name, policy, parameters }: InstanceConfig): Raw {
  const { type, parameters: specs } = policy.manifest;
  const named = specs.map((spec, index) => [spec.name, shownValue(spec, parameters[index]!)] as const);
  return { name, type, sha256: policy.admitted.sha256, parameters: Object.fromEntries(named) };
}

/** A parameter as a config writes it. */
function shownValue({ type, values }: ParameterSpec, value: number): unknown {
  if (Number.isNaN(value)) return null;
  if (type === "boolean") return value !== 0;
  return type === "enum" ? values![value] : value;
}

/**
 * The keys that differ, sorted: those of the whole file, and `workers.ID` for each worker that is other, new or gone.
 * Secrets are not in a view: see `changesBetween`.
 */
export function changedKeys(before: ConfigView, after: ConfigView): string[] {
  return differing(byKey(before), byKey(after)).sort();
}

/** The same of two configs, and where a secret, or a policy's manifest, is another one in the same place. */
export function changesBetween(before: Config, after: Config): string[] {
  const shown = changedKeys(before.view, after.view);
  return [...new Set([...shown, ...differing(unseen(before), unseen(after))])].sort();
}

function differing(before: ReadonlyMap<string, unknown>, after: ReadonlyMap<string, unknown>): string[] {
  const keys = new Set([...before.keys(), ...after.keys()]);
  return [...keys].filter((key) => !isDeepStrictEqual(before.get(key), after.get(key)));
}

function byKey({ workers, ...others }: ConfigView): Map<string, unknown> {
  const entries = (list(workers) as readonly Raw[]).map((worker) => [keyOf(worker.id), worker] as const);
  return new Map<string, unknown>([...Object.entries(others), ...entries]);
}

/** What a view does not tell. */
function unseen({ admin, access, discovery, instances, workers }: Config): Map<string, unknown> {
  return new Map<string, unknown>([
    ["admin", admin.token],
    ["access", access?.keys.map(({ sha256 }) => sha256)],
    ["discovery", discovery.map(({ apiKey }) => apiKey)],
    ["worker_selection", instances.map(({ policy }) => policy.manifest)],
    ...workers.map(({ id, apiKey }) => [keyOf(id), apiKey] as const),
  ]);
}

function keyOf(id: unknown): string {
  return `workers.${id}`;
}
