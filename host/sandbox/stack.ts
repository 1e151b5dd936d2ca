// By how many values an opcode makes the operand stack higher or lower: V8's compile takes time for each value at each branch.

type Effect = readonly [first: number, last: number, values: number];

/** All others leave it as high as it was. Calls, blocks and their ends depend on types. */
const EFFECTS: readonly Effect[] = [
  [0x04, 0x04, -1], // if
  [0x0d, 0x0e, -1], // br_if, br_table
  [0x11, 0x11, -1], // call_indirect: its own operand
  [0x13, 0x13, -1], // return_call_indirect
  [0x1a, 0x1a, -1], // drop
  [0x1b, 0x1c, -2], // select
  [0x20, 0x20, 1], // local.get
  [0x21, 0x21, -1], // local.set
  [0x23, 0x23, 1], // global.get
  [0x24, 0x24, -1], // global.set
  [0x26, 0x26, -2], // table.set
  [0x36, 0x3e, -2], // stores
  [0x3f, 0x3f, 1], // memory.size
  [0x41, 0x44, 1], // constants
  [0x46, 0x4f, -1], // comparisons of i32
  [0x51, 0x66, -1], // comparisons of i64, f32, f64
  [0x6a, 0x78, -1], // arithmetic of i32
  [0x7c, 0x8a, -1], // of i64
  [0x92, 0x98, -1], // of f32
  [0xa0, 0xa6, -1], // of f64
  [0xd0, 0xd0, 1], // ref.null
  [0xd2, 0xd2, 1], // ref.func
  [0xfc0008, 0xfc0008, -3], // memory.init
  [0xfc000a, 0xfc000b, -3], // memory.copy, .fill
  [0xfc0010, 0xfc0010, 1], // table.size
  [0xfd000b, 0xfd000b, -2], // v128.store
  [0xfd000c, 0xfd000c, 1], // v128.const
  [0xfd000d, 0xfd000e, -1], // shuffle, swizzle
  [0xfd0017, 0xfd0017, -1], // replace_lane, and so on below
  [0xfd001a, 0xfd001a, -1],
  [0xfd001c, 0xfd001c, -1],
  [0xfd001e, 0xfd001e, -1],
  [0xfd0020, 0xfd0020, -1],
  [0xfd0022, 0xfd0022, -1],
  [0xfd0023, 0xfd004c, -1], // comparisons
  [0xfd004e, 0xfd0051, -1], // and, andnot, or, xor
  [0xfd0052, 0xfd0052, -2], // bitselect
  [0xfd0054, 0xfd0057, -1], // loads of one lane
  [0xfd0058, 0xfd005b, -2], // stores of one lane
  [0xfd0065, 0xfd0066, -1], // from here on what takes two vectors, or a vector and a shift
  [0xfd006b, 0xfd0073, -1],
  [0xfd0076, 0xfd0079, -1],
  [0xfd007b, 0xfd007b, -1],
  [0xfd0082, 0xfd0082, -1],
  [0xfd0085, 0xfd0086, -1],
  [0xfd008b, 0xfd0093, -1],
  [0xfd0095, 0xfd009f, -1],
  [0xfd00ab, 0xfd00bf, -1],
  [0xfd00cb, 0xfd00df, -1],
  [0xfd00e4, 0xfd00eb, -1],
  [0xfd00f0, 0xfd00f7, -1],
];

const EFFECT_OF: ReadonlyMap<number, number> = new Map(
  EFFECTS.flatMap(([first, last, values]) =>
    Array.from({ length: last - first + 1 }, (_, index): [number, number] => [first + index, values]),
  ),
);

/** Values that an opcode leaves on the stack less those that it takes. */
export function effectOf(opcode: number): number {
  return EFFECT_OF.get(opcode) ?? 0;
}
