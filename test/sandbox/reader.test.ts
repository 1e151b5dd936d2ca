// The reader of the binary format: everything in bounds, every number no longer than it may be.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AdmissionError, admit } from "../../host/sandbox/admit.js";
import { Reader } from "../../host/sandbox/reader.js";
import { Writer } from "../../host/sandbox/writer.js";
import { ASM, assemble, HEADER, PLACE, section, sectionsOf, sized, vector } from "../fixtures/assembler.js";

function reader(...bytes: number[]): Reader {
  return new Reader(Uint8Array.from(bytes), "place");
}

describe("numbers", () => {
  test.each<[number[], number]>([
    [[0], 0],
    [[0x7f], 127],
    [[0x80, 1], 128],
    [[0xff, 0xff, 0xff, 0xff, 0x0f], 0xffffffff],
    [[0x80, 0x80, 0x80, 0x80, 0x08], 0x80000000],
    [[0x83, 0x80, 0x80, 0x80, 0x00], 3],
  ])("unsigned %j is %i", (bytes, value) => {
    expect(reader(...bytes).u32("it")).toBe(value);
  });

  test.each<[string, number[]]>([
    ["more than 32 bits", [0xff, 0xff, 0xff, 0xff, 0x1f]],
    ["a bit beyond 32", [0x80, 0x80, 0x80, 0x80, 0x10]],
    ["six bytes", [0x80, 0x80, 0x80, 0x80, 0x80, 0x00]],
  ])("unsigned with %s is refused", (_, bytes) => {
    expect(() => reader(...bytes).u32("it")).toThrow(/place, byte 5: it is not a LEB128 number of 32 bits$/);
  });

  test.each<[bits: number, bytes: number[], isGood: boolean]>([
    [32, [0x7f], true],
    [32, [0xff, 0xff, 0xff, 0xff, 0x07], true],
    [32, [0x80, 0x80, 0x80, 0x80, 0x78], true],
    [32, [0xff, 0xff, 0xff, 0xff, 0x7f], true],
    [32, [0xff, 0xff, 0xff, 0xff, 0x0f], false],
    [32, [0x80, 0x80, 0x80, 0x80, 0x70], false],
    [32, [0x80, 0x80, 0x80, 0x80, 0x80, 0x00], false],
    [33, [0x80, 0x80, 0x80, 0x80, 0x70], true],
    [33, [0xff, 0xff, 0xff, 0xff, 0x0f], true],
    [33, [0xff, 0xff, 0xff, 0xff, 0x1f], false],
    [64, [...new Array<number>(9).fill(0x80), 0x7f], true],
    [64, [...new Array<number>(9).fill(0xff), 0x00], true],
    [64, [...new Array<number>(9).fill(0xff), 0x01], false],
    [64, [...new Array<number>(9).fill(0x80), 0x7e], false],
    [64, [...new Array<number>(10).fill(0x80), 0x00], false],
  ])("signed of %i bits: %j", (bits, bytes, isGood) => {
    const read = () => reader(...bytes).skipSigned(bits, "it");
    if (isGood) expect(read).not.toThrow();
    else expect(read).toThrow(`it is not a LEB128 number of ${bits} bits`);
  });

  test("are read as they are written", () => {
    fc.assert(
      fc.property(fc.integer(), fc.nat(0xffffffff), (signed, unsigned) => {
        const bytes = new Writer().i32(signed).u32(unsigned).view();
        const both = new Reader(bytes, "place");
        expect([both.s33("it"), both.u32("it"), both.isAtEnd]).toEqual([signed, unsigned, true]);
      }),
      { seed: 4 },
    );
    expect(new Writer().u32(0xffffffff).view()).toEqual(Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0x0f));
  });
});

function refusalOf(bytes: readonly number[] | Uint8Array): string {
  try {
    admit(Uint8Array.from(bytes));
  } catch (error) {
    expect(error).toBeInstanceOf(AdmissionError);
    return (error as AdmissionError).message;
  }
  throw new Error("the module is admitted");
}

/** The module without a policy's parts, its sections one by one. */
const SECTIONS = sectionsOf({});
const withSections = (sections: readonly (readonly number[])[]) => [...HEADER, ...sections.flat()];

