// Builds a policy's folder: compile, put the manifest in, admit, try, and write the module beside the manifest.
import { renameSync, writeFileSync } from "node:fs";
import { relative } from "node:path";
import { type ExampleResult, runExamples } from "../policy/examples.js";
import { PolicyStartError } from "../policy/live.js";
import { type AdmittedFile, admitBytes } from "../policy/policy-file.js";
import { AdmissionError } from "../sandbox/admit.js";
import { causeOf } from "../yaml/read.js";
import { BuildError } from "./build-error.js";
import { compile } from "./compile.js";
import { type DryRun, dryRun, unfilled } from "./inspect.js";
import { readProject } from "./project.js";
import { packManifest } from "./section.js";

export interface Built {
  readonly module: string;
  readonly manifestFile: string;
  readonly bytes: number;
  readonly dryRun: DryRun;
  /** Results of the decision table. */
  readonly examples: readonly ExampleResult[];
  /** Why the gateway would not take the policy, though it can be tried. */
  readonly warnings: readonly string[];
}

/**
 * Builds the policy in a directory. The module is written, at once and whole, where it is admitted and starts; its
 * decision table may fail. Throws a BuildError otherwise.
 */
export async function buildProject(directory: string): Promise<Built> {
  const project = readProject(directory);
  const source = relative("", project.source);
  const bytes = packManifest(await compile(source, project.language), project.raw);
  const policy = { manifest: project.manifest, admitted: admitBuilt(bytes, source) };
  const tried = started(source, () => dryRun(policy));
  write(project.module, bytes);
  return {
    module: project.module,
    manifestFile: project.manifestFile,
    bytes: bytes.byteLength,
    dryRun: tried,
    examples: started(source, () => runExamples(policy)),
    warnings: unfilled(project.manifest),
  };
}

function admitBuilt(bytes: Uint8Array, source: string): AdmittedFile {
  try {
    return admitBytes(bytes);
  } catch (error) {
    if (error instanceof AdmissionError)
      throw new BuildError(`${source}: the module is refused: ${error.message}`);
    throw error;
  }
}

function started<T>(source: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (error instanceof PolicyStartError) throw new BuildError(`${source}: ${error.message}`);
    throw error;
  }
}

/** A gateway that reads the module meanwhile sees the old one or the new one. */
function write(file: string, bytes: Uint8Array): void {
  const beside = `${file}.${process.pid}.tmp`;
  try {
    writeFileSync(beside, bytes);
    renameSync(beside, file);
  } catch (error) {
    throw new BuildError(`${file}: cannot write: ${causeOf(error)}`);
  }
}
