// Events counted by a word. Counting one allocates nothing but at the first time of its word.

interface Cell {
  count: number;
}

/** Counts by words, of which there are to be few. */
export class Tally {
  readonly #cells = new Map<string, Cell>();

  /** `words` are shown from the start, so that their first event is seen as an increase. */
  constructor(words: readonly string[] = []) {
    for (const word of words) this.#cells.set(word, { count: 0 });
  }

  /** Counts one. */
  add(word: string): void {
    const cell = this.#cells.get(word);
    if (cell) cell.count++;
    else this.#cells.set(word, { count: 1 });
  }

  /** The words and their counts. */
  *[Symbol.iterator](): Iterator<readonly [string, number]> {
    for (const [word, { count }] of this.#cells) yield [word, count];
  }
}
