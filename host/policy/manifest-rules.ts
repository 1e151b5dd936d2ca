// The rules of a manifest that need more than one of its values at a time.
import { MAX_PARAMETERS, READABLE } from "../abi/frame.js";
import { FIRST_OWN_REASON, type HostDecision, MAX_REASON, REASON_NAMES } from "../abi/reasons.js";
import type { Mistake } from "../yaml/mistake.js";
import type { Path, SourceDocument } from "../yaml/parse.js";
import { describe, pathText, quote, unknownWord } from "../yaml/words.js";
import type { RawExample, RawManifest, RawParameter } from "./manifest-schema.js";
import { allowedText, encode, type ParameterSpec, resolveParameters, specsOf } from "./parameters.js";

const HOST_DECISIONS: readonly HostDecision[] = ["fallback", "hard", "explicit", "deterministic", "none"];
const PARAMETER_NAME = /^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$/;
const BOUNDS = ["minimum", "maximum", "exclusiveMinimum"] as const;

/** What breaks a rule in a manifest whose shape is right. */
export function breachesOf(document: SourceDocument, raw: RawManifest, needsModule: boolean): Mistake[] {
  const rules = new Rules(document, raw);
  if (needsModule && raw.module === undefined)
    rules.breach([], "value", 'the manifest needs the key "module"');
  rules.names();
  rules.reads();
  rules.parameters();
  rules.reasons();
  // Examples are judged by the parameters and reasons: a mistake there would only be told again here.
  if (rules.mistakes.length === 0) rules.examples();
  return rules.mistakes;
}

class Rules {
  readonly mistakes: Mistake[] = [];
  readonly #specs: readonly ParameterSpec[];

  readonly #document: SourceDocument;
  readonly #raw: RawManifest;

  constructor(document: SourceDocument, raw: RawManifest) {
    this.#document = document;
    this.#raw = raw;
    this.#specs = specsOf(raw.parameters ?? {});
  }

  breach(path: Path, where: "key" | "value", message: string): void {
    const { file } = this.#document;
    this.mistakes.push({ file, ...this.#document.positionOf(path, where), message });
  }

  /** A mistake at a key; the sentence starts with its path. */
  #key(path: Path, rest: string): void {
    this.breach(path, "key", `${pathText(path)} ${rest}`);
  }

  /** A mistake at a value; the sentence starts with its path. */
  #value(path: Path, rest: string): void {
    this.breach(path, "value", `${pathText(path)} ${rest}`);
  }

  names(): void {
    const { type, aliases = [] } = this.#raw;
    const paths: Path[] = [["type"], ...aliases.map((_, index) => ["aliases", index])];
    const names = [type, ...aliases];
    for (const [index, name] of names.entries()) {
      if (name === "default")
        this.#value(paths[index], 'must not be "default", which means the built-in choice');
      else if (names.indexOf(name) < index) this.#value(paths[index], `repeats the name "${name}"`);
    }
  }

  reads(): void {
    const { reads = [] } = this.#raw;
    for (const [index, name] of reads.entries()) {
      const path = ["reads", index];
      const unknown = `names ${quote(name)}, which no frame has`;
      if (!READABLE.includes(name)) this.#value(path, unknownWord(unknown, name, READABLE));
      else if (reads.indexOf(name) < index) this.#value(path, `repeats "${name}"`);
    }
  }

  parameters(): void {
    const parameters = this.#raw.parameters ?? {};
    if (this.#specs.length > MAX_PARAMETERS) {
      this.#key(["parameters"], `must be at most ${MAX_PARAMETERS}, found ${this.#specs.length}`);
    }
    for (const spec of this.#specs) {
      const path = ["parameters", spec.name];
      const before = this.mistakes.length;
      this.#parameterName(path, spec.name);
      this.#bounds(path, parameters[spec.name]);
      this.#enumValues(path, parameters[spec.name]);
      if (this.mistakes.length === before) this.#default(path, spec);
    }
  }

