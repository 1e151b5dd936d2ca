// Every shipped rule against a plain statement of it, over thousands of random situations.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CaseRunner } from "../../host/policy/case.js";
import { Catalog } from "../../host/policy/catalog.js";
import { resolveParameters } from "../../host/policy/parameters.js";
import { expectUniform, tally } from "../fixtures/uniform.js";
import {
  affinityBreakMargin,
  imbalanceGate,
  leastLoadedRule,
  powerOfTwoRule,
  type Rule,
  randomRule,
  roundRobinRule,
  type Situation,
  softAffinityLoadGuard,
  softPinRepin,
  sticky,
} from "./statements.js";

const RUNS = 150;
const SITUATIONS_PER_RUN = 15;
const CAPACITY = 64;
const MAX_LOAD = 2 ** 31 - 1;

const catalog = Catalog.open([]);

function runnerOf(type: string, parameters: object, seed = 0): CaseRunner {
  const policy = catalog.find(type)!;
  const { values, mistakes } = resolveParameters(policy.manifest.parameters, { ...parameters });
  expect(mistakes).toEqual([]);
  return new CaseRunner(policy, values, CAPACITY, seed);
}

const threshold = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 5 }) },
  {
    weight: 3,
    arbitrary: fc.constantFrom(...[MAX_LOAD - 1, MAX_LOAD, 2 ** 31, 2 ** 31 + 1, 2 ** 32, 2 ** 32 + 1]),
  },
  { weight: 1, arbitrary: fc.constant(Number.MAX_SAFE_INTEGER) },
  { weight: 1, arbitrary: fc.maxSafeNat() },
);
const margin = threshold.map((value) => Math.max(1, value));
const ties = fc.constantFrom("first" as const, "random" as const);
const load = fc.oneof(
  { weight: 8, arbitrary: fc.integer({ min: 0, max: 4 }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 60 }) },
  { weight: 1, arbitrary: fc.constantFrom(MAX_LOAD, MAX_LOAD - 1) },
);
/** Mostly all rows, sometimes few or none. */
const eligibility = (n: number) =>
  fc.oneof(
    fc.constant(new Array<boolean>(n).fill(true)),
    fc.array(fc.boolean(), { minLength: n, maxLength: n }),
    fc.array(
      fc.integer({ min: 0, max: 9 }).map((draw) => draw === 0),
      { minLength: n, maxLength: n },
    ),
  );
const size = fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 40 }));
const situationOf = (load: fc.Arbitrary<number>): fc.Arbitrary<Situation> =>
  size.chain((n) =>
    fc.record({
      loads: fc.array(load, { minLength: n, maxLength: n }),
      eligible: eligibility(n),
      bound: fc.integer({ min: -1, max: n - 1 }),
      hashes: fc.constant(Array.from({ length: n }, (_, row) => row)),
    }),
  );
/** A run's situations: independent of one another. */
const unrelatedOf = (situation: fc.Arbitrary<Situation>) =>
  fc.array(situation, { minLength: SITUATIONS_PER_RUN, maxLength: SITUATIONS_PER_RUN });
const unrelated = unrelatedOf(situationOf(load));

/** Turns of a pool of at most eight workers that come and go, and with them their rows. */
const history: fc.Arbitrary<Situation[]> = fc
  .uniqueArray(fc.oneof(fc.integer({ min: -2, max: 2 }), fc.integer({ min: -(2 ** 31), max: MAX_LOAD })), {
    minLength: 1,
    maxLength: 8,
  })
  .chain((hashes) => {
    const some = fc.subarray(hashes, { minLength: 1 });
    const present = fc.oneof({ weight: 2, arbitrary: fc.constant(hashes) }, { weight: 1, arbitrary: some });
    return fc.array(present.chain(turnOf), {
      minLength: SITUATIONS_PER_RUN,
      maxLength: SITUATIONS_PER_RUN,
    });
  });

function turnOf(hashes: number[]): fc.Arbitrary<Situation> {
  const n = hashes.length;
  return fc.record({
    loads: fc.array(load, { minLength: n, maxLength: n }),
    eligible: eligibility(n),
    bound: fc.oneof(fc.constant(-1), fc.integer({ min: -1, max: n - 1 })),
    hashes: fc.constant(hashes),
  });
}

function check<Parameters extends object>(
  type: string,
  parameters: fc.Arbitrary<Parameters>,
  ruleOf: (parameters: Parameters) => Rule,
  situations = unrelated,
): void {
  const property = fc.property(parameters, situations, fc.nat(), (parameters, situations, seed) => {
    const runner = runnerOf(type, parameters, seed);
    const rule = ruleOf(parameters);
    for (const situation of situations) {
      const allowed = situation.eligible.includes(true) ? rule(situation) : [{ row: null, reason: "none" }];
      expect(allowed, JSON.stringify({ parameters, situation })).toContainEqual(
        runner.run(caseOf(situation)),
      );
    }
  });
  fc.assert(property, { seed: 1_406, numRuns: RUNS });
}

function caseOf({ loads, eligible, bound, hashes }: Situation) {
  return { loads, eligible, bound, columns: { worker_hash: hashes } };
}

