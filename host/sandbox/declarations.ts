// What a module declares: everything but the code of its functions.
import { quoted } from "./error.js";
import type { Limits } from "./limits.js";
import { OP, OPCODES, readImmediates, readOpcode, readReferenceType, readValueType } from "./opcodes.js";
import type { Reader } from "./reader.js";
import { SECTION, type Sections, sectionReader } from "./sections.js";

export interface FunctionType {
  readonly parameters: readonly number[];
  readonly results: readonly number[];
}

/** What an import or an export is. */
export const KINDS = ["function", "table", "memory", "global", "tag"] as const;
export type Kind = (typeof KINDS)[number];

export interface Export {
  readonly name: string;
  readonly kind: Kind;
  readonly index: number;
}

/** How many of each kind are imported; they come first in the index spaces. */
export type Imported = Readonly<Record<Kind, number>>;

export interface Declarations {
  readonly types: readonly FunctionType[];
  readonly imported: Imported;
  /** Indices of the types of all functions, imported ones included. */
  readonly functions: readonly number[];
  /** Initial elements of each table. */
  readonly tables: readonly number[];
  /** Initial pages of each memory. */
  readonly memories: readonly number[];
  /** Types of the globals, imported ones included. */
  readonly globals: readonly number[];
  readonly exports: readonly Export[];
  readonly start: number | undefined;
  /** Functions that tables or `ref.func` of a constant can hand out, so that code inside may call them. */
  readonly referenced: ReadonlySet<number>;
}

/** Reads all sections but the code and the custom ones. Throws an AdmissionError for what breaks the format or `limits`. */
export function readDeclarations(bytes: Uint8Array, sections: Sections, limits: Limits): Declarations {
  return new DeclarationReader(bytes, sections, limits).read();
}

class DeclarationReader {
  readonly #types: FunctionType[] = [];
  readonly #functions: number[] = [];
  readonly #tables: number[] = [];
  readonly #memories: number[] = [];
  readonly #globals: number[] = [];
  readonly #exports: Export[] = [];
  readonly #referenced = new Set<number>();
  readonly #imported: Record<Kind, number> = { function: 0, table: 0, memory: 0, global: 0, tag: 0 };
  #start: number | undefined;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly sections: Sections,
    private readonly limits: Limits,
  ) {}

  read(): Declarations {
    this.#each(SECTION.type, "types", (reader) => this.#types.push(readFunctionType(reader, this.limits)));
    this.#each(SECTION.import, "imports", (reader) => this.#readImport(reader));
    this.#each(SECTION.function, "functions", (reader) => this.#addFunction(reader));
    this.#each(SECTION.table, "tables", (reader) => this.#readTable(reader));
    this.#each(SECTION.memory, "memories", (reader) => this.#readMemory(reader));
    this.#each(SECTION.global, "globals", (reader) => this.#readGlobal(reader));
    this.#each(SECTION.export, "exports", (reader) => this.#exports.push(readExport(reader)));
    this.#within(SECTION.start, (reader) => {
      this.#start = this.#functionIndex(reader);
    });
    this.#each(SECTION.element, "segments", (reader) => this.#readElements(reader));
    this.#within(SECTION.dataCount, (reader) => reader.u32("the number of segments"));
    this.#each(SECTION.data, "segments", (reader) => this.#readData(reader));
    return {
      types: this.#types,
      imported: this.#imported,
      functions: this.#functions,
      tables: this.#tables,
      memories: this.#memories,
      globals: this.#globals,
      exports: this.#exports,
      start: this.#start,
      referenced: this.#referenced,
    };
  }

  #within(id: number, read: (reader: Reader) => void): void {
    const reader = sectionReader(this.bytes, this.sections, id);
    if (!reader) return;
    read(reader);
    reader.expectEnd();
  }

  #each(id: number, what: string, read: (reader: Reader) => void): void {
    this.#within(id, (reader) => {
      const count = reader.count(what);
      for (let index = 0; index < count; index++) read(reader);
    });
  }

  #readImport(reader: Reader): void {
    const [module, name] = [reader.text("a module's name"), reader.text("an import's name")];
    const kind = readKind(reader);
    this.#imported[kind]++;
    const count = Object.values(this.#imported).reduce((sum, one) => sum + one);
    if (count > this.limits.imports) {
      reader.refuse(
        `the module imports the ${kind} ${quoted(`${module}.${name}`)}, a policy may import nothing`,
      );
    }
    if (kind === "function") this.#addFunction(reader);
    else if (kind === "table") this.#readTable(reader);
    else if (kind === "memory") this.#readMemory(reader);
    else if (kind === "tag") reader.refuse("the module imports an exception tag");
    else this.#globals.push(readGlobalType(reader));
  }

  #addFunction(reader: Reader): void {
    const type = reader.u32("a type's index");
    if (type >= this.#types.length) reader.malformed(`there is no type ${type}`);
    this.#functions.push(type);
    if (this.#functions.length > this.limits.functions) {
      reader.refuse(`the module has more than ${this.limits.functions} functions`);
    }
  }

  #readTable(reader: Reader): void {
    readReferenceType(reader);
    const elements = readLimits(reader, "table");
    if (elements > this.limits.table) {
      reader.refuse(`the table has ${elements} elements, at most ${this.limits.table} are allowed`);
    }
    if (this.#tables.push(elements) > this.limits.memories)
      reader.refuse("the module has more than one table");
  }

  #readMemory(reader: Reader): void {
    const pages = readLimits(reader, "memory");
    if (pages > this.limits.pages) {
      reader.refuse(`the memory has ${pages} pages, at most ${this.limits.pages} are allowed`);
    }
    if (this.#memories.push(pages) > this.limits.memories)
      reader.refuse("the module has more than one memory");
  }

  #readGlobal(reader: Reader): void {
    this.#globals.push(readGlobalType(reader));
    this.#readConstant(reader);
  }

  /** A constant expression: one constant instruction and its end. */
  #readConstant(reader: Reader): void {
    const opcode = readOpcode(reader);
    if (!CONSTANTS.has(opcode)) reader.refuse("it has an initial value that is more than one constant");
    const index = readImmediates(reader, OPCODES.get(opcode)!);
    if (opcode === OP.refFunc) this.#referenced.add(index);
    if (readOpcode(reader) !== OP.end)
      reader.refuse("it has an initial value that is more than one constant");
  }

  #functionIndex(reader: Reader): number {
    const index = reader.u32("a function's index");
    if (index >= this.#functions.length) reader.malformed(`there is no function ${index}`);
    return index;
  }

  /** The flags say: 1 passive or declared, 2 with a table's index (or declared), 4 expressions in place of indices. */
  #readElements(reader: Reader): void {
    const flags = reader.u32("a segment's flags");
    if (flags > 7) reader.malformed(`there is no segment with the flags ${flags}`);
    if ((flags & 1) === 0) {
      if (flags & 2) reader.u32("a table's index");
      this.#readConstant(reader);
    }
    const hasExpressions = (flags & 4) !== 0;
    if (flags & 3) {
      if (hasExpressions) readReferenceType(reader);
      else if (reader.byte("a segment's kind") !== 0) reader.malformed("a segment holds no functions");
    }
    const count = reader.count("elements");
    for (let index = 0; index < count; index++) {
      if (hasExpressions) this.#readConstant(reader);
      else this.#referenced.add(this.#functionIndex(reader));
    }
  }

  #readData(reader: Reader): void {
    const flags = reader.u32("a segment's flags");
    if (flags > 2) reader.malformed(`there is no segment with the flags ${flags}`);
    if (flags === 2) reader.u32("a memory's index");
    if (flags !== 1) this.#readConstant(reader);
    reader.skip(reader.u32("a segment's length"), "a segment");
  }
}

