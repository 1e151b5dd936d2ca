// Loading a policy beside the thread that decides: a hostile module can make its compiler work for a while.
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { PolicyFile } from "./catalog.js";
import { PolicyError } from "./load.js";

/** What the thread is told. */
export interface LoadOrder {
  readonly typeOrFile: string;
  readonly path: readonly string[];
}

/** What the thread answers: the parts of a policy, its module compiled, or why there is none. */
export type LoadResult =
  | Pick<PolicyFile, "manifest" | "file" | "modulePath" | "admitted">
  | { readonly refusal: string };

/** Milliseconds after which a policy that is still being loaded is given up. */
const TIMEOUT_MS = 10_000;

/**
 * Does what `loadPolicy` does, and one decision for a trial, in a thread of its own, so that the caller's goes on meanwhile.
 * Rejects with a PolicyError where the policy cannot be used or is not loaded within ten seconds.
 */
export async function loadPolicyAside(typeOrFile: string, path: readonly string[] = []): Promise<PolicyFile> {
  const order: LoadOrder = { typeOrFile, path };
  const thread = new Worker(new URL("./load-thread.js", import.meta.url), { workerData: order });
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const [result] = (await once(thread, "message", { signal })) as [LoadResult];
    if ("refusal" in result) throw new PolicyError(result.refusal);
    const { manifest, file, modulePath, admitted } = result;
    return new PolicyFile(manifest, file, modulePath, { line: 1, column: 1 }, admitted);
  } catch (error) {
    if ((error as Error).name !== "AbortError") throw error;
    throw new PolicyError(`${typeOrFile}: the policy was not loaded within ${TIMEOUT_MS / 1_000} seconds`);
  } finally {
    await thread.terminate();
  }
}
