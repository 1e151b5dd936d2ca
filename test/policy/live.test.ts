// A live policy: whatever its module does, the host decides, and says what was wrong.
import { beforeAll, describe, expect, test } from "vitest";
import { COLUMNS, FIELDS, MAX_CAPACITY, strideOf } from "../../host/abi/frame.js";
import { type Failure, REASON, REASON_NAMES } from "../../host/abi/reasons.js";
import { Candidates } from "../../host/policy/candidates.js";
import { Turn } from "../../host/policy/decider.js";
import { PolicyHealth } from "../../host/policy/health.js";
import { LivePolicy, PolicyStartError } from "../../host/policy/live.js";
import {
  COMMAND,
  makePuppets,
  numberTold,
  policyFromText,
  told,
  type UnfiledPolicy,
} from "../fixtures/puppet.js";

const CAPACITY = 64;
const LOADS = [5, 2, 2, 9];
/** What the host's built-in rule chooses from `LOADS`. */
const BUILT_IN_ROW = 1;

let puppet: (reads: readonly string[]) => UnfiledPolicy;
beforeAll(async () => {
  puppet = await makePuppets();
});

/** A puppet with four rows, of which the last is not eligible. */
class Stage {
  readonly candidates = new Candidates(CAPACITY);
  readonly health = new PolicyHealth();
  readonly turn = new Turn();
  readonly live: LivePolicy;

  constructor(reads: readonly string[] = [], parameters = [0, 0]) {
    this.candidates.n = LOADS.length;
    for (const [row, load] of LOADS.entries()) {
      this.candidates.setActiveRequests(row, load);
      this.candidates.setEligible(row, row !== 3);
    }
    this.live = new LivePolicy(puppet(reads), Float64Array.from(parameters), this.candidates, this.health);
  }

  tell(command: keyof typeof COMMAND, argument = 0, bound = -1) {
    this.turn.sessionLow = COMMAND[command];
    this.turn.sessionHigh = argument;
    this.live.decide(this.turn, bound);
    const { row, reason, failure, fallback } = this.live;
    return { row, reason, failure, fallback };
  }

  /** Bytes of the module's frame, as the module sees them. */
  peek(offset: number, length: number): number[] {
    return Array.from({ length }, (_, index) => numberTold(this.tell("peek", offset + index).reason));
  }

  peekColumn(name: string, row: number): number {
    const { type, perRow } = COLUMNS.find((column) => column.name === name)!;
    const size = type === "u8" ? 1 : 4;
    const bytes = this.peek(448 + perRow * strideOf(CAPACITY) + size * row, size);
    return bytes.reduceRight((value, byte) => (value << 8) | byte, 0);
  }
}

function answer(row: number, reason: number): number {
  return row | (reason << 16);
}

describe("an answer in order", () => {
  test.each(REASON_NAMES)("with the shared reason %s is used", (name) => {
    const stage = new Stage();
    const reason = REASON[name as keyof typeof REASON];
    const decided = { row: 2, reason: name, failure: undefined, fallback: false };
    expect(stage.tell("answer", answer(2, reason))).toEqual(decided);
    expect(stage.health.failures()).toEqual({});
  });

  test.each([256, 300, 511])("with the policy's own reason %i is used under its name", (reason) => {
    const decided = { row: 0, reason: told(reason - 256), failure: undefined, fallback: false };
    expect(new Stage().tell("answer", answer(0, reason))).toEqual(decided);
  });

  test("is given the bound row, also one that is not eligible", () => {
    const stage = new Stage();
    const bound = (row: number) => {
      stage.turn.sessionLow = -1;
      stage.live.decide(stage.turn, row);
      return stage.live;
    };
    expect(bound(2)).toMatchObject({ row: 2, reason: "unspecified" });
    expect(bound(3)).toMatchObject({ failure: "not_eligible" });
    expect(bound(-1)).toMatchObject({ failure: "no_choice" });
  });

  test("may name the highest row of the largest pool", () => {
    const candidates = new Candidates(MAX_CAPACITY);
    candidates.n = MAX_CAPACITY;
    candidates.setEligible(MAX_CAPACITY - 1, true);
    const live = new LivePolicy(puppet([]), new Float64Array(2), candidates);
    const turn = new Turn();
    turn.sessionLow = COMMAND.peek;
    live.decide(turn, -1);
    expect(live).toMatchObject({ row: MAX_CAPACITY - 1, reason: told(0) });
  });
});

