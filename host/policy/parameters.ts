// A policy's parameters: what a manifest declares, and the numbers that a config's values become in the frame.
import type { Path, Where } from "../yaml/parse.js";
import { describe, didYouMean, quote, rangeText, suggest, unknownWord } from "../yaml/words.js";

export type ParameterType = "integer" | "number" | "boolean" | "enum";

export interface ParameterSpec {
  /** As the manifest writes it; a dot leads into a mapping: `adaptive.load_scale`. */
  readonly name: string;
  readonly type: ParameterType;
  /** Of an enum; a value's index is what the policy sees. */
  readonly values?: readonly string[] | undefined;
  readonly minimum?: number | undefined;
  readonly maximum?: number | undefined;
  readonly exclusiveMinimum?: number | undefined;
  /** Absent: the parameter is required. */
  readonly default?: number | boolean | string | null | undefined;
  /** `null` is allowed and becomes NaN. */
  readonly nullable: boolean;
  readonly description?: string | undefined;
}

/** A parameter as a manifest writes it under its name. */
export type RawParameterSpec = Omit<ParameterSpec, "name" | "nullable"> & { readonly nullable?: boolean };

/** The parameters of a manifest, in its order. */
export function specsOf(raw: Readonly<Record<string, RawParameterSpec>>): ParameterSpec[] {
  return Object.entries(raw).map(([name, spec]) => ({ nullable: false, ...spec, name }));
}

/** A mistake whose path is relative to the mapping of parameters. */
export interface ParameterMistake {
  readonly path: Path;
  readonly where: Where;
  readonly message: string;
}

/** Parameters by the shape in which they are given: a nested mapping is a group. */
interface Group {
  /** Index of the parameter of this name, if it is one. */
  readonly index?: number;
  readonly members: Map<string, Group>;
}

/**
 * The values of `specs`, in their order, as the frame holds them: a boolean is 0 or 1, an enum its index, null NaN.
 * `given` is what a config or an example says. Where there are mistakes the values are not to be used.
 */
export function resolveParameters(
  specs: readonly ParameterSpec[],
  given: Record<string, unknown> | undefined,
): { values: Float64Array; mistakes: ParameterMistake[] } {
  const resolution = new Resolution(specs);
  resolution.group(groupsOf(specs), given ?? {}, []);
  return { values: resolution.values, mistakes: resolution.mistakes };
}

class Resolution {
  readonly values: Float64Array;
  readonly mistakes: ParameterMistake[] = [];

  readonly #specs: readonly ParameterSpec[];

  constructor(specs: readonly ParameterSpec[]) {
    this.#specs = specs;
    this.values = new Float64Array(specs.length);
  }

  group(group: Group, given: Readonly<Record<string, unknown>>, path: readonly string[]): void {
    for (const key of Object.keys(given)) {
      if (!group.members.has(key)) this.#mistake([...path, key], "key", unknownParameter(key, path, group));
    }
    for (const [key, member] of group.members) {
      const value = Object.hasOwn(given, key) ? given[key] : undefined;
      if (member.members.size > 0) this.#mapping(member, value, [...path, key]);
      else this.#single(this.#specs[member.index!], member.index!, value, [...path, key]);
    }
  }

  #mapping(group: Group, value: unknown, path: readonly string[]): void {
    const { index } = group;
    if (value !== undefined && !isMapping(value)) {
      this.#mistake(path, "value", `${path.join(".")} must be a mapping, found ${describe(value)}`);
      return;
    }
    if (index !== undefined) this.values[index] = value ? 1 : 0;
    // A mapping that may be left out asks for nothing while it is.
    if (index !== undefined && !value) this.#defaults(group);
    else this.group(group, value ?? {}, path);
  }

  #defaults(group: Group): void {
    for (const { index, members } of group.members.values()) {
      if (members.size > 0) this.#defaults({ members });
      if (index !== undefined)
        this.values[index] = encode(this.#specs[index], this.#specs[index].default) ?? Number.NaN;
    }
  }

  #single(spec: ParameterSpec, index: number, value: unknown, path: readonly string[]): void {
    const encoded = encode(spec, value === undefined ? spec.default : value);
    if (encoded !== undefined) {
      this.values[index] = encoded;
    } else if (value === undefined) {
      const message = `the parameter "${spec.name}" is required, it must be ${allowedText(spec)}`;
      this.#mistake(path.slice(0, -1), "key", message);
    } else {
      this.#mistake(path, "value", breachText(spec, value));
    }
  }

  #mistake(path: Path, where: Where, message: string): void {
    this.mistakes.push({ path, where, message });
  }
}

