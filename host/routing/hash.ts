// The two hashes of the ABI: of a scoped session key and of a worker's id. Little-endian prefixes of SHA-256.

import { hash } from "node:crypto";

/** First eight bytes of SHA-256 over `model`, NUL, `tenant`, NUL, `key`, as two signed words. */
export function hashSession(model: string, tenant: string, key: string): { low: number; high: number } {
  const digest = hash("sha256", `${model}\0${tenant}\0${key}`, "buffer");
  return { low: digest.readInt32LE(0), high: digest.readInt32LE(4) };
}

/**
 * First four bytes of SHA-256 over the worker's id as a signed word; rehashed with a suffix while `taken` says that
 * another worker has it already.
 */
export function hashWorker(id: string, taken: (hash: number) => boolean): number {
  for (let attempt = 0; ; attempt++) {
    const text = attempt === 0 ? id : `${id}#${attempt}`;
    const word = hash("sha256", text, "buffer").readInt32LE(0);
    if (!taken(word)) return word;
  }
}
