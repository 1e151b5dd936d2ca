// What is charged, to the unit, and what the meter leaves as it was.
import { describe, expect, test } from "vitest";
import { PolicyStartError } from "../../host/policy/live.js";
import {
  admit,
  budgetOf,
  FUEL_EXPORT,
  KEEP_EXPORT,
  RESTORE_EXPORT,
  START_EXPORT,
} from "../../host/sandbox/admit.js";
import {
  ASM,
  assemble,
  type Code,
  exported,
  type FunctionParts,
  PLACE,
  type PolicyParts,
  repeat,
  TYPE,
} from "../fixtures/assembler.js";
import { CAPACITY, Stage } from "../fixtures/stage.js";

const { i32, i64, none } = TYPE;
const SESSION = [...ASM.i32(0), 0x28, 2, 80];
/** Of `select`: the constant it answers, and its end. */
const ANSWER_UNITS = 2;

function used(code: Code, functions: readonly FunctionParts[] = [], parts: PolicyParts = {}): number {
  const stage = new Stage(
    assemble({ ...parts, functions, select: { ...parts.select, code: [...code, PLACE] } }),
  );
  expect(stage.decide().reason).toBe("place");
  return stage.live.fuelUsed - ANSWER_UNITS;
}

/** Runs `code` so many times: beside it a loop holds eight units, and six stand before and behind it. */
function times(count: number, ...code: Code): Code {
  return [
    [ASM.i32(count), [0x21, 2]].flat(),
    ASM.loop(none, ...code, ASM.get(2), ASM.i32(1), [0x6b], [0x22, 2], ASM.brIf(0)),
  ];
}
const LOOP_UNITS = 6;
const COUNTER: PolicyParts = { select: { locals: [[1, i32]] } };
const counted = (count: number, ...code: Code) => used(times(count, ...code), [], COUNTER);

