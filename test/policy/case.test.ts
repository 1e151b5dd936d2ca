// Cases: what a policy sees of one, what is left out, and what is refused. The policy is one that tells its frame's bytes.
import { beforeAll, describe, expect, test } from "vitest";
import { COLUMNS, FIELDS, READABLE, strideOf } from "../../host/abi/frame.js";
import { CaseError, CaseRunner, DEFAULT_CAPACITY } from "../../host/policy/case.js";
import { SeedGenerator } from "../../host/policy/random.js";
import { COMMAND, makePuppets, numberTold, told, type UnfiledPolicy } from "../fixtures/puppet.js";

const CAPACITY = 64;

type Case = Record<string, unknown> & { request?: Record<string, unknown> };

let puppet: (reads: readonly string[]) => UnfiledPolicy;
beforeAll(async () => {
  puppet = await makePuppets();
});

function hex(low: number, high: number): string {
  return `0x${((BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)).toString(16)}`;
}

/** The case with a command to the puppet in place of its session. */
function telling(given: Case, command: keyof typeof COMMAND, argument = 0): Case {
  return { ...given, request: { ...given.request, session: hex(COMMAND[command], argument) } };
}

/** A runner whose policy reads everything, and a look into the frame that it sees. */
class Stage {
  readonly runner: CaseRunner;

  constructor(
    private readonly capacity = CAPACITY,
    reads: readonly string[] = READABLE,
    seed = 0,
  ) {
    this.runner = new CaseRunner(puppet(reads), new Float64Array(2), capacity, seed);
  }

  /** Bytes of the frame while the case is decided. */
  bytes(given: Case, offset: number, length: number): number[] {
    return Array.from({ length }, (_, index) =>
      numberTold(this.runner.run(telling(given, "peek", offset + index)).reason),
    );
  }

  column(given: Case, name: string, row: number): number {
    const { type, perRow } = COLUMNS.find((column) => column.name === name)!;
    const size = type === "u8" ? 1 : 4;
    const bytes = this.bytes(given, 448 + perRow * strideOf(this.capacity) + size * row, size);
    return bytes.reduceRight((value, byte) => (value << 8) | byte, 0);
  }

  field(given: Case, name: string): number[] {
    const { offset, type } = FIELDS.find((field) => field.name === name)!;
    return this.bytes(given, offset, { f64: 8, u64: 8, u32: 4, "u64[16]": 128 }[type]);
  }
}

function littleEndian(value: bigint, length: number): number[] {
  return Array.from({ length }, (_, index) => Number((value >> BigInt(8 * index)) & 0xffn));
}

const VALUE_COLUMNS = COLUMNS.map(({ name }) => name).filter(
  (name) => name !== "eligible" && name !== "active_requests",
);

describe("what a case leaves out", () => {
  test("every row is eligible, and none beyond the last", () => {
    const stage = new Stage();
    const seen = [0, 1, 2, 3, 63].map((row) => stage.column({ loads: [4, 5, 6] }, "eligible", row));
    expect(seen).toEqual([1, 1, 1, 0, 0]);
  });

  test("the session is not bound", () => {
    const runner = new CaseRunner(puppet([]), new Float64Array(2), CAPACITY);
    // A command that is not known makes the puppet answer the bound row itself.
    const asked = { loads: [0, 0], request: { session: "0xff" } };
    expect(runner.run(asked).failure).toBe("no_choice");
    expect(runner.run({ ...asked, bound: 1 })).toEqual({ row: 1, reason: "unspecified" });
  });

  test.each(VALUE_COLUMNS)("%s has its unknown value", (name) => {
    const stage = new Stage();
    const given = { loads: [9, 9, 9] };
    const expected = { worker_hash: [0, 1, 2], kv_used: [-1, -1, -1], queue_depth: [-1, -1, -1] };
    const seen = [0, 1, 2].map((row) => stage.column(given, name, row));
    expect(seen).toEqual(expected[name as keyof typeof expected] ?? [0, 0, 0]);
  });

  test.each(FIELDS.map(({ name }) => name).filter((name) => name !== "seed" && name !== "session"))(
    "%s is 0",
    (name) => {
      const bytes = new Stage().field({ loads: [1] }, name);
      expect(bytes).toEqual(bytes.map(() => 0));
    },
  );

  test("the session is 0", () => {
    // Command 0, argument 0: the puppet answers row 0 without a reason.
    const runner = new CaseRunner(puppet([]), new Float64Array(2), CAPACITY);
    expect(runner.run({ loads: [1] })).toEqual({ row: 0, reason: "unspecified" });
  });
});

