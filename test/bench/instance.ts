// The two instances that are measured of a policy: its module as admitted, with the meter, and as its author wrote it.

import { readFileSync } from "node:fs";
import type { PolicyInstance } from "../../host/routing/contenders.js";
import { admit } from "../../host/sandbox/admit.js";
import type { Loaded } from "./subjects.js";

/** Reads, checks, meters and compiles the module. Throws an AdmissionError where it is none. */
export function metered(loaded: Loaded): PolicyInstance {
  return instanceOf(loaded, admit(readFileSync(loaded.modulePath)).module);
}

/** Reads and compiles the module. */
export function unmetered(loaded: Loaded): PolicyInstance {
  return instanceOf(loaded, new WebAssembly.Module(readFileSync(loaded.modulePath)));
}

function instanceOf({ type, reads, parameters }: Loaded, module: WebAssembly.Module): PolicyInstance {
  return {
    name: type,
    policy: { manifest: { type, reads, reasons: new Map() }, admitted: { module } },
    parameters: Float64Array.from(parameters, (value) => value ?? Number.NaN),
  };
}
