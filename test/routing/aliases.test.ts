// The table of other names against a Map and lists.
import fc from "fast-check";
import { describe, expect, it, test } from "vitest";
import { AliasTable } from "../../host/routing/aliases.js";
import { NONE } from "../../host/routing/chains.js";

const RUNS = 500;
const MOST_PER_BINDING = 16;

type Name = readonly [number, number, number, number];

/** Names that share a bucket or all words but one, among them. */
const name: fc.Arbitrary<Name> = fc.tuple(
  fc.constantFrom(0, 1, 64, -64),
  fc.constantFrom(0, -1),
  fc.constantFrom(0, 7),
  fc.nat(5),
);

const step = fc.record({
  kind: fc.constantFrom("add", "add", "add", "add", "add", "forget"),
  name,
  binding: fc.nat(1_000),
});

/** What names stand for, the latest last, in the plainest way. */
class Reference {
  readonly names = new Map<string, number>();

  add(name: string, binding: number): void {
    this.names.delete(name);
    this.names.set(name, binding);
    const mine = this.of(binding);
    if (mine.length > MOST_PER_BINDING) this.names.delete(mine[0]!);
  }

  forget(binding: number): void {
    for (const name of this.of(binding)) this.names.delete(name);
  }

  of(binding: number): string[] {
    return [...this.names.keys()].filter((name) => this.names.get(name) === binding);
  }
}

test("knows what each name stands for, whatever is added, repeated and forgotten in whatever order", () => {
  const capacity = fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 17, max: 60 }));
  fc.assert(
    fc.property(capacity, fc.array(step, { maxLength: 150 }), (most, happenings) => {
      const table = new AliasTable(most, most);
      const reference = new Reference();
      const known = new Map<string, Name>();
      const bindings = Math.min(most, 4);
      for (const { kind, name, binding: anyBinding } of happenings) {
        const binding = 1 + (anyBinding % bindings);
        known.set(String(name), name);
        const before = reference.names.size;
        const isNew = !reference.names.has(String(name));
        if (kind === "forget") {
          table.forget(binding);
          reference.forget(binding);
        } else {
          table.add(Int32Array.from(name), binding);
          if (before === most && isNew) giveWay(table, reference, known, binding);
          reference.add(String(name), binding);
        }
        for (const [text, words] of known)
          expect(table.find(Int32Array.from(words))).toBe(reference.names.get(text) ?? NONE);
        expect(reference.names.size).toBeLessThanOrEqual(most);
      }
    }),
    { seed: 7, numRuns: RUNS },
  );
});

/** In a table that was full one name of any binding, and no more, is known no longer. */
function giveWay(table: AliasTable, reference: Reference, known: Map<string, Name>, binding: number): void {
  const gone = [...reference.names.keys()].filter(
    (text) => table.find(Int32Array.from(known.get(text)!)) === NONE,
  );
  const trimmed = reference.of(binding)[0];
  const others = gone.filter((text) => text !== trimmed);
  expect(gone.length === 1 || others.length === 1).toBe(true);
  reference.names.delete(others[0] ?? gone[0]!);
}

describe("names that give way", () => {
  const named = (value: number) => Int32Array.of(value, 0, 0, 0);
  const add = (table: AliasTable, from: number, to: number, binding: number) => {
    for (let value = from; value <= to; value++) table.add(named(value), binding);
  };
  const found = (table: AliasTable, last: number) =>
    Array.from({ length: last }, (_, i) => i + 1).filter((value) => table.find(named(value)) !== NONE);

  it("are the oldest of a binding that has more than sixteen", () => {
    const table = new AliasTable(40, 40);
    add(table, 1, 3, 2);
    add(table, 4, 21, 1);
    expect(found(table, 21)).toEqual([1, 2, 3, ...Array.from({ length: 16 }, (_, i) => i + 6)]);
  });

  it("are not those of a binding that was named again", () => {
    const table = new AliasTable(40, 40);
    add(table, 1, 16, 1);
    add(table, 1, 1, 1);
    add(table, 17, 17, 1);
    expect(found(table, 17)).toEqual([1, ...Array.from({ length: 15 }, (_, i) => i + 3)]);
  });

  it("are the oldest of a full table, whosever they are", () => {
    const table = new AliasTable(3, 3);
    add(table, 1, 2, 1);
    add(table, 3, 3, 2);
    add(table, 4, 5, 3);
    expect(found(table, 5)).toEqual([3, 4, 5]);
    add(table, 6, 9, 1);
    expect(found(table, 9)).toEqual([7, 8, 9]);
  });

  it("leave room for as many again", () => {
    const table = new AliasTable(3, 3);
    add(table, 1, 3, 1);
    table.forget(1);
    expect(found(table, 3)).toEqual([]);
    add(table, 4, 6, 2);
    expect(found(table, 6)).toEqual([4, 5, 6]);
  });
});
