// The SDK's searches, compiled as the shipped policies are, against plain statements of what each one looks for.
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { type ColumnName, Frame } from "../../host/abi/frame.js";
import { SeedGenerator } from "../../host/policy/random.js";
import { compileAssembly } from "../fixtures/assembly.js";
import { expectUniform, tally } from "../fixtures/uniform.js";

const SMALL = 208;
const LARGE = 16_384;
const MIN = -(2 ** 31);
const MAX = 2 ** 31 - 1;

/** Columns to search, by name and by the number that the SDK addresses them with. */
const SEARCHED = [
  { name: "active_requests", perRow: 1 },
  { name: "kv_used", perRow: 21 },
  { name: "active_mean", perRow: 53 },
] as const;

interface Rows {
  readonly values: readonly number[];
  readonly eligible: readonly boolean[];
}

let module: WebAssembly.Module;
let small: Sdk;
let large: Sdk;
beforeAll(async () => {
  module = new WebAssembly.Module(
    (await compileAssembly({ fixture: "search.ts" })) as Uint8Array<ArrayBuffer>,
  );
  small = new Sdk(SMALL);
  large = new Sdk(LARGE);
});

/** One instance of the SDK and the frame that the host writes. */
class Sdk {
  readonly frame: Frame;
  private readonly exports: Record<string, (...args: number[]) => number>;
  private readonly noise = new SeedGenerator(1);

  constructor(capacity: number) {
    const { exports } = new WebAssembly.Instance(module);
    this.exports = exports as Record<string, (...args: number[]) => number>;
    const { buffer } = exports.memory as WebAssembly.Memory;
    this.frame = new Frame(buffer, this.exports.init(capacity), capacity);
  }

  call(name: string, ...args: number[]): number {
    return this.exports[name](...args);
  }

  /** Writes the rows; behind them stand values that a search must not see. */
  write({ values, eligible }: Rows, column: Exclude<ColumnName, "eligible"> = "active_requests"): void {
    const { columns } = this.frame;
    for (let row = 0; row < columns.eligible.length; row++) {
      this.noise.next();
      columns.eligible[row] = eligible[row] ? 1 : 0;
      columns[column][row] = values[row] ?? [MIN, MAX, 0, this.noise.low][this.noise.high & 3];
    }
  }

  seed(low: number, high: number): void {
    this.frame.words.set([low, high], 2);
  }
}

const value = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 3 }) },
  { weight: 2, arbitrary: fc.constantFrom(MIN, MIN + 1, -1, MAX - 1, MAX) },
  { weight: 1, arbitrary: fc.integer({ min: MIN, max: MAX }) },
);

const rows: fc.Arbitrary<Rows> = fc.integer({ min: 0, max: 200 }).chain((n) => {
  const flags = (arbitrary: fc.Arbitrary<boolean>) => fc.array(arbitrary, { minLength: n, maxLength: n });
  return fc.record({
    values: fc.array(value, { minLength: n, maxLength: n }),
    eligible: fc.oneof(
      flags(fc.boolean()),
      flags(fc.constant(true)),
      flags(fc.constant(false)),
      flags(fc.integer({ min: 0, max: 19 }).map((draw) => draw === 0)),
    ),
  });
});

function check<T extends unknown[]>(property: fc.IProperty<T>, numRuns = 250): void {
  fc.assert(property, { seed: 20_260, numRuns });
}

/** Rows of which `share` are eligible, with values of `spread` kinds. */
function manyRows(n: number, share: number, spread: number): Rows {
  const generator = new SeedGenerator(n);
  const draw = () => {
    generator.next();
    return (generator.low >>> 0) / 2 ** 32;
  };
  return {
    values: Array.from({ length: n }, () => Math.floor(draw() * spread) - 1),
    eligible: Array.from({ length: n }, () => draw() < share),
  };
}

const LARGE_ROWS = [
  [1000, 1, 50],
  [4095, 0.5, 3000],
  [4097, 0.001, 4],
  [16_383, 0.9, 100_000],
  [16_384, 1, 2],
  [16_384, 0, 2],
] as const;

function eligibleRows({ eligible }: Rows): number[] {
  return [...eligible.keys()].filter((row) => eligible[row]);
}

function eligibleValues(given: Rows): number[] {
  return eligibleRows(given).map((row) => given.values[row]);
}

