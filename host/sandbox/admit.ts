// Bytes -> a compiled module that has the shape of ABI 1, or one clear refusal. Knows bytes alone.

/** A module that may be instantiated, and the manifest it carries, if any. */
export interface Admitted {
  readonly module: WebAssembly.Module;
  /** UTF-8 JSON of the custom section `affinity.policy`, not yet checked; null where there is none. */
  readonly manifestJson: string | null;
}

/** Why a module is refused, as one sentence that names what was found. */
export class AdmissionError extends Error {
  override readonly name = "AdmissionError";
}

/** Custom section that holds the embedded manifest. */
export const MANIFEST_SECTION = "affinity.policy";

/** Largest module, in bytes. */
export const MAX_MODULE_BYTES = 65_536;

const EXPORTS = { memory: "memory", init: "function", select: "function" } as const;

/**
 * Checks and compiles a policy module; nothing of it is executed.
 * Throws an AdmissionError where it is too large, is not valid WebAssembly, imports anything or lacks one of
 * the exports `memory`, `init` and `select`.
 */
export function admit(bytes: Uint8Array): Admitted {
  if (bytes.byteLength > MAX_MODULE_BYTES) {
    throw new AdmissionError(
      `the module has ${bytes.byteLength} bytes, at most ${MAX_MODULE_BYTES} are allowed`,
    );
  }
  const module = compile(bytes);
  const imported = WebAssembly.Module.imports(module)[0];
  if (imported) {
    throw new AdmissionError(
      `the module imports ${imported.kind} "${imported.module}.${imported.name}", a policy may import nothing`,
    );
  }
  const exported = new Map(WebAssembly.Module.exports(module).map(({ name, kind }) => [name, kind]));
  for (const [name, kind] of Object.entries(EXPORTS)) {
    const found = exported.get(name);
    if (found !== kind) {
      throw new AdmissionError(
        `the module must export a ${kind} "${name}", ${found ? `it is a ${found}` : "there is none"}`,
      );
    }
  }
  return { module, manifestJson: embeddedManifest(module) };
}

function compile(bytes: Uint8Array): WebAssembly.Module {
  try {
    return new WebAssembly.Module(bytes as Uint8Array<ArrayBuffer>);
  } catch (error) {
    const detail = (error as Error).message.replace(/^WebAssembly\.Module\(\): /, "");
    throw new AdmissionError(`the module is not valid WebAssembly: ${detail}`);
  }
}

function embeddedManifest(module: WebAssembly.Module): string | null {
  const sections = WebAssembly.Module.customSections(module, MANIFEST_SECTION);
  if (sections.length === 0) return null;
  if (sections.length > 1)
    throw new AdmissionError(`the module has ${sections.length} sections "${MANIFEST_SECTION}"`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(sections[0]);
  } catch {
    throw new AdmissionError(`the section "${MANIFEST_SECTION}" is not UTF-8`);
  }
}
