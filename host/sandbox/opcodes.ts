// The opcodes that a policy may use, with what follows them, and the names of those it may not.
import type { Reader } from "./reader.js";

/** What follows an opcode. `index2` are two indices, `memory` and `memory2` are the bytes 0. */
export type Immediates =
  | "none"
  | "block"
  | "index"
  | "index2"
  | "labels"
  | "types"
  | "memarg"
  | "memargLane"
  | "memory"
  | "memory2"
  | "indexMemory"
  | "i32"
  | "i64"
  | "bytes4"
  | "bytes8"
  | "bytes16"
  | "lane"
  | "reference";

/** Numbers of the opcodes that the sandbox looks at; those behind a prefix are `prefix * 2^16 + number`. */
export const OP = {
  unreachable: 0x00,
  block: 0x02,
  loop: 0x03,
  if: 0x04,
  end: 0x0b,
  else: 0x05,
  br: 0x0c,
  brTable: 0x0e,
  return: 0x0f,
  call: 0x10,
  callIndirect: 0x11,
  returnCall: 0x12,
  returnCallIndirect: 0x13,
  drop: 0x1a,
  localGet: 0x20,
  localSet: 0x21,
  localTee: 0x22,
  globalGet: 0x23,
  globalSet: 0x24,
  tableGet: 0x25,
  tableSet: 0x26,
  memoryGrow: 0x40,
  i32Const: 0x41,
  i64Const: 0x42,
  f32Const: 0x43,
  f64Const: 0x44,
  i32LtS: 0x48,
  i32Add: 0x6a,
  i32Sub: 0x6b,
  i32Mul: 0x6c,
  i32ShrU: 0x76,
  refNull: 0xd0,
  refFunc: 0xd2,
  memoryInit: 0xfc0008,
  dataDrop: 0xfc0009,
  memoryCopy: 0xfc000a,
  memoryFill: 0xfc000b,
} as const;

/** The number of an opcode that stands behind a prefix byte. */
export function prefixed(prefix: number, number: number): number {
  return prefix * 0x10000 + number;
}

type Range = readonly [first: number, last: number, immediates: Immediates];

const PLAIN: readonly Range[] = [
  [0x00, 0x01, "none"], // unreachable, nop
  [0x02, 0x04, "block"], // block, loop, if
  [0x05, 0x05, "none"], // else
  [0x0b, 0x0b, "none"], // end
  [0x0c, 0x0d, "index"], // br, br_if
  [0x0e, 0x0e, "labels"], // br_table
  [0x0f, 0x0f, "none"], // return
  [0x10, 0x10, "index"], // call
  [0x11, 0x11, "index2"], // call_indirect
  [0x12, 0x12, "index"], // return_call
  [0x13, 0x13, "index2"], // return_call_indirect
  [0x1a, 0x1b, "none"], // drop, select
  [0x1c, 0x1c, "types"], // select with a type
  [0x20, 0x22, "index"], // local.get, .set, .tee
  [0x23, 0x24, "index"], // global.get, .set
  [0x25, 0x26, "index"], // table.get, .set
  [0x28, 0x3e, "memarg"], // i32.load .. i64.store32
  [0x3f, 0x40, "memory"], // memory.size, .grow
  [0x41, 0x41, "i32"],
  [0x42, 0x42, "i64"],
  [0x43, 0x43, "bytes4"], // f32.const
  [0x44, 0x44, "bytes8"], // f64.const
  [0x45, 0xbf, "none"], // comparisons, arithmetic, conversions
  [0xc0, 0xc4, "none"], // sign extension
  [0xd0, 0xd0, "reference"], // ref.null
  [0xd1, 0xd1, "none"], // ref.is_null
  [0xd2, 0xd2, "index"], // ref.func
];

const BULK: readonly Range[] = [
  [0x00, 0x07, "none"], // saturating truncation
  [0x08, 0x08, "indexMemory"], // memory.init
  [0x09, 0x09, "index"], // data.drop
  [0x0a, 0x0a, "memory2"], // memory.copy
  [0x0b, 0x0b, "memory"], // memory.fill
  [0x10, 0x10, "index"], // table.size
];

