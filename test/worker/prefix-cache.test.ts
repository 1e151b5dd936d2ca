// The prefix cache: what hits, what goes first, and that it never grows.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Holding, PrefixCache } from "../../host/worker/prefix-cache.js";

const range = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);

/** Runs a request through prefill and lets it go; returns what was cached for it. */
function visit(cache: PrefixCache, prompt: readonly number[], generated: readonly number[] = []): number {
  const holding = cache.hold(prompt);
  holding.prefilled();
  for (const token of generated) holding.append(token);
  holding.release();
  return holding.cachedTokens;
}

describe("PrefixCache", () => {
  it("finds nothing first, then all whole blocks but the one with the last token", () => {
    const cache = new PrefixCache(100, 4);
    expect(visit(cache, range(0, 12))).toBe(0);
    expect(visit(cache, range(0, 12))).toBe(8);
    expect(visit(cache, range(0, 13))).toBe(12);
    expect(visit(cache, range(0, 3))).toBe(0);
  });

  it("finds the common prefix only, and no block behind a difference", () => {
    const cache = new PrefixCache(100, 4);
    visit(cache, range(0, 16));
    expect(visit(cache, [...range(0, 9), 99, ...range(10, 6)])).toBe(8);
    expect(visit(cache, [99, ...range(1, 15)])).toBe(0);
  });

  it("caches generated tokens behind their prompt, across the block border", () => {
    const cache = new PrefixCache(100, 4);
    visit(cache, range(0, 6), range(6, 7));
    expect(visit(cache, range(0, 20))).toBe(12);
  });

  it("evicts the tail of the chain freed longest ago first", () => {
    const cache = new PrefixCache(6, 4);
    visit(cache, range(0, 12));
    visit(cache, range(100, 12));
    expect(cache.residentBlocks).toBe(6);
    visit(cache, range(200, 4));
    // The older chain lost its third block, the younger one none. (The younger first: asking for the
    // older one makes room for what it lost.)
    const [younger, older] = [cache.hold(range(100, 13)), cache.hold(range(0, 13))];
    expect([older.cachedTokens, younger.cachedTokens]).toEqual([8, 12]);
  });

  it("keeps what was used last: a hit renews the whole chain", () => {
    const cache = new PrefixCache(6, 4);
    visit(cache, range(0, 12));
    visit(cache, range(100, 12));
    visit(cache, range(0, 12));
    visit(cache, range(200, 8));
    expect(cache.hold(range(0, 13)).cachedTokens).toBe(12);
    expect(cache.hold(range(100, 13)).cachedTokens).toBe(4);
  });

  it("never evicts a pinned block, and lets a request that does not fit cache fewer", () => {
    const cache = new PrefixCache(4, 4);
    const running = cache.hold(range(0, 12));
    running.prefilled();
    expect(visit(cache, range(100, 16))).toBe(0);
    expect(cache.residentBlocks).toBe(4);
    expect(cache.usedBlocks).toBe(3);
    expect(cache.hold(range(0, 13)).cachedTokens).toBe(12);
    expect(visit(cache, range(100, 16))).toBe(4);
  });

  it("shares a block between holders until the last one lets go", () => {
    const cache = new PrefixCache(2, 4);
    visit(cache, range(0, 8));
    const [a, b] = [cache.hold(range(0, 9)), cache.hold(range(0, 9))];
    expect(cache.usedBlocks).toBe(2);
    a.release();
    visit(cache, range(100, 8));
    expect(b.cachedTokens).toBe(8);
    expect(cache.hold(range(0, 9)).cachedTokens).toBe(8);
  });

  it("lets nobody hit blocks whose prefill is not done, and forgets them if it never is", () => {
    const cache = new PrefixCache(100, 4);
    const aborted = cache.hold(range(0, 12));
    expect(cache.hold(range(0, 12)).cachedTokens).toBe(0);
    aborted.release();
    const cut = new PrefixCache(100, 4);
    cut.hold(range(0, 12)).release();
    expect(cut.residentBlocks).toBe(0);
    expect(visit(cut, range(0, 12))).toBe(0);
  });

  it("stays within its bound and ends with nothing in use, whatever happens", () => {
    const step = fc.record({
      family: fc.nat({ max: 3 }),
      length: fc.integer({ min: 1, max: 40 }),
      generated: fc.nat({ max: 12 }),
      prefilled: fc.boolean(),
      keep: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 12 }), fc.array(step, { maxLength: 40 }), (capacity, steps) => {
        const cache = new PrefixCache(capacity, 4);
        const held: Holding[] = [];
        for (const { family, length, generated, prefilled, keep } of steps) {
          const holding = cache.hold(range(family * 1000, length));
          expect(holding.cachedTokens).toBeLessThan(length);
          if (prefilled) {
            holding.prefilled();
            for (const token of range(family * 1000 + length, generated)) holding.append(token);
          }
          if (keep) held.push(holding);
          else holding.release();
          expect(cache.residentBlocks).toBeLessThanOrEqual(capacity);
        }
        for (const holding of held) holding.release();
        expect(cache.usedBlocks).toBe(0);
      }),
    );
  });
});
