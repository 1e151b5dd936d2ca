// Policies that trap, answer nonsense or write where they should not: the host decides by its own numbers.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { PolicyStartError } from "../../host/policy/live.js";
import { ASM, assemble, type Code, exported, PLACE, type PolicyParts, TYPE } from "../fixtures/assembler.js";
import { BUILT_IN_ROW, Stage } from "../fixtures/stage.js";

const { none, i32 } = TYPE;
const SESSION = [...ASM.i32(0), 0x28, 2, 80];
const FRAME_BYTES = 4_096;
const FRAME = 64;
const ACTIVE_REQUESTS = FRAME + 448 + 64;

function selecting(...code: Code): PolicyParts {
  return { select: { code } };
}

describe("a trap", () => {
  const table = { tables: [[TYPE.funcref, 0, 4]], types: [[0x60, 0, 0]] };
  const CASES: Readonly<Record<string, readonly [Code, PolicyParts?]>> = {
    unreachable: [[ASM.unreachable]],
    "a division by zero": [[ASM.i32(1), ASM.i32(0), ASM.i32DivS, ASM.drop]],
    "a division that overflows": [[ASM.i32(-(2 ** 31)), ASM.i32(-1), ASM.i32DivS, ASM.drop]],
    "a load behind the memory": [[ASM.i32((16 << 16) - 3), ASM.i32Load, ASM.drop]],
    "a load far outside": [[ASM.i32(-4), ASM.i32Load, ASM.drop]],
    "a store behind the memory": [[ASM.i32(-4), ASM.i32(0), ASM.i32Store]],
    "a fill behind the memory": [[ASM.i32(64), ASM.i32(0), ASM.i32(16 << 16), ASM.memoryFill]],
    "a call of null": [[ASM.i32(0), ASM.callIndirect(2)], table],
    "a call outside the table": [[ASM.i32(4), ASM.callIndirect(2)], table],
    "a conversion that does not fit": [[[0x43, 0, 0, 0xc0, 0x7f, 0xa8], ASM.drop]],
  };

  test.each(Object.entries(CASES))(
    "%s: the built-in rule answers, a fresh instance decides next",
    (_, [code, parts]) => {
      const count = [ASM.globalGet(0), ASM.i32(1), ASM.i32Add, ASM.globalSet(0)];
      const bytes = assemble({
        ...parts,
        globals: [[i32, 1, ...ASM.i32(-1), ...ASM.end]],
        select: { code: [...count, SESSION, ASM.if(none, ...code), ASM.globalGet(0)] },
      });
      const stage = new Stage(bytes);
      const rows = () => [stage.decide().row, stage.decide().row];
      expect(rows(), "the number of calls so far").toEqual([0, 1]);
      for (let time = 1; time <= 3; time++) {
        expect(stage.decide(1)).toEqual({ row: BUILT_IN_ROW, reason: "fallback", failure: "trap" });
        expect(stage.health.failures()).toEqual({ trap: time });
      }
      expect(rows(), "forgotten by a fresh instance").toEqual([0, 1]);
    },
  );
});

describe("an answer", () => {
  const stage = new Stage(assemble(selecting(SESSION)));

  test("of any negative number is no choice", () => {
    const negative = fc.integer({ min: -(2 ** 31), max: -1 });
    const property = fc.property(negative, (answer) => {
      expect(stage.decide(answer)).toEqual({ row: BUILT_IN_ROW, reason: "fallback", failure: "no_choice" });
    });
    fc.assert(property, { seed: 9, numRuns: 500 });
  });

  test("of any row that is not there is a bad row", () => {
    const property = fc.property(fc.integer({ min: 4, max: 0xffff }), fc.nat(0x7fff), (row, reason) => {
      expect(stage.decide(row | (reason << 16)).failure).toBe("bad_row");
    });
    fc.assert(property, { seed: 9, numRuns: 500 });
  });

  test("of any reason that has no name is a bad reason, of the row that may not be chosen not eligible", () => {
    const property = fc.property(fc.integer({ min: 7, max: 0x7fff }), (reason) => {
      expect(stage.decide(reason << 16).failure).toBe("bad_reason");
      expect(stage.decide(3 | (reason << 16)).failure).toBe("not_eligible");
    });
    fc.assert(property, { seed: 9, numRuns: 500 });
  });

  test("is used whatever came before it", () => {
    expect(stage.decide(2 | (5 << 16))).toEqual({ row: 2, reason: "place", failure: undefined });
  });
});

