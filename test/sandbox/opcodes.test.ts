// What follows an opcode: as V8 reads it, for every opcode that a policy may use, and no opcode of V8's forgotten.
import { describe, expect, test } from "vitest";
import { OP, OPCODES, prefixed, readImmediates, readOpcode } from "../../host/sandbox/opcodes.js";
import { Reader } from "../../host/sandbox/reader.js";
import { effectOf } from "../../host/sandbox/stack.js";
import { ASM, assemble, repeat, TYPE, unsigned } from "../fixtures/assembler.js";

const ILLEGAL = 0xff;
/** They end or split the block that they stand in: what follows them is not read as code of it. */
const STRUCTURE: readonly number[] = [0x05, OP.end];
const BLOCKS: readonly number[] = [OP.block, OP.loop, OP.if];
const SELECT_TYPED = 0x1c;
const REF_NULL = 0xd0;
/** Zeros stand for an index or a length of 0 everywhere but here. */
const MINIMAL: Readonly<Record<number, readonly number[]>> = {
  [SELECT_TYPED]: [1, TYPE.i32],
  [REF_NULL]: [TYPE.funcref],
};

function encodingOf(opcode: number): number[] {
  const prefix = opcode >>> 16;
  return prefix === 0 ? [opcode] : [prefix, ...unsigned(opcode & 0xffff)];
}

/** A function in dead code, where any operand is there, beside one of everything that an index 0 can mean. */
function moduleWith(code: readonly number[], before: readonly number[] = ASM.unreachable): Uint8Array {
  return assemble({
    functions: [{ locals: [[1, TYPE.i32]], code: [before, code] }],
    init: { parameters: [], results: [], code: [] },
    tables: [[TYPE.funcref, 0, 1]],
    globals: [[TYPE.i32, 1, ...ASM.i32(0), ...ASM.end]],
    elements: [[3, 0, 1, 0]],
    data: [[1, 0]],
  });
}

/** Where V8 meets the illegal opcode in `code`, from its beginning; undefined where it stops at something else. */
function illegalAt(code: readonly number[]): number | undefined {
  const bytes = moduleWith(code);
  try {
    new WebAssembly.Module(bytes as Uint8Array<ArrayBuffer>);
  } catch (error) {
    const found = /invalid opcode 0xff.*@\+(\d+)/i.exec((error as Error).message);
    return found ? Number(found[1]) - Buffer.from(bytes).lastIndexOf(Uint8Array.from(code)) : undefined;
  }
  throw new Error("V8 takes the illegal opcode");
}

function messageOf(bytes: Uint8Array): string {
  try {
    new WebAssembly.Module(bytes as Uint8Array<ArrayBuffer>);
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

/** A value of each type. */
const VALUES = [
  ASM.i32(0),
  ASM.i64(0),
  [0x43, 0, 0, 0, 0],
  [0x44, ...new Array<number>(8).fill(0)],
  [0xfd, 0x0c, ...new Array<number>(16).fill(0)],
  [REF_NULL, TYPE.funcref],
];

/** How many values `code` takes, of whatever types: tried one after the other. */
function neededBy(code: readonly number[]): number {
  let candidates: number[][] = [[]];
  for (let count = 0; count <= 3; count++) {
    if (candidates.some((before) => WebAssembly.validate(moduleWith(code, before) as never))) return count;
    candidates = candidates.flatMap((before) => VALUES.map((value) => [...before, ...value]));
  }
  throw new Error(`no values fit ${code.join(" ")}`);
}

/** The least bytes that may follow the opcode, and how many of them our reader takes. */
function immediatesOf(opcode: number): number[] {
  const bytes = [...(MINIMAL[opcode] ?? []), ...new Array<number>(24).fill(0)];
  const reader = new Reader(Uint8Array.from(bytes), "immediates");
  readImmediates(reader, OPCODES.get(opcode)!);
  return bytes.slice(0, reader.at);
}

describe("the opcodes that a policy may use", () => {
  const opcodes = [...OPCODES.keys()].filter((opcode) => !STRUCTURE.includes(opcode));

  test("are read by V8 to the same end", () => {
    expect(illegalAt([ILLEGAL])).toBe(0);
    for (const opcode of opcodes) {
      const [head, rest] = [encodingOf(opcode), immediatesOf(opcode)];
      const whole = [...head, ...rest];
      const name = `0x${opcode.toString(16)}`;
      expect(illegalAt([...whole, ILLEGAL]), `${name} ends there`).toBe(whole.length);
      // V8 must not have passed over the last byte as an opcode of its own, which a zero is.
      if (rest.length === 0) continue;
      const cut = whole.slice(0, -1);
      expect(illegalAt([...cut, ILLEGAL]), `${name} does not end before`).not.toBe(cut.length);
    }
    expect(opcodes.length).toBe(OPCODES.size - 2);
  });

  test("take from the stack and leave on it as many values as V8 says", () => {
    for (const opcode of opcodes.filter((opcode) => !BLOCKS.includes(opcode))) {
      const code = [...encodingOf(opcode), ...immediatesOf(opcode)];
      const left = Number(/fallthru, found (\d+)/.exec(messageOf(moduleWith(code)))?.[1] ?? 0);
      const needed = neededBy([...code, ...repeat(left, ASM.drop)]);
      expect(effectOf(opcode), `0x${opcode.toString(16)}`).toBe(left - needed);
    }
    expect(effectOf(OP.if)).toBe(-1);
  });

  test("are encoded by a number of more bytes, too", () => {
    const long = [0xfd, 0xae, 0x81, 0x80, 0x00];
    const reader = new Reader(Uint8Array.from(long), "code");
    expect(readOpcode(reader)).toBe(prefixed(0xfd, 0xae));
    expect(illegalAt([...long, ILLEGAL])).toBe(long.length);
  });

  test("are 434, of which 236 are SIMD", () => {
    const simd = [...OPCODES.keys()].filter((opcode) => opcode >>> 16 === 0xfd);
    expect({ all: OPCODES.size, simd: simd.length }).toEqual({ all: 434, simd: 236 });
  });
});

describe("the opcodes that a policy may not use", () => {
  /** What V8 knows, or later versions of it do, and ABI 1 does not. */
  const REFUSED: readonly number[] = [
    ...[0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f], // exceptions
    ...[0x14, 0x15, 0xd3, 0xd4, 0xd5, 0xd6], // references to functions, garbage collection
    ...[12, 13, 14, 15, 17].map((number) => prefixed(0xfc, number)), // tables in bulk
  ];
  const candidates = [
    ...Array.from({ length: 0xfb }, (_, byte) => byte),
    ...Array.from({ length: 0x20 }, (_, number) => prefixed(0xfc, number)),
    ...Array.from({ length: 0x100 }, (_, number) => prefixed(0xfd, number)),
  ].filter((opcode) => !OPCODES.has(opcode) && !REFUSED.includes(opcode));

  test("are unknown to V8, or refused on purpose", () => {
    for (const opcode of candidates) {
      const code = [...encodingOf(opcode), ...new Array<number>(4).fill(0)];
      expect(
        WebAssembly.validate(moduleWith(code) as Uint8Array<ArrayBuffer>),
        `0x${opcode.toString(16)}`,
      ).toBe(false);
    }
    expect(candidates.length).toBe(0xfb + 0x20 + 0x100 - OPCODES.size - REFUSED.length);
  });
});
