// A rehearsal: it tells what would be decided, and nothing is different for it having been asked.
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { MIN_CAPACITY } from "../../host/abi/frame.js";
import type { Failure } from "../../host/abi/reasons.js";
import { Candidates } from "../../host/policy/candidates.js";
import { Catalog, type PolicyFile } from "../../host/policy/catalog.js";
import { BuiltInRule, Turn } from "../../host/policy/decider.js";
import { LivePolicy, PolicyStartError } from "../../host/policy/live.js";
import { ASM, assemble, type Code, type PolicyParts, TYPE } from "../fixtures/assembler.js";
import { Dice, parametersOf } from "../fixtures/dice.js";
import { COMMAND, makePuppets, told, type UnfiledPolicy } from "../fixtures/puppet.js";
import { BUILT_IN_ROW, Stage } from "../fixtures/stage.js";

const DECISIONS = 400;
const INSTANCES = 4;
const ROWS = 12;
const { none, funcref } = TYPE;

/** All that a live policy says of its last decision. */
function said({ row, reason, failure, fallback, fuelUsed }: LivePolicy) {
  return { row, reason, failure, fallback, fuelUsed };
}

/** What a rehearsal of the decision that was made last had to answer. */
function decided({ row, reason, failure, fuelUsed }: LivePolicy) {
  return { row, reason, failure, fuelUsed, fresh: false };
}

describe("of every shipped policy", () => {
  const named = Catalog.open([])
    .list()
    .map((policy): [string, PolicyFile] => [policy.manifest.type, policy]);

  test.each(named)("%s: equals the decision that follows, which is the same without it", (_, policy) => {
    const dice = new Dice(31);
    const reasons = new Set<string>();
    for (let instance = 0; instance < INSTANCES; instance++) {
      const parameters = parametersOf(policy, dice);
      const [alone, asked] = [new Walk(policy, parameters), new Walk(policy, parameters)];
      for (let step = 0; step < DECISIONS; step++) {
        const [now, other] = [turnOf(dice), turnOf(dice)];
        const change = { row: dice.upTo(ROWS - 1), load: dice.upTo(9), eligible: dice.upTo(3) > 0 };
        const [bound, otherBound] = [dice.upTo(ROWS) - 1, dice.upTo(ROWS) - 1];
        alone.change(change);
        asked.change(change);
        const before = said(asked.live);
        for (let times = dice.upTo(2); times > 0; times--) asked.live.rehearse(other, otherBound);
        const rehearsed = asked.live.rehearse(now, bound);
        expect(said(asked.live)).toEqual(before);
        alone.live.decide(now, bound);
        asked.live.decide(now, bound);
        expect(said(asked.live)).toEqual(said(alone.live));
        expect(rehearsed).toEqual(decided(asked.live));
        reasons.add(rehearsed.reason);
      }
      expect(asked.live.health.failures()).toEqual({});
    }
    expect(reasons.size).toBeGreaterThan(1);
  });

  /** A live policy whose rows change. */
  class Walk {
    readonly candidates = new Candidates(MIN_CAPACITY);
    readonly live: LivePolicy;

    constructor(policy: PolicyFile, parameters: Float64Array) {
      const { candidates } = this;
      this.live = new LivePolicy(policy, parameters, candidates);
      candidates.n = ROWS;
      for (let row = 0; row < ROWS; row++) candidates.set("worker_hash", row, row * 7_919);
    }

    change({ row, load, eligible }: { row: number; load: number; eligible: boolean }): void {
      this.candidates.setActiveRequests(row, load);
      this.candidates.setEligible(row, eligible);
    }
  }

  function turnOf(dice: Dice): Turn {
    const [seedLow, seedHigh, sessionLow] = [dice.upTo(2 ** 31 - 1), dice.upTo(2 ** 31 - 1), dice.upTo(5)];
    return Object.assign(new Turn(), { seedLow, seedHigh, sessionLow });
  }
});