describe("a charge", () => {
  test("is one unit an instruction, run or not", () => {
    expect(used([])).toBe(0);
    expect(used([repeat(7, ASM.nop)])).toBe(7);
    expect(used([ASM.i32(0), ASM.if(none, repeat(7, ASM.nop))])).toBe(1 + 1 + 7 + 1);
    expect(used([ASM.block(none, ASM.br(0), repeat(7, ASM.nop))])).toBe(1 + 1 + 7 + 1);
  });

  test("of a loop is paid at every pass, and that of one inside by itself", () => {
    const before = 3;
    for (const count of [1, 2, 100]) {
      expect(counted(count)).toBe(before + count * LOOP_UNITS);
      expect(counted(count, repeat(5, ASM.nop))).toBe(before + count * (LOOP_UNITS + 5));
      expect(counted(count, ASM.loop(none, repeat(5, ASM.nop)))).toBe(
        before + count * (LOOP_UNITS + 1 + 5 + 1),
      );
    }
  });

  test("of a function is paid at every call, by call, call_indirect and return_call", () => {
    const callee = { code: [repeat(9, ASM.nop)] };
    const table = { tables: [[TYPE.funcref, 0, 1]], elements: [[0, ...ASM.i32(0), ...ASM.end, 1, 2]] };
    expect(used([ASM.call(2)], [callee])).toBe(1 + 10);
    expect(used([repeat(4, ASM.call(2))], [callee])).toBe(4 * (1 + 10));
    expect(used([ASM.i32(0), ASM.callIndirect(2)], [callee], table)).toBe(2 + 10);
    expect(used([ASM.call(3)], [callee, { code: [ASM.returnCall(2)] }])).toBe(1 + 2 + 10);
  });

  test("is the same for every way out of a function with a loop, and across the calls in it", () => {
    const loop = ASM.loop(none);
    const leaves: Readonly<Record<string, [FunctionParts, units: number]>> = {
      end: [{ code: [loop] }, 1 + 1 + 1],
      return: [{ code: [loop, ASM.return, ASM.nop] }, 1 + 1 + 3],
      "a deep return": [{ code: [loop, ASM.block(none, ASM.block(none, ASM.return))] }, 1 + 1 + 6],
      br: [{ code: [loop, ASM.block(none, ASM.br(1))] }, 1 + 1 + 4],
      br_if: [{ code: [loop, ASM.i32(1), ASM.brIf(0)] }, 1 + 1 + 3],
      br_table: [{ code: [loop, ASM.block(none, ASM.i32(9), ASM.brTable([0], 1))] }, 1 + 1 + 6],
      return_call: [{ code: [loop, ASM.returnCall(3)] }, 1 + 1 + 2 + 10],
      call: [{ code: [loop, ASM.call(3), ASM.call(3)] }, 1 + 1 + 3 + 20],
      "a call in a loop": [{ code: [ASM.loop(none, ASM.call(3))] }, 1 + 1 + 2 + 10],
      "a loop of a function called": [{ code: [loop, ASM.call(4)] }, 1 + 1 + 2 + 3],
    };
    const others = [{ code: [repeat(9, ASM.nop)] }, { code: [loop] }];
    for (const [name, [leaver, units]] of Object.entries(leaves)) {
      expect(used([ASM.call(2)], [leaver, ...others]), name).toBe(1 + units);
      expect(used([loop, ASM.call(2)], [leaver, ...others]), `${name}, from a loop`).toBe(2 + 1 + units);
    }
  });

  test.each([[[]], [[i32]], [[i32, i64]]])(
    "leaves the results %j of a function with a loop as they are",
    (results) => {
      const values = results.map((type) => (type === i32 ? ASM.i32(7) : ASM.i64(7)));
      const code = [ASM.loop(none), ASM.get(0), ASM.if(none, ...values, ASM.return), ...values];
      const use = [
        results.includes(i64) ? ASM.drop : [],
        results.length > 0 ? [...ASM.i32(7), 0x47] : ASM.i32(0),
      ];
      const check = [...use, ASM.if(none, ASM.unreachable)];
      for (const branch of [0, 1]) {
        used([ASM.i32(branch), ASM.call(2), ...check], [{ parameters: [i32], results, code }]);
      }
    },
  );

  test("of a br_table counts its targets", () => {
    expect(used([ASM.block(none, ASM.i32(9), ASM.brTable(new Array(30).fill(0), 0))])).toBe(1 + 1 + 31 + 1);
  });

  test("of a function counts its parameters, locals and results, eight for a unit", () => {
    const wide = {
      parameters: [i32, i32, i32],
      locals: [[20, i64]] as const,
      results: [i32],
      code: [ASM.i32(0)],
    };
    const call = [repeat(3, ASM.i32(0)), ASM.call(2), ASM.drop];
    expect(used(call, [wide])).toBe(5 + 2 + 3);
  });

  test.each<[string, number[]]>([
    ["memory.fill", [...ASM.i32(4_096), ...ASM.i32(0)]],
    ["memory.copy", [...ASM.i32(4_096), ...ASM.i32(8_192)]],
    ["memory.init", [...ASM.i32(4_096), ...ASM.i32(0)]],
  ])("of %s is one unit for 64 bytes beside twenty of its own", (name, operands) => {
    const codes = {
      "memory.fill": ASM.memoryFill,
      "memory.copy": ASM.memoryCopy,
      "memory.init": [0xfc, 8, 0, 0],
    };
    const data = { data: [[1, 0x80, 0x10, ...new Array<number>(2_048).fill(7)]] };
    const of = (bytes: number) =>
      used([operands, ASM.i32(bytes), codes[name as keyof typeof codes]], [], data);
    expect([0, 63, 64, 2_000].map(of)).toEqual([23, 23, 24, 23 + 31]);
  });

  test.each<[string, number[]]>([
    ["f32.mul", [0x43, 0, 0, 0, 0, 0x43, 0, 0, 0, 0, 0x94]],
    ["f64.div", [0x44, ...new Array<number>(8).fill(0), 0x44, ...new Array<number>(8).fill(0), 0xa3]],
    ["f32x4.mul", [...repeat(2, ASM.i32(0), [0xfd, 0x11]), 0xfd, 0xe6, 1]],
  ])("of %s counts the time that denormal numbers take", (name, code) => {
    const operands = name === "f32x4.mul" ? 4 : 2;
    expect(used([code, ASM.drop])).toBe(operands + 7 + 1);
  });

  test("of a length beyond the memory empties the tank before the trap of the instruction", () => {
    const stage = new Stage(
      assemble({ select: { code: [ASM.i32(0), ASM.i32(0), ASM.i32(-1), ASM.memoryFill, PLACE] } }),
    );
    expect(stage.decide().failure).toBe("fuel");
  });
});

