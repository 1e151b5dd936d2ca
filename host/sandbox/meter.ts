// Rewrites a module so that every call into it ends: loops and calls pay from a tank, and trap when it is empty.
import { meterBody } from "./body.js";
import { KINDS } from "./declarations.js";
import { OP, PREFIX } from "./opcodes.js";
import type { ParsedModule } from "./parse.js";
import { Reader } from "./reader.js";
import { SECTION, SECTION_ORDER } from "./sections.js";
import type { EntryPoints } from "./shape.js";
import { Writer } from "./writer.js";

/** Units that `init` and each `select` may use: a fixed part, and a part for each row of the capacity. */
export const BASE_UNITS = 30_000;
export const UNITS_PER_ROW = 1_000;
/** Units that the start function and `_initialize` may use together: at most some 10 ms, once per instance. */
export const START_UNITS = 1_000_000;

/** Exported i32 global: what is left of the last call's units; below zero where it ended for want of them. */
export const FUEL_EXPORT = "hawser:fuel";
/** Exported function `() -> ()`, only where the module has a start of its own: to be called once, before `init`. */
export const START_EXPORT = "hawser:start";
/**
 * Exported functions `() -> ()`, only where the memory and the globals are all that a call can change: the one keeps the
 * value of every global, what is left of the units included, the other puts the values kept last back.
 */
export const KEEP_EXPORT = "hawser:keep";
export const RESTORE_EXPORT = "hawser:restore";

/** Units of one `init` or `select` at a capacity. */
export function budgetOf(capacity: number): number {
  return BASE_UNITS + UNITS_PER_ROW * capacity;
}

export interface Metered {
  readonly bytes: Uint8Array;
  /** Places that charge: functions, loops and instructions that move whole stretches of memory. */
  readonly chargePoints: number;
}

/** Rewrites a module that is valid. Its functions, globals and their names keep their indices. */
export function meter(module: ParsedModule, entries: Partial<EntryPoints>): Metered {
  return new Meter(module, entries).rewrite();
}

/** A function that the meter adds, behind the module's own. */
interface Added {
  readonly type: number;
  readonly code: Writer;
}

/** A global, by index, and the one behind the module's own that keeps its value. */
interface Kept {
  readonly global: number;
  readonly copy: number;
  readonly type: number;
}

const CHARGING: ReadonlySet<string> = new Set(["loop", "length"]);
const I32 = 0x7f;
const MUTABLE = 1;
/** Flags and kind of a segment of elements that fills no table. */
const DECLARED = 3;
const FUNCTION_ELEMENTS = 0;
const FUNCTION_KIND = KINDS.indexOf("function");
const GLOBAL_KIND = KINDS.indexOf("global");
const FUNCTION_FORM = 0x60;
const V128_CONST = 12;

/** Zero of each type, as a constant. */
const ZEROS: Readonly<Record<number, readonly number[]>> = {
  [I32]: [OP.i32Const, 0],
  126: [OP.i64Const, 0],
  125: [OP.f32Const, ...new Array<number>(4).fill(0)],
  124: [OP.f64Const, ...new Array<number>(8).fill(0)],
  123: [PREFIX.simd, V128_CONST, ...new Array<number>(16).fill(0)],
  112: [OP.refNull, 112],
  111: [OP.refNull, 111],
};

class Meter {
  readonly #tank: number;
  readonly #budget: number;
  readonly #added: Added[] = [];
  /** Exported functions that another one stands for. */
  readonly #entryOf = new Map<string, number>();
  /** What the meter exports, by name. */
  readonly #functions = new Map<string, number>();
  readonly #kept: readonly Kept[];
  /** Charges its entry against a full tank, in place of a wrapper. */
  #refilled: number | undefined;

