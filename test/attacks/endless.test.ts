// Policies that would never answer: every call ends by fuel, the host answers, and the next decision is normal.
import { describe, expect, test } from "vitest";
import { PolicyStartError } from "../../host/policy/live.js";
import { budgetOf, START_UNITS } from "../../host/sandbox/admit.js";
import {
  ASM,
  assemble,
  type Code,
  exported,
  type FunctionParts,
  functionType,
  PLACE,
  type PolicyParts,
  repeat,
  TYPE,
} from "../fixtures/assembler.js";
import { BUILT_IN_ROW, CAPACITY, Stage } from "../fixtures/stage.js";

const { i32, i64, v128, none } = TYPE;
const ATTACK = 1;
const SESSION = [...ASM.i32(0), 0x28, 2, 80];
/** More than any region of these modules holds. */
const LARGEST_REGION = 40_000;
/** Ten times what a decision at this capacity may take. */
const GUARD_MS = 10;
const ATTEMPTS = 5;

/** A policy that runs `code` where the session says so, and is honest otherwise. */
function attacker(code: Code, parts: PolicyParts = {}): Uint8Array {
  const select = { ...parts.select, code: [SESSION, ASM.if(none, ...code), PLACE] };
  return assemble({ ...parts, select });
}

function calling(...functions: FunctionParts[]): Uint8Array {
  return attacker([ASM.call(2)], { functions });
}

const DIVISION = [ASM.i64(-7), ASM.i64(3), ASM.i64DivS, ASM.drop].flat();
const NEARLY_ONE = [0x44, ...new Uint8Array(Float64Array.of(1.0000001).buffer)];
const DOUBLING = Array.from({ length: 41 }, (_, level) => ({
  code: level < 40 ? [ASM.call(3 + level), ASM.call(3 + level)] : [],
}));
const FILL = [ASM.i32(0), ASM.i32(1), ASM.i32(16 << 16), ASM.memoryFill].flat();
const COPY = [ASM.i32(0), ASM.i32(65_536), ASM.i32(15 << 16), ASM.memoryCopy].flat();
const INIT = [ASM.i32(0), ASM.i32(0), ASM.i32(60_000), [0xfc, 8, 0, 0]].flat();
const carried = { types: [functionType({ parameters: [i32], results: [i32] })] };
const table = { tables: [[TYPE.funcref, 0, 1]], elements: [[0, ...ASM.i32(0), ...ASM.end, 1, 2]] };

const ATTACKS: Readonly<Record<string, Uint8Array>> = {
  "a loop with br": attacker([ASM.loop(none, ASM.br(0))]),
  "a loop with br_if": attacker([ASM.loop(none, ASM.i32(1), ASM.brIf(0))]),
  "a loop with br_table": attacker([ASM.loop(none, ASM.i32(3), ASM.brTable([1, 1], 0))]),
  "a loop that an if inside continues": attacker([ASM.loop(none, ASM.i32(1), ASM.if(none, ASM.br(1)))]),
  "an inner branch to a middle loop": attacker([
    ASM.loop(none, ASM.loop(none, ASM.block(none, ASM.loop(none, ASM.br(2))))),
  ]),
  "an inner branch to an outer loop": attacker([ASM.loop(none, ASM.loop(none, ASM.loop(none, ASM.br(2))))]),
  "a loop with parameters": attacker([ASM.i32(7), ASM.loop(2, ASM.br(0)), ASM.drop], carried),
  "a loop in dead code's neighbourhood": attacker([
    ASM.block(none, ASM.br(0), ASM.loop(none, ASM.br(0))),
    ASM.loop(none, ASM.br(0)),
  ]),
  "41 functions, each calling the next twice": calling(...DOUBLING),
  "return_call to itself": calling({ code: [ASM.returnCall(2)] }),
  "return_call back and forth": calling({ code: [ASM.returnCall(3)] }, { code: [ASM.returnCall(2)] }),
  "return_call_indirect to itself": attacker([ASM.call(2)], {
    ...table,
    functions: [{ code: [ASM.i32(0), [0x13, 2, 0]] }],
  }),
  "call_indirect to itself, twice at every depth": attacker([ASM.call(2)], {
    ...table,
    functions: [
      {
        parameters: [],
        locals: [[1, i32]],
        code: [repeat(2, [0x23, 0], ASM.i32(20), [0x48], ASM.if(none, ASM.i32(0), ASM.callIndirect(2)))],
      },
    ],
    globals: [[i32, 1, ...ASM.i32(0), ...ASM.end]],
  }),
  "select calling itself by return_call": attacker([ASM.get(0), ASM.get(1), ASM.returnCall(1)]),
  "a loop around thousands of divisions": attacker([ASM.loop(none, repeat(4_000, DIVISION), ASM.br(0))]),
  "a loop around thousands of divisions of a denormal number": attacker([
    ASM.loop(
      none,
      [0x44, 1, ...new Array<number>(7).fill(0)],
      repeat(3_000, NEARLY_ONE, [0xa3]),
      ASM.drop,
      ASM.br(0),
    ),
  ]),
  "memory.fill of no byte in a loop": attacker([
    ASM.loop(none, repeat(1_000, ASM.i32(0), ASM.i32(0), ASM.i32(0), ASM.memoryFill), ASM.br(0)),
  ]),
  "a function of thousands of divisions, called in a loop": attacker(
    [ASM.loop(none, ASM.call(2), ASM.br(0))],
    {
      functions: [{ code: [repeat(4_000, DIVISION)] }],
    },
  ),
  "memory.fill of the whole memory in a loop": attacker([ASM.loop(none, FILL, ASM.br(0))]),
  "memory.copy of most of the memory in a loop": attacker([ASM.loop(none, COPY, ASM.br(0))]),
  "memory.init in a loop": attacker([ASM.loop(none, INIT, ASM.br(0))], {
    data: [[1, 0xe0, 0xd4, 0x03, ...new Array(60_000).fill(1)]],
  }),
  "table.set in a loop": attacker([ASM.loop(none, ASM.i32(0), [0xd2, 2], [0x26, 0], ASM.br(0))], {
    ...table,
    functions: [{ code: [] }],
  }),
  "a call of a function with 500 locals in a loop": attacker([ASM.loop(none, ASM.call(2), ASM.br(0))], {
    functions: [{ locals: [[500, v128]], code: [] }],
  }),
  "a call with a hundred results in a loop": attacker(
    [ASM.loop(none, ASM.call(2), repeat(100, ASM.drop), ASM.br(0))],
    {
      functions: [
        { results: new Array(100).fill(i64), code: [ASM.call(3)] },
        { results: new Array(100).fill(i64), code: [repeat(100, ASM.i64(1))] },
      ],
    },
  ),
};

