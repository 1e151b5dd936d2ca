// SipHash-1-3 with 128 bits: the hash under which the binding table finds a session. Its key is a secret of the process,
// so that nobody can make two sessions collide. (The hash that policies and logs see is another one, in hash.ts.)

/**
 * Hashes the UTF-16 code units of `text`, little-endian, under the 128-bit `key` into the four words of `out`.
 * `kind` is mixed into the key: texts of different kinds never meet. Allocates nothing; 64-bit arithmetic is done on pairs
 * of words, since BigInt would allocate at every step.
 */
export function sipHash(key: Int32Array, kind: number, text: string, out: Int32Array): void {
  const key0l = key[0]! ^ kind;
  const key0h = key[1]!;
  const key1l = key[2]!;
  const key1h = key[3]!;
  let v0l = key0l ^ 0x70736575;
  let v0h = key0h ^ 0x736f6d65;
  let v1l = key1l ^ 0x6e646f6d ^ 0xee;
  let v1h = key1h ^ 0x646f7261;
  let v2l = key0l ^ 0x6e657261;
  let v2h = key0h ^ 0x6c796765;
  let v3l = key1l ^ 0x79746573;
  let v3h = key1h ^ 0x74656462;
  const units = text.length;
  const blocks = (units >> 2) + 1;
  // One compression round a block, then twice three rounds to finish: all the same round, in one loop.
  for (let step = 0; step < blocks + 6; step++) {
    let low = 0;
    let high = 0;
    if (step < blocks) {
      const at = step << 2;
      if (at + 4 <= units) {
        low = text.charCodeAt(at) | (text.charCodeAt(at + 1) << 16);
        high = text.charCodeAt(at + 2) | (text.charCodeAt(at + 3) << 16);
      } else {
        if (at < units) low = text.charCodeAt(at);
        if (at + 1 < units) low |= text.charCodeAt(at + 1) << 16;
        if (at + 2 < units) high = text.charCodeAt(at + 2);
        high |= units << 25;
      }
      v3l ^= low;
      v3h ^= high;
    } else if (step === blocks) {
      v2l ^= 0xee;
    } else if (step === blocks + 3) {
      out[0] = v0l ^ v1l ^ v2l ^ v3l;
      out[1] = v0h ^ v1h ^ v2h ^ v3h;
      v1l ^= 0xdd;
    }
    let word = v1l;
    v0l = (v0l + word) | 0;
    v0h = (v0h + v1h + (v0l >>> 0 < word >>> 0 ? 1 : 0)) | 0;
    v1l = (word << 13) | (v1h >>> 19);
    v1h = (v1h << 13) | (word >>> 19);
    v1l ^= v0l;
    v1h ^= v0h;
    word = v3l;
    v2l = (v2l + word) | 0;
    v2h = (v2h + v3h + (v2l >>> 0 < word >>> 0 ? 1 : 0)) | 0;
    v3l = (word << 16) | (v3h >>> 16);
    v3h = (v3h << 16) | (word >>> 16);
    v3l ^= v2l;
    v3h ^= v2h;
    // v0 stands rotated by 32 from here to the end of the round: its halves have changed places.
    word = v0l;
    v0l = (v0h + v3l) | 0;
    v0h = (word + v3h + (v0l >>> 0 < v3l >>> 0 ? 1 : 0)) | 0;
    word = v3l;
    v3l = (word << 21) | (v3h >>> 11);
    v3h = (v3h << 21) | (word >>> 11);
    v3l ^= v0l;
    v3h ^= v0h;
    word = v1l;
    v2l = (v2l + word) | 0;
    v2h = (v2h + v1h + (v2l >>> 0 < word >>> 0 ? 1 : 0)) | 0;
    v1l = (word << 17) | (v1h >>> 15);
    v1h = (v1h << 17) | (word >>> 15);
    v1l ^= v2l;
    v1h ^= v2h;
    word = v2l;
    v2l = v2h;
    v2h = word;
    v0l ^= low;
    v0h ^= high;
  }
  out[2] = v0l ^ v1l ^ v2l ^ v3l;
  out[3] = v0h ^ v1h ^ v2h ^ v3h;
}
