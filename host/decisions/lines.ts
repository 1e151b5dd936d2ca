// The lines of logs, one after the other, of which no more is in memory than the one.

import { createReadStream } from "node:fs";

/** Longer than any line of a log: the largest pool's, of ids as long as they may be, is about 4 MB, were all quotes 6 MB. */
const MAX_LINE = 8 * 2 ** 20;
const LINE_FEED = 0x0a;

export interface Line {
  /** From 1. */
  readonly number: number;
  /** Null for one that is longer than a line can be. */
  readonly text: string | null;
}

/** The lines of a file, without their ends. Throws what reading the file throws. */
export async function* linesOf(file: string): AsyncGenerator<Line> {
  let number = 0;
  let parts: Buffer[] = [];
  let size = 0;
  const end = (): Line => {
    const text = size > MAX_LINE ? null : Buffer.concat(parts).toString().replace(/\r$/, "");
    [parts, size] = [[], 0];
    return { number: ++number, text };
  };
  for await (const chunk of createReadStream(file, { highWaterMark: 2 ** 18 }) as AsyncIterable<Buffer>) {
    let from = 0;
    for (let at = chunk.indexOf(LINE_FEED); at >= 0; at = chunk.indexOf(LINE_FEED, from)) {
      add(chunk.subarray(from, at));
      yield end();
      from = at + 1;
    }
    add(chunk.subarray(from));
  }
  if (size > 0) yield end();

  function add(part: Buffer): void {
    size += part.length;
    if (size > MAX_LINE) parts = [];
    else if (part.length > 0) parts.push(part);
  }
}

/**
 * Logs in the order in which they were written: of `log`, `log.1`, `log.2` the highest number first. Sets of different names
 * stay in the order given.
 */
export function inOrder(files: readonly string[]): string[] {
  const sets = new Map<string, { file: string; age: number }[]>();
  for (const file of files) {
    const [, name = file, age = "0"] = /^(.*)\.(\d{1,4})$/s.exec(file) ?? [];
    sets.set(name, [...(sets.get(name) ?? []), { file, age: Number(age) }]);
  }
  return [...sets.values()].flatMap((set) => set.sort((a, b) => b.age - a.age).map(({ file }) => file));
}