describe("an answer that cannot be used (G9)", () => {
  const cases: [failure: Failure, what: string, command: keyof typeof COMMAND, argument: number][] = [
    ["trap", "unreachable", "trap", 0],
    ["trap", "a load outside the memory", "outOfBounds", 0],
    ["fuel", "an endless recursion", "recurse", 0],
    ["bad_row", "the first row that is not there", "answer", answer(4, REASON.place)],
    ["bad_row", "the first row beyond the capacity", "answer", answer(64, REASON.place)],
    ["bad_row", "the highest row", "answer", answer(MAX_CAPACITY - 1, REASON.place)],
    ["bad_row", "a row of 16 bits", "answer", answer(0xffff, REASON.place)],
    ["bad_row", "a row and a reason that are both wrong", "answer", answer(4, 255)],
    ["not_eligible", "a row that may not be chosen", "answer", answer(3, REASON.keep)],
    ["bad_reason", "the first reserved reason", "answer", answer(0, 7)],
    ["bad_reason", "the last reserved reason", "answer", answer(0, 255)],
    ["bad_reason", "a reason of its own without a name", "answer", answer(0, 512)],
    ["bad_reason", "the highest reason", "answer", answer(0, 0x7fff)],
    ["no_choice", "-1", "answer", -1],
    ["no_choice", "an error code", "answer", -77],
    ["no_choice", "the lowest number", "answer", -(2 ** 31)],
  ];

  test.each(cases)("%s, %s: the least-loaded row answers, the next decision is the policy's", (...row) => {
    const [failure, , command, argument] = row;
    const stage = new Stage();
    const rescued = { row: BUILT_IN_ROW, reason: "fallback", failure, fallback: true };
    expect(stage.tell(command, argument)).toEqual(rescued);
    expect(stage.health.failures()).toEqual({ [failure]: 1 });

    const decided = { row: 0, reason: "keep", failure: undefined, fallback: false };
    expect(stage.tell("answer", answer(0, REASON.keep))).toEqual(decided);
    expect(stage.health.failures()).toEqual({ [failure]: 1 });
  });

  test("every reserved reason is refused", () => {
    const stage = new Stage();
    for (let reason = 7; reason <= 255; reason++) {
      expect(stage.tell("answer", answer(0, reason)).failure, `reason ${reason}`).toBe("bad_reason");
    }
    expect(stage.health.failures()).toEqual({ bad_reason: 249 });
  });

  test("kinds are counted apart, and instances that share the counts add to them", () => {
    const stage = new Stage();
    const other = new LivePolicy(puppet([]), new Float64Array(2), stage.candidates, stage.health);
    const turn = new Turn();
    turn.sessionHigh = -1;
    for (const argument of [-1, answer(3, 0), answer(9, 0), -5]) stage.tell("answer", argument);
    other.decide(turn, -1);
    expect(stage.health.failures()).toEqual({ no_choice: 3, not_eligible: 1, bad_row: 1 });
  });
});

