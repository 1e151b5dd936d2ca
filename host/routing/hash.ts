// The two hashes of the ABI: of a scoped session key and of a worker's id. Little-endian prefixes of SHA-256.

import { hash } from "node:crypto";

/** A session hash as two signed words. */
export interface SessionHash {
  readonly low: number;
  readonly high: number;
}

/**
 * First eight bytes of SHA-256 over `model`, NUL, `tenant`, NUL, `key`. The children of one parent have that of the key NUL,
 * `parent`, which no session can have.
 */
export function hashSession(model: string, tenant: string, key: string): SessionHash {
  const digits = hash("sha256", `${model}\0${tenant}\0${key}`, "hex");
  return { low: wordOf(digits.slice(0, 8)), high: wordOf(digits.slice(8, 16)) };
}

/** A session hash as logs and operators see it: the first 16 digits that `sha256sum` would print. */
export function sessionId(low: number, high: number): string {
  return digitsOf(low) + digitsOf(high);
}

/** The hash that `sessionId` wrote; null where the text is no such id. */
export function parseSessionId(id: string): SessionHash | null {
  if (!/^[0-9a-f]{16}$/.test(id)) return null;
  return { low: wordOf(id.slice(0, 8)), high: wordOf(id.slice(8)) };
}

function wordOf(digits: string): number {
  return byteSwapped(Number.parseInt(digits, 16));
}

function digitsOf(word: number): string {
  return (byteSwapped(word) >>> 0).toString(16).padStart(8, "0");
}

function byteSwapped(word: number): number {
  return (word << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24);
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