const CONSTANTS: ReadonlySet<number> = new Set([
  ...[OP.i32Const, OP.i64Const, OP.f32Const, OP.f64Const, 0xfd000c], // a number of each type
  ...[OP.globalGet, OP.refNull, OP.refFunc],
]);

const FUNCTION_FORM = 0x60;

function readFunctionType(reader: Reader, limits: Limits): FunctionType {
  if (reader.byte("a type") !== FUNCTION_FORM) {
    reader.refuse("it declares a type that is no function type, which no policy may");
  }
  return {
    parameters: readTypes(reader, limits, "parameters"),
    results: readTypes(reader, limits, "results"),
  };
}

function readTypes(reader: Reader, limits: Limits, what: string): number[] {
  const count = reader.count(what);
  if (count > limits.values) {
    reader.refuse(`a type has ${count} ${what}, at most ${limits.values} are allowed`);
  }
  return Array.from({ length: count }, () => readValueType(reader));
}

function readKind(reader: Reader): Kind {
  const kind = reader.byte("a kind");
  return KINDS[kind] ?? reader.malformed(`there is no kind ${kind} of imports and exports`);
}

function readExport(reader: Reader): Export {
  const name = reader.text("an export's name");
  return { name, kind: readKind(reader), index: reader.u32("an index") };
}

function readGlobalType(reader: Reader): number {
  const type = readValueType(reader);
  const mutability = reader.byte("a global's mutability");
  if (mutability > 1) reader.malformed(`a global's mutability is ${mutability}`);
  return type;
}

const HAS_MAXIMUM = 1;
const SHARED = 2;
const OF_64_BITS = 4;

/** The least size of a table or memory. */
function readLimits(reader: Reader, what: string): number {
  const flags = reader.byte(`the flags of a ${what}`);
  if (flags > (HAS_MAXIMUM | SHARED | OF_64_BITS))
    reader.malformed(`there is no ${what} with the flags ${flags}`);
  if (flags & OF_64_BITS) reader.refuse(`the ${what} is addressed by 64 bits, which no policy's may be`);
  if (flags & SHARED) reader.refuse(`the ${what} is shared, which no policy's may be`);
  const least = reader.u32(`the size of a ${what}`);
  if (flags & HAS_MAXIMUM) reader.u32(`the maximum of a ${what}`);
  return least;
}
