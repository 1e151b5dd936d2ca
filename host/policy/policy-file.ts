// One policy on disk: a manifest and its module, which is read and compiled when it is first asked for.
import { hash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { AdmissionError, type Admitted, admit } from "../sandbox/admit.js";
import type { Mistake, Position } from "../yaml/mistake.js";
import { causeOf } from "../yaml/read.js";
import { type Manifest, parseManifestJson } from "./manifest.js";

/** A module that cannot be used; `mistakes` say why. */
export class PolicyFileError extends Error {
  override readonly name = "PolicyFileError";

  constructor(readonly mistakes: readonly Mistake[]) {
    super(mistakes.map(({ message }) => message).join("; "));
  }
}

/** A module from a file, admitted. */
export interface AdmittedFile extends Admitted {
  /** Of the file's bytes, in lower-case hex: what an operator pins a module by. */
  readonly sha256: string;
}

/** A policy that can be named in a config: what its manifest says, and the module that decides. */
export class PolicyFile {
  readonly #place: Position;
  #outcome: AdmittedFile | readonly Mistake[] | undefined;

  /**
   * `file` holds the manifest: a YAML file, or the module itself. Mistakes about the module are reported at
   * `place` in `file`. `admitted` is given where the module had to be read for its manifest.
   */
  constructor(
    readonly manifest: Manifest,
    readonly file: string,
    readonly modulePath: string,
    place: Position,
    admitted?: AdmittedFile,
  ) {
    this.#place = place;
    this.#outcome = admitted;
  }

  /** The compiled module. Throws a PolicyFileError where `check()` has something to say. */
  get admitted(): AdmittedFile {
    const outcome = this.#load();
    if ("module" in outcome) return outcome;
    throw new PolicyFileError(outcome);
  }

  /** What is wrong with the module: missing, malformed, or carrying a manifest that disagrees with this one. */
  check(): readonly Mistake[] {
    const outcome = this.#load();
    return "module" in outcome ? [] : outcome;
  }

  #load(): AdmittedFile | readonly Mistake[] {
    this.#outcome ??= this.#read();
    return this.#outcome;
  }

  #read(): AdmittedFile | readonly Mistake[] {
    const admitted = admitFile(this.modulePath);
    if (typeof admitted === "string")
      return [this.#mistake(`cannot use the module ${this.modulePath}: ${admitted}`)];
    if (admitted.manifestJson === null) return admitted;
    const embedded = parseManifestJson(admitted.manifestJson, this.modulePath);
    if (!embedded.manifest) return embedded.mistakes;
    const key = firstDifference(this.manifest, embedded.manifest);
    if (key === undefined) return admitted;
    const inside = `the manifest inside ${basename(this.modulePath)}`;
    return [this.#mistake(`this manifest and ${inside} disagree about "${key}", they must say the same`)];
  }

  #mistake(message: string): Mistake {
    return { file: this.file, ...this.#place, message };
  }
}

/** Admits the bytes of a module file. Throws an AdmissionError where they are refused. */
export function admitBytes(bytes: Uint8Array): AdmittedFile {
  return { ...admit(bytes), sha256: hash("sha256", bytes) };
}

/** Reads and admits a module; a string says why it cannot be used. */
export function admitFile(path: string): AdmittedFile | string {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    return causeOf(error);
  }
  try {
    return admitBytes(bytes);
  } catch (error) {
    if (error instanceof AdmissionError) return error.message;
    throw error;
  }
}

function firstDifference(outer: Manifest, inner: Manifest): string | undefined {
  const [left, right] = [comparable(outer), comparable(inner)];
  return Object.keys(left).find((key) => !isDeepStrictEqual(left[key], right[key]));
}

/** A module may leave out its own name, and the lines of its examples are nothing to compare. */
function comparable({ module: _, examples, ...rest }: Manifest): Record<string, unknown> {
  return { ...rest, examples: examples.map(({ line: _line, ...example }) => example) };
}