describe("a decision without end", () => {
  test.each(Object.entries(ATTACKS))("%s: stops for want of fuel (G1)", (_, bytes) => {
    const stage = new Stage(bytes);
    const honest = { row: 0, reason: "place", failure: undefined };
    expect(stage.decide()).toEqual(honest);
    let fastest = Number.POSITIVE_INFINITY;
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const start = performance.now();
      const decided = stage.decide(ATTACK);
      fastest = Math.min(fastest, performance.now() - start);
      expect(decided).toEqual({ row: BUILT_IN_ROW, reason: "fallback", failure: "fuel" });
      expect(stage.live.fuelUsed).toBeGreaterThan(budgetOf(CAPACITY));
      expect(stage.live.fuelUsed).toBeLessThanOrEqual(budgetOf(CAPACITY) + LARGEST_REGION);
      expect(stage.decide()).toEqual(honest);
      expect(stage.health.failures()).toEqual({ fuel: attempt });
    }
    expect(fastest).toBeLessThan(GUARD_MS);
  });

  test.each([0, 10, 500])("an endless recursion with frames of %i vectors is caught", (locals) => {
    const bytes = attacker([ASM.call(2), ASM.drop], {
      functions: [{ results: [i32], locals: [[locals, v128]], code: [ASM.call(2), ASM.i32(1), ASM.i32Add] }],
    });
    const stage = new Stage(bytes);
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const { row, reason, failure } = stage.decide(ATTACK);
      expect({ row, reason }).toEqual({ row: BUILT_IN_ROW, reason: "fallback" });
      expect(["trap", "fuel"]).toContain(failure);
      expect(stage.decide()).toEqual({ row: 0, reason: "place", failure: undefined });
    }
  });
});

describe("a start without end is refused", () => {
  const endless = [ASM.loop(none, ASM.br(0))];
  const runs = (name: string, units: number) =>
    new PolicyStartError(`${name} runs out of fuel: it may use ${units} units`);

  test("in the start function", () => {
    const bytes = assemble({ functions: [{ code: endless }], start: 2 });
    expect(() => new Stage(bytes)).toThrow(runs("the start function", START_UNITS));
  });

  test("in _initialize", () => {
    const bytes = assemble({ functions: [{ code: endless }], exports: [exported("_initialize", 0, 2)] });
    expect(() => new Stage(bytes)).toThrow(runs("the start function", START_UNITS));
  });

  test("in init", () => {
    const bytes = assemble({ init: { code: [...endless, ASM.i32(64)] } });
    expect(() => new Stage(bytes)).toThrow(runs("init", budgetOf(CAPACITY)));
  });

  test("when it recurses", () => {
    const bytes = assemble({ functions: [{ code: [ASM.call(2), ASM.call(2)] }], start: 2 });
    expect(() => new Stage(bytes)).toThrow(PolicyStartError);
  });
});