describe("the budget", () => {
  /** Passes through its loop as often as the session says: 8 units each, 3 for the start and the answer. */
  const looper = assemble({
    select: {
      locals: [[1, i32]],
      code: [
        SESSION,
        [0x21, 2],
        ASM.loop(none, repeat(2, ASM.nop), ASM.get(2), ASM.i32(1), [0x6b], [0x22, 2], ASM.brIf(0)),
        PLACE,
      ],
    },
  });

  test("is 30,000 units and 1,000 for each row of the capacity, to the last unit", () => {
    expect([64, 4_096, 16_384].map(budgetOf)).toEqual([94_000, 4_126_000, 16_414_000]);
    const stage = new Stage(looper);
    expect(stage.decide(1).failure).toBeUndefined();
    const first = stage.live.fuelUsed;
    const each = 8;
    const most = Math.floor((budgetOf(CAPACITY) - first) / each) + 1;
    expect(stage.decide(most).failure).toBeUndefined();
    expect(stage.live.fuelUsed).toBe(first + each * (most - 1));
    expect(stage.live.fuelUsed).toBeLessThanOrEqual(budgetOf(CAPACITY));
    expect(stage.decide(most + 1).failure).toBe("fuel");
    expect(stage.live.fuelUsed).toBe(first + each * most);
  });

  test("is full again at every decision, also behind a wrapper", () => {
    // An element that holds `select` makes it one that can be called from inside.
    const table = { tables: [[TYPE.funcref, 0, 1]], elements: [[0, ...ASM.i32(0), ...ASM.end, 1, 1]] };
    const code = [ASM.loop(none, repeat(2, ASM.nop)), PLACE];
    for (const parts of [{}, table]) {
      const stage = new Stage(assemble({ ...parts, select: { code } }));
      const decided = Array.from({ length: 3 }, () => [stage.decide().failure, stage.live.fuelUsed]);
      expect(decided).toEqual(new Array(3).fill([undefined, 6]));
    }
  });

  test("is not used where the policy is not called", () => {
    const stage = new Stage(looper);
    expect(stage.live.fuelUsed).toBe(0);
    stage.decide(1);
    for (const row of [0, 1, 2]) stage.candidates.setEligible(row, false);
    stage.decide(1);
    expect(stage.live.fuelUsed).toBe(0);
  });

  test("of another trap tells what was used before it", () => {
    const stage = new Stage(assemble({ select: { code: [repeat(5, ASM.nop), ASM.unreachable] } }));
    expect(stage.decide().failure).toBe("trap");
    expect(stage.live.fuelUsed).toBe(7);
  });
});

describe("the start", () => {
  const add = (digit: number): FunctionParts => ({
    code: [ASM.globalGet(0), ASM.i32(10), [0x6c], ASM.i32(digit), ASM.i32Add, ASM.globalSet(0)],
  });
  const globals = [[i32, 1, ...ASM.i32(0), ...ASM.end]];
  const select = { code: [ASM.globalGet(0)] };
  const initialize = exported("_initialize", 0, 3);
  const started = (parts: PolicyParts) => {
    const { module } = admit(assemble({ functions: [add(1), add(2)], globals, select, ...parts }));
    const exports = new WebAssembly.Instance(module).exports as Record<string, (() => number) | undefined>;
    const before = exports.select!();
    exports[START_EXPORT]?.();
    return { names: Object.keys(exports).sort(), values: [before, exports.select!()] };
  };
  const added = [FUEL_EXPORT, KEEP_EXPORT, RESTORE_EXPORT];
  const shape = [...added, "init", "memory", "select"];
  const withStart = [...added, START_EXPORT, "init", "memory", "select"];

  test("is the start function and then _initialize, each where it is there, and runs when it is called", () => {
    expect(started({})).toEqual({ names: shape, values: [0, 0] });
    expect(started({ start: 2 })).toEqual({ names: withStart, values: [0, 1] });
    expect(started({ exports: [initialize] })).toEqual({ names: withStart, values: [0, 2] });
    expect(started({ start: 2, exports: [initialize] })).toEqual({ names: withStart, values: [0, 12] });
  });

  test("is run by a live policy, once an instance", () => {
    const parts = { functions: [add(1), add(1)], globals, start: 2, exports: [initialize] };
    const stage = new Stage(assemble({ ...parts, select: { code: [ASM.globalGet(0), ASM.i32(9), [0x6b]] } }));
    expect(stage.decide().row).toBe(2);
  });

  test("that traps is refused", () => {
    const bytes = assemble({ functions: [{ code: [ASM.unreachable] }], start: 2 });
    expect(() => new Stage(bytes)).toThrow(new PolicyStartError("the start function traps: unreachable"));
  });
});

