// Calls into an instance that are to leave nothing behind.

import { KEEP_EXPORT, RESTORE_EXPORT } from "../sandbox/admit.js";

/** The memory during a call: one for all, because a call ends before the next begins, and fresh pages take time. */
let kept = new Uint8Array(0);

/** Whether the memory and the globals are all that a call of the module's code can change. */
export function isRestorable(exports: WebAssembly.Exports): boolean {
  return KEEP_EXPORT in exports;
}

/**
 * Calls `call` and puts the memory and the globals of the instance back as they were, whether it returns or throws.
 * Only for an instance that `isRestorable`.
 */
export function untouched<T>(exports: WebAssembly.Exports, call: () => T): T {
  // The meter lets no memory grow: it is the same one after the call.
  const memory = new Uint8Array((exports.memory as WebAssembly.Memory).buffer);
  if (kept.length < memory.length) kept = new Uint8Array(memory.length);
  kept.set(memory);
  (exports[KEEP_EXPORT] as () => void)();
  try {
    return call();
  } finally {
    memory.set(kept.subarray(0, memory.length));
    (exports[RESTORE_EXPORT] as () => void)();
  }
}
