// The code of a module: what is in it, and where the meter has to change it.
import { Blocks, type Region, type Signature } from "./blocks.js";
import { unitsOf, VALUES_PER_UNIT } from "./costs.js";
import type { Declarations, FunctionType } from "./declarations.js";
import { quoted } from "./error.js";
import type { Limits } from "./limits.js";
import { OP, OPCODES, readImmediates, readOpcode, readValueType, SINGLE_RESULT } from "./opcodes.js";
import type { Reader } from "./reader.js";
import { SECTION, type Sections, sectionReader } from "./sections.js";
import { effectOf } from "./stack.js";

/** An instruction that the meter changes, or adds something to. */
export interface Patch {
  /** Offsets in the module. */
  readonly at: number;
  readonly end: number;
  readonly kind: "loop" | "length" | "grow" | "call" | "return";
  /** What is to be charged for a pass through a loop. */
  readonly region?: Region;
  /** Blocks around a return. */
  readonly levels?: number;
}

export interface FunctionBody {
  /** Where the groups of locals begin, behind their number; where the code does, and where it ends. */
  readonly start: number;
  readonly code: number;
  readonly end: number;
  readonly groups: number;
  /** Parameters and locals. */
  readonly locals: number;
  /** Types of the results. */
  readonly results: readonly number[];
  readonly entry: Region;
  readonly patches: readonly Patch[];
}

export interface Code {
  readonly bodies: readonly FunctionBody[];
  readonly loops: number;
  readonly instructions: number;
  /** Functions that an instruction calls or takes a reference to. */
  readonly referenced: ReadonlySet<number>;
  /** Globals that an instruction sets. */
  readonly written: ReadonlySet<number>;
  /** Whether an instruction changes what no other one can put back. */
  readonly irreversible: boolean;
}

/** What the meter changes beside loops. */
const PATCH_KINDS: ReadonlyMap<number, Patch["kind"]> = new Map([
  [OP.memoryInit, "length"],
  [OP.memoryCopy, "length"],
  [OP.memoryFill, "length"],
  [OP.memoryGrow, "grow"],
  [OP.return, "return"],
  ...[OP.call, OP.callIndirect, OP.returnCall, OP.returnCallIndirect].map(
    (opcode): [number, Patch["kind"]] => [opcode, "call"],
  ),
]);

/** What they change lies outside the memory and the globals; a memory that grows would be another, but none does. */
const IRREVERSIBLE: ReadonlySet<number> = new Set([OP.tableSet, OP.dataDrop]);

/** A block that begins. */
interface Opening {
  readonly at: number;
  readonly opcode: number;
  readonly signature: Signature;
}

const DIRECT_CALLS: ReadonlySet<number> = new Set([OP.call, OP.returnCall]);
const INDIRECT_CALLS: ReadonlySet<number> = new Set([OP.callIndirect, OP.returnCallIndirect]);
const BLOCKS: ReadonlySet<number> = new Set([OP.block, OP.loop, OP.if]);
/** Nothing behind them in their block is reached. */
const LAST_WORDS: ReadonlySet<number> = new Set([
  ...[OP.unreachable, OP.br, OP.brTable, OP.return],
  ...[OP.returnCall, OP.returnCallIndirect],
]);
const NO_VALUES: Signature = { parameters: 0, results: 0 };
const ONE_RESULT: Signature = { parameters: 0, results: 1 };

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

/** Reads one body after the other, and counts. */
class CodeScan implements Code {
  readonly bodies: FunctionBody[] = [];
  loops = 0;
  instructions = 0;
  readonly referenced = new Set<number>();
  readonly written = new Set<number>();
  irreversible = false;
  #patches: Patch[] = [];

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
    const entry = { units: unitsOfValues(locals + results.length) };
    this.#patches = [];
    const blocks = new Blocks(entry);
    while (blocks.levels >= 0) this.#readInstruction(reader, blocks);
    if (!reader.isAtEnd) reader.malformed("code follows its end");
    this.bodies.push({
      start,
      code,
      end: reader.end,
      groups,
      locals,
      results,
      entry,
      patches: this.#patches,
    });
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

  #readInstruction(reader: Reader, blocks: Blocks): void {
    const at = reader.at;
    const opcode = readOpcode(reader);
    const operand = readImmediates(reader, OPCODES.get(opcode)!);
    const signature = this.#signatureOf(opcode, operand);
    const targets = opcode === OP.brTable ? operand : 0;
    blocks.region.units += unitsOf(opcode) + targets;
    this.#count(reader, 1 + targets + unitsOfValues(signature.parameters + signature.results));
    if (DIRECT_CALLS.has(opcode) || opcode === OP.refFunc) this.referenced.add(operand);
    if (opcode === OP.globalSet) this.written.add(operand);
    if (IRREVERSIBLE.has(opcode)) this.irreversible = true;
    const kind = PATCH_KINDS.get(opcode);
    if (kind) this.#patches.push({ at, end: reader.at, kind, levels: blocks.levels });
    blocks.move(effectOf(opcode));
    if (BLOCKS.has(opcode)) this.#enter(reader, blocks, { at, opcode, signature });
    else follow(blocks, opcode, signature);
    if (blocks.height > this.limits.stack) {
      reader.refuse(`it has more than ${this.limits.stack} values on the stack`);
    }
  }

  #count(reader: Reader, instructions: number): void {
    this.instructions += instructions;
    if (this.instructions > this.limits.instructions) {
      reader.refuse(`with it the module has more than ${this.limits.instructions} instructions`);
    }
  }

  #enter(reader: Reader, blocks: Blocks, { at, opcode, signature }: Opening): void {
    const region = opcode === OP.loop ? this.#openLoop(reader, at, signature) : blocks.region;
    blocks.enter(region, signature);
    if (blocks.levels > this.limits.levels) {
      reader.refuse(`it nests blocks deeper than ${this.limits.levels} levels`);
    }
  }

  #openLoop(reader: Reader, at: number, { parameters }: Signature): Region {
    if (++this.loops > this.limits.loops) {
      reader.refuse(`with it the module has more than ${this.limits.loops} loops`);
    }
    const region = { units: unitsOfValues(parameters) };
    this.#patches.push({ at, end: reader.at, kind: "loop", region });
    return region;
  }

  /** What a call or a block takes and leaves. An index of nothing is left to V8 to refuse. */
  #signatureOf(opcode: number, operand: number): Signature {
    if (DIRECT_CALLS.has(opcode)) return this.#functionSignature(operand);
    if (INDIRECT_CALLS.has(opcode)) return signatureOf(this.declarations.types[operand]);
    if (!BLOCKS.has(opcode)) return NO_VALUES;
    if (operand === SINGLE_RESULT) return ONE_RESULT;
    return operand < 0 ? NO_VALUES : signatureOf(this.declarations.types[operand]);
  }

  #functionSignature(index: number): Signature {
    const { types, functions } = this.declarations;
    return signatureOf(types[functions[index] ?? -1]);
  }
}

function signatureOf(type: FunctionType | undefined): Signature {
  return type ? { parameters: type.parameters.length, results: type.results.length } : NO_VALUES;
}

function unitsOfValues(values: number): number {
  return Math.floor(values / VALUES_PER_UNIT);
}

/** What an instruction that opens no block does to those that are open. */
function follow(blocks: Blocks, opcode: number, { parameters, results }: Signature): void {
  if (opcode === OP.end) blocks.leave();
  else if (opcode === OP.else) blocks.turn();
  else if (LAST_WORDS.has(opcode)) blocks.die();
  else blocks.move(results - parameters);
}
