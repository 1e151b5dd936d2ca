// A policy's folder: one manifest, and beside it one source file with the name of its module.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { type Manifest, type ParsedManifest, parseManifest } from "../policy/manifest.js";
import { formatMistake } from "../yaml/mistake.js";
import { causeOf } from "../yaml/read.js";
import { BuildError } from "./build-error.js";

/** Languages by the ending of a source file. */
export const LANGUAGES = { ".ts": "assemblyscript", ".c": "c", ".rs": "rust", ".wat": "wat" } as const;
export type Language = (typeof LANGUAGES)[keyof typeof LANGUAGES];

export interface Project {
  readonly manifestFile: string;
  readonly manifest: Manifest;
  /** The manifest as it is written, for the module. */
  readonly raw: unknown;
  readonly source: string;
  readonly language: Language;
  /** Where the module is to be put. */
  readonly module: string;
}

/** Reads the project in a directory. Throws a BuildError where it is not one, or its manifest has mistakes. */
export function readProject(directory: string): Project {
  const found = namesIn(directory)
    .filter((name) => extname(name) === ".yaml")
    .map((name) => parseIn(directory, name))
    .filter(isManifest);
  if (found.length !== 1) {
    const what = found.length === 0 ? "no manifest" : `${found.length} manifests`;
    throw new BuildError(`${directory}: there must be one manifest, a .yaml file with "abi"; found ${what}`);
  }
  return projectOf(directory, found[0]!);
}

/** The project that a source file belongs to. Throws a BuildError as `readProject` does, and where it is another's. */
export function projectOfSource(source: string): Project {
  const stem = source.slice(0, -extname(source).length);
  const manifestFile = `${stem}.yaml`;
  if (!existsSync(manifestFile))
    throw new BuildError(`${source}: there is no manifest ${manifestFile} beside it`);
  const directory = join(manifestFile, "..");
  return projectOf(directory, parseIn(directory, basename(manifestFile)));
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).sort();
  } catch (error) {
    throw new BuildError(`${directory}: cannot read the directory: ${causeOf(error)}`);
  }
}

function parseIn(directory: string, name: string): ParsedManifest {
  const file = join(directory, name);
  return parseManifest(readFileSync(file, "utf8"), file);
}

/** A YAML file that cannot be read at all may be one. */
function isManifest({ document }: ParsedManifest): boolean {
  const { value } = document;
  return value === undefined || (typeof value === "object" && value !== null && "abi" in value);
}

function projectOf(directory: string, { manifest, mistakes, document }: ParsedManifest): Project {
  if (!manifest) throw new BuildError(mistakes.map(formatMistake).join("\n"));
  const stem = basename(manifest.module!, ".wasm");
  const sources = Object.keys(LANGUAGES).filter((ending) => existsSync(join(directory, stem + ending)));
  if (sources.length !== 1) {
    const names = Object.keys(LANGUAGES).map((ending) => stem + ending);
    const found = sources.length === 0 ? "none" : sources.map((ending) => stem + ending).join(", ");
    throw new BuildError(
      `${directory}: there must be one source file of ${names.join(", ")}; found ${found}`,
    );
  }
  const ending = sources[0] as keyof typeof LANGUAGES;
  return {
    manifestFile: document.file,
    manifest,
    raw: document.value,
    source: join(directory, stem + ending),
    language: LANGUAGES[ending],
    module: join(directory, manifest.module!),
  };
}