function rowsWith(given: Rows, wanted: number): number[] {
  return eligibleRows(given).filter((row) => given.values[row] === wanted);
}

/** The eligible rows with the smallest value. */
function lowestRows(given: Rows): number[] {
  return rowsWith(given, least(given));
}

function least(given: Rows): number {
  return eligibleValues(given).reduce((a, b) => Math.min(a, b), MAX);
}

function greatest(given: Rows): number {
  return eligibleValues(given).reduce((a, b) => Math.max(a, b), MIN);
}

/** Checks every search over a column; `wanted` and `index` are what is looked for. */
function checkSearches(
  sdk: Sdk,
  given: Rows,
  column: (typeof SEARCHED)[number],
  wanted: number,
  index: number,
) {
  const n = given.values.length;
  sdk.write(given, column.name);
  const at = sdk.call("column", column.perRow);
  const found = rowsWith(given, wanted);
  expect({
    minimum: sdk.call("minimum", at, n),
    scalarMinimum: sdk.call("scalarMinimum", at, n),
    maximum: sdk.call("maximum", at, n),
    scalarMaximum: sdk.call("scalarMaximum", at, n),
    firstEqual: sdk.call("firstEqual", at, n, wanted),
    scalarFirstEqual: sdk.call("scalarNthEqual", at, n, wanted, 0),
    nthEqual: sdk.call("nthEqual", at, n, wanted, index),
    scalarNthEqual: sdk.call("scalarNthEqual", at, n, wanted, index),
    countEqual: sdk.call("countEqual", at, n, wanted),
    countEligible: sdk.call("countEligible", n),
    nthEligible: sdk.call("nthEligible", n, index),
  }).toEqual({
    minimum: least(given),
    scalarMinimum: least(given),
    maximum: greatest(given),
    scalarMaximum: greatest(given),
    firstEqual: found[0] ?? -1,
    scalarFirstEqual: found[0] ?? -1,
    nthEqual: found[index] ?? -1,
    scalarNthEqual: found[index] ?? -1,
    countEqual: found.length,
    countEligible: eligibleRows(given).length,
    nthEligible: eligibleRows(given)[index] ?? -1,
  });
}

describe("searches over a column", () => {
  test("SIMD, scalar and plain form agree", () => {
    const index = fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 210 }));
    const wanted = fc.oneof(value, fc.nat());
    check(
      fc.property(rows, fc.constantFrom(...SEARCHED), wanted, index, (given, column, draw, index) => {
        // A large draw names one of the values that are there.
        const n = given.values.length;
        checkSearches(small, given, column, draw > 3 && n > 0 ? given.values[draw % n] : draw, index);
      }),
      400,
    );
  });

  test.each(LARGE_ROWS)("%i rows, %d of them eligible", (n, share, spread) => {
    const given = manyRows(n, share, spread);
    for (const column of SEARCHED) {
      for (const index of [0, 1, 499, n - 1, n]) checkSearches(large, given, column, 0, index);
    }
  });

  test("the smallest value is found in each row alone", () => {
    for (let row = 0; row < 40; row++) {
      const values = Array.from({ length: 40 }, (_, other) => (other === row ? -7 : 5));
      checkSearches(small, { values, eligible: values.map(() => true) }, SEARCHED[0], -7, 0);
      checkSearches(small, { values, eligible: values.map((_, other) => other !== row) }, SEARCHED[0], -7, 0);
    }
  });
});

describe("pick", () => {
  const pick = (draw: number, count: number) => small.call("pick", draw, count);
  const count = fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: MAX }));

  test("is the draw's share of the count, rounded down", () => {
    check(
      fc.property(fc.integer({ min: 0, max: 2 ** 32 - 1 }), count, (draw, count) => {
        expect(pick(draw, count)).toBe(Number((BigInt(draw) * BigInt(count)) >> 32n));
      }),
      2000,
    );
  });

  test("reaches the first and the last index and nothing beyond", () => {
    check(
      fc.property(count, (count) => {
        expect([pick(0, count), pick(2 ** 32 - 1, count)]).toEqual([0, count - 1]);
      }),
    );
    expect(pick(2 ** 32 - 1, 0)).toBe(0);
  });

  test.each([2, 3, 7, 100, 16_384])("gives each of %i indices the same share of all draws", (count) => {
    // The draws of an index are one interval: its ends tell how many there are.
    const start = (index: number) => Math.ceil((index * 2 ** 32) / count);
    for (let index = 0; index < count; index += Math.ceil(count / 500)) {
      expect([pick(start(index), count), pick(start(index + 1) - 1, count)]).toEqual([index, index]);
      expect(Math.abs(start(index + 1) - start(index) - 2 ** 32 / count)).toBeLessThan(1);
    }
  });
});