describe("of a policy that fails", () => {
  let puppet: UnfiledPolicy;
  beforeAll(async () => {
    puppet = (await makePuppets())([]);
  });

  const answer = (row: number, reason: number) => row | (reason << 16);
  const cases: [failure: Failure, command: keyof typeof COMMAND, argument: number][] = [
    ["trap", "trap", 0],
    ["trap", "outOfBounds", 0],
    ["fuel", "recurse", 0],
    ["bad_row", "answer", answer(4, 5)],
    ["not_eligible", "answer", answer(3, 5)],
    ["not_eligible", "spoil", answer(3, 5)],
    ["bad_reason", "answer", answer(0, 255)],
    ["no_choice", "answer", -1],
  ];

  test.each(cases)("%s by %s %i: tells so, and is not what happened", (failure, command, argument) => {
    const stage = new Stage(puppet);
    const count = () => stage.decide(COMMAND.count).reason;
    expect([count(), count()]).toEqual([told(1), told(2)]);
    const before = said(stage.live);
    stage.turn.sessionHigh = argument;
    const rehearsed = stage.rehearse(COMMAND[command]);
    expect(rehearsed).toMatchObject({ row: BUILT_IN_ROW, reason: "fallback", failure, fresh: false });
    expect(said(stage.live)).toEqual(before);
    expect(stage.health.failures()).toEqual({});
    expect(count(), "the same instance, with what it remembers").toBe(told(3));
    stage.turn.sessionHigh = argument;
    expect(stage.decide(COMMAND[command]).failure).toBe(failure);
    expect(rehearsed).toEqual(decided(stage.live));
  });

  test("leaves the last decision, also a failed one, and the columns as they were", () => {
    const stage = new Stage(puppet);
    stage.decide(COMMAND.trap);
    const before = said(stage.live);
    expect(before.failure).toBe("trap");
    stage.turn.sessionHigh = answer(2, 1);
    expect(stage.rehearse(COMMAND.spoil)).toMatchObject({ row: 2, failure: undefined });
    expect(said(stage.live)).toEqual(before);
    const eligibleRow3 = 448 + 3;
    stage.turn.sessionHigh = eligibleRow3;
    expect(stage.decide(COMMAND.peek).reason, "what the rehearsal spoilt").toBe(told(0));
    stage.candidates.setEligible(3, true);
    expect(stage.decide(COMMAND.peek).reason, "the rows are still shown to it").toBe(told(1));
  });

  test("is neither a failure nor a success of its record", () => {
    const stage = new Stage(puppet);
    const counters = [vi.spyOn(stage.health, "succeed"), vi.spyOn(stage.health, "fail")];
    for (let time = 0; time < 30; time++) stage.rehearse(time % 2 === 0 ? COMMAND.trap : COMMAND.count);
    for (const counter of counters) expect(counter).not.toHaveBeenCalled();
    expect(stage.health.quarantine).toBeNull();
    for (let time = 0; time < 2; time++) stage.decide(COMMAND.trap);
    for (let time = 0; time < 5; time++) {
      expect(stage.rehearse(COMMAND.count)).toMatchObject({ reason: told(1), failure: undefined });
      stage.rehearse(COMMAND.trap);
    }
    expect([stage.health.quarantine, stage.health.failures()]).toEqual([null, { trap: 2 }]);
    stage.decide(COMMAND.trap);
    expect(stage.health.quarantine).toBe("3 failures in a row, the last a trap");
  });

  test("and that no instance can be made of any more is that of a trap", () => {
    const stage = new Stage(puppet);
    refuseInstances();
    stage.decide(COMMAND.trap);
    const rehearsed = stage.rehearse(COMMAND.count);
    stage.decide(COMMAND.count);
    expect(rehearsed).toEqual(decided(stage.live));
    expect(rehearsed).toMatchObject({ failure: "trap", fuelUsed: 0 });
  });
});

const SESSION = [...ASM.i32(0), 0x28, 2, 80];
const TRAPS = 1;
const LOOPS = 2;
/** Traps or loops where the session says so. */
const MISBEHAVE: Code = [
  [...SESSION, ...ASM.i32(TRAPS), 0x46, ...ASM.if(none, ASM.unreachable)],
  [...SESSION, ...ASM.i32(LOOPS), 0x46, ...ASM.if(none, ASM.loop(none, ASM.br(0)))],
];

/** A policy that changes its state, may then misbehave, and else answers what it reads of it. */
function remembering(change: Code, read: Code, parts: PolicyParts = {}): Stage {
  return new Stage(assemble({ ...parts, select: { code: [...change, ...MISBEHAVE, ...read] } }));
}

function global(type: number, ...value: Code): PolicyParts {
  return { globals: [[type, 1, ...value.flat(), ...ASM.end]] };
}

function added(one: readonly number[], add: readonly number[]): Code {
  return [ASM.globalGet(0), one, add, ASM.globalSet(0)];
}

const BIT = [...ASM.i32(1), 0x71];
const V128_CONST = [0xfd, 12];
const V128_ONE = [...V128_CONST, 1, ...new Array<number>(15).fill(0)];
const V128_ZERO = [...V128_CONST, ...new Array<number>(16).fill(0)];
const NULL = [0xd0, funcref];
const IS_NULL = 0xd1;
const PLACE_OF_COUNT = 60_000;

