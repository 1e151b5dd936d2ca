// One function with its charges.
import type { FunctionBody, Patch } from "./code.js";
import { UNIT_BYTES_LOG2 } from "./costs.js";
import { OP } from "./opcodes.js";
import { Writer } from "./writer.js";

const I32 = 0x7f;
const NO_RESULT = 0x40;

/** The globals, by index: the tank, and where a function finds what it has to use. */
export interface Globals {
  readonly tank: number;
  readonly source: number;
}

/** The rewritten function, its locals declared, without its size. */
export function meterBody(bytes: Uint8Array, body: FunctionBody, globals: Globals): Writer {
  return new BodyMeter(bytes, body, globals).write();
}

/**
 * Charges go to the global. In a function with a loop they go to a local, which makes tight loops faster: the global is
 * then written where the function ends, calls or traps for want of fuel, and read again after a call.
 */
class BodyMeter {
  readonly #out = new Writer();
  readonly #left: number;
  readonly #length: number;
  readonly #isLocal: boolean;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly body: FunctionBody,
    private readonly globals: Globals,
  ) {
    this.#left = body.locals;
    this.#length = body.locals + 1;
    // A block of several results would need a type of its own.
    this.#isLocal = body.results.length <= 1 && body.patches.some(({ kind }) => kind === "loop");
  }

  write(): Writer {
    const { bytes, body } = this;
    this.#out.u32(body.groups + 1).bytes(bytes.subarray(body.start, body.code));
    this.#out.u32(2).byte(I32);
    this.#out.byte(OP.globalGet).u32(this.globals.source).byte(OP.i32Const).i32(body.entry.units);
    this.#take();
    // The block is what branches out of the function now leave.
    if (this.#isLocal) this.#out.byte(OP.block, body.results[0] ?? NO_RESULT);
    let at = body.code;
    for (const patch of body.patches) {
      this.#out.bytes(bytes.subarray(at, patch.at));
      this.#patch(patch);
      at = patch.end;
    }
    this.#out.bytes(bytes.subarray(at, body.end));
    if (this.#isLocal) {
      this.#store();
      this.#out.byte(OP.end);
    }
    return this.#out;
  }

  /** Writes what stands in a patch's place. */
  #patch(patch: Patch): void {
    const { kind } = patch;
    if (kind === "loop") {
      this.#copy(patch);
      this.#load();
      this.#out.byte(OP.i32Const).i32(patch.region!.units);
      this.#take();
    } else if (kind === "length") {
      this.#chargeLength();
      this.#copy(patch);
    } else if (kind === "grow") this.#out.byte(OP.drop, OP.i32Const).i32(-1);
    else if (!this.#isLocal) this.#copy(patch);
    else if (kind === "call") this.#call(patch);
    else this.#out.byte(OP.br).u32(patch.levels!);
  }

  #copy({ at, end }: Patch): void {
    this.#out.bytes(this.bytes.subarray(at, end));
  }

  #call(patch: Patch): void {
    this.#store();
    this.#copy(patch);
    this.#out.byte(OP.globalGet).u32(this.globals.tank).byte(OP.localSet).u32(this.#left);
  }

  /** Takes the length that is on the stack, and leaves it there, from the tank. */
  #chargeLength(): void {
    this.#out.byte(OP.localTee).u32(this.#length);
    this.#load();
    this.#out.byte(OP.localGet).u32(this.#length).byte(OP.i32Const).i32(UNIT_BYTES_LOG2).byte(OP.i32ShrU);
    this.#take();
  }

  /** Puts what is left onto the stack. */
  #load(): void {
    if (this.#isLocal) this.#out.byte(OP.localGet).u32(this.#left);
    else this.#out.byte(OP.globalGet).u32(this.globals.tank);
  }

  #store(): void {
    this.#out.byte(OP.localGet).u32(this.#left).byte(OP.globalSet).u32(this.globals.tank);
  }

  /** What is left is the difference of the two numbers on the stack; traps where it is below zero. */
  #take(): void {
    this.#out.byte(OP.i32Sub, OP.localTee).u32(this.#left);
    if (this.#isLocal) {
      this.#out.byte(OP.i32Const, 0, OP.i32LtS, OP.if, NO_RESULT);
      this.#store();
    } else {
      this.#out.byte(OP.globalSet).u32(this.globals.tank);
      this.#out.byte(OP.localGet).u32(this.#left).byte(OP.i32Const, 0, OP.i32LtS, OP.if, NO_RESULT);
    }
    this.#out.byte(OP.unreachable, OP.end);
  }
}