  constructor(
    private readonly module: ParsedModule,
    private readonly entries: Partial<EntryPoints>,
  ) {
    const { globals } = module.declarations;
    this.#tank = globals.length;
    this.#budget = this.#tank + 1;
    // Copies are made by instructions, not by the host: JavaScript has no place for a v128 nor for every NaN.
    const kept = module.code.irreversible ? [] : [...module.code.written, this.#tank];
    this.#kept = kept.map((global, index) => ({
      ...{ global, copy: this.#budget + 1 + index, type: globals[global] ?? I32 },
    }));
  }

  rewrite(): Metered {
    this.#addEntries();
    const out = new Writer().bytes(this.module.bytes.subarray(0, 8));
    for (const id of SECTION_ORDER) {
      const content = this.#section(id);
      if (content) out.byte(id).sized(content);
    }
    for (const { name, start, end } of this.module.sections.custom) {
      if (name !== "name") continue;
      const content = new Writer().text(name).bytes(this.module.bytes.subarray(start, end));
      out.byte(SECTION.custom).sized(content);
    }
    const { bodies } = this.module.code;
    const charging = bodies.flatMap(({ patches }) => patches).filter(({ kind }) => CHARGING.has(kind));
    return { bytes: out.view().slice(), chargePoints: bodies.length + charging.length };
  }

  #addEntries(): void {
    const { init, select, initialize } = this.entries;
    const { start } = this.module.declarations;
    if (init !== undefined) this.#entryOf.set("init", this.#addLike(init, this.#initEntry(init)));
    if (select !== undefined) this.#addSelect(select);
    const starts = [start, initialize].filter((index) => index !== undefined);
    if (starts[0] !== undefined) {
      this.#functions.set(START_EXPORT, this.#addLike(starts[0], this.#startEntry(starts)));
    }
    if (this.#kept.length > 0) this.#addKeepers();
  }

  #addKeepers(): void {
    const [keep, restore] = [new Writer().byte(0), new Writer().byte(0)];
    for (const { global, copy } of this.#kept) {
      keep.byte(OP.globalGet).u32(global).byte(OP.globalSet).u32(copy);
      restore.byte(OP.globalGet).u32(copy).byte(OP.globalSet).u32(global);
    }
    const type = this.module.declarations.types.length;
    this.#functions.set(KEEP_EXPORT, this.#add(type, keep.byte(OP.end)));
    this.#functions.set(RESTORE_EXPORT, this.#add(type, restore.byte(OP.end)));
  }

  /** Where nothing inside calls `select`, it refills the tank itself: that saves every decision a call. */
  #addSelect(select: number): void {
    const { code, declarations } = this.module;
    const { start } = declarations;
    const isCalled = code.referenced.has(select) || declarations.referenced.has(select) || start === select;
    if (isCalled) this.#entryOf.set("select", this.#addLike(select, this.#selectEntry(select)));
    else this.#refilled = select;
  }

  /** Adds a function of the same type as another. */
  #addLike(like: number, code: Writer): number {
    return this.#add(this.module.declarations.functions[like]!, code);
  }

  #add(type: number, code: Writer): number {
    this.#added.push({ type, code });
    return this.module.declarations.functions.length + this.#added.length - 1;
  }

  #initEntry(init: number): Writer {
    return new Writer()
      .byte(0, OP.localGet, 0, OP.i32Const)
      .i32(UNITS_PER_ROW)
      .byte(OP.i32Mul, OP.i32Const)
      .i32(BASE_UNITS)
      .byte(OP.i32Add, OP.globalSet)
      .u32(this.#budget)
      .bytes(this.#refill())
      .byte(OP.localGet, 0, OP.call)
      .u32(init)
      .byte(OP.end);
  }

  #selectEntry(select: number): Writer {
    return new Writer()
      .byte(0)
      .bytes(this.#refill())
      .byte(OP.localGet, 0, OP.localGet, 1, OP.call)
      .u32(select)
      .byte(OP.end);
  }

  #startEntry(starts: readonly number[]): Writer {
    const code = new Writer().byte(0, OP.i32Const).i32(START_UNITS).byte(OP.globalSet).u32(this.#tank);
    for (const start of starts) code.byte(OP.call).u32(start);
    return code.byte(OP.end);
  }

  #refill(): Uint8Array {
    return new Writer().byte(OP.globalGet).u32(this.#budget).byte(OP.globalSet).u32(this.#tank).view();
  }

  /** The new content of a section; undefined where there is to be none. */
  #section(id: number): Writer | undefined {
    switch (id) {
      case SECTION.type:
        return this.#extended(id, this.#kept.length > 0 ? [new Writer().byte(FUNCTION_FORM, 0, 0)] : []);
      case SECTION.function:
        return this.#extended(
          id,
          this.#added.map(({ type }) => new Writer().u32(type)),
        );
      case SECTION.global:
        return this.#extended(id, [
          ...[globalOf(0), globalOf(BASE_UNITS)],
          ...this.#kept.map(({ type }) => new Writer().byte(type, MUTABLE, ...ZEROS[type]!, OP.end)),
        ]);
      case SECTION.export:
        return this.#exports();
      case SECTION.element:
        return this.#extended(id, this.#declaration());
      case SECTION.start:
        return undefined;
      case SECTION.code:
        return this.#code();
      default: {
        const span = this.module.sections.byId.get(id);
        return span && new Writer().bytes(this.module.bytes.subarray(span.start, span.end));
      }
    }
  }

  /** A vector with more elements behind its own. */
  #extended(id: number, more: readonly Writer[]): Writer | undefined {
    const { bytes, sections } = this.module;
    const span = sections.byId.get(id);
    if (!span && more.length === 0) return undefined;
    const reader = new Reader(bytes, "section", span?.start ?? 0, span?.end ?? 0);
    const count = span ? reader.u32("its length") : 0;
    const out = new Writer().u32(count + more.length).bytes(bytes.subarray(reader.at, reader.end));
    for (const one of more) out.bytes(one.view());
    return out;
  }

  /** `ref.func` may name a function that is exported; one that no longer is must be declared. */
  #declaration(): Writer[] {
    const { referenced } = this.module.code;
    const unexported = Object.values(this.entries).filter(
      (index) => index !== undefined && referenced.has(index),
    );
    if (unexported.length === 0) return [];
    const segment = new Writer().byte(DECLARED, FUNCTION_ELEMENTS).u32(unexported.length);
    for (const index of unexported) segment.u32(index!);
    return [segment];
  }

  #exports(): Writer {
    const kept = this.module.declarations.exports.filter(
      ({ name }) => name !== "_initialize" || this.entries.initialize === undefined,
    );
    const out = new Writer().u32(kept.length + 1 + this.#functions.size);
    for (const { name, kind, index } of kept) {
      out
        .text(name)
        .byte(KINDS.indexOf(kind))
        .u32(this.#entryOf.get(name) ?? index);
    }
    out.text(FUEL_EXPORT).byte(GLOBAL_KIND).u32(this.#tank);
    for (const [name, index] of this.#functions) out.text(name).byte(FUNCTION_KIND).u32(index);
    return out;
  }

  #code(): Writer | undefined {
    const { bodies } = this.module.code;
    if (bodies.length + this.#added.length === 0) return undefined;
    const first = this.module.declarations.imported.function;
    const out = new Writer().u32(bodies.length + this.#added.length);
    for (const [index, body] of bodies.entries()) {
      const source = first + index === this.#refilled ? this.#budget : this.#tank;
      out.sized(meterBody(this.module.bytes, body, { tank: this.#tank, source }));
    }
    for (const { code } of this.#added) out.sized(code);
    return out;
  }
}

/** A mutable i32 global. */
function globalOf(value: number): Writer {
  return new Writer().byte(I32, MUTABLE, OP.i32Const).i32(value).byte(OP.end);
}