describe("puts back", () => {
  const loaded = [ASM.i32(PLACE_OF_COUNT), ASM.i32Load];
  const stored: Code = [ASM.i32(PLACE_OF_COUNT), ...loaded, ASM.i32(1), ASM.i32Add, ASM.i32Store];
  const isThere: Code = [ASM.globalGet(0), [IS_NULL], ASM.i32Eqz];
  const turned: Code = [
    ...isThere,
    [0x04, none, ...NULL, ...ASM.globalSet(0), ...ASM.else, 0xd2, 1, ...ASM.globalSet(0), ...ASM.end],
  ];
  const { i32, i64, f32, f64, v128 } = TYPE;

  test.each<[string, change: Code, read: Code, parts: PolicyParts]>([
    ["the memory", stored, [...loaded, BIT], {}],
    ["an i32", added(ASM.i32(1), ASM.i32Add), [ASM.globalGet(0), BIT], global(i32, ASM.i32(0))],
    ["an i64", added(ASM.i64(1), [0x7c]), [ASM.globalGet(0), [0xa7], BIT], global(i64, ASM.i64(0))],
    ["an f32", added(ASM.f32(1), [0x92]), [ASM.globalGet(0), [0xa8], BIT], global(f32, ASM.f32(0))],
    ["an f64", added(ASM.f64(1), [0xa0]), [ASM.globalGet(0), [0xaa], BIT], global(f64, ASM.f64(0))],
    [
      "a v128",
      added(V128_ONE, [0xfd, 0xae, 1]),
      [ASM.globalGet(0), [0xfd, 0x1b, 0], BIT],
      global(v128, V128_ZERO),
    ],
    ["a reference", turned, isThere, global(funcref, NULL)],
  ])("%s", (_, change, read, parts) => {
    const stage = remembering(change, read, parts);
    for (let step = 1; step < 8; step++) {
      const expected = { row: step % 2, reason: "unspecified", failure: undefined };
      for (const failure of ["trap", "fuel"]) {
        expect(stage.rehearse(failure === "trap" ? TRAPS : LOOPS)).toMatchObject({ failure, fresh: false });
        expect(stage.rehearse()).toMatchObject({ ...expected, fresh: false });
      }
      expect(stage.decide()).toEqual(expected);
    }
    expect(stage.health.failures()).toEqual({});
  });

  test("many globals at once, each its own value", () => {
    const numbers = [0, 1, 2, 3, 4];
    const globals = numbers.map((number) => [i32, 1, ...ASM.i32(number), ...ASM.end]);
    const change = numbers.map((number) => [...ASM.i32(90), ...ASM.globalSet(number)]);
    const sum = numbers.flatMap((number) => [...ASM.i32(10), 0x6c, ...ASM.globalGet(number), ...ASM.i32Add]);
    const code: Code = [
      [...SESSION, ...ASM.if(none, ...change)],
      [...ASM.i32(0), ...sum, ...ASM.i32(1_234), 0x46],
    ];
    const stage = new Stage(assemble({ globals, select: { code } }));
    expect([stage.rehearse(1).row, stage.decide().row]).toEqual([0, 1]);
  });

  test("the bits of a NaN, of which JavaScript knows only one", () => {
    const signalling = [0x43, 0, 0, 0xa0, 0x7f];
    const quietBit: Code = [ASM.globalGet(0), [0xbc], ASM.i32(22), [0x76], BIT];
    const change: Code = [[...SESSION, ...ASM.if(none, ASM.f32(Number.NaN), ASM.globalSet(0))]];
    const stage = remembering(change, quietBit, global(f32, signalling));
    expect([
      stage.decide().row,
      stage.rehearse(3).row,
      stage.rehearse(TRAPS).row,
      stage.decide().row,
    ]).toEqual([0, 1, BUILT_IN_ROW, 0]);
  });

  test("a memory that wants to grow and does not", () => {
    const grown: Code = [ASM.i32(1), ASM.memoryGrow, ASM.i32(-1), [0x46]];
    const stage = remembering([], grown);
    expect(stage.rehearse()).toMatchObject({ row: 1, fresh: false });
    expect(stage.decide().row).toBe(1);
  });

  test("what is left of the units", () => {
    const stage = remembering(stored, [...loaded, BIT]);
    stage.decide();
    const { fuelUsed } = stage.live;
    expect(stage.rehearse(LOOPS).fuelUsed).toBeGreaterThan(fuelUsed);
    expect(stage.live.fuelUsed).toBe(fuelUsed);
    expect(stage.rehearse().fuelUsed).toBe(fuelUsed);
  });
});

