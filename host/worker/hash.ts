// The 32-bit mixing that tokens, block hashes, generated words and embeddings share (MurmurHash3's rounds).

/** Folds one 32-bit word into a running hash. */
export function mix(hash: number, word: number): number {
  let k = Math.imul(word, 0xcc9e2d51);
  k = (k << 15) | (k >>> 17);
  const h = hash ^ Math.imul(k, 0x1b873593);
  return (Math.imul((h << 13) | (h >>> 19), 5) + 0xe6546b64) | 0;
}

/** Spreads a running hash over all 32 bits; the result is unsigned. */
export function finish(hash: number): number {
  let h = hash ^ (hash >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** One unsigned 32-bit hash of a whole token sequence. */
export function hashTokens(tokens: readonly number[]): number {
  let hash = tokens.length;
  for (const token of tokens) hash = mix(hash, token);
  return finish(hash);
}