describe("the built-in rule", () => {
  test("takes the lowest of the least-loaded eligible rows, by the host's own numbers", () => {
    const stage = new Stage();
    stage.candidates.setEligible(1, false);
    expect(stage.tell("answer", -1).row).toBe(2);
    stage.candidates.setActiveRequests(0, 2);
    expect(stage.tell("answer", -1).row).toBe(0);
    stage.candidates.setActiveRequests(2, 1);
    expect(stage.tell("trap").row).toBe(2);
  });

  test("is not fooled by a module that writes over its frame", () => {
    const stage = new Stage();
    expect(stage.tell("spoil", answer(3, REASON.keep))).toMatchObject({ row: 1, failure: "not_eligible" });
    expect(stage.peekColumn("eligible", 3), "the failure had the columns written again").toBe(0);
    expect(stage.tell("answer", answer(3, REASON.keep))).toMatchObject({ row: 1, failure: "not_eligible" });
    expect(stage.tell("answer", answer(5, REASON.keep))).toMatchObject({ row: 1, failure: "bad_row" });
    expect(stage.candidates.truth.active_requests.slice(0, 4)).toEqual(Int32Array.from(LOADS));
  });
});

describe("after a trap (G3)", () => {
  test("a fresh instance decides: what the old one remembered is gone", () => {
    const stage = new Stage();
    const calls = () => numberTold(stage.tell("count").reason);
    expect([calls(), calls(), calls()]).toEqual([1, 2, 3]);
    stage.tell("trap");
    expect([calls(), calls()]).toEqual([1, 2]);
    expect(stage.tell("answer", answer(4, 0)).failure).toBe("bad_row");
    expect(calls(), "other failures keep the instance").toBe(4);
  });

  test("the fresh instance is shown the columns and parameters, and what changes from then on", () => {
    const stage = new Stage(["weight", "worker_hash"], [17, 4]);
    stage.candidates.set("weight", 1, -123_456_789);
    stage.candidates.set("worker_hash", 3, 0x1234567);
    stage.tell("spoil", 0);
    stage.tell("trap");
    const seen = () => [
      ...[0, 1, 2, 3, 4].map((row) => stage.peekColumn("eligible", row)),
      ...[0, 3].map((row) => stage.peekColumn("active_requests", row)),
      ...[stage.peekColumn("weight", 1), stage.peekColumn("worker_hash", 3)],
    ];
    expect(seen()).toEqual([1, 1, 1, 0, 0, 5, 9, -123_456_789, 0x1234567]);
    expect([0, 1].map((index) => stage.tell("parameter", index).reason)).toEqual([told(17), told(4)]);

    stage.candidates.setEligible(2, false);
    stage.candidates.setActiveRequests(3, 8);
    stage.candidates.set("weight", 1, 50);
    expect(seen()).toEqual([1, 1, 0, 0, 0, 5, 8, 50, 0x1234567]);
  });

  test("every further trap is answered and counted", () => {
    const stage = new Stage();
    for (let time = 0; time < 50; time++) expect(stage.tell("trap").row).toBe(BUILT_IN_ROW);
    expect(stage.health.failures()).toEqual({ trap: 50 });
    expect(stage.tell("answer", answer(2, REASON.keep)).row).toBe(2);
  });
});