describe("leastLoaded", () => {
  test("is the lowest of the eligible rows with the fewest requests", () => {
    check(
      fc.property(rows, (given) => {
        small.write(given);
        const n = given.values.length;
        expect(small.call("lowestLoad", n)).toBe(least(given));
        expect(small.call("highestLoad", n)).toBe(greatest(given));
        expect(small.call("leastLoaded", n, 0)).toBe(lowestRows(given)[0] ?? -1);
      }),
    );
  });

  test("with random ties is the one that the seed's high word picks", () => {
    check(
      fc.property(rows, fc.integer(), fc.integer(), (given, low, high) => {
        small.write(given);
        small.seed(low, high);
        const best = lowestRows(given);
        const index = Math.floor(((high >>> 0) * best.length) / 2 ** 32);
        expect(small.call("leastLoaded", given.values.length, 1)).toBe(best[index] ?? -1);
      }),
    );
  });
});

describe("leastLoadedExcept", () => {
  test("is the least-loaded other row, and leaves the eligible column as it was", () => {
    check(
      fc.property(rows, fc.nat(), fc.boolean(), (given, draw, randomTies) => {
        fc.pre(given.values.length > 0);
        const except = draw % given.values.length;
        small.write(given);
        const before = small.frame.columns.eligible.slice();
        const row = small.call("leastLoadedExcept", given.values.length, except, randomTies ? 1 : 0);
        const others = { ...given, eligible: given.eligible.map((flag, row) => flag && row !== except) };
        const allowed = randomTies ? lowestRows(others) : lowestRows(others).slice(0, 1);
        expect(allowed.length === 0 ? [-1] : allowed).toContain(row);
        expect(small.frame.columns.eligible).toEqual(before);
      }),
    );
  });
});

describe("powerOfTwo", () => {
  /** The middle of the draws that pick `index` of `count`. */
  const drawOf = (index: number, count: number) => Math.floor(((index + 0.5) * 2 ** 32) / count);

  test("takes the less loaded of every two different rows, the first drawn on a tie", () => {
    const loads = fc.array(fc.oneof(fc.integer({ min: 0, max: 2 }), fc.constantFrom(MIN, MAX)), {
      minLength: 2,
      maxLength: 9,
    });
    check(
      fc.property(loads, fc.array(fc.boolean(), { minLength: 9, maxLength: 9 }), (values, flags) => {
        const given = { values, eligible: values.map((_, row) => flags[row]) };
        small.write(given);
        const drawable = eligibleRows(given);
        for (const [first, row] of drawable.entries()) {
          for (const [second, other] of drawable.filter((candidate) => candidate !== row).entries()) {
            small.seed(drawOf(first, drawable.length), drawOf(second, drawable.length - 1));
            expect(small.call("powerOfTwo", values.length)).toBe(values[other] < values[row] ? other : row);
          }
        }
      }),
      200,
    );
  });

  test("is the only eligible row, and -1 where there is none", () => {
    small.seed(-1, -1);
    small.write({ values: [1, 9, 1], eligible: [false, true, false] });
    expect(small.call("powerOfTwo", 3)).toBe(1);
    small.write({ values: [1, 9, 1], eligible: [false, false, false] });
    expect(small.call("powerOfTwo", 3)).toBe(-1);
    expect(small.call("powerOfTwo", 0)).toBe(-1);
  });

  test("on an idle fleet every row is as likely as the others", () => {
    const given = { values: new Array<number>(40).fill(3), eligible: new Array<boolean>(40).fill(true) };
    small.write(given);
    const generator = new SeedGenerator(4);
    const chosen = Array.from({ length: 20_000 }, () => {
      generator.next();
      small.seed(generator.low, generator.high);
      return small.call("powerOfTwo", 40);
    });
    expectUniform(tally(chosen), 40);
  });
});

