// The host's seeded generator: the random bits of a decision. xoshiro128**, on 32-bit words only, so that it never allocates.

/** A reproducible stream of 64-bit draws; `low` and `high` hold the last one as signed 32-bit words. */
export class SeedGenerator {
  low = 0;
  high = 0;
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** Any safe integer; the same seed gives the same draws. */
  constructor(seed: number) {
    let state = seed | 0;
    // SplitMix32: spreads neighbouring seeds, and never yields the forbidden all-zero state.
    const word = (): number => {
      state = (state + 0x9e3779b9) | 0;
      let x = state ^ (state >>> 16);
      x = Math.imul(x, 0x21f0aaad);
      x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
      return x ^ (x >>> 15);
    };
    this.#a = word();
    this.#b = word();
    // What of the seed lies above 32 bits tells apart the streams of seeds that share the lower ones.
    state ^= Math.floor(seed / 2 ** 32);
    this.#c = word();
    this.#d = word();
  }

  /** A generator that will draw what this one would. */
  copy(): SeedGenerator {
    const copy = new SeedGenerator(0);
    copy.#a = this.#a;
    copy.#b = this.#b;
    copy.#c = this.#c;
    copy.#d = this.#d;
    return copy;
  }

  /** Draws the next 64 bits into `low` and `high`. */
  next(): void {
    this.low = this.#word();
    this.high = this.#word();
  }

  #word(): number {
    const product = Math.imul(this.#b, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9);
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return result | 0;
  }
}
