// The seeded generator against xoshiro128** as its authors define it, on integers without limit.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SeedGenerator } from "../../host/policy/random.js";
import { expectUniform, tally } from "../fixtures/uniform.js";

const WORD = (1n << 32n) - 1n;

function rotate(word: bigint, bits: bigint): bigint {
  return ((word << bits) | (word >> (32n - bits))) & WORD;
}

/** The words of xoshiro128** from a state of four. */
function* xoshiro128StarStar(state: readonly bigint[]): Generator<bigint> {
  let [s0, s1, s2, s3] = state;
  for (;;) {
    yield (rotate((s1 * 5n) & WORD, 7n) * 9n) & WORD;
    const t = (s1 << 9n) & WORD;
    s2 ^= s0;
    s3 ^= s1;
    s1 ^= s2;
    s0 ^= s3;
    s2 ^= t;
    s3 = rotate(s3, 11n);
  }
}

/** The first four words of SplitMix32, which are the state that a seed starts from; its upper bits join half-way. */
function stateOf(seed: number): bigint[] {
  const high = BigInt(Math.floor(seed / 2 ** 32)) & WORD;
  let state = BigInt(seed) & WORD;
  return Array.from({ length: 4 }, (_, index) => {
    if (index === 2) state ^= high;
    state = (state + 0x9e3779b9n) & WORD;
    let word = state;
    word = ((word ^ (word >> 16n)) * 0x21f0aaadn) & WORD;
    word = ((word ^ (word >> 15n)) * 0x735a2d97n) & WORD;
    return word ^ (word >> 15n);
  });
}

function take(words: Generator<bigint>, count: number): bigint[] {
  return Array.from({ length: count }, () => words.next().value as bigint);
}

/** The generator's words in the order in which it draws them: low, high, low, high. */
function wordsOf(seed: number, count: number): bigint[] {
  const generator = new SeedGenerator(seed);
  return Array.from({ length: count / 2 }, () => {
    generator.next();
    return [generator.low, generator.high].map((word) => BigInt.asUintN(32, BigInt(word)));
  }).flat();
}

const SEEDS = [0, 1, 2, -1, 42, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, -(2 ** 40)];

test("the statement of xoshiro128** yields the published words of state 1, 2, 3, 4", () => {
  expect(take(xoshiro128StarStar([1n, 2n, 3n, 4n]), 10)).toEqual(
    [
      ...[11520, 0, 5927040, 70819200, 2031721883, 1637235492],
      ...[1287239034, 3734860849, 3729100597, 4258142804],
    ].map(BigInt),
  );
});

describe("SeedGenerator", () => {
  test.each([...SEEDS, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER])(
    "draws the words of xoshiro128** from seed %d",
    (seed) => {
      expect(wordsOf(seed, 200)).toEqual(take(xoshiro128StarStar(stateOf(seed)), 200));
    },
  );

  test("does so from any seed", () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), (seed) => {
        expect(wordsOf(seed, 20)).toEqual(take(xoshiro128StarStar(stateOf(seed)), 20));
      }),
      { seed: 11, numRuns: 300 },
    );
  });

  test("never starts from the state of zeros, which would stay", () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), (seed) => {
        expect(new Set(wordsOf(seed, 8)).size).toBeGreaterThan(1);
      }),
      { seed: 12, numRuns: 300 },
    );
  });

  test("gives the same draws for the same seed, others for another", () => {
    expect(wordsOf(7, 100)).toEqual(wordsOf(7, 100));
    const seeds = [...Array(1000).keys(), -1, 2 ** 32, 2 ** 32 - 1, 2 ** 40];
    expect(new Set(seeds.map((seed) => wordsOf(seed, 2).join())).size).toBe(seeds.length);
  });

  test("leaves its words as signed 32-bit numbers", () => {
    const generator = new SeedGenerator(5);
    for (let draw = 0; draw < 1000; draw++) {
      generator.next();
      expect([generator.low | 0, generator.high | 0]).toEqual([generator.low, generator.high]);
    }
  });

  test("draws both words uniformly, and independently of each other", () => {
    const generator = new SeedGenerator(9);
    const pairs = Array.from({ length: 32_000 }, () => {
      generator.next();
      return ((generator.low >>> 28) << 4) | (generator.high >>> 28);
    });
    expectUniform(tally(pairs.map((pair) => pair >> 4)), 16);
    expectUniform(tally(pairs.map((pair) => pair & 15)), 16);
    expectUniform(tally(pairs), 256);
  });
});