describe("the memory", () => {
  const least = [ASM.i32(0), [0x28, 2, ...[0xc0, 0x04]]];

  test("keeps its place when a policy asks for none more: what the host writes is seen", () => {
    const bytes = assemble(selecting(ASM.i32(0), ASM.memoryGrow, ASM.drop, ...least));
    expect(ACTIVE_REQUESTS).toBe(0x240);
    const stage = new Stage(bytes);
    for (const load of [2, 0, 1]) {
      stage.candidates.setActiveRequests(0, load);
      expect(stage.decide().row).toBe(load);
    }
  });

  test.each([0, 1, 65_535, -1])("does not grow by %i pages: the answer is -1, the size stays", (pages) => {
    const grow = new Stage(assemble(selecting(ASM.i32(pages), ASM.memoryGrow)));
    expect(grow.decide().failure).toBe("no_choice");
    const size = [ASM.i32(pages), ASM.memoryGrow, ASM.drop, ASM.memorySize, ASM.i32(16), [0x6b]];
    expect(new Stage(assemble(selecting(...size))).decide().row).toBe(0);
  });

  test("may be overwritten: the host's counts are unharmed, the next decision is shown the truth", () => {
    const spoil = [ASM.i32(FRAME), ASM.i32(1), ASM.i32(FRAME_BYTES), ASM.memoryFill];
    const bytes = assemble(selecting(SESSION, ASM.if(none, ...spoil), ...least));
    const stage = new Stage(bytes);
    const truth = structuredClone(stage.candidates.truth);
    expect(stage.decide(1).failure).toBe("bad_row");
    expect(stage.candidates.truth).toEqual(truth);
    expect(stage.decide(0), "the session's word was overwritten, too").toMatchObject({ row: 1 });
  });
});

describe("init", () => {
  test.each([
    ["0", 0, "init answers a bad address"],
    ["an unaligned address", 65, "init answers a bad address"],
    ["the last address of the memory", (16 << 16) - 64, "init answers a bad address"],
    ["an address outside", 0x7fffffc0, "init answers a bad address"],
    ["a negative number", -64, "init refuses a capacity of 64: it answers -64"],
  ])("that answers %s is refused", (_, address, message) => {
    const start = () => new Stage(assemble({ init: { code: [ASM.i32(address)] } }));
    expect(start).toThrow(PolicyStartError);
    expect(start).toThrow(message);
  });
});

describe("calls from inside", () => {
  test("of select do not refill the tank, and the budget is that of the capacity", () => {
    // Calls itself until the argument is 0; each call costs some ten units.
    const code = [
      ASM.get(0),
      ASM.if(
        TYPE.i32,
        ASM.get(0),
        ASM.i32(1),
        [0x6b],
        ASM.get(1),
        ASM.call(1),
        [0x04, 0x7f],
        PLACE,
        ASM.else,
        PLACE,
        ASM.end,
        ASM.else,
        PLACE,
      ),
    ];
    const stage = new Stage(assemble({ select: { code } }));
    expect(stage.decide()).toEqual({ row: 0, reason: "place", failure: undefined });
    const used = stage.live.fuelUsed;
    stage.candidates.n = 2;
    stage.decide();
    expect(stage.live.fuelUsed).toBe((used / 5) * 3);
  });

  test("of init from select keep the budget of the real init", () => {
    const code = [ASM.loop(none, ASM.i32(2_000_000), ASM.call(0), ASM.drop, ASM.br(0))];
    const stage = new Stage(assemble({ select: { code: [...code, PLACE] } }));
    expect(stage.decide().failure).toBe("fuel");
  });

  test("through another export of select do not refill it", () => {
    const stage = new Stage(
      assemble({
        exports: [exported("again", 0, 1)],
        select: { code: [ASM.get(0), ASM.get(1), ASM.returnCall(1)] },
      }),
    );
    expect(stage.decide().failure).toBe("fuel");
  });
});