/** The gaps are numbers that stand for nothing. */
const SIMD: readonly Range[] = [
  [0x00, 0x0b, "memarg"], // loads, v128.store
  [0x0c, 0x0d, "bytes16"], // v128.const, i8x16.shuffle
  [0x0e, 0x14, "none"], // i8x16.swizzle, splats
  [0x15, 0x22, "lane"], // extract_lane, replace_lane
  [0x23, 0x53, "none"], // comparisons, bitwise, v128.any_true
  [0x54, 0x5b, "memargLane"], // loads and stores of one lane
  [0x5c, 0x5d, "memarg"], // v128.load32_zero, .load64_zero
  [0x5e, 0x99, "none"],
  [0x9b, 0xa1, "none"],
  [0xa3, 0xa4, "none"],
  [0xa7, 0xae, "none"],
  [0xb1, 0xb1, "none"],
  [0xb5, 0xba, "none"],
  [0xbc, 0xc1, "none"],
  [0xc3, 0xc4, "none"],
  [0xc7, 0xce, "none"],
  [0xd1, 0xd1, "none"],
  [0xd5, 0xe1, "none"],
  [0xe3, 0xed, "none"],
  [0xef, 0xff, "none"],
];

/** Bytes before the opcodes that are numbered on their own. */
export const PREFIX = { bulk: 0xfc, simd: 0xfd } as const;

/** Every allowed opcode by number. */
export const OPCODES: ReadonlyMap<number, Immediates> = new Map([
  ...entriesOf(PLAIN, 0),
  ...entriesOf(BULK, PREFIX.bulk),
  ...entriesOf(SIMD, PREFIX.simd),
]);

function entriesOf(ranges: readonly Range[], prefix: number): [number, Immediates][] {
  return ranges.flatMap(([first, last, immediates]) =>
    Array.from({ length: last - first + 1 }, (_, index): [number, Immediates] => [
      prefixed(prefix, first + index),
      immediates,
    ]),
  );
}

const REFUSED: ReadonlyMap<number, string> = new Map([
  ...namesFrom(0x06, "try catch throw rethrow throw_ref"),
  ...namesFrom(0x14, "call_ref return_call_ref"),
  ...namesFrom(0x18, "delegate catch_all"),
  ...namesFrom(0x1f, "try_table"),
  ...namesFrom(0xd3, "ref.eq ref.as_non_null br_on_null br_on_non_null"),
  ...namesFrom(0xfc000c, "table.init elem.drop table.copy table.grow"),
  ...namesFrom(0xfc0011, "table.fill"),
]);

function namesFrom(first: number, names: string): [number, string][] {
  return names.split(" ").map((name, index) => [first + index, name]);
}

/** Whole families that are refused, by prefix byte. */
const FAMILIES: Readonly<Record<number, string>> = {
  251: "garbage collection",
  253: "relaxed SIMD",
  254: "atomics",
};
const FIRST_RELAXED = 0x100;

/** Reads an opcode. Refuses, by name or number, what is not allowed. */
export function readOpcode(reader: Reader): number {
  const byte = reader.byte("an opcode");
  if (byte < 0xfb) return OPCODES.has(byte) ? byte : refuseOpcode(reader, byte, hex(byte));
  const number = byte === 0xff ? 0 : reader.u32("an opcode");
  const opcode = prefixed(byte, number);
  if (number < 0x10000 && OPCODES.has(opcode)) return opcode;
  if (byte === 0xff) return refuseOpcode(reader, byte, hex(byte));
  return refuseOpcode(reader, opcode, `${hex(byte)} ${hex(number)}`);
}

function refuseOpcode(reader: Reader, opcode: number, number: string): never {
  const prefix = opcode >>> 16;
  const isFamily = prefix !== PREFIX.simd || opcode - prefixed(prefix, 0) >= FIRST_RELAXED;
  const family = isFamily ? FAMILIES[prefix] : undefined;
  const name = REFUSED.get(opcode) ?? (family && `of ${family}`);
  return reader.refuse(`it uses the opcode ${name ? `${name} (${number})` : number}, which no policy may`);
}

