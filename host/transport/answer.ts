// What is told of the answer to a request, and of one that cannot be read.

/** The head of an answer. */
export interface AnswerHead {
  readonly status: number;
  /** The reason phrase, empty where there is none. */
  readonly message: string;
  /** Names and values in turn, as they came, a character for a byte. */
  readonly fields: readonly string[];
}

/** An answer that breaks the rules of HTTP/1.1: where it ends, and the next one begins, is in doubt. */
export class MalformedAnswer extends Error {}

/** The first value of a field in a flat list, by its name in lower case. */
export function fieldOf(fields: readonly string[], name: string): string | undefined {
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const found = fields[i]!;
    if (found.length === name.length && found.toLowerCase() === name) return fields[i + 1];
  }
  return undefined;
}
