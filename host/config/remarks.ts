// What the rules find in one document, at its place: mistakes, and warnings of what is allowed but hardly meant.
import type { Mistake } from "../yaml/mistake.js";
import type { Path, SourceDocument, Where } from "../yaml/parse.js";
import { pathText, quote } from "../yaml/words.js";

export type Raw = Readonly<Record<string, unknown>>;

/** Collects remarks in no particular order. */
export class Remarks {
  readonly mistakes: Mistake[] = [];
  readonly warnings: Mistake[] = [];

  readonly #document: SourceDocument;

  constructor(document: SourceDocument) {
    this.#document = document;
  }

  mistake(path: Path, where: Where, message: string): void {
    this.mistakes.push(this.#at(path, where, message));
  }

  warning(path: Path, where: Where, message: string): void {
    this.warnings.push(this.#at(path, where, message));
  }

  /** A text that stands there already is a mistake. `seen` holds where each text stands first. */
  unique(path: Path, text: unknown, seen: Map<string, Path>): void {
    if (typeof text !== "string") return;
    const first = seen.get(text);
    if (first === undefined) seen.set(text, path);
    else {
      const message = `${pathText(path)} repeats ${quote(text)}, first at line ${this.lineOf(first)}`;
      this.mistake(path, "value", message);
    }
  }

  lineOf(path: Path): number {
    return this.#document.positionOf(path, "value").line;
  }

  #at(path: Path, where: Where, message: string): Mistake {
    return { file: this.#document.file, ...this.#document.positionOf(path, where), message };
  }
}

export function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value where it is a mapping, else an empty one: what has the wrong type is the shape's mistake. */
export function mapping(value: unknown): Raw {
  return isMapping(value) ? value : {};
}

/** The value where it is a list, else an empty one. */
export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