describe("the rewritten module", () => {
  test("names its functions in a trap", () => {
    const functions = [{ code: [ASM.unreachable] }];
    const { module } = admit(
      assemble({ functions, select: { code: [ASM.call(2), PLACE] }, names: { 1: "choose", 2: "innermost" } }),
    );
    const { select } = new WebAssembly.Instance(module).exports as {
      select(n: number, bound: number): number;
    };
    let stack = "";
    try {
      select(0, -1);
    } catch (error) {
      stack = (error as Error).stack!;
    }
    expect(stack).toMatch(/innermost[\s\S]*choose/);
  });

  test("keeps no custom section but the names", () => {
    const trailer = [0, 4, 1, 0x78, 1, 2];
    const { module } = admit(assemble({ names: { 1: "choose" }, trailer }));
    expect(WebAssembly.Module.customSections(module, "name")).toHaveLength(1);
    expect(WebAssembly.Module.customSections(module, "x")).toHaveLength(0);
  });

  test("keeps the module's own exports and globals", () => {
    const globals = [
      [i64, 0, ...ASM.i64(5), ...ASM.end],
      [i32, 1, ...ASM.i32(6), ...ASM.end],
    ];
    const exports = [exported("five", 3, 0), exported("six", 3, 1), exported("table", 1, 0)];
    const { module, report } = admit(assemble({ globals, exports, tables: [[TYPE.externref, 0, 3]] }));
    const found = new WebAssembly.Instance(module).exports as Record<string, WebAssembly.Global>;
    expect([found.five!.value, found.six!.value]).toEqual([5n, 6]);
    expect((found.table as unknown as WebAssembly.Table).length).toBe(3);
    expect(report.exports).toEqual(["memory", "init", "select", "five", "six", "table"]);
  });

  test.each<[string, PolicyParts, isThere: boolean]>([
    ["nothing", {}, true],
    ["a global", { globals: [[i32, 1, ...ASM.i32(0), ...ASM.end]] }, true],
    ["a table that is read", { select: { code: [ASM.i32(0), [0x25, 0], ASM.drop, PLACE] } }, true],
    ["a table that is written", { select: { code: [ASM.i32(0), [0xd0, 0x70], [0x26, 0], PLACE] } }, false],
    ["a segment that is dropped", { select: { code: [[0xfc, 9, 0], PLACE] }, data: [[1, 1, 7]] }, false],
  ])("keeps and restores what it can: %s", (_, parts, isThere) => {
    const { module } = admit(assemble({ tables: [[TYPE.funcref, 0, 1]], ...parts }));
    const names = WebAssembly.Module.exports(module).map(({ name }) => name);
    expect([KEEP_EXPORT, RESTORE_EXPORT].map((name) => names.includes(name))).toEqual([isThere, isThere]);
  });

  test("may refer to a function that only an entry's export declares", () => {
    const parts = { functions: [{ code: [] }], exports: [exported("_initialize", 0, 2)] };
    for (const index of [0, 1, 2]) {
      const { module } = admit(assemble({ ...parts, select: { code: [[0xd2, index], ASM.drop, PLACE] } }));
      expect(module).toBeInstanceOf(WebAssembly.Module);
    }
  });

  test("is admitted again only under its own names", () => {
    expect(() => admit(assemble({ exports: [exported(FUEL_EXPORT, 2, 0)] }))).toThrow(FUEL_EXPORT);
  });
});
