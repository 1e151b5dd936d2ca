// What an instruction costs in units of fuel. A unit takes 10 ns at most, by measurement on x86-64.
import { OP } from "./opcodes.js";

/** Locals, parameters and results cost time, too: a call clears or moves them, eight for a unit. */
export const VALUES_PER_UNIT = 8;
/** Bytes that an instruction of bulk memory moves for one unit, as a power of two. */
export const UNIT_BYTES_LOG2 = 6;

/** Each is a call into the engine: 160 ns for `memory.fill` of no byte. */
const ENGINE_CALL_UNITS = 20;
const ENGINE_CALLS = [OP.tableGet, OP.tableSet, OP.refFunc, OP.memoryInit, OP.memoryCopy, OP.memoryFill];

/** With denormal numbers, which a policy can choose, each takes up to 70 ns. */
const FLOAT_UNITS = 7;
const FLOATS = [
  ...[0x91, 0x94, 0x95], // f32.sqrt, .mul, .div
  ...[0x9f, 0xa2, 0xa3], // f64
  ...[0xfd00e3, 0xfd00e6, 0xfd00e7], // f32x4
  ...[0xfd00ef, 0xfd00f2, 0xfd00f3], // f64x2
];

const UNITS: ReadonlyMap<number, number> = new Map([
  ...ENGINE_CALLS.map((opcode): [number, number] => [opcode, ENGINE_CALL_UNITS]),
  ...FLOATS.map((opcode): [number, number] => [opcode, FLOAT_UNITS]),
]);

/** Units of one instruction; the targets of a `br_table` and the bytes of bulk memory come on top. */
export function unitsOf(opcode: number): number {
  return UNITS.get(opcode) ?? 1;
}
