// Random damage to real modules: refused with one sentence, or harmless. `HAWSER_FUZZ=N` tries N of each kind.
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Catalog } from "../../host/policy/catalog.js";
import { PolicyStartError } from "../../host/policy/live.js";
import { AdmissionError, admit } from "../../host/sandbox/admit.js";
import { OPCODES } from "../../host/sandbox/opcodes.js";
import { ASM, assemble, exported, PLACE, repeat, TYPE, unsigned } from "../fixtures/assembler.js";
import { Stage } from "../fixtures/stage.js";

const RUNS = Number(process.env.HAWSER_FUZZ ?? 1_500);
const LIMIT_MS = 60_000 + RUNS * 100;
const { i32, none, funcref, v128 } = TYPE;

/** Something in every section, and every instruction that the meter touches. */
const RICH = assemble({
  tables: [[funcref, 1, 2, 4]],
  globals: [[i32, 1, ...ASM.i32(3), ...ASM.end]],
  exports: [exported("_initialize", 0, 2), exported("counter", 3, 0)],
  elements: [[0, ...ASM.i32(0), ...ASM.end, 2, 1, 2]],
  data: [
    [0, ...ASM.i32(8_000), ...ASM.end, 3, 1, 2, 3],
    [1, 2, 4, 5],
  ],
  start: 2,
  functions: [{ code: [ASM.globalGet(0), ASM.i32(1), ASM.i32Add, ASM.globalSet(0)] }],
  select: {
    locals: [
      [2, i32],
      [1, v128],
    ],
    code: [
      [ASM.i32(3), [0x21, 2]].flat(),
      ASM.loop(none, ASM.call(2), ASM.get(2), ASM.i32(1), [0x6b], [0x22, 2], ASM.brIf(0)),
      [ASM.i32(9_000), ASM.i32(1), ASM.i32(100), ASM.memoryFill].flat(),
      [ASM.i32(9_000), ASM.i32(0), ASM.i32(2), [0xfc, 8, 1, 0]].flat(),
      [ASM.i32(1), ASM.memoryGrow, ASM.drop].flat(),
      ASM.block(none, ASM.get(0), ASM.brTable([0, 0], 0)),
      repeat(2, ASM.get(0), [0xfd, 0x11], [0x21, 4]),
      PLACE,
    ],
  },
  names: { 0: "init", 1: "select", 2: "count" },
});

const modules = [
  RICH,
  ...Catalog.open([])
    .list()
    .map(({ modulePath }) => new Uint8Array(readFileSync(modulePath))),
];
const anyModule = fc.constantFrom(...modules);
/** A part of a module, from 0 to 1: evenly spread, which the doubles of fast-check are not. */
const anyPlace = fc.nat(999_999).map((millionths) => millionths / 1e6);

/** Whether the module is admitted. What is admitted starts or says why not, and decides without harm. */
function survives(bytes: Uint8Array): boolean {
  try {
    admit(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(AdmissionError);
    const { message } = error as AdmissionError;
    expect(message).toMatch(/^[^\n]+$/);
    if (/^the module is not valid/.test(message))
      expect(WebAssembly.validate(bytes as never), message).toBe(false);
    return false;
  }
  let stage: Stage;
  try {
    stage = new Stage(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(PolicyStartError);
    return true;
  }
  for (const session of [0, 1, -1]) expect([0, 1, 2]).toContain(stage.decide(session, session).row);
  return true;
}

function damaged(arbitrary: fc.Arbitrary<Uint8Array>): { admitted: number; refused: number } {
  const counts = { admitted: 0, refused: 0 };
  const property = fc.property(arbitrary, (bytes) => void counts[survives(bytes) ? "admitted" : "refused"]++);
  fc.assert(property, { seed: 20_777, numRuns: RUNS });
  return counts;
}

describe("damage", () => {
  test("the modules are good before it", () => {
    for (const bytes of modules) expect(survives(bytes)).toBe(true);
    expect(new Stage(RICH).decide()).toEqual({ row: 0, reason: "place", failure: undefined });
  });

  test(
    "by bytes that are other bytes",
    () => {
      const change = fc.record({ at: anyPlace, value: fc.nat(255) });
      const bytes = fc
        .tuple(anyModule, fc.array(change, { minLength: 1, maxLength: 4 }))
        .map(([module, changes]) => {
          const copy = module.slice();
          for (const { at, value } of changes) copy[Math.floor(at * copy.length)] = value;
          return copy;
        });
      const { admitted, refused } = damaged(bytes);
      expect(admitted).toBeGreaterThan(RUNS / 10);
      expect(refused).toBeGreaterThan(RUNS / 4);
    },
    LIMIT_MS,
  );

  test(
    "by one bit, at every place of one module",
    () => {
      let admitted = 0;
      for (let index = 0; index < RICH.length; index++) {
        const bit = 1 << (index % 8);
        if (survives(RICH.with(index, RICH[index]! ^ bit))) admitted++;
      }
      expect(admitted).toBeGreaterThan(10);
      expect(admitted).toBeLessThan(RICH.length / 2);
    },
    LIMIT_MS,
  );

  test(
    "by cutting, and by bytes that are missing or too many",
    () => {
      const bytes = fc
        .tuple(anyModule, anyPlace, fc.nat(6), fc.uint8Array({ maxLength: 6 }))
        .map(([module, at, missing, more]) => {
          const cut = Math.floor(at * module.length);
          const rest = missing === 6 ? [] : module.slice(cut + missing);
          return Uint8Array.from([...module.slice(0, cut), ...more, ...rest]);
        });
      expect(damaged(bytes).refused).toBeGreaterThan(RUNS / 2);
    },
    LIMIT_MS,
  );

  test(
    "by code of random opcodes",
    () => {
      const opcode = fc.constantFrom(...OPCODES.keys()).map((opcode) => {
        const prefix = opcode >>> 16;
        return prefix === 0 ? [opcode] : [prefix, ...unsigned(opcode & 0xffff)];
      });
      const byte = fc.oneof(fc.nat(3), fc.nat(255)).map((value) => [value]);
      const shaped = fc.constantFrom<number[]>(
        ASM.loop(none, ASM.br(0)),
        ASM.loop(none, ASM.call(1), ASM.br(0)),
        [...ASM.i32(0), ...ASM.memoryGrow, ...ASM.drop],
        [...ASM.i32(0), ...ASM.i32(0), ...ASM.i32(4_000), ...ASM.memoryFill],
        [...ASM.i32(7)],
        [...ASM.get(0)],
        [...ASM.drop],
        [0x02, none],
        [0x03, none],
        [...ASM.end],
        [...ASM.unreachable],
      );
      const code = fc.array(fc.oneof({ weight: 6, arbitrary: shaped }, opcode, byte), { maxLength: 24 });
      damaged(code.map((code) => assemble({ select: { code: [...code, PLACE] } })));
    },
    LIMIT_MS,
  );

  test(
    "nothing but random bytes",
    () => {
      const bytes = fc.uint8Array({ maxLength: 400 });
      const sections = bytes.map((bytes) => Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...bytes]));
      expect(damaged(fc.oneof(bytes, sections)).admitted).toBe(0);
    },
    LIMIT_MS,
  );
});