describe("a module that is broken is refused by", () => {
  const INVALID = "the module is not valid WebAssembly:";

  test.each<[string, readonly number[], string]>([
    ["nothing", [], "header, byte 0: it ends inside the header"],
    ["text", [...Buffer.from("(module)")], "header, byte 0: it does not begin as WebAssembly of version 1"],
    [
      "a wrong magic number",
      [0, 0x61, 0x73, 0x6e, 1, 0, 0, 0],
      "header, byte 3: it does not begin as WebAssembly of version 1",
    ],
    [
      "another version",
      [...HEADER.slice(0, 4), 2, 0, 0, 0],
      "header, byte 4: it does not begin as WebAssembly of version 1",
    ],
    [
      "a component",
      [...HEADER.slice(0, 4), 0x0d, 0, 1, 0],
      "header, byte 4: it does not begin as WebAssembly of version 1",
    ],
    [
      "a section that is too long",
      [...HEADER, 1, 5, 0],
      "sections, byte 10: type section of 5 bytes goes beyond the end, 1 are left",
    ],
    [
      "a section of a size beyond 32 bits",
      [...HEADER, 1, 0xff, 0xff, 0xff, 0xff, 0x7f],
      "sections, byte 14: a section's size is not a LEB128 number of 32 bits",
    ],
    ["an unknown section", [...HEADER, 14, 0], "section 14, byte 10: there is no section of the number 14"],
    [
      "two of a section",
      withSections([SECTIONS[0]!, ...SECTIONS]),
      "type section, byte 24: there are two of it",
    ],
    ["a name that is not UTF-8", withSections([...SECTIONS, [0, 3, 2, 0xc3, 0x28]]), "custom section, byte"],
    [
      "a section with more in it",
      withSections([[1, 2, 0, 0]]),
      "type section, byte 11: 1 bytes follow its end",
    ],
    [
      "more types than bytes",
      withSections([[1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f]]),
      "type section, byte 15: 4294967295 types are announced, 0 bytes are left",
    ],
    ["a type that is not there", withSections([SECTIONS[0]!, [3, 3, 2, 0, 9]]), "function section, byte"],
    ["functions without code", withSections(SECTIONS.slice(0, -1)), "function section, byte"],
  ])("%s", (_, bytes, message) => {
    expect(refusalOf(bytes)).toContain(`${INVALID} ${message}`);
  });

  test("sections in any other order", () => {
    for (let index = 1; index < SECTIONS.length; index++) {
      const swapped = SECTIONS.with(index - 1, SECTIONS[index]!).with(index, SECTIONS[index - 1]!);
      expect(refusalOf(withSections(swapped))).toMatch(
        /^the module is not valid.* section, byte \d+: it stands behind the \w+ section$/,
      );
    }
  });

  /** The code of `select`, its last `end` included. */
  const code = (...bytes: number[]) => {
    const bodies = [
      [0, ...ASM.i32(64), ...ASM.end],
      [0, ...bytes],
    ].map(sized);
    return withSections([...SECTIONS.slice(0, -1), section(10, vector(bodies))]);
  };

  test.each<[string, readonly number[], string]>([
    ["code behind its end", code(...PLACE, 0x0b, 0x01), "function 1, byte 76: code follows its end"],
    ["code without an end", code(...PLACE), "it ends inside an opcode"],
    ["a block without an end", code(0x02, 0x40, 0x0b), "it ends inside an opcode"],
    ["a number cut short", code(0x41, 0x80), "it ends inside a constant"],
    [
      "more targets than bytes",
      code(0x0e, 0xff, 0xff, 0x03, 0),
      "65535 targets are announced, 1 bytes are left",
    ],
    [
      "a block type that is too long",
      code(0x02, 0xc0, 0x7f, 0x0b, 0x0b),
      "a block type is longer than it may be",
    ],
  ])("%s", (_, bytes, message) => {
    expect(refusalOf(bytes)).toMatch(/^the module is not valid WebAssembly: code section/);
    expect(refusalOf(bytes)).toContain(message);
  });

  test("being cut anywhere but before a last custom section", () => {
    const parts = { names: { 1: "select" }, data: [[0, ...ASM.i32(8), ...ASM.end, 2, 1, 2]] };
    const whole = assemble(parts);
    const names = whole.length - sectionsOf(parts).at(-1)!.length;
    for (let length = 0; length < whole.length; length++) {
      if (length === names) expect(() => admit(whole.slice(0, length)), "without names").not.toThrow();
      else expect(() => admit(whole.slice(0, length)), `${length} bytes`).toThrow(AdmissionError);
    }
  });
});

describe("a name section that is broken", () => {
  test.each([[[1, 200, 1]], [[1, 3, 1, 1, 9]], [[1, 2, 0xff, 0xff]], [[7]]])(
    "names nothing: %j",
    (content) => {
      const trailer = [0, content.length + 5, 4, ...Buffer.from("name"), ...content];
      const bytes = assemble({ select: { code: [[0x27]] }, trailer });
      expect(refusalOf(bytes)).toBe("code section, function 1: it uses the opcode 0x27, which no policy may");
      expect(admit(assemble({ trailer })).module).toBeInstanceOf(WebAssembly.Module);
    },
  );
});
