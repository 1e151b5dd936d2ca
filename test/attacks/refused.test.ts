// Modules that are refused with one sentence, and before anything of them is compiled.
import { afterEach, describe, expect, test, vi } from "vitest";
import { AdmissionError, admit } from "../../host/sandbox/admit.js";
import {
  ASM,
  assemble,
  type Code,
  exported,
  functionType,
  PLACE,
  type PolicyParts,
  repeat,
  sectionsOf,
  sized,
  TYPE,
  text,
  unsigned,
} from "../fixtures/assembler.js";

const { i32, none } = TYPE;

const compilers = [vi.spyOn(WebAssembly, "validate"), vi.spyOn(WebAssembly, "Module")];
afterEach(() => {
  for (const compiler of compilers) compiler.mockClear();
});

function refusalOf(bytes: Uint8Array): string {
  try {
    admit(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(AdmissionError);
    return (error as AdmissionError).message;
  }
  throw new Error("the module is admitted");
}

function expectRefused(parts: PolicyParts | Uint8Array, message: string): void {
  const bytes = parts instanceof Uint8Array ? parts : assemble(parts);
  expect(refusalOf(bytes)).toBe(message);
  for (const compiler of compilers) expect(compiler).not.toHaveBeenCalled();
}

const selecting = (...code: Code): PolicyParts => ({ select: { code } });
const SELECT = "code section, function 1";
const EXPORT = "export section: the module must export a";

describe("what is too large", () => {
  const functions = (count: number) => ({ functions: new Array(count).fill({ code: [] }) });

  test("65 KiB", () => {
    const padding = new Uint8Array(65_536);
    const bytes = Uint8Array.from([...assemble({}), 0, ...sized([...text("padding"), ...padding])]);
    expectRefused(bytes, `the module has ${bytes.length} bytes, at most 65536 are allowed`);
  });

  test.each<[string, PolicyParts, string]>([
    [
      "21,000 sibling loops",
      selecting(repeat(21_000, ASM.loop(none)), PLACE),
      `${SELECT}: with it the module has more than 500 loops`,
    ],
    [
      "501 loops",
      selecting(repeat(501, ASM.loop(none)), PLACE),
      `${SELECT}: with it the module has more than 500 loops`,
    ],
    [
      "80,000 nested blocks",
      selecting(repeat(20_000, [2, none]), repeat(20_000, ASM.end), PLACE),
      `${SELECT}: it nests blocks deeper than 200 levels`,
    ],
    [
      "201 nested blocks",
      selecting(repeat(201, [2, none]), repeat(201, ASM.end), PLACE),
      `${SELECT}: it nests blocks deeper than 200 levels`,
    ],
    [
      "50,000 locals",
      { select: { locals: [[50_000, i32]] } },
      `${SELECT}: it has 50002 locals and parameters, at most 500 are allowed`,
    ],
    [
      "501 locals in groups",
      {
        select: {
          locals: [
            [400, i32],
            [99, TYPE.v128],
          ],
        },
      },
      `${SELECT}: it has 501 locals and parameters, at most 500 are allowed`,
    ],
    [
      "4,294,967,295 locals",
      { select: { locals: [[0xffffffff, i32]] } },
      `${SELECT}: it has 4294967297 locals and parameters, at most 500 are allowed`,
    ],
    [
      "a giant br_table",
      selecting(ASM.i32(0), ASM.brTable(new Array(30_000).fill(0), 0)),
      `${SELECT}: with it the module has more than 20000 instructions`,
    ],
    [
      "20,001 instructions",
      selecting(repeat(20_000, ASM.nop), PLACE),
      `${SELECT}: with it the module has more than 20000 instructions`,
    ],
    ["1,001 functions", functions(999), "function section: the module has more than 1000 functions"],
    [
      "65,536 pages",
      { memories: [[0, ...unsigned(65_536)]] },
      "memory section: the memory has 65536 pages, at most 16 are allowed",
    ],
    [
      "17 pages",
      { memories: [[1, 17, 17]] },
      "memory section: the memory has 17 pages, at most 16 are allowed",
    ],
    [
      "a table of ten million",
      { tables: [[TYPE.funcref, 0, ...unsigned(10_000_000)]] },
      "table section: the table has 10000000 elements, at most 1024 are allowed",
    ],
    [
      "a table of 1,025",
      { tables: [[TYPE.funcref, 1, ...unsigned(1_025), ...unsigned(1_025)]] },
      "table section: the table has 1025 elements, at most 1024 are allowed",
    ],
    [
      "101 results",
      { types: [functionType({ results: new Array(101).fill(i32) })] },
      "type section: a type has 101 results, at most 100 are allowed",
    ],
    [
      "101 parameters",
      { types: [functionType({ parameters: new Array(101).fill(i32) })] },
      "type section: a type has 101 parameters, at most 100 are allowed",
    ],
  ])("%s", (_, parts, message) => {
    expectRefused(parts, message);
  });

  test("what is exactly as large as allowed is admitted", () => {
    const parts: PolicyParts = {
      select: {
        locals: [[498, TYPE.v128]],
        code: [
          repeat(500, ASM.loop(none)),
          repeat(200, [2, none]),
          repeat(200, ASM.end),
          repeat(250, ASM.get(0)),
          repeat(250, ASM.drop),
          // What there is beside these: two ends, a constant in each of init and select, and the ends of 998 functions.
          repeat(20_000 - 1_000 - 400 - 500 - 4 - 998, ASM.nop),
          PLACE,
        ],
      },
      ...functions(998),
      tables: [[TYPE.funcref, 1, ...unsigned(1_024), ...unsigned(1_024)]],
      types: [functionType({ parameters: new Array(100).fill(i32), results: new Array(100).fill(i32) })],
    };
    const bytes = assemble(parts);
    const { module, report } = admit(bytes);
    expect(module).toBeInstanceOf(WebAssembly.Module);
    expect(report).toEqual({
      ...{ bytes: bytes.length, meteredBytes: expect.any(Number), exports: ["memory", "init", "select"] },
      ...{ memoryPages: 16, tableSize: 1_024, functions: 1_000, loops: 500, instructions: 20_000 },
      chargePoints: 1_500,
    });
    expect(report.meteredBytes).toBeGreaterThan(report.bytes);
  });

  test("a module of exactly 64 KiB is admitted", () => {
    const rest = 65_536 - assemble({}).length;
    const trailer = [0, ...sized([...text("x"), ...new Array(rest - 6).fill(0)])];
    const bytes = assemble({ trailer });
    expect(bytes).toHaveLength(65_536);
    expect(admit(bytes).report.bytes).toBe(65_536);
  });
});

describe("what is imported", () => {
  const refusal = (what: string) =>
    `import section: the module imports the ${what}, a policy may import nothing`;
  const from = (name: string, ...entry: number[]) => ({
    imports: [[...text("env"), ...text(name), ...entry]],
  });

  test.each<[string, PolicyParts]>([
    ['function "env.abort"', from("abort", 0, 0)],
    ['table "env.t"', from("t", 1, TYPE.funcref, 0, 1)],
    ['memory "env.memory"', from("memory", 2, 0, 1)],
    ['global "env.g"', from("g", 3, i32, 0)],
    ['tag "env.e"', from("e", 4, 0, 0)],
    ['function "env.a\\"\\u0000b"', from('a"\0b', 0, 0)],
  ])("the %s", (what, parts) => {
    expectRefused(parts, refusal(what));
  });

  test("an empty list of imports is none", () => {
    const [types, ...rest] = sectionsOf({});
    const bytes = Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...types!, 2, 1, 0, ...rest.flat()]);
    expect(admit(bytes).module).toBeInstanceOf(WebAssembly.Module);
  });
});

