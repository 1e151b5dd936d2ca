// A policy's manifest: YAML beside the module, or the same content as JSON inside it -> what the host knows of a policy.
import type { ColumnName, FieldName } from "../abi/frame.js";
import { compileCheck } from "../yaml/check.js";
import type { Mistake } from "../yaml/mistake.js";
import { documentOf, nestsTooDeeply, parseYaml, type SourceDocument } from "../yaml/parse.js";
import { breachesOf } from "./manifest-rules.js";
import { ManifestSchema, type RawExample, type RawManifest, type RawStep } from "./manifest-schema.js";
import { type ParameterSpec, specsOf } from "./parameters.js";

export interface Manifest {
  readonly abi: 1;
  readonly type: string;
  readonly aliases: readonly string[];
  readonly version: string;
  readonly summary: string;
  readonly description?: string | undefined;
  /** File name of the module beside the manifest; an embedded manifest may leave it out. */
  readonly module: string | undefined;
  /** What the host keeps up to date in the frame beyond `eligible` and `active_requests`. */
  readonly reads: readonly (FieldName | ColumnName)[];
  /** The policy remembers something from decision to decision; a fresh instance forgets it. */
  readonly stateful: boolean;
  /** In the order of the frame. */
  readonly parameters: readonly ParameterSpec[];
  /** The policy's own reasons, from 256 on. */
  readonly reasons: ReadonlyMap<number, string>;
  readonly examples: readonly Example[];
}

/** One row of the decision table, or several steps on one instance. */
export interface Example {
  readonly name?: string | undefined;
  readonly parameters?: Readonly<Record<string, unknown>> | undefined;
  readonly steps: readonly ExampleStep[];
  /** Line of the manifest, from 1. */
  readonly line: number;
}

export interface ExampleStep {
  /** The case as written, not yet checked. */
  readonly case: Readonly<Record<string, unknown>>;
  readonly expect: Expectation;
}

export interface Expectation {
  /** A row, any of several rows, or null: no row is eligible. */
  readonly row: number | number[] | null;
  readonly reason: string;
  readonly failure?: string | undefined;
}

export interface ParsedManifest {
  /** Absent where there are mistakes. */
  readonly manifest?: Manifest;
  readonly mistakes: readonly Mistake[];
  /** The text behind it, for what is wrong with it among others. */
  readonly document: SourceDocument;
}

const checkShape = compileCheck(ManifestSchema, "the manifest");

/** Reads a manifest file's text. */
export function parseManifest(text: string, file: string): ParsedManifest {
  const document = parseYaml(text, file);
  return manifestOf(document, true);
}

/** Reads the manifest embedded in the module `file`; its mistakes have no place but the file. */
export function parseManifestJson(json: string, file: string): ParsedManifest {
  const broken = (what: string): ParsedManifest => {
    const message = `the embedded manifest ${what}`;
    return { mistakes: [{ file, line: 1, column: 1, message }], document: documentOf(undefined, file) };
  };
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    return broken(`is not JSON: ${(error as Error).message}`);
  }
  if (nestsTooDeeply(json)) return broken("nests objects and lists too deeply");
  const parsed = manifestOf(documentOf(value, file), false);
  const mistakes = parsed.mistakes.map((mistake) => {
    return { ...mistake, message: `in the embedded manifest: ${mistake.message}` };
  });
  return { ...parsed, mistakes };
}

function manifestOf(document: SourceDocument, needsModule: boolean): ParsedManifest {
  if (document.value === undefined) return { mistakes: document.mistakes, document };
  const shape = checkShape(document);
  const mistakes = [...document.mistakes, ...shape];
  if (shape.length === 0) {
    mistakes.push(...breachesOf(document, document.value as RawManifest, needsModule));
  }
  if (mistakes.length > 0) return { mistakes, document };
  return { manifest: build(document.value as RawManifest, document), mistakes, document };
}

function build(raw: RawManifest, document: SourceDocument): Manifest {
  return {
    ...{ abi: raw.abi, type: raw.type, aliases: raw.aliases ?? [], version: raw.version },
    ...{ summary: raw.summary.trim(), description: raw.description?.trim(), module: raw.module },
    reads: (raw.reads ?? []) as (FieldName | ColumnName)[],
    stateful: raw.stateful ?? false,
    parameters: specsOf(raw.parameters ?? {}),
    reasons: new Map(Object.entries(raw.reasons ?? {}).map(([number, name]) => [Number(number), name])),
    examples: (raw.examples ?? []).map((example, index) => {
      return exampleOf(example as RawExample, document.positionOf(["examples", index], "key").line);
    }),
  };
}

function exampleOf({ name, parameters, steps, ...single }: RawExample, line: number): Example {
  const raw = steps ?? [single];
  return { name, parameters, steps: raw.map((step) => stepOf(step as RawStep)), line };
}

function stepOf({ expect, ...rest }: RawStep): ExampleStep {
  return { case: rest, expect };
}
