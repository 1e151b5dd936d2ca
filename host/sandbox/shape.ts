// Whether a module exports what ABI 1 asks for.
import type { Declarations, Export, FunctionType } from "./declarations.js";
import { AdmissionError, quoted } from "./error.js";

/** What the meter exports stands under names that begin so; a policy's own may not. */
export const RESERVED_PREFIX = "hawser:";

const I32 = 0x7f;
const TYPE_NAMES: Readonly<Record<number, string>> = {
  [I32]: "i32",
  126: "i64",
  125: "f32",
  124: "f64",
  123: "v128",
  112: "funcref",
  111: "externref",
};

const REQUIRED = {
  memory: undefined,
  init: { parameters: [I32], results: [I32] },
  select: { parameters: [I32, I32], results: [I32] },
} as const satisfies Record<string, FunctionType | undefined>;
const INITIALIZE: FunctionType = { parameters: [], results: [] };

/** The functions through which a host enters a policy, by index. */
export interface EntryPoints {
  readonly init: number;
  readonly select: number;
  /** `_initialize`, where there is one. */
  readonly initialize: number | undefined;
}

/** Finds the entry points. Throws an AdmissionError where an export is missing, of another type, or reserved. */
export function readEntryPoints(declarations: Declarations): EntryPoints {
  const reserved = declarations.exports.find(({ name }) => name.startsWith(RESERVED_PREFIX));
  if (reserved) {
    throw new AdmissionError(
      `export section: the name ${quoted(reserved.name)} begins with "${RESERVED_PREFIX}", which is the host's`,
    );
  }
  const exports = new Map(declarations.exports.map((one) => [one.name, one]));
  const find = (name: keyof typeof REQUIRED) => {
    const found = exports.get(name);
    checkExport(declarations, found, name, REQUIRED[name]);
    return found.index;
  };
  find("memory");
  const initialize = exports.get("_initialize");
  if (initialize) checkExport(declarations, initialize, "_initialize", INITIALIZE);
  return { init: find("init"), select: find("select"), initialize: initialize?.index };
}

function checkExport(
  { types, functions }: Declarations,
  found: Export | undefined,
  name: string,
  type: FunctionType | undefined,
): asserts found is Export {
  const kind = type ? "function" : "memory";
  const wanted = `export section: the module must export a ${kind} "${name}"${type ? ` of the type ${typeText(type)}` : ""}`;
  if (!found) throw new AdmissionError(`${wanted}, there is none`);
  if (found.kind !== kind) throw new AdmissionError(`${wanted}, it is a ${found.kind}`);
  if (!type) return;
  const actual = types[functions[found.index] ?? -1];
  if (!actual) throw new AdmissionError(`${wanted}, it is the function ${found.index}, which is not there`);
  if (typeText(actual) !== typeText(type)) {
    throw new AdmissionError(`${wanted}, its type is ${typeText(actual)}`);
  }
}

function typeText({ parameters, results }: FunctionType): string {
  const list = (types: readonly number[]) => `(${types.map((type) => TYPE_NAMES[type]).join(", ")})`;
  return `${list(parameters)} -> ${list(results)}`;
}
