// The code of a module: what is in it, and where the meter has to change it.
import { unitsOf, VALUES_PER_UNIT } from "./costs.js";
import type { Declarations } from "./declarations.js";
import { quoted } from "./error.js";
import type { Limits } from "./limits.js";
import { OP, OPCODES, readImmediates, readOpcode, readValueType } from "./opcodes.js";
import type { Reader } from "./reader.js";
import { SECTION, type Sections, sectionReader } from "./sections.js";

/** A place that the meter changes: behind a loop's header, before an instruction, or in its place. */
export interface Patch {
  /** Offset in the module. */
  readonly at: number;
  readonly kind: "loop" | "length" | "grow";
  /** What is to be charged for a pass through a loop. */
  readonly region?: Region;
}

/** Instructions that run without passing another loop's header; a loop inside is a region of its own. */
export interface Region {
  units: number;
}

export interface FunctionBody {
  /** Where the groups of locals begin, behind their number; where the code does, and where it ends. */
  readonly start: number;
  readonly code: number;
  readonly end: number;
  readonly groups: number;
  /** Parameters and locals. */
  readonly locals: number;
  readonly entry: Region;
  readonly patches: readonly Patch[];
}

export interface Code {
  readonly bodies: readonly FunctionBody[];
  readonly loops: number;
  readonly instructions: number;
  /** Functions that an instruction calls or takes a reference to. */
  readonly referenced: ReadonlySet<number>;
}

const BULK_MEMORY: ReadonlySet<number> = new Set([OP.memoryInit, OP.memoryCopy, OP.memoryFill]);
const CALLS: ReadonlySet<number> = new Set([OP.call, OP.returnCall, OP.refFunc]);

/** Reads the code section. Throws an AdmissionError for what breaks the format or `limits`, and any opcode not allowed. */
export function readCode(
  bytes: Uint8Array,
  sections: Sections,
  declarations: Declarations,
  names: ReadonlyMap<number, string>,
  limits: Limits,
): Code {
  const scan = new CodeScan(declarations, limits);
  const reader = sectionReader(bytes, sections, SECTION.code);
  const first = declarations.imported.function;
  const expected = declarations.functions.length - first;
  const count = reader?.count("functions") ?? 0;
  if (count !== expected) {
    const outline = reader ?? sectionReader(bytes, sections, SECTION.function)!;
    outline.malformed(`${expected} functions are declared, ${count} have code`);
  }
  if (!reader) return scan;
  for (let index = first; index < first + count; index++) {
    const name = names.get(index);
    const place = `code section, function ${index}${name === undefined ? "" : ` ${quoted(name)}`}`;
    scan.readBody(reader.part(reader.u32("a function's size"), place), index);
  }
  reader.expectEnd();
  return scan;
}

/** The blocks around the instruction being read, and the regions they belong to. */
class CodeScan implements Code {
  readonly bodies: FunctionBody[] = [];
  loops = 0;
  instructions = 0;
  readonly referenced = new Set<number>();
  #patches: Patch[] = [];
  #regions: Region[] = [];

  constructor(
    private readonly declarations: Declarations,
    private readonly limits: Limits,
  ) {}

  readBody(reader: Reader, index: number): void {
    const { parameters, results } = this.declarations.types[this.declarations.functions[index]!]!;
    const groups = reader.count("groups of locals");
    const start = reader.at;
    const locals = this.#readLocals(reader, groups, parameters.length);
    const code = reader.at;
    const entry = { units: Math.floor((locals + results.length) / VALUES_PER_UNIT) };
    this.#patches = [];
    this.#regions = [entry];
    while (this.#regions.length > 0) this.#readInstruction(reader);
    if (!reader.isAtEnd) reader.malformed("code follows its end");
    this.bodies.push({ start, code, end: reader.end, groups, locals, entry, patches: this.#patches });
  }

  #readLocals(reader: Reader, groups: number, parameters: number): number {
    let locals = parameters;
    for (let group = 0; group < groups; group++) {
      locals += reader.u32("a number of locals");
      readValueType(reader);
      if (locals > this.limits.locals) {
        reader.refuse(`it has ${locals} locals and parameters, at most ${this.limits.locals} are allowed`);
      }
    }
    return locals;
  }

  #readInstruction(reader: Reader): void {
    const at = reader.at;
    const opcode = readOpcode(reader);
    const operand = readImmediates(reader, OPCODES.get(opcode)!);
    const region = this.#regions.at(-1)!;
    const targets = opcode === OP.brTable ? operand : 0;
    region.units += unitsOf(opcode) + targets;
    this.#count(reader, 1 + targets);
    if (CALLS.has(opcode)) this.referenced.add(operand);
    if (BULK_MEMORY.has(opcode)) this.#patches.push({ at, kind: "length" });
    else if (opcode === OP.memoryGrow) this.#patches.push({ at, kind: "grow" });
    else if (opcode === OP.loop) this.#enter(reader, this.#openLoop(reader, operand));
    else if (opcode === OP.block || opcode === OP.if) this.#enter(reader, region);
    else if (opcode === OP.end) this.#regions.pop();
  }

  #count(reader: Reader, instructions: number): void {
    this.instructions += instructions;
    if (this.instructions > this.limits.instructions) {
      reader.refuse(`with it the module has more than ${this.limits.instructions} instructions`);
    }
  }

  #openLoop(reader: Reader, type: number): Region {
    if (++this.loops > this.limits.loops)
      reader.refuse(`with it the module has more than ${this.limits.loops} loops`);
    const parameters = this.declarations.types[type]?.parameters.length ?? 0;
    const region = { units: Math.floor(parameters / VALUES_PER_UNIT) };
    this.#patches.push({ at: reader.at, kind: "loop", region });
    return region;
  }

  #enter(reader: Reader, region: Region): void {
    if (this.#regions.push(region) - 1 > this.limits.levels) {
      reader.refuse(`it nests blocks deeper than ${this.limits.levels} levels`);
    }
  }
}