describe("what the module sees", () => {
  const columns = COLUMNS.map(({ name }) => name).filter((name) => name !== "eligible");
  const declarable = columns.filter((name) => name !== "active_requests");

  test.each(declarable)("%s only where the manifest reads it", (read) => {
    const stage = new Stage([read]);
    for (const [index, name] of columns.entries()) stage.candidates.set(name, 2, 1000 + index);
    const expected = columns.map((name, index) =>
      name === read || name === "active_requests" ? 1000 + index : 0,
    );
    expect(columns.map((name) => stage.peekColumn(name, 2))).toEqual(expected);
    stage.tell("trap");
    expect(
      columns.map((name) => stage.peekColumn(name, 2)),
      "in a fresh instance",
    ).toEqual(expected);
    expect(columns.map((name) => stage.candidates.truth[name][2])).toEqual(
      columns.map((_, index) => 1000 + index),
    );
  });

  test("eligibility, and no eligible row behind the last one", () => {
    const stage = new Stage();
    const flags = Array.from({ length: CAPACITY }, (_, row) => stage.peekColumn("eligible", row));
    expect(flags).toEqual([1, 1, 1, ...new Array<number>(CAPACITY - 3).fill(0)]);
  });

  const offsets = { now: 0, seed: 8, session_requests: 44 };
  const bytes = {
    now: [...new Uint8Array(Float64Array.of(1234.5).buffer)],
    seed: [0xfe, 0xff, 0xff, 0xff, 0x04, 0x03, 0x02, 0x01],
    session_requests: [0x39, 0x30, 0, 0],
  };
  test.each(["now", "seed", "session_requests"] as const)("%s only where the manifest reads it", (read) => {
    const stage = new Stage([read]);
    Object.assign(stage.turn, { now: 1234.5, seedLow: -2, seedHigh: 0x01020304, sessionRequests: 12_345 });
    for (const name of ["now", "seed", "session_requests"] as const) {
      const found = stage.peek(offsets[name], bytes[name].length);
      expect(found, name).toEqual(name === read ? bytes[name] : found.map(() => 0));
    }
  });

  test("the session as two words, low first", () => {
    const stage = new Stage();
    const { offset } = FIELDS.find(({ name }) => name === "session")!;
    // Each byte is asked for by a session of its own: the command, and the offset of the byte.
    const words = stage.peek(offset, 8);
    expect(words).toEqual([COMMAND.peek, 0, 0, 0, offset + 4, 0, 0, 0]);
  });
});

describe("with no eligible row", () => {
  test("the decision is none, and the policy is not called", () => {
    const stage = new Stage();
    expect(stage.tell("count").reason).toBe(told(1));
    for (const row of [0, 1, 2]) stage.candidates.setEligible(row, false);
    const none = { row: -1, reason: "none", failure: undefined, fallback: true };
    expect(stage.tell("count")).toEqual(none);
    expect(stage.tell("trap")).toEqual(none);
    expect(stage.health.failures()).toEqual({});
    stage.candidates.setEligible(3, true);
    expect(stage.tell("count")).toMatchObject({ row: 3, reason: told(2) });
  });

  test("a failure before it is not told again", () => {
    const stage = new Stage();
    stage.tell("trap");
    for (const row of [0, 1, 2]) stage.candidates.setEligible(row, false);
    expect(stage.tell("answer").failure).toBeUndefined();
  });
});

describe("a module that cannot be started", () => {
  const select = "export function select(n: i32, bound: i32): i32 { return 0; }";
  const answering = (value: string) =>
    `export function init(capacity: i32): i32 { return ${value}; } ${select}`;
  const bad = "init answers a bad address: a frame of 64 rows cannot stand at address";

  test.each([
    ["init answers 0", answering("0"), `${bad} 0`],
    ["init answers an unaligned address", answering("1040"), `${bad} 1040`],
    ["the frame ends behind the memory", answering("(16 << 16) - 4032"), `${bad} 1044544`],
    ["the address is far outside", answering("0x7fffffc0"), `${bad} 2147483584`],
    ["init answers -1", answering("-1"), "init refuses a capacity of 64: it answers -1"],
    ["init answers -2", answering("-2"), "init refuses a capacity of 64: it answers -2"],
    [
      "init traps",
      `export function init(capacity: i32): i32 { unreachable(); return 64; } ${select}`,
      "init traps: unreachable",
    ],
    [
      "the start function traps",
      `unreachable(); export { init } from "../../../assembly/sdk"; ${select}`,
      "the start function traps: unreachable",
    ],
  ])("%s", async (_, text, message) => {
    const policy = await policyFromText(text);
    const start = () => new LivePolicy(policy, new Float64Array(2), new Candidates(CAPACITY));
    expect(start).toThrow(new PolicyStartError(message));
    expect(start).toThrow(PolicyStartError);
  });

  test("the last place in the memory that a frame fits into is good", async () => {
    const policy = await policyFromText(answering("(16 << 16) - 4096"));
    expect(() => new LivePolicy(policy, new Float64Array(2), new Candidates(CAPACITY))).not.toThrow();
  });
});
