// The hash under which the binding table finds a session: two HalfSipHash-1-3 of 64 bits, each under a key of its own. The keys
// are a secret of the process, so that nobody can make two sessions collide. HalfSipHash is SipHash on 32-bit words, which
// is what JavaScript has. (The hash that policies and logs see is another one, in hash.ts.)

/** Mixed into the keys for texts that are hashed by two bytes a character. */
const WIDE = 0x10000;

/**
 * Hashes `text` under the 128-bit `key` into the four words of `out`. `kind`, below 2^16, is mixed into the key: texts of
 * different kinds never meet. The bytes hashed are the text's UTF-16 code units, little-endian, or where all of them are below
 * 256 their lower bytes, as another kind. Allocates nothing.
 */
export function sipHash(key: Int32Array, kind: number, text: string, out: Int32Array): void {
  let all = 0;
  for (let at = 0; at < text.length; at++) all |= text.charCodeAt(at);
  if (all < 256) hash(key, kind, text, 1, out);
  else hash(key, kind | WIDE, text, 2, out);
}

/** Both hashes side by side: the processor works on one while it waits for the other. */
function hash(key: Int32Array, kind: number, text: string, bytesPerUnit: number, out: Int32Array): void {
  let a0 = key[0]! ^ kind;
  let a1 = key[1]! ^ 0xee;
  let a2 = key[0]! ^ kind ^ 0x6c796765;
  let a3 = key[1]! ^ 0x74656462;
  let b0 = key[2]! ^ kind;
  let b1 = key[3]! ^ 0xee;
  let b2 = key[2]! ^ kind ^ 0x6c796765;
  let b3 = key[3]! ^ 0x74656462;
  const bytes = text.length * bytesPerUnit;
  const words = (bytes >> 2) + 1;
  // One compression round a word, then twice three rounds to finish: all the same round, in one loop.
  for (let step = 0; step < words + 6; step++) {
    let word = 0;
    if (step < words) {
      word =
        step < words - 1 ? wholeWord(text, step, bytesPerUnit) : lastWord(text, step, bytesPerUnit, bytes);
      a3 ^= word;
      b3 ^= word;
    } else if (step === words) {
      a2 ^= 0xee;
      b2 ^= 0xee;
    } else if (step === words + 3) {
      out[0] = a1 ^ a3;
      out[2] = b1 ^ b3;
      a1 ^= 0xdd;
      b1 ^= 0xdd;
    }
    a0 = (a0 + a1) | 0;
    b0 = (b0 + b1) | 0;
    a1 = ((a1 << 5) | (a1 >>> 27)) ^ a0;
    b1 = ((b1 << 5) | (b1 >>> 27)) ^ b0;
    a0 = (a0 << 16) | (a0 >>> 16);
    b0 = (b0 << 16) | (b0 >>> 16);
    a2 = (a2 + a3) | 0;
    b2 = (b2 + b3) | 0;
    a3 = ((a3 << 8) | (a3 >>> 24)) ^ a2;
    b3 = ((b3 << 8) | (b3 >>> 24)) ^ b2;
    a0 = (a0 + a3) | 0;
    b0 = (b0 + b3) | 0;
    a3 = ((a3 << 7) | (a3 >>> 25)) ^ a0;
    b3 = ((b3 << 7) | (b3 >>> 25)) ^ b0;
    a2 = (a2 + a1) | 0;
    b2 = (b2 + b1) | 0;
    a1 = ((a1 << 13) | (a1 >>> 19)) ^ a2;
    b1 = ((b1 << 13) | (b1 >>> 19)) ^ b2;
    a2 = (a2 << 16) | (a2 >>> 16);
    b2 = (b2 << 16) | (b2 >>> 16);
    a0 ^= word;
    b0 ^= word;
  }
  out[1] = a1 ^ a3;
  out[3] = b1 ^ b3;
}

function wholeWord(text: string, step: number, bytesPerUnit: number): number {
  if (bytesPerUnit === 2) return text.charCodeAt(step * 2) | (text.charCodeAt(step * 2 + 1) << 16);
  const at = step << 2;
  return (
    text.charCodeAt(at) |
    (text.charCodeAt(at + 1) << 8) |
    (text.charCodeAt(at + 2) << 16) |
    (text.charCodeAt(at + 3) << 24)
  );
}

/** What is left of the text, below the number of its bytes. */
function lastWord(text: string, step: number, bytesPerUnit: number, bytes: number): number {
  let word = bytes << 24;
  const bits = bytesPerUnit << 3;
  for (let at = (step << 2) / bytesPerUnit, shift = 0; at < text.length; at++, shift += bits)
    word |= text.charCodeAt(at) << shift;
  return word;
}