describe("the module does what its rule says", () => {
  test("soft-affinity-load-guard", () => {
    const parameters = fc.record({ max_active_requests: threshold, move_margin: margin, ties });
    check("soft-affinity-load-guard", parameters, softAffinityLoadGuard);
  });

  test("soft-pin-repin", () => {
    check("soft-pin-repin", fc.record({ max_active_requests: threshold, ties }), softPinRepin);
  });

  test("affinity-break-margin", () => {
    const affinity_break_margin = fc.option(threshold, { freq: 5 });
    check("affinity-break-margin", fc.record({ affinity_break_margin, ties }), affinityBreakMargin);
  });

  test("imbalance-gate", () => {
    const ratio = fc.oneof(
      fc.constantFrom(1, 1.5, 2, 3, 1e9, Number.MAX_VALUE),
      fc.double({ min: 1, max: 4, noNaN: true }),
    );
    const parameters = fc.record({ balance_abs_threshold: threshold, balance_rel_threshold: ratio, ties });
    // Loads that are multiples of each other meet the ratio exactly.
    const multiples = situationOf(fc.constantFrom(2, 4, 6, 8, 12));
    const situations = unrelatedOf(fc.oneof(situationOf(load), multiples));
    check("imbalance-gate", parameters, imbalanceGate, situations);
  });

  test("least-loaded", () => {
    check("least-loaded", fc.record({ ties }), leastLoadedRule);
  });

  test("random", () => {
    check("random", fc.constant({}), randomRule);
  });

  test("power-of-two", () => {
    check("power-of-two", fc.constant({}), powerOfTwoRule);
  });

  test("round-robin, while workers come and go", () => {
    check("round-robin", fc.constant({}), roundRobinRule, history);
  });

  test("sticky, while workers come and go", () => {
    const placement = fc.constantFrom(
      ...(["least-loaded", "round-robin", "random", "power-of-two"] as const),
    );
    check("sticky", fc.record({ placement, ties }), sticky, history);
  });
});

test("round-robin over an unchanged fleet serves everyone equally often", () => {
  const runner = runnerOf("round-robin", {});
  const loads = new Array<number>(37).fill(0);
  const served = tally(Array.from({ length: 37 * 20 }, () => runner.run({ loads }).row));
  expect([...served.values()]).toEqual(loads.map(() => 20));
});

describe("where a rule draws lots, every allowed row is as likely", () => {
  const random = { ties: "random" };
  const tied = { loads: [2, 0, 0, 5, 0, 0, 0], eligible: [1, 1, 1, 1, 0, 1, 1] };
  const lots: [type: string, parameters: object, given: object, rows: number[]][] = [
    ["least-loaded", random, tied, [1, 2, 5, 6]],
    ["soft-affinity-load-guard", random, tied, [1, 2, 5, 6]],
    ["soft-affinity-load-guard", { ...random, max_active_requests: 2 }, { ...tied, bound: 3 }, [1, 2, 5, 6]],
    ["soft-pin-repin", { ...random, max_active_requests: 0 }, { ...tied, bound: 4 }, [1, 2, 5, 6]],
    ["soft-pin-repin", { ...random, max_active_requests: 2 }, { ...tied, bound: 3 }, [1, 2, 5, 6]],
    ["affinity-break-margin", random, tied, [1, 2, 5, 6]],
    ["affinity-break-margin", { ...random, affinity_break_margin: 4 }, { ...tied, bound: 3 }, [1, 2, 5, 6]],
    ["imbalance-gate", random, tied, [1, 2, 5, 6]],
    ["imbalance-gate", { ...random, balance_abs_threshold: 4 }, { ...tied, bound: 2 }, [1, 2, 5, 6]],
    ["sticky", random, tied, [1, 2, 5, 6]],
    ["sticky", { placement: "random" }, { ...tied, bound: 4 }, [0, 1, 2, 3, 5, 6]],
    ["random", {}, tied, [0, 1, 2, 3, 5, 6]],
    ["power-of-two", {}, { loads: [3, 3, 3, 3, 3], eligible: [1, 0, 1, 1, 1] }, [0, 2, 3, 4]],
    [
      "sticky",
      { placement: "power-of-two" },
      { loads: [3, 3, 3, 3, 3], eligible: [1, 0, 1, 1, 1] },
      [0, 2, 3, 4],
    ],
  ];

  test.each(lots)("%s %j: %j", (type, parameters, given, rows) => {
    const runner = runnerOf(type, parameters, 77);
    const counts = tally(Array.from({ length: 4000 }, () => runner.run(given).row));
    expect([...counts.keys()].sort()).toEqual(rows);
    expectUniform(counts, rows.length);
  });

  test("power-of-two over loads 10, 5 and 0: never the first, the third in two of three draws", () => {
    const runner = runnerOf("power-of-two", {}, 3);
    const counts = tally(Array.from({ length: 6000 }, () => runner.run({ loads: [10, 5, 0] }).row));
    expect([...counts.keys()].sort()).toEqual([1, 2]);
    // Six standard deviations of a binomial count of 6,000 draws at 1/3.
    expect(Math.abs(counts.get(1)! - 2000)).toBeLessThan(6 * Math.sqrt(6000 * (2 / 9)));
  });
});