describe("what a case says", () => {
  test("loads, eligibility and bound", () => {
    const stage = new Stage();
    const given = { loads: [0, 2 ** 31 - 1, 7], eligible: [0, true, false] };
    const rows = [0, 1, 2];
    expect(rows.map((row) => stage.column(given, "active_requests", row))).toEqual(given.loads);
    expect(rows.map((row) => stage.column(given, "eligible", row))).toEqual([0, 1, 0]);
    expect(stage.runner.run({ ...given, bound: 1, request: { session: "0xff" } }).row).toBe(1);
  });

  test.each(VALUE_COLUMNS)("%s, row by row", (name) => {
    const values = [-(2 ** 31), 0x01020304, 2 ** 31 - 1];
    const given = { loads: [0, 0, 0], columns: { [name]: values } };
    const stage = new Stage();
    expect([0, 1, 2].map((row) => stage.column(given, name, row))).toEqual(values);
  });

  test("worker_hash also as an unsigned number", () => {
    const given = { loads: [0], columns: { worker_hash: [2 ** 32 - 2] } };
    expect(new Stage().column(given, "worker_hash", 0)).toBe(-2);
  });

  const WORDS = FIELDS.filter(({ type }) => type === "u32").map(({ name }) => name);
  test.each(WORDS)("request.%s", (name) => {
    const stage = new Stage();
    for (const value of [1, 0x01020304, 2 ** 32 - 1]) {
      expect(stage.field({ loads: [0], request: { [name]: value } }, name)).toEqual(
        littleEndian(BigInt(value), 4),
      );
    }
  });

  test("request.now, in fractions of a millisecond", () => {
    const bytes = new Stage().field({ loads: [0], request: { now: 123_456.75 } }, "now");
    expect(new Float64Array(Uint8Array.from(bytes).buffer)[0]).toBe(123_456.75);
  });

  test.each(["0x5", "0x0123456789abcdef", "0xFFFFFFFFFFFFFFFF", "0x80000000", "0x0"])(
    "request.seed %s, all 64 bits of it",
    (seed) => {
      const bytes = new Stage().field({ loads: [0], request: { seed } }, "seed");
      expect(bytes).toEqual(littleEndian(BigInt(seed), 8));
    },
  );

  test("request.session, as two words", () => {
    // The low word is the command, the high word the row that the puppet answers.
    const { runner } = new Stage();
    const rows = [0, 1, 2].map(
      (row) => runner.run({ loads: [0, 0, 0], request: { session: hex(0, row) } }).row,
    );
    expect(rows).toEqual([0, 1, 2]);
  });

  test("request.prefix, level by level, 0 beyond its end", () => {
    const prefix = ["0x1", "0xffffffffffffffff", "0x0123456789abcdef"];
    const stage = new Stage();
    stage.runner.run({ loads: [0], request: { prefix: new Array<string>(16).fill("0xffffffffffffffff") } });
    const bytes = stage.field({ loads: [0], request: { prefix } }, "prefix");
    const levels = [...prefix.map(BigInt), ...new Array<bigint>(13).fill(0n)];
    expect(bytes).toEqual(levels.flatMap((level) => littleEndian(level, 8)));
  });

  test("is not shown to a policy that does not read it", () => {
    const stage = new Stage(CAPACITY, ["session"]);
    const given = {
      loads: [3],
      columns: Object.fromEntries(VALUE_COLUMNS.map((name) => [name, [77]])),
      request: { now: 5, seed: "0x7", prompt_tokens: 9, idle_ms: 8, session_requests: 6, prefix: ["0x1"] },
    };
    for (const name of VALUE_COLUMNS) expect(stage.column(given, name, 0), name).toBe(0);
    for (const { name } of FIELDS.filter(({ name }) => name !== "session")) {
      expect(new Set(stage.field(given, name)), name).toEqual(new Set([0]));
    }
  });
});

