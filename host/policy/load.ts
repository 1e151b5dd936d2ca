// A policy by the name that a person gives it: a type, an alias, or the path of a file.
import { formatMistake, type Mistake } from "../yaml/mistake.js";
import { unknownWord } from "../yaml/words.js";
import { Catalog, loadPolicyFile, type PolicyFile } from "./catalog.js";

/** A policy or its parameters that cannot be used: one line for every mistake. */
export class PolicyError extends Error {
  override readonly name = "PolicyError";
}

/**
 * Loads a policy: by type or alias from the directories of `path` and then the shipped ones, or by file, which is
 * anything with a slash or an ending `.yaml`, `.yml` or `.wasm`: a manifest, or a module with its manifest beside or
 * inside it. Reads and compiles synchronously. Throws a PolicyError where it cannot be used.
 */
export function loadPolicy(typeOrFile: string, path: readonly string[] = []): PolicyFile {
  if (/[/\\]|\.(ya?ml|wasm)$/.test(typeOrFile)) {
    const { policy, mistakes } = loadPolicyFile(typeOrFile);
    return policy ?? refuse(mistakes);
  }
  const catalog = Catalog.open(path);
  const policy = catalog.find(typeOrFile);
  if (policy) {
    const mistakes = policy.check();
    return mistakes.length === 0 ? policy : refuse(mistakes);
  }
  if (catalog.isBroken(typeOrFile)) return refuse(catalog.mistakes);
  const types = catalog.list().map(({ manifest }) => manifest.type);
  throw new PolicyError(unknownWord(`there is no policy type "${typeOrFile}"`, typeOrFile, types, "known"));
}

function refuse(mistakes: readonly Mistake[]): never {
  throw new PolicyError(mistakes.map(formatMistake).join("\n"));
}