describe("what no policy may be made of", () => {
  test.each<[string, PolicyParts, string]>([
    [
      "two memories",
      {
        memories: [
          [0, 1],
          [0, 1],
        ],
      },
      "memory section: the module has more than one memory",
    ],
    [
      "two tables",
      {
        tables: [
          [TYPE.funcref, 0, 1],
          [TYPE.funcref, 0, 1],
        ],
      },
      "table section: the module has more than one table",
    ],
    [
      "a shared memory",
      { memories: [[3, 1, 1]] },
      "memory section: the memory is shared, which no policy's may be",
    ],
    [
      "a memory of 64 bits",
      { memories: [[4, 1]] },
      "memory section: the memory is addressed by 64 bits, which no policy's may be",
    ],
    [
      "a table of 64 bits",
      { tables: [[TYPE.funcref, 4, 1]] },
      "table section: the table is addressed by 64 bits, which no policy's may be",
    ],
    [
      "a struct",
      { types: [[0x5f, 0]] },
      "type section: it declares a type that is no function type, which no policy may",
    ],
    [
      "a recursive group",
      { types: [[0x4e, 0]] },
      "type section: it declares a type that is no function type, which no policy may",
    ],
    [
      "a reference to any",
      { types: [[0x60, 1, 0x6e, 0]] },
      "type section: it uses the type 0x6e, which no policy may",
    ],
    [
      "a computed constant",
      { globals: [[i32, 0, ...ASM.i32(1), ...ASM.i32(2), 0x6a, 0x0b]] },
      "global section: it has an initial value that is more than one constant",
    ],
    [
      "an export of the host's name",
      { exports: [exported("hawser:fuel", 0, 1)] },
      'export section: the name "hawser:fuel" begins with "hawser:", which is the host\'s',
    ],
  ])("%s", (_, parts, message) => {
    expectRefused(parts, message);
  });

  test("exception tags", () => {
    const sections = sectionsOf({});
    const bytes = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...sections.slice(0, 3).flat(), 13, 3, 1, 0, 0];
    expectRefused(Uint8Array.from(bytes), "section 13: it declares exception tags, which no policy may");
  });

  test.each<[string, number[]]>([
    ["try (0x06)", [0x06, none]],
    ["throw (0x08)", [0x08, 0]],
    ["throw_ref (0x0a)", [0x0a]],
    ["call_ref (0x14)", [0x14, 0]],
    ["return_call_ref (0x15)", [0x15, 0]],
    ["catch_all (0x19)", [0x19]],
    ["try_table (0x1f)", [0x1f]],
    ["br_on_null (0xd5)", [0xd5, 0]],
    ["table.init (0xfc 0x0c)", [0xfc, 12, 0, 0]],
    ["elem.drop (0xfc 0x0d)", [0xfc, 13, 0]],
    ["table.copy (0xfc 0x0e)", [0xfc, 14, 0, 0]],
    ["table.grow (0xfc 0x0f)", [0xfc, 15, 0]],
    ["table.fill (0xfc 0x11)", [0xfc, 17, 0]],
    ["table.grow (0xfc 0x0f)", [0xfc, 0x8f, 0x00, 0]],
    ["0xfc 0x12", [0xfc, 18]],
    ["of garbage collection (0xfb 0x00)", [0xfb, 0, 0]],
    ["of relaxed SIMD (0xfd 0x100)", [0xfd, 0x80, 2]],
    ["of relaxed SIMD (0xfd 0x113)", [0xfd, 0x93, 2]],
    ["of atomics (0xfe 0x03)", [0xfe, 3, 0]],
    ["0xfd 0x9a", [0xfd, 0x9a, 1]],
    ["0x27", [0x27]],
    ["0xff", [0xff]],
  ])("the opcode %s", (name, code) => {
    const parts = { ...selecting(code), names: { 0: "init", 1: 'choose "one"' } };
    expectRefused(parts, `${SELECT} "choose \\"one\\"": it uses the opcode ${name}, which no policy may`);
  });
});