describe("a decision", () => {
  test("is a row and a reason", () => {
    const runner = new Stage().runner;
    expect(runner.run(telling({ loads: [0, 0] }, "answer", 1 | (5 << 16)))).toEqual({
      row: 1,
      reason: "place",
    });
  });

  test("without an eligible row has none", () => {
    expect(new Stage().runner.run({ loads: [0, 0], eligible: [0, 0] })).toEqual({
      row: null,
      reason: "none",
    });
    expect(new Stage().runner.run({ loads: [] })).toEqual({ row: null, reason: "none" });
  });

  test("that the host had to make says why", () => {
    const runner = new Stage().runner;
    const given = { loads: [4, 3] };
    const rescued = (failure: string) => ({ row: 1, reason: "fallback", failure });
    expect(runner.run(telling(given, "trap"))).toEqual(rescued("trap"));
    expect(runner.run(telling(given, "answer", -1))).toEqual(rescued("no_choice"));
    expect(runner.run(telling(given, "answer", 2))).toEqual(rescued("bad_row"));
    expect(runner.run(telling(given, "answer", 0))).toEqual({ row: 0, reason: "unspecified" });
  });
});

describe("seeds", () => {
  /** The lowest byte of the seed of each of some cases. */
  function drawsOf(seed: number | undefined, given: readonly Case[]): number[] {
    const runner = new CaseRunner(puppet(READABLE), new Float64Array(2), CAPACITY, seed);
    return given.map((one) => numberTold(runner.run(telling(one, "peek", 8)).reason));
  }
  const plain = new Array<Case>(50).fill({ loads: [0] });

  test("are those of the generator that the runner's seed starts", () => {
    const generator = new SeedGenerator(1234);
    const expected = plain.map(() => {
      generator.next();
      return generator.low & 0xff;
    });
    expect(drawsOf(1234, plain)).toEqual(expected);
    expect(drawsOf(1235, plain)).not.toEqual(expected);
    expect(drawsOf(undefined, plain)).toEqual(drawsOf(0, plain));
  });

  test("named by one case do not change those of the next", () => {
    const named = plain.map((one, index) => (index === 2 ? { ...one, request: { seed: "0x42" } } : one));
    const expected = drawsOf(9, plain).map((byte, index) => (index === 2 ? 0x42 : byte));
    expect(drawsOf(9, named)).toEqual(expected);
  });

  test("are not used up by a case that is refused", () => {
    const runner = new CaseRunner(puppet(READABLE), new Float64Array(2), CAPACITY, 9);
    const draw = () => numberTold(runner.run(telling({ loads: [0] }, "peek", 8)).reason);
    const first = draw();
    expect(() => runner.run({ loads: "none" })).toThrow(CaseError);
    expect([first, draw()]).toEqual(drawsOf(9, plain.slice(0, 2)));
  });
});