describe("of a policy whose calls cannot be undone asks a fresh instance", () => {
  const read: Code = [ASM.i32(0), [0x25, 0], [IS_NULL], ASM.i32Eqz];
  const write: Code = [
    ...read,
    [0x04, none, ...ASM.i32(0), ...NULL, 0x26, 0],
    [...ASM.else, ...ASM.i32(0), 0xd2, 1, 0x26, 0, ...ASM.end],
  ];
  const table = { tables: [[funcref, 0, 1]] };
  const SEGMENT = { data: [[1, 2, 7, 8]] };
  const copyAndDrop: Code = [ASM.i32(PLACE_OF_COUNT), ASM.i32(0), ASM.i32(2), [0xfc, 8, 0, 0], [0xfc, 9, 0]];

  test("a table that is written", () => {
    const stage = remembering(write, read, table);
    for (let step = 1; step < 6; step++) {
      expect(stage.rehearse(), "it remembers nothing").toMatchObject({ row: 1, fresh: true });
      expect(stage.rehearse(TRAPS)).toMatchObject({ failure: "trap", row: BUILT_IN_ROW, fresh: true });
      expect(stage.rehearse(LOOPS)).toMatchObject({ failure: "fuel", fresh: true });
      expect(stage.decide()).toEqual({ row: step % 2, reason: "unspecified", failure: undefined });
    }
    expect(stage.health.failures()).toEqual({});
  });

  test("a segment that is dropped", () => {
    const stage = remembering(copyAndDrop, [ASM.i32(2)], SEGMENT);
    expect(stage.rehearse()).toMatchObject({ row: 2, failure: undefined, fresh: true });
    expect(stage.decide()).toMatchObject({ row: 2, failure: undefined });
    expect(stage.rehearse()).toMatchObject({ row: 2, failure: undefined, fresh: true });
    expect(stage.decide()).toMatchObject({ failure: "trap" });
  });

  test("which sees the header, the parameters and the rows as they are, and takes them from nobody", () => {
    const loadOfRow0 = [...ASM.i32(0), 0x28, 2, ...[0xc0, 4]];
    const promptTokens = [...ASM.i32(0), 0x28, 2, 64 + 24];
    const stage = remembering(copyAndDrop, [loadOfRow0, promptTokens, ASM.i32Add], SEGMENT);
    stage.live.writeWords(6, [1]);
    stage.candidates.setActiveRequests(0, 0);
    const rehearsed = stage.rehearse();
    expect(rehearsed).toMatchObject({ row: 1, fresh: true });
    stage.candidates.setActiveRequests(0, 1);
    expect(stage.rehearse().row).toBe(2);
    expect(stage.decide().row).toBe(2);
    expect(rehearsed.fuelUsed).toBe(stage.live.fuelUsed);
  });

  test("and says why where none can be made", () => {
    const stage = remembering(write, read, table);
    refuseInstances();
    expect(() => stage.rehearse()).toThrow(
      new PolicyStartError("the module cannot be instantiated: no room"),
    );
    expect(stage.decide()).toMatchObject({ row: 1, failure: undefined });
  });
});

describe("with no eligible row", () => {
  const nothing = { row: -1, reason: "none", failure: undefined, fuelUsed: 0, fresh: false };

  test("is none, and no policy is called", () => {
    const stage = remembering([ASM.unreachable], [ASM.i32(0)]);
    expect(stage.rehearse()).toMatchObject({ failure: "trap" });
    for (const row of [0, 1, 2]) stage.candidates.setEligible(row, false);
    expect(stage.rehearse()).toEqual(nothing);
    expect(stage.live.fallback).toBe(false);
  });

  test("is the same of the built-in rule, which else tells the least-loaded row", () => {
    const candidates = new Candidates(MIN_CAPACITY);
    const rule = new BuiltInRule(candidates);
    expect(rule.rehearse()).toEqual(nothing);
    candidates.n = 3;
    for (const [row, load] of [4, 2, 3].entries()) {
      candidates.setActiveRequests(row, load);
      candidates.setEligible(row, true);
    }
    expect(rule.rehearse()).toEqual({ ...nothing, row: 1, reason: "fallback" });
    expect(rule.row).toBe(-1);
  });
});

/** From now on, and until the test ends, there is no room for an instance. */
function refuseInstances(): void {
  const original = WebAssembly.Instance;
  onTestFinished(() => {
    WebAssembly.Instance = original;
  });
  WebAssembly.Instance = class {
    constructor() {
      throw new Error("no room");
    }
  } as unknown as typeof original;
}