describe("what is not exported as ABI 1 asks", () => {
  const missing = (name: string) => assembleWithout(name);
  /** The bytes of a name, changed. */
  function assembleWithout(name: string): Uint8Array {
    const bytes = Buffer.from(assemble({}));
    bytes[bytes.indexOf(name)] = 0x78;
    return Uint8Array.from(bytes);
  }

  test("a name that is missing", () => {
    expectRefused(missing("memory"), `${EXPORT} memory "memory", there is none`);
    expectRefused(missing("init"), `${EXPORT} function "init" of the type (i32) -> (i32), there is none`);
    expectRefused(
      missing("select"),
      `${EXPORT} function "select" of the type (i32, i32) -> (i32), there is none`,
    );
  });

  test.each<[string, PolicyParts]>([
    ["(i32, i32) -> (i64)", { select: { results: [TYPE.i64], code: [ASM.i64(1)] } }],
    ["(i32) -> (i32)", { select: { parameters: [i32] } }],
    ["(i32, f64) -> (i32)", { select: { parameters: [i32, TYPE.f64] } }],
    ["(i32, i32) -> (i32, i32)", { select: { results: [i32, i32], code: [PLACE, PLACE] } }],
    ["(i32, i32) -> ()", { select: { results: [], code: [] } }],
  ])("select of the type %s", (type, parts) => {
    expectRefused(parts, `${EXPORT} function "select" of the type (i32, i32) -> (i32), its type is ${type}`);
  });

  test("init and _initialize of another type", () => {
    const { init, initialize } = {
      init: { init: { parameters: [], code: [PLACE] } },
      initialize: { exports: [exported("_initialize", 0, 0)] },
    };
    expectRefused(init, `${EXPORT} function "init" of the type (i32) -> (i32), its type is () -> (i32)`);
    expectRefused(
      initialize,
      `${EXPORT} function "_initialize" of the type () -> (), its type is (i32) -> (i32)`,
    );
  });

  test("a memory that is a function, a function that is a memory, one that is not there", () => {
    const bytes = assemble({});
    const at = (name: string) => Buffer.from(bytes).indexOf(name) + name.length;
    const changed = (index: number, value: number) => bytes.with(index, value);
    expectRefused(changed(at("memory"), 0), `${EXPORT} memory "memory", it is a function`);
    expectRefused(
      changed(at("select"), 2),
      `${EXPORT} function "select" of the type (i32, i32) -> (i32), it is a memory`,
    );
    expectRefused(
      changed(at("select") + 1, 9),
      `${EXPORT} function "select" of the type (i32, i32) -> (i32), it is the function 9, which is not there`,
    );
  });
});