describe("one case after the other", () => {
  const full = (rows: number): Case => ({
    loads: new Array<number>(rows).fill(3),
    columns: Object.fromEntries(VALUE_COLUMNS.map((name) => [name, new Array<number>(rows).fill(77)])),
    request: {
      ...Object.fromEntries(FIELDS.filter(({ type }) => type === "u32").map(({ name }) => [name, 5])),
      ...{ now: 9, seed: "0x1", prefix: new Array<string>(16).fill("0xffffffffffffffff") },
    },
  });
  const rows = [0, 1, 2, 3];
  const bare = { loads: [1, 2], request: { seed: "0x3" } };

  function seen(stage: Stage) {
    const names = COLUMNS.map(({ name }) => name);
    return {
      columns: names.map((name) => [0, 1].map((row) => stage.column(bare, name, row))),
      eligible: rows.map((row) => stage.column(bare, "eligible", row)),
      fields: FIELDS.filter(({ name }) => name !== "session").map(({ name }) => stage.field(bare, name)),
    };
  }

  test.each([0, 1, 2, 4, 64])("nothing is left of one of %i rows", (size) => {
    const fresh = seen(new Stage());
    const used = new Stage();
    used.runner.run(telling(full(size), "count"));
    expect(seen(used)).toEqual(fresh);
  });

  test("a smaller one cannot answer a row of a larger one", () => {
    const { runner } = new Stage();
    expect(runner.run(telling(full(4), "answer", 3)).row).toBe(3);
    expect(runner.run(telling(full(2), "answer", 3))).toEqual({
      row: 0,
      reason: "fallback",
      failure: "bad_row",
    });
    expect(runner.run(telling({ ...full(4), eligible: [1, 1, 1, 0] }, "answer", 3)).failure).toBe(
      "not_eligible",
    );
    expect(runner.run(telling(full(4), "answer", 3)).row).toBe(3);
  });

  test("none is left where all rows were taken away", () => {
    const { runner } = new Stage();
    runner.run(full(3));
    expect(runner.run({ loads: [] })).toEqual({ row: null, reason: "none" });
    expect(runner.run({ loads: [5, 5], eligible: [0, 1], request: { session: "0x0" } }).row).toBe(1);
  });

  test("run on the same instance", () => {
    const { runner } = new Stage();
    const count = () => runner.run(telling({ loads: [0] }, "count")).reason;
    expect([count(), count()]).toEqual([told(1), told(2)]);
    expect(() => runner.run({ loads: [0], bound: 1 })).toThrow(CaseError);
    expect(count()).toBe(told(3));
  });
});