describe("anyEligible", () => {
  test("is uniform over the eligible rows", () => {
    const eligible = Array.from({ length: 90 }, (_, row) => row % 3 === 1);
    small.write({ values: eligible.map((_, row) => row), eligible });
    const generator = new SeedGenerator(5);
    const chosen = Array.from({ length: 20_000 }, () => {
      generator.next();
      small.seed(generator.low, generator.high);
      return small.call("anyEligible", 90);
    });
    expect(chosen.every((row) => eligible[row])).toBe(true);
    expectUniform(tally(chosen), 30);
  });

  test("is -1 where no row is eligible", () => {
    small.write({ values: [1, 2], eligible: [false, false] });
    expect(small.call("anyEligible", 2)).toBe(-1);
  });
});

describe("roundRobin", () => {
  /** A fleet whose workers are named by letters; a capital letter is an eligible one. */
  class Fleet {
    readonly sdk = new Sdk(64);

    /** The letters of the workers that the next turns go to. */
    turns(workers: string, count: number): string {
      const letters = [...workers];
      this.sdk.write({ values: letters.map(() => 0), eligible: letters.map((x) => x === x.toUpperCase()) });
      for (const [row, letter] of letters.entries()) {
        this.sdk.frame.columns.worker_hash[row] = letter.toLowerCase().charCodeAt(0) * 1_000_003;
      }
      const next = () => letters[this.sdk.call("roundRobin", letters.length)] ?? "-";
      return Array.from({ length: count }, next).join("");
    }
  }

  test("serves each row in turn", () => {
    expect(new Fleet().turns("ABC", 7)).toBe("ABCABCA");
  });

  test("passes over rows that are not eligible", () => {
    expect(new Fleet().turns("aBcD", 5)).toBe("BDBDB");
  });

  test("answers -1 where no row is eligible, and goes on where it was", () => {
    const fleet = new Fleet();
    expect(fleet.turns("ABC", 1)).toBe("A");
    expect(fleet.turns("abc", 2)).toBe("--");
    expect(fleet.turns("", 1)).toBe("-");
    expect(fleet.turns("ABC", 2)).toBe("BC");
  });

  test("goes on behind the worker served last when rows move up and down", () => {
    const fleet = new Fleet();
    expect(fleet.turns("CEG", 2)).toBe("CE");
    expect(fleet.turns("ABCEG", 1)).toBe("G");
    expect(fleet.turns("BCEG", 2)).toBe("BC");
    expect(fleet.turns("CDEG", 1)).toBe("D");
    expect(fleet.turns("DG", 2)).toBe("GD");
  });

  test("goes on at the row that took the place of a worker that is gone", () => {
    const fleet = new Fleet();
    expect(fleet.turns("ABCD", 2)).toBe("AB");
    expect(fleet.turns("ACD", 3)).toBe("CDA");
  });

  test("starts again at the lowest row where the last worker was the last row and is gone", () => {
    const fleet = new Fleet();
    expect(fleet.turns("ABC", 3)).toBe("ABC");
    expect(fleet.turns("AB", 2)).toBe("AB");
  });

  test("is not misled by a worker whose hash is 0", () => {
    const fleet = new Fleet();
    const serve = () => fleet.sdk.call("roundRobin", 3);
    fleet.turns("ABC", 0);
    fleet.sdk.frame.columns.worker_hash.set([7, 0, 9]);
    expect([serve(), serve(), serve(), serve()]).toEqual([0, 1, 2, 0]);
  });
});

describe("place", () => {
  const given = { values: [5, 1, 3, 1], eligible: [true, true, true, true] };

  test.each([
    ["least-loaded", 0, "LEAST_LOADED"],
    ["round-robin", 1, "ROUND_ROBIN"],
    ["random", 2, "RANDOM"],
    ["power-of-two", 3, "POWER_OF_TWO"],
  ])("%s is placement %i", (_, number, constant) => {
    const { exports } = new WebAssembly.Instance(module);
    expect((exports[constant] as WebAssembly.Global).value).toBe(number);
  });

  test("follows the placement it is given", () => {
    const sdk = new Sdk(64);
    sdk.write(given);
    // Picks the last of all rows, the last of two tied ones, and as the two of a pair rows 3 and 2.
    sdk.seed(-1, -1);
    const placed = (placement: number, randomTies: number) => sdk.call("place", placement, 4, randomTies);
    expect([placed(0, 0), placed(0, 1)]).toEqual([1, 3]);
    expect([placed(1, 0), placed(1, 0), placed(1, 1)]).toEqual([0, 1, 2]);
    expect([placed(2, 0), placed(3, 0)]).toEqual([3, 3]);
  });
});
