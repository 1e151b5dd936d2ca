// The blocks around the instruction being read: the region that it belongs to, and the values on the operand stack.

/** Instructions that run without passing another loop's header; a loop inside is a region of its own. */
export interface Region {
  units: number;
}

/** How many values a block or a function takes and leaves. */
export interface Signature {
  readonly parameters: number;
  readonly results: number;
}

interface Block {
  readonly region: Region;
  readonly signature: Signature;
  /** Values below its own. */
  readonly base: number;
}

/** Open blocks, the function itself the first. The height of the stack is right for a module that is valid. */
export class Blocks {
  readonly #open: Block[] = [];
  #height = 0;

  constructor(region: Region) {
    this.#open.push({ region, signature: { parameters: 0, results: 0 }, base: 0 });
  }

  /** Blocks around the instruction, the function itself not counted; -1 behind its end. */
  get levels(): number {
    return this.#open.length - 1;
  }

  get height(): number {
    return this.#height;
  }

  get region(): Region {
    return this.#top.region;
  }

  get #top(): Block {
    return this.#open.at(-1)!;
  }

  /** An instruction that is no branch takes and leaves values. */
  move(values: number): void {
    this.#height = Math.max(this.#top.base, this.#height + values);
  }

  enter(region: Region, signature: Signature): void {
    const base = Math.max(this.#top.base, this.#height - signature.parameters);
    this.#open.push({ region, signature, base });
  }

  /** The other branch of an `if` begins as the first one did. */
  turn(): void {
    const { base, signature } = this.#top;
    this.#height = base + signature.parameters;
  }

  /** What follows in this block is never reached. */
  die(): void {
    this.#height = this.#top.base;
  }

  leave(): void {
    const { base, signature } = this.#open.pop()!;
    this.#height = base + signature.results;
  }
}