describe("a malformed case", () => {
  const fields = FIELDS.map(({ name }) => name).join(", ");
  const names = COLUMNS.map(({ name }) => name).join(", ");
  const U32 = "an integer from 0 to 4294967295";
  const I32 = "an integer from -2147483648 to 2147483647";
  const HEX = 'a hex string of at most 64 bits such as "0x5"';

  const refused: [what: string, given: unknown, message: string][] = [
    ["null", null, "a case must be an object, found null"],
    ["a list", [1], "a case must be an object, found a list"],
    ["text", "x", 'a case must be an object, found "x"'],
    ["nothing", undefined, "a case must be an object, found nothing"],
    [
      "an unknown key",
      { loads: [1], load: [1] },
      'a case has an unknown key "load", allowed are loads, eligible, bound, request, columns',
    ],
    ["no loads", {}, '"loads" must be a list of integers, found nothing'],
    ["loads that are no list", { loads: 3 }, '"loads" must be a list of integers, found 3'],
    ["a load below 0", { loads: [0, -1] }, '"loads"[1] must be an integer from 0 to 2147483647, found -1'],
    [
      "a load above i32",
      { loads: [2 ** 31] },
      '"loads"[0] must be an integer from 0 to 2147483647, found 2147483648',
    ],
    ["half a request", { loads: [0.5] }, '"loads"[0] must be an integer from 0 to 2147483647, found 0.5'],
    [
      "a load that is text",
      { loads: ["1"] },
      '"loads"[0] must be an integer from 0 to 2147483647, found "1"',
    ],
    [
      "more rows than the capacity",
      { loads: new Array<number>(65).fill(0) },
      '"loads" has 65 rows, the capacity is 64',
    ],
    [
      "eligible that is no list",
      { loads: [1], eligible: 1 },
      '"eligible" must be a list of 0 and 1, found 1',
    ],
    ["eligible that is too short", { loads: [1, 1], eligible: [1] }, '"eligible" has 1 rows, "loads" has 2'],
    [
      "eligible that is neither",
      { loads: [1, 1], eligible: [1, 2] },
      '"eligible"[1] must be 0 or 1, found 2',
    ],
    [
      "a bound row that is not there",
      { loads: [1, 1], bound: 2 },
      '"bound" must be an integer from -1 to 1, found 2',
    ],
    ["a bound row below -1", { loads: [1], bound: -2 }, '"bound" must be an integer from -1 to 0, found -2'],
    [
      "a bound row that is null",
      { loads: [1], bound: null },
      '"bound" must be an integer from -1 to 0, found null',
    ],
    [
      "columns that are a list",
      { loads: [1], columns: [] },
      '"columns" must be an object, found an empty list',
    ],
    [
      "an unknown column",
      { loads: [1], columns: { speed: [1] } },
      `"columns" has an unknown key "speed", allowed are ${names}`,
    ],
    [
      "a second eligible",
      { loads: [1], columns: { eligible: [1] } },
      '"columns.eligible" is written as "eligible"',
    ],
    [
      "second loads",
      { loads: [1], columns: { active_requests: [1] } },
      '"columns.active_requests" is written as "loads"',
    ],
    [
      "a column that is too long",
      { loads: [1], columns: { weight: [1, 2] } },
      '"columns.weight" has 2 rows, "loads" has 1',
    ],
    [
      "a column that is no list",
      { loads: [1], columns: { weight: 100 } },
      '"columns.weight" must be a list of integers, found 100',
    ],
    [
      "a value above i32",
      { loads: [1], columns: { slots: [2 ** 31] } },
      `"columns.slots"[0] must be ${I32}, found 2147483648`,
    ],
    [
      "a hash above u32",
      { loads: [1], columns: { worker_hash: [2 ** 32] } },
      '"columns.worker_hash"[0] must be an integer from -2147483648 to 4294967295, found 4294967296',
    ],
    ["a request that is no object", { loads: [1], request: 5 }, '"request" must be an object, found 5'],
    [
      "an unknown field",
      { loads: [1], request: { tokens: 5 } },
      `"request" has an unknown key "tokens", allowed are ${fields}`,
    ],
    [
      "a now that is text",
      { loads: [1], request: { now: "1" } },
      '"request.now" must be a number, found "1"',
    ],
    [
      "a negative count",
      { loads: [1], request: { prompt_tokens: -1 } },
      `"request.prompt_tokens" must be ${U32}, found -1`,
    ],
    [
      "a count above u32",
      { loads: [1], request: { idle_ms: 2 ** 32 } },
      `"request.idle_ms" must be ${U32}, found 4294967296`,
    ],
    [
      "a seed that is a number",
      { loads: [1], request: { seed: 5 } },
      `"request.seed" must be ${HEX}, found 5`,
    ],
    [
      "a seed of 65 bits",
      { loads: [1], request: { seed: "0x10000000000000000" } },
      `"request.seed" must be ${HEX}, found "0x10000000000000000"`,
    ],
    [
      "a session without 0x",
      { loads: [1], request: { session: "5" } },
      `"request.session" must be ${HEX}, found "5"`,
    ],
    [
      "a prefix that is no list",
      { loads: [1], request: { prefix: "0x5" } },
      '"request.prefix" must be a list of at most 16 hex strings, found "0x5"',
    ],
    [
      "a prefix of 17 levels",
      { loads: [1], request: { prefix: new Array<string>(17).fill("0x1") } },
      '"request.prefix" must be a list of at most 16 hex strings, found a list',
    ],
    [
      "a prefix level that is no hash",
      { loads: [1], request: { prefix: ["0x1", "0xg"] } },
      `"request.prefix"[1] must be ${HEX}, found "0xg"`,
    ],
  ];

  test.each(refused)("%s", (_, given, message) => {
    expect(() => new Stage().runner.run(given)).toThrow(new CaseError(message));
  });
});

describe("capacity", () => {
  test("is that of the runner, 4,096 unless told otherwise", () => {
    const runner = new CaseRunner(puppet([]), new Float64Array(2));
    const loads = new Array<number>(DEFAULT_CAPACITY).fill(0);
    expect(runner.run(telling({ loads }, "answer", 4095)).row).toBe(4095);
    expect(() => runner.run({ loads: [...loads, 0] })).toThrow('"loads" has 4097 rows, the capacity is 4096');
  });
});
