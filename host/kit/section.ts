// Puts a policy's manifest into its module, so that the module can travel alone.
import { MANIFEST_SECTION } from "../sandbox/admit.js";
import { Writer } from "../sandbox/writer.js";

const CUSTOM = 0;

/** The module with `manifest`, as JSON, in a custom section behind all others. The module must not have one yet. */
export function packManifest(module: Uint8Array, manifest: unknown): Uint8Array {
  const content = new Writer()
    .text(MANIFEST_SECTION)
    .bytes(new TextEncoder().encode(JSON.stringify(manifest)));
  return new Writer().bytes(module).byte(CUSTOM).sized(content).view().slice();
}
