// The hash index against a Map of sets.
import fc from "fast-check";
import { expect, test } from "vitest";
import { Chains, NONE } from "../../host/routing/chains.js";

const RUNS = 500;

/** Hashes that meet in one bucket, of any size of index here, and such that do not. */
const hash = fc.oneof(
  fc.constantFrom(0, -1, 1, 16, 32, 64, 0x7fffffff, -0x80000000),
  fc.integer({ min: -0x80000000, max: 0x7fffffff }),
);

const shape = fc.record({
  count: fc.integer({ min: 1, max: 40 }),
  stride: fc.integer({ min: 1, max: 9 }),
});

/** Which record is taken out or put in, with which hash. */
const steps = fc.array(fc.record({ at: fc.nat(1_000), hash }), { maxLength: 200 });

test("finds every record that is in, and no other, whatever their hashes and the order", () => {
  fc.assert(
    fc.property(shape, fc.nat(100), steps, ({ count, stride }, anyWord, happenings) => {
      const word = anyWord % stride;
      const records = new Int32Array((count + 1) * stride);
      const links = new Int32Array(count + 1);
      const chains = new Chains(
        { words: records, stride, word },
        { words: links, stride: 1, word: 0 },
        count,
      );
      const inside = new Map<number, number>();
      for (const step of happenings) {
        const record = 1 + (step.at % count);
        if (inside.delete(record)) chains.remove(record);
        else {
          records[record * stride + word] = step.hash;
          chains.add(record);
          inside.set(record, step.hash);
        }
        for (const sought of new Set([...inside.values(), step.hash])) {
          const found = walk(chains, sought, count);
          const matching = found.filter((each) => records[each * stride + word] === sought);
          const expected = [...inside.keys()].filter((each) => inside.get(each) === sought);
          expect(matching.sort()).toEqual(expected.sort());
          expect(found.filter((each) => !inside.has(each))).toEqual([]);
        }
      }
    }),
    { seed: 7, numRuns: RUNS },
  );
});

test("keeps hashes that differ in their lowest bits out of each other's way", () => {
  const count = 64;
  const records = Int32Array.from({ length: count + 1 }, (_, record) => record - 1);
  const chains = new Chains(
    { words: records, stride: 1, word: 0 },
    { words: new Int32Array(count + 1), stride: 1, word: 0 },
    count,
  );
  for (let record = 1; record <= count; record++) chains.add(record);
  for (let record = 1; record <= count; record++) expect(walk(chains, record - 1, count)).toEqual([record]);
});

/** The records that may have a hash, in the order of the index; each at most once. */
function walk(chains: Chains, hash: number, count: number): number[] {
  const found: number[] = [];
  for (let record = chains.first(hash); record !== NONE; record = chains.next(record)) {
    found.push(record);
    expect(found.length).toBeLessThanOrEqual(count);
  }
  expect(new Set(found).size).toBe(found.length);
  return found;
}
