// Bytes -> a compiled module that has the shape of ABI 1 and whose every call ends, or one clear refusal.
import { AdmissionError, oneLine } from "./error.js";
import { LIMITS } from "./limits.js";
import { type Metered, meter } from "./meter.js";
import { type ParsedModule, parseModule } from "./parse.js";
import { readEntryPoints } from "./shape.js";

export { AdmissionError } from "./error.js";
export {
  budgetOf,
  FUEL_EXPORT,
  KEEP_EXPORT,
  RESTORE_EXPORT,
  START_EXPORT,
  START_UNITS,
} from "./meter.js";

/** A module that may be instantiated, and the manifest it carries, if any. */
export interface Admitted {
  readonly module: WebAssembly.Module;
  /** UTF-8 JSON of the custom section `affinity.policy`, not yet checked; null where there is none. */
  readonly manifestJson: string | null;
  readonly report: AdmissionReport;
}

/** What an admitted module is made of. */
export interface AdmissionReport {
  /** Size as given, and with the meter in it. */
  readonly bytes: number;
  readonly meteredBytes: number;
  /** Names of the module's own exports. */
  readonly exports: readonly string[];
  /** Pages of 64 KiB. */
  readonly memoryPages: number;
  readonly tableSize: number;
  readonly functions: number;
  readonly loops: number;
  readonly instructions: number;
  readonly chargePoints: number;
}

/** Custom section that holds the embedded manifest. */
export const MANIFEST_SECTION = "affinity.policy";

/**
 * Checks, meters and compiles a policy module; nothing of it is executed, and nothing compiled before it is within
 * the limits. Throws an AdmissionError that names the section, the function and the reason where it is too large,
 * is not valid WebAssembly, imports anything, uses what no policy may, or lacks one of the exports `memory`, `init`
 * and `select`.
 */
export function admit(bytes: Uint8Array): Admitted {
  if (bytes.byteLength > LIMITS.bytes) {
    throw new AdmissionError(`the module has ${bytes.byteLength} bytes, at most ${LIMITS.bytes} are allowed`);
  }
  const parsed = parseModule(bytes, LIMITS);
  const entries = readEntryPoints(parsed.declarations);
  const manifestJson = embeddedManifest(parsed);
  // The rewritten module could be valid where the given one is not.
  if (!WebAssembly.validate(bytes as Uint8Array<ArrayBuffer>)) compile(bytes);
  const metered = meter(parsed, entries);
  return { module: compile(metered.bytes), manifestJson, report: reportOf(parsed, metered) };
}

function compile(bytes: Uint8Array): WebAssembly.Module {
  try {
    return new WebAssembly.Module(bytes as Uint8Array<ArrayBuffer>);
  } catch (error) {
    const detail = (error as Error).message.replace(/^WebAssembly\.Module\(\): /, "");
    throw new AdmissionError(`the module is not valid WebAssembly: ${oneLine(detail)}`);
  }
}

function reportOf({ bytes, declarations, code }: ParsedModule, metered: Metered): AdmissionReport {
  return {
    bytes: bytes.byteLength,
    meteredBytes: metered.bytes.byteLength,
    exports: declarations.exports.map(({ name }) => name),
    memoryPages: declarations.memories[0] ?? 0,
    tableSize: declarations.tables[0] ?? 0,
    functions: code.bodies.length,
    loops: code.loops,
    instructions: code.instructions,
    chargePoints: metered.chargePoints,
  };
}

function embeddedManifest({ bytes, sections }: ParsedModule): string | null {
  const found = sections.custom.filter(({ name }) => name === MANIFEST_SECTION);
  if (found.length === 0) return null;
  if (found.length > 1) {
    throw new AdmissionError(`the module has ${found.length} sections "${MANIFEST_SECTION}"`);
  }
  const [{ start, end }] = found as [(typeof found)[0]];
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(start, end));
  } catch {
    throw new AdmissionError(`the section "${MANIFEST_SECTION}" is not UTF-8`);
  }
}
