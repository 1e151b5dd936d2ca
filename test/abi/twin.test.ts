// The host's frame and the SDK's readers: the two descriptions of ABI 1 cannot drift apart.
import { instantiate } from "@assemblyscript/loader";
import { beforeAll, describe, expect, test } from "vitest";
import {
  COLUMNS,
  FIELDS,
  Frame,
  frameBytes,
  HEADER_BYTES,
  MAX_CAPACITY,
  MAX_PARAMETERS,
  strideOf,
} from "../../host/abi/frame.js";
import { FIRST_OWN_REASON, MAX_REASON, REASON, ROW_MASK } from "../../host/abi/reasons.js";
import { SeedGenerator } from "../../host/policy/random.js";
import { compileAssembly } from "../fixtures/assembly.js";

const CAPACITIES = [1, 15, 16, 17, 64, 100, 4096, MAX_CAPACITY];
const MEMORY_BYTES = 16 * 65_536;

type Reader = (index?: number) => number | bigint;

class Twin {
  constructor(private readonly exports: Record<string, unknown>) {}

  static async start(bytes: Uint8Array): Promise<Twin> {
    const { exports } = await instantiate(bytes as Uint8Array<ArrayBuffer>, {});
    return new Twin(exports as Record<string, unknown>);
  }

  /** The exports of the module itself, without what the loader adds. */
  get names(): string[] {
    return Object.keys(this.exports).filter((name) => !name.startsWith("__") && name !== "table");
  }

  get buffer(): ArrayBuffer {
    return (this.exports.memory as WebAssembly.Memory).buffer;
  }

  call(name: string, ...args: number[]): number {
    return this.function(name)(...args) as number;
  }

  /** A function of the SDK by its name; fails the test where the SDK has none. */
  private function(name: string): (...args: number[]) => number | bigint {
    const found = this.exports[name];
    expect(found, `the SDK exports a function ${name}`).toBeTypeOf("function");
    return found as (...args: number[]) => number | bigint;
  }

  constant(name: string): number {
    const found = this.exports[name];
    expect(found, `the SDK exports a constant ${name}`).toBeInstanceOf(WebAssembly.Global);
    return (found as WebAssembly.Global).value as number;
  }

  /** The reader of a field or column of this name in the host's tables. */
  reader(name: string): Reader {
    return this.function(readerName(name)) as Reader;
  }
}

