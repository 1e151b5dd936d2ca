// A schema -> a check that turns every breach of it into one sentence at its place.
import { Ajv, type ErrorObject } from "ajv";
import type { TSchema } from "typebox";
import type { Mistake } from "./mistake.js";
import type { SourceDocument, Where } from "./parse.js";
import { describe, didYouMean, pathText, rangeText, suggest, unknownWord } from "./words.js";

/** What is true or false to YAML 1.1, and to many who write YAML. */
const OLD_BOOLEAN = /^(?:y|yes|n|no|on|off)$/i;

// `allowed` in a schema says in words what its pattern or type means: "a duration such as 30s". `secret` marks a mapping
// in which an unknown key may be a secret that stands in the wrong place: it is not quoted.
const ajv = new Ajv({ allErrors: true, verbose: true, allowUnionTypes: true, ownProperties: true });
ajv.addVocabulary(["allowed", "secret"]);

/**
 * Compiles a schema. `whole` names the whole document in sentences, such as "the config".
 * The check reports each place once, in no particular order.
 */
export function compileCheck(schema: TSchema, whole: string): (document: SourceDocument) => Mistake[] {
  const validate = ajv.compile(schema);
  return (document) => {
    if (validate(document.value)) return [];
    const errors = validate.errors ?? [];
    const unknown = unknownKeys(errors);
    const places = new Set<string>();
    return errors.flatMap((error) => {
      const place = `${error.instancePath}\n${placeWithin(error)}`;
      if (places.has(place) || isMisspelt(error, unknown)) return [];
      places.add(place);
      return [mistakeOf(error, document, whole)];
    });
  };
}

/** Unknown and missing keys are each a mistake of their own; of a bad value, only the first reason is told. */
function placeWithin({ keyword, params }: ErrorObject): string {
  if (keyword === "additionalProperties") return `+${params.additionalProperty}`;
  return keyword === "required" ? `-${params.missingProperty}` : "";
}

/** The keys that no schema knows, by the place of their mapping. */
function unknownKeys(errors: readonly ErrorObject[]): ReadonlyMap<string, readonly string[]> {
  const unknown = new Map<string, string[]>();
  for (const { keyword, instancePath, params } of errors) {
    if (keyword !== "additionalProperties") continue;
    unknown.set(instancePath, [...(unknown.get(instancePath) ?? []), params.additionalProperty]);
  }
  return unknown;
}

/** A key is missing because it stands there misspelt: that is told as an unknown key already. */
function isMisspelt(error: ErrorObject, unknown: ReadonlyMap<string, readonly string[]>): boolean {
  if (error.keyword !== "required") return false;
  const beside = unknown.get(error.instancePath) ?? [];
  return beside.some((key) => isSlip(key, error.params.missingProperty));
}

/** Whether a key that stands there may be meant for another one that does not. */
export function isSlip(found: string, meant: string): boolean {
  return found.startsWith(`${meant}:`) || suggest(found, [meant]) !== undefined;
}

function mistakeOf(error: ErrorObject, document: SourceDocument, whole: string): Mistake {
  const path = pathOf(error.instancePath, document.value);
  const name = pathText(path) || whole;
  const place = (at: (string | number)[], where: Where, message: string): Mistake => {
    return { file: document.file, ...document.positionOf(at, where), message };
  };
  if (error.keyword === "required") {
    return place(path, "value", `${name} needs the key "${error.params.missingProperty}"`);
  }
  if (error.keyword === "additionalProperties") {
    const key = error.params.additionalProperty as string;
    return place([...path, key], "key", unknownKey(key, path, error.parentSchema as TSchema));
  }
  return place(path, "value", `${name} must be ${wanted(error)}`);
}

interface MappingSchema {
  readonly properties?: Readonly<Record<string, { readonly secret?: boolean }>>;
  readonly secret?: boolean;
}

function unknownKey(key: string, path: (string | number)[], schema: TSchema): string {
  const { properties = {}, secret = false } = schema as MappingSchema;
  const allowed = Object.keys(properties);
  const glued = allowed.find((name) => key.startsWith(`${name}:`));
  const isSecret = secret || (glued !== undefined && properties[glued]!.secret === true);
  const found = isSecret ? "" : ` ${describe(key)}`;
  const what = `unknown key${found}${path.length > 0 ? ` in ${pathText(path)}` : ""}`;
  if (glued) return `${what}, a space must follow the colon of "${glued}:"`;
  return unknownWord(what, key, allowed);
}

function wanted({ data, parentSchema, keyword }: ErrorObject): string {
  const schema = parentSchema as Record<string, unknown>;
  const values = (schema.enum ?? []) as readonly string[];
  const hint = typeof data === "string" ? wordHint(data, values, schema) : quotingHint(data, schema, keyword);
  return `${allowedBy(schema)}, found ${describe(data)}${hint}`;
}

function wordHint(data: string, values: readonly string[], schema: Record<string, unknown>): string {
  if (schema.type !== "boolean" || !OLD_BOOLEAN.test(data)) return didYouMean(data, values);
  return ", which is text in YAML 1.2";
}

/** `id: 7` is a number in YAML; where the text "7" would do, say so. */
function quotingHint(data: unknown, schema: Record<string, unknown>, keyword: string): string {
  const scalar = typeof data === "number" || typeof data === "boolean";
  if (keyword !== "type" || schema.type !== "string" || !scalar) return "";
  const pattern = schema.pattern as string | undefined;
  if (pattern !== undefined && !new RegExp(pattern, "u").test(String(data))) return "";
  return ` (in quotes it is text: "${data}")`;
}

function allowedBy(schema: Record<string, unknown>): string {
  if (typeof schema.allowed === "string") return schema.allowed;
  if (Array.isArray(schema.enum)) return `one of ${schema.enum.join(", ")}`;
  switch (schema.type) {
    case "integer":
      return `an integer${rangeText(schema)}`;
    case "number":
      return `a number${rangeText(schema)}`;
    case "boolean":
      return "true or false";
    case "array":
      return schema.minItems ? `a list of at least ${schema.minItems}` : "a list";
    case "object":
      return "a mapping";
    default:
      return schema.minLength ? "text that is not empty" : "text";
  }
}

/** A JSON pointer as a path; parts that lead into a list become numbers. */
function pathOf(pointer: string, root: unknown): (string | number)[] {
  let value = root as Record<string, unknown>;
  return pointer
    .split("/")
    .slice(1)
    .map((part) => {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      const step = Array.isArray(value) ? Number(key) : key;
      value = value[key] as Record<string, unknown>;
      return step;
    });
}