describe("what V8 says is not valid", () => {
  test.each<[string, PolicyParts, RegExp]>([
    ["a stack that does not fit", selecting(ASM.i32Add), /not enough arguments/],
    ["the local that the meter adds", selecting(ASM.get(2)), /invalid local index/],
    ["an else without if", selecting(ASM.block(none, ASM.else), PLACE), /else/],
    ["a global that the meter adds", selecting(ASM.globalGet(0)), /Invalid global index/],
    ["a function that the meter adds", selecting(ASM.i32(64), ASM.call(2)), /function index/],
    ["memory.grow of nothing", selecting(ASM.memoryGrow), /not enough arguments/],
    ["an alignment that is too large", selecting(ASM.i32(0), [0x28, 3, 0]), /alignment/],
    ["two exports of one name", { exports: [exported("init", 0, 0)] }, /Duplicate export name/],
  ])("%s", (_, parts, detail) => {
    const message = refusalOf(assemble(parts));
    expect(message).toMatch(/^the module is not valid WebAssembly: /);
    expect(message).toMatch(detail);
  });

  test("in one line, whatever its names are", () => {
    const parts = { ...selecting(ASM.i32Add), names: { 1: "one\ntwo\u2028\u001b[31m" } };
    expect(refusalOf(assemble(parts))).toMatch(
      /"one\\u\{a\}two\\u\{2028\}\\u\{1b\}\[31m" failed: not enough/,
    );
    const opcode = { ...parts, ...selecting([0x27]) };
    expect(refusalOf(assemble(opcode))).toContain('function 1 "one\\ntwo\\u{2028}\\u001b[31m": it uses');
  });
});