function hex(number: number): string {
  return `0x${number.toString(16).padStart(2, "0")}`;
}

/** Alignments are powers of two up to 16; a higher number would name a memory. */
const MAX_ALIGNMENT = 4;

/**
 * Passes over what follows an opcode. Answers the (first) index of an `index`, the type of a `block` (negative for
 * one of a single result or none) and the number of targets of `labels`; of the others the answer means nothing.
 */
export function readImmediates(reader: Reader, immediates: Immediates): number {
  switch (immediates) {
    case "none":
      return 0;
    case "block":
      return readBlockType(reader);
    case "index":
      return reader.u32("an index");
    case "index2":
      return readFirstOfTwo(reader);
    case "labels":
      return skipLabels(reader);
    case "types":
      return skipTypes(reader);
    case "memarg":
      return skipMemarg(reader);
    case "memargLane":
      skipMemarg(reader);
      return reader.byte("a lane");
    case "memory":
      return skipMemory(reader);
    case "memory2":
      skipMemory(reader);
      return skipMemory(reader);
    case "indexMemory":
      reader.u32("an index");
      return skipMemory(reader);
    case "i32":
      reader.skipSigned(32, "a constant");
      return 0;
    case "i64":
      reader.skipSigned(64, "a constant");
      return 0;
    case "bytes4":
      return reader.skip(4, "a constant");
    case "bytes8":
      return reader.skip(8, "a constant");
    case "bytes16":
      return reader.skip(16, "a constant");
    case "lane":
      return reader.byte("a lane");
    case "reference":
      return readReferenceType(reader);
  }
}

function readFirstOfTwo(reader: Reader): number {
  const first = reader.u32("an index");
  reader.u32("an index");
  return first;
}

/** Answers for the types of blocks that have no number of their own. */
export const SINGLE_RESULT = -1;
const NO_RESULT = -2;

const NO_VALUES = -64;
const VALUE_TYPES: ReadonlySet<number> = new Set([0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x70, 0x6f]);
const REFERENCE_TYPES: ReadonlySet<number> = new Set([0x70, 0x6f]);

/** A value type: i32, i64, f32, f64, v128, funcref or externref. */
export function readValueType(reader: Reader): number {
  const type = reader.byte("a type");
  return VALUE_TYPES.has(type) ? type : reader.refuse(`it uses the type ${hex(type)}, which no policy may`);
}

/** funcref or externref. */
export function readReferenceType(reader: Reader): number {
  const type = reader.byte("a type");
  return REFERENCE_TYPES.has(type)
    ? type
    : reader.refuse(`it uses the reference type ${hex(type)}, which no policy may`);
}

/** The index of a function type, or one of these two numbers. */
function readBlockType(reader: Reader): number {
  const start = reader.at;
  const type = reader.s33("a block type");
  if (type < 0 && reader.at > start + 1) reader.malformed("a block type is longer than it may be");
  if (type >= 0) return type;
  if (type === NO_VALUES) return NO_RESULT;
  if (type > NO_VALUES && VALUE_TYPES.has(type + 0x80)) return SINGLE_RESULT;
  return reader.refuse(`it has a block of the type ${type}, which no policy may`);
}

function skipLabels(reader: Reader): number {
  const count = reader.count("targets");
  for (let index = 0; index <= count; index++) reader.u32("a target");
  return count;
}

function skipTypes(reader: Reader): number {
  const count = reader.count("types");
  for (let index = 0; index < count; index++) readValueType(reader);
  return 0;
}

function skipMemarg(reader: Reader): number {
  const alignment = reader.u32("an alignment");
  if (alignment > MAX_ALIGNMENT) reader.malformed(`the alignment 2^${alignment} is more than 2^4`);
  return reader.u32("an offset");
}

function skipMemory(reader: Reader): number {
  const memory = reader.byte("a memory index");
  return memory === 0 ? 0 : reader.refuse(`it uses the memory ${memory}, a policy has only one`);
}