/** `value` as the frame holds it, or undefined where the parameter does not allow it. */
export function encode(spec: ParameterSpec, value: unknown): number | undefined {
  if (value === null && spec.nullable) return Number.NaN;
  switch (spec.type) {
    case "boolean":
      return typeof value === "boolean" ? Number(value) : undefined;
    case "enum": {
      const index = (spec.values ?? []).indexOf(value as string);
      return index < 0 ? undefined : index;
    }
    default:
      return typeof value === "number" && isWithin(spec, value) ? value : undefined;
  }
}

function isWithin(spec: ParameterSpec, value: number): boolean {
  const { minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity } = boundsOf(spec);
  if (spec.type === "integer" ? !Number.isSafeInteger(value) : !Number.isFinite(value)) return false;
  return value >= minimum && value <= maximum && value > exclusiveMinimum;
}

function boundsOf(spec: ParameterSpec) {
  const { minimum, maximum, exclusiveMinimum } = spec;
  const unbounded = spec.type === "integer" && minimum === undefined && exclusiveMinimum === undefined;
  return { minimum: unbounded ? 0 : minimum, maximum, exclusiveMinimum };
}

/** What the parameter allows, in words: `an integer of at least 1`, `one of first, random`. */
export function allowedText(spec: ParameterSpec, value?: unknown): string {
  return spec.nullable ? `${allowedValues(spec, value)}, or null` : allowedValues(spec, value);
}

function allowedValues(spec: ParameterSpec, value: unknown): string {
  if (spec.type === "boolean") return "true or false";
  if (spec.type === "enum") return `one of ${(spec.values ?? []).join(", ")}`;
  const bounds = boundsOf(spec);
  const noun = spec.type === "integer" ? "an integer" : "a finite number";
  // The largest integer is worth its digits only to somebody who went beyond it.
  const beyond = spec.type === "integer" && typeof value === "number" && value > Number.MAX_SAFE_INTEGER;
  return `${noun}${rangeText({ ...bounds, maximum: bounds.maximum ?? (beyond ? Number.MAX_SAFE_INTEGER : undefined) })}`;
}

/** Why `value` is refused: `move_margin must be an integer of at least 1, found 0`. */
function breachText(spec: ParameterSpec, value: unknown): string {
  const meant = typeof value === "string" ? didYouMean(value, spec.values ?? []) : "";
  const found = value === null ? "null" : describe(value);
  return `${spec.name} must be ${allowedText(spec, value)}, found ${found}${meant}`;
}

function unknownParameter(key: string, path: readonly string[], group: Group): string {
  const inside = path.length > 0 ? ` in ${path.join(".")}` : "";
  const what = `unknown parameter ${quote(key)}${inside}`;
  const head = key.split(".")[0];
  if (group.members.get(head)?.members.size) return `${what}, write it as a mapping under "${head}"`;
  if (group.members.size === 0) return `${what}, the policy takes none`;
  const elsewhere = suggest(key, group.members.keys()) === undefined ? nestedHome(key, group) : undefined;
  if (elsewhere) return `${what}, it belongs into "${elsewhere}"`;
  return unknownWord(what, key, [...group.members.keys()]);
}

/** The nested mapping of `group` that has a member of this name. */
function nestedHome(key: string, group: Group): string | undefined {
  return [...group.members].find(([, member]) => member.members.has(key))?.[0];
}

function groupsOf(specs: readonly ParameterSpec[]): Group {
  const root: Group = { members: new Map() };
  specs.forEach(({ name }, index) => {
    let group = root;
    const parts = name.split(".");
    for (const [depth, part] of parts.entries()) {
      const known = group.members.get(part) ?? { members: new Map<string, Group>() };
      const next: Group = depth === parts.length - 1 ? { ...known, index } : known;
      group.members.set(part, next);
      group = next;
    }
  });
  return root;
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
