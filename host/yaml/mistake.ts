// A mistake in a file somebody wrote: one sentence at its place, and how it is printed.

export interface Position {
  /** From 1. */
  readonly line: number;
  /** From 1. */
  readonly column: number;
}

export interface Mistake extends Position {
  readonly file: string;
  /** One sentence: what was found and what is allowed. */
  readonly message: string;
}

/** `file:line:column: message`, the form that editors and terminals turn into a link. */
export function formatMistake({ file, line, column, message }: Mistake): string {
  return `${file}:${line}:${column}: ${message}`;
}

/** The mistakes of `first` in the order of its lines, then those of other files; exact repeats are left out. */
export function sortMistakes(mistakes: readonly Mistake[], first: string): Mistake[] {
  const unique = new Map(mistakes.map((mistake) => [formatMistake(mistake), mistake]));
  return [...unique.values()].sort((a, b) => {
    if (a.file !== b.file) return rank(a, first) - rank(b, first) || (a.file < b.file ? -1 : 1);
    return a.line - b.line || a.column - b.column;
  });
}

function rank(mistake: Mistake, first: string): number {
  return mistake.file === first ? 0 : 1;
}
