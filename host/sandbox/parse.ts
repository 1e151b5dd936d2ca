// Bytes -> everything that the sandbox knows of a module, with nothing compiled.
import { type Code, readCode } from "./code.js";
import { type Declarations, readDeclarations } from "./declarations.js";
import type { Limits } from "./limits.js";
import { readFunctionNames, readSections, type Sections } from "./sections.js";

export interface ParsedModule {
  readonly bytes: Uint8Array;
  readonly sections: Sections;
  readonly declarations: Declarations;
  readonly code: Code;
}

/** Reads a whole module. Throws an AdmissionError for what breaks the format or `limits`, and for what no policy may have. */
export function parseModule(bytes: Uint8Array, limits: Limits): ParsedModule {
  const sections = readSections(bytes);
  const declarations = readDeclarations(bytes, sections, limits);
  const code = readCode(bytes, sections, declarations, readFunctionNames(bytes, sections), limits);
  return { bytes, sections, declarations, code };
}