  #parameterName(path: Path, name: string): void {
    const parameters = this.#raw.parameters ?? {};
    if (!PARAMETER_NAME.test(name)) {
      this.#key(
        path,
        "must be a name of lower-case letters, digits and _, with a dot before each nested part",
      );
    }
    const parent = name.slice(0, Math.max(0, name.lastIndexOf(".")));
    if (parent === "" || !Object.hasOwn(parameters, parent)) return;
    // The parent's own value says whether the mapping is given.
    const { type, default: fallback = false, nullable = false } = parameters[parent];
    if (type !== "boolean" || fallback !== false || nullable) {
      this.#key(
        path,
        `makes ${parent} a mapping: as a parameter, ${parent} must be a boolean without default`,
      );
    }
  }

  #bounds(path: Path, parameter: RawParameter): void {
    const { type, minimum, maximum, exclusiveMinimum } = parameter;
    for (const bound of BOUNDS) {
      const value = parameter[bound];
      if (value === undefined) continue;
      if (type !== "integer" && type !== "number") {
        this.#key([...path, bound], `is for integer and number, the type is ${type}`);
      } else if (type === "integer" && !Number.isSafeInteger(value)) {
        this.#value([...path, bound], `must be an integer between -2^53 and 2^53, found ${value}`);
      }
    }
    if (minimum !== undefined && exclusiveMinimum !== undefined) {
      this.#key([...path, "exclusiveMinimum"], "stands beside minimum, one of the two is allowed");
    }
    const atLeast = minimum ?? (type === "integer" ? (exclusiveMinimum ?? 0) : -Infinity);
    if (maximum !== undefined && maximum < atLeast) {
      this.#value([...path, "maximum"], `must be at least ${atLeast}, found ${maximum}`);
    } else if (maximum !== undefined && exclusiveMinimum !== undefined && maximum <= exclusiveMinimum) {
      this.#value([...path, "maximum"], `must be above ${exclusiveMinimum}, found ${maximum}`);
    }
  }

  #enumValues(path: Path, { type, values }: RawParameter): void {
    if (type === "enum" && values === undefined) this.#key(path, 'is an enum and needs the key "values"');
    if (type !== "enum" && values) this.#key([...path, "values"], `is for enum, the type is ${type}`);
    for (const [index, value] of (values ?? []).entries()) {
      if (values!.indexOf(value) < index) this.#value([...path, "values", index], `repeats ${quote(value)}`);
    }
  }

  #default(path: Path, spec: ParameterSpec): void {
    if (spec.default === undefined || encode(spec, spec.default) !== undefined) return;
    const found = spec.default === null ? "null" : describe(spec.default);
    this.#value([...path, "default"], `must be ${allowedText(spec)}, found ${found}`);
  }

  reasons(): void {
    const taken = new Set<string>([...REASON_NAMES, ...HOST_DECISIONS]);
    for (const [number, name] of Object.entries(this.#raw.reasons ?? {})) {
      const isOwn =
        /^\d+$/.test(number) && Number(number) >= FIRST_OWN_REASON && Number(number) <= MAX_REASON;
      if (!isOwn)
        this.#key(["reasons", number], `must be a number from ${FIRST_OWN_REASON} to ${MAX_REASON}`);
      if (taken.has(name)) this.#value(["reasons", number], `must be a name of its own, "${name}" is taken`);
      taken.add(name);
    }
  }

  examples(): void {
    for (const [index, example] of (this.#raw.examples ?? []).entries()) {
      const path = ["examples", index];
      this.#exampleParts(path, example as RawExample);
      for (const mistake of resolveParameters(this.#specs, example.parameters).mistakes) {
        const home = [...path, "parameters"];
        this.breach([...home, ...mistake.path], mistake.where, `${pathText(home)}: ${mistake.message}`);
      }
      const steps = example.steps ?? [];
      if (example.expect) this.#reason([...path, "expect", "reason"], example.expect.reason);
      for (const [step, { expect }] of steps.entries()) {
        this.#reason([...path, "steps", step, "expect", "reason"], expect.reason);
      }
    }
  }

  #exampleParts(path: Path, { name: _, parameters: __, steps, ...single }: RawExample): void {
    if (steps === undefined && single.expect === undefined) this.#value(path, 'needs the key "expect"');
    if (steps === undefined) return;
    for (const key of Object.keys(single))
      this.#key([...path, key], "stands beside steps, it belongs into a step");
  }

  #reason(path: Path, reason: string): void {
    const known = [...REASON_NAMES, ...Object.values(this.#raw.reasons ?? {}), "fallback", "none"];
    if (!known.includes(reason))
      this.#value(path, unknownWord(`is the unknown reason ${quote(reason)}`, reason, known));
  }
}