function readerName(name: string): string {
  if (name === "eligible") return "isEligible";
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** Words that differ from one another. */
function distinctWords(seed: number): () => number {
  const generator = new SeedGenerator(seed);
  const given = new Set<number>();
  return () => {
    do generator.next();
    while (given.has(generator.low));
    given.add(generator.low);
    return generator.low;
  };
}

let bytes: Uint8Array;
beforeAll(async () => {
  bytes = await compileAssembly({ fixture: "twin.ts" }, "debug");
});

describe.each(CAPACITIES)("a frame of %i rows", (capacity) => {
  async function open(): Promise<{ twin: Twin; frame: Frame }> {
    const twin = await Twin.start(bytes);
    return { twin, frame: new Frame(twin.buffer, twin.call("init", capacity), capacity) };
  }

  test("stands at a 64-byte aligned address and has the host's stride", async () => {
    const { twin } = await open();
    const address = twin.call("init", capacity);
    expect(address).toBeGreaterThan(0);
    expect(address % 64).toBe(0);
    expect(address + frameBytes(capacity)).toBeLessThanOrEqual(twin.buffer.byteLength);
    expect(twin.call("columnRows")).toBe(strideOf(capacity));
  });

  test("every column starts where the host writes it", async () => {
    const { twin, frame } = await open();
    for (const { name, perRow } of COLUMNS) {
      expect(twin.call("column", perRow), name).toBe(frame.columns[name].byteOffset);
    }
    expect(twin.call("eligibleColumn")).toBe(frame.columns.eligible.byteOffset);
    expect(twin.call("activeRequestsColumn")).toBe(frame.columns.active_requests.byteOffset);
  });

  test("every field, parameter and value that the host writes is read back by the SDK", async () => {
    const { twin, frame } = await open();
    const word = distinctWords(capacity);
    // All of it is written before any of it is read, so that two places that overlap are found.
    const fields = FIELDS.map((field) => ({ ...field, expected: writeField(frame, field, word) }));
    const parameters = Array.from({ length: MAX_PARAMETERS }, () => word() + 0.5);
    frame.params.set(parameters);
    const columns = COLUMNS.map(({ name }) => ({ name, values: frame.columns[name] }));
    const written = columns.map(({ name, values }) => {
      for (let row = 0; row < values.length; row++) values[row] = name === "eligible" ? word() & 1 : word();
      return values.slice();
    });

    for (const { name, type, expected } of fields) {
      const read = twin.reader(name);
      const found = type === "u64[16]" ? expected.map((_, level) => read(level)) : [read()];
      expect(found.map(unsigned), name).toEqual(expected);
    }
    expect(parameters.map((_, index) => twin.call("param", index))).toEqual(parameters);
    const rows = rowsToRead(strideOf(capacity));
    for (const [index, { name }] of columns.entries()) {
      const read = twin.reader(name);
      expect(
        rows.map((row) => Number(read(row))),
        name,
      ).toEqual(rows.map((row) => written[index][row]));
    }
  });
});

/** Writes a field with values that occur nowhere else, and returns them. */
function writeField(
  frame: Frame,
  { name, type, offset }: (typeof FIELDS)[number],
  word: () => number,
): (number | bigint)[] {
  if (type === "f64") {
    expect(name, "the only f64 field").toBe("now");
    frame.now[0] = word() + 0.25;
    return [frame.now[0]];
  }
  const words = Array.from({ length: { u32: 1, u64: 2, "u64[16]": 32 }[type] }, () => word() >>> 0);
  frame.words.set(words, offset / 4);
  if (type === "u32") return words;
  return words.flatMap((low, index) =>
    index % 2 === 0 ? [BigInt(low) | (BigInt(words[index + 1]) << 32n)] : [],
  );
}

/** An i32 or i64 as the unsigned number that a u32 or u64 reader means. */
function unsigned(value: number | bigint): number | bigint {
  if (typeof value === "bigint") return BigInt.asUintN(64, value);
  return Number.isInteger(value) ? value >>> 0 : value;
}

/** All rows of a small frame; of a large one the first and last 64 and some between. */
function rowsToRead(stride: number): number[] {
  const rows = Array.from({ length: stride }, (_, row) => row);
  return stride <= 256 ? rows : rows.filter((row) => row < 64 || row >= stride - 64 || row % 97 === 0);
}

test("the SDK reads what the host's tables name, and nothing else", async () => {
  const twin = await Twin.start(bytes);
  const readers = [...FIELDS, ...COLUMNS].map(({ name }) => readerName(name));
  const reasons = Object.keys(REASON).map((name) => name.toUpperCase());
  const others = ["memory", "init", "column", "columnRows", "param", "hasParam"];
  const columns = ["eligibleColumn", "activeRequestsColumn"];
  const answers = ["FIRST_OWN", "NO_CHOICE", "answer", "placedReason"];
  expect(twin.names.sort()).toEqual([...readers, ...reasons, ...others, ...columns, ...answers].sort());
});

test("what a policy imports offers every reader and every reason", async () => {
  const readers = [...FIELDS, ...COLUMNS].map(({ name }) => readerName(name));
  const names = [...readers, ...Object.keys(REASON).map((name) => name.toUpperCase())];
  const text = `export { ${[...names, "init", "param", "hasParam"].join(", ")} } from "../../../assembly/sdk";`;
  const module = new WebAssembly.Module((await compileAssembly({ text })) as Uint8Array<ArrayBuffer>);
  expect(WebAssembly.Module.exports(module).map(({ name }) => name)).toEqual(expect.arrayContaining(names));
});

test("a parameter that is NaN is absent", async () => {
  const twin = await Twin.start(bytes);
  const frame = new Frame(twin.buffer, twin.call("init", 64), 64);
  frame.params.set([Number.NaN, 0, Number.POSITIVE_INFINITY, -1]);
  const present = [0, 1, 2, 3].map((index) => Boolean(twin.call("hasParam", index)));
  expect(present).toEqual([false, true, true, true]);
});

test("row -1 is not eligible, whatever stands in front of the column", async () => {
  const twin = await Twin.start(bytes);
  const frame = new Frame(twin.buffer, twin.call("init", 64), 64);
  new Uint8Array(twin.buffer, frame.params.byteOffset, frame.params.byteLength).fill(1);
  expect(Boolean(twin.call("isEligible", -1))).toBe(false);
});

test("the reasons have the same numbers on both sides", async () => {
  const twin = await Twin.start(bytes);
  for (const [name, number] of Object.entries(REASON)) {
    expect(twin.constant(name.toUpperCase()), name).toBe(number);
  }
  expect(twin.constant("FIRST_OWN")).toBe(FIRST_OWN_REASON);
});

test("an answer carries row and reason to the host", async () => {
  const twin = await Twin.start(bytes);
  for (const row of [0, 1, 255, 256, MAX_CAPACITY - 1]) {
    for (const reason of [0, ...Object.values(REASON), FIRST_OWN_REASON, MAX_REASON]) {
      const answer = twin.call("answer", row, reason);
      expect([answer & ROW_MASK, answer >> 16]).toEqual([row, reason]);
    }
  }
  expect(twin.constant("NO_CHOICE")).toBe(-1);
  expect(twin.call("answer", -1, REASON.place), "no row stays negative").toBe(-1);
});

describe("init", () => {
  test("accepts exactly the capacities whose frame fits into the memory", async () => {
    const twin = await Twin.start(bytes);
    const base = twin.call("init", 0);
    const fits = (capacity: number) => base + frameBytes(capacity) <= MEMORY_BYTES;
    const largest = Math.floor((MEMORY_BYTES - base - HEADER_BYTES) / 57 / 16) * 16;
    expect([fits(largest), fits(largest + 1)]).toEqual([true, false]);
    expect(twin.call("init", largest)).toBe(base);
    expect(twin.call("init", largest + 1)).toBe(-2);
    expect(largest).toBeGreaterThanOrEqual(MAX_CAPACITY);
  });

  // 75,350,304 rows of 57 bytes are 2^32 + 32 bytes: as a u32, next to nothing.
  test.each([-1, -64, -(2 ** 31), 2 ** 16, 75_350_304, 2 ** 30, 2 ** 31 - 1])(
    "answers -2 to %i rows and leaves the frame where it was",
    async (capacity) => {
      const twin = await Twin.start(bytes);
      twin.call("init", 100);
      expect(twin.call("init", capacity)).toBe(-2);
      expect(twin.call("columnRows")).toBe(112);
    },
  );
});
