// What a module may declare. The bounds keep V8's compile short, which nothing else can: it runs on the calling thread.

export interface Limits {
  /** Of the whole file. */
  readonly bytes: number;
  /** Initial pages of 64 KiB; the memory cannot grow. */
  readonly pages: number;
  readonly functions: number;
  /** Of one function, its parameters included. */
  readonly locals: number;
  /** Parameters, and results, of one type. */
  readonly values: number;
  /** Blocks, loops and ifs around one instruction. */
  readonly levels: number;
  /** Of all functions together. */
  readonly loops: number;
  /** Values on the operand stack of one function at once. */
  readonly stack: number;
  /** Of all functions together. Each target of a `br_table` counts as one, as do eight values that a call or a block passes. */
  readonly instructions: number;
  /** Initial elements; the table cannot grow. */
  readonly table: number;
  /** Memories, and tables. */
  readonly memories: number;
  readonly imports: number;
}

export const LIMITS: Limits = {
  bytes: 65_536,
  pages: 16,
  functions: 1_000,
  locals: 500,
  values: 100,
  levels: 200,
  loops: 500,
  stack: 250,
  instructions: 20_000,
  table: 1_024,
  memories: 1,
  imports: 0,
};
