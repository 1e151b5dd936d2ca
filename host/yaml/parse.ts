// YAML text -> a plain value, and the line and column of every key and value in it.
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  type Pair,
  Parser,
  parseDocument,
  type YAMLMap,
} from "yaml";
import type { Mistake, Position } from "./mistake.js";
import { quote } from "./words.js";

export type Path = readonly (string | number)[];
/** Whether a position is wanted of the key that leads to a value, or of the value. */
export type Where = "key" | "value";

export interface SourceDocument {
  readonly file: string;
  /** Plain data, its mappings with text keys; `undefined` where the text is broken, `null` where it is empty. */
  readonly value: unknown;
  /** What is wrong with the text itself. A repeated key leaves the value readable: its first entry stands. */
  readonly mistakes: readonly Mistake[];
  /** Where `path` stands; for what is not there, the nearest mapping or list around it. */
  positionOf(path: Path, where: Where): Position;
}

/** Open tokens of the parser, about two per level. Beyond a few thousand the recursive composer would end the process. */
const MAX_OPEN_TOKENS = 200;
/** Values of one file with its aliases spelled out: a pool of 16,384 workers needs a quarter of it. */
const MAX_VALUES = 1_000_000;

/** Levels of one file with its aliases spelled out. */
const MAX_DEPTH = MAX_OPEN_TOKENS;

const START: Position = { line: 1, column: 1 };

/** Parses one YAML 1.2 document (core schema). Never throws: whatever is wrong becomes a mistake. */
export function parseYaml(text: string, file: string): SourceDocument {
  const lines = new LineCounter();
  const at = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  const broken = (position: Position, message: string): SourceDocument => {
    return { file, value: undefined, mistakes: [{ file, ...position, message }], positionOf: () => START };
  };

  const deep = offsetOfExcessiveDepth(text, lines);
  if (deep !== undefined)
    return broken(at(deep), "broken YAML: mappings and lists are nested too deeply here");
  lines.lineStarts.length = 0;
  const document = parseDocument(text, {
    ...{ version: "1.2", schema: "core", merge: false, resolveKnownTags: false },
    // Repeated keys are found below, in linear time and with a better sentence.
    ...{ uniqueKeys: false, prettyErrors: false, lineCounter: lines },
  });
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) {
    const [offset] = problem.pos;
    const sentence = variableSentence(text, offset) ?? sentenceOf(problem.code, problem.message);
    return broken(at(offset), sentence);
  }

  const reader = new Reader(document);
  const { value, fatal, repeats } = reader.read();
  if (fatal) return broken(at(fatal.offset), fatal.message);
  const mistakes = repeats.map(({ offset, key, first }) => {
    return {
      file,
      ...at(offset),
      message: `the key ${quote(key)} is repeated, first at line ${at(first).line}`,
    };
  });
  const positionOf = (path: Path, where: Where): Position => {
    const offset = reader.offsetOf(path, where);
    return offset === undefined ? START : at(offset);
  };
  return { file, value, mistakes, positionOf };
}

/** A document for a value that has no text of its own, such as the JSON inside a module: all of it is at 1:1. */
export function documentOf(value: unknown, file: string): SourceDocument {
  return { file, value, mistakes: [], positionOf: () => START };
}

/** Whether a text, YAML or JSON, nests deeper than a file may. */
export function nestsTooDeeply(text: string): boolean {
  return offsetOfExcessiveDepth(text, new LineCounter()) !== undefined;
}

function offsetOfExcessiveDepth(text: string, lines: LineCounter): number | undefined {
  const parser = new Parser(lines.addNewLine);
  lines.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    for (const _ of parser.next(lexeme));
    if (parser.stack.length > MAX_OPEN_TOKENS) return parser.offset;
  }
  return undefined;
}

const SENTENCES: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: "a second YAML document starts here, the file must hold one",
  TAB_AS_INDENT: "a tab indents this line, YAML allows spaces only",
};

const PROBLEMS: readonly (readonly [RegExp, string])[] = [
  [/^Flow sequence .*end with a \]/, 'a list opened with "[" is not closed with "]" before this place'],
  [/^Flow map .*end with a \}/, 'a mapping opened with "{" is not closed with "}" before this place'],
  [/^Missing closing/, "a quoted text is not closed"],
  [
    /^Nested mappings are not allowed/,
    'this value is followed by another "key: value"; check the indentation, or quote the value',
  ],
];

function sentenceOf(code: string, message: string): string {
  const tag = /^Unresolved tag: (.*)/.exec(message)?.[1];
  if (tag)
    return `unknown YAML tag ${quote(tag.replace("tag:yaml.org,2002:", "!!"))}, only plain data is allowed`;
  const known = SENTENCES[code] ?? PROBLEMS.find(([pattern]) => pattern.test(message))?.[1];
  return `broken YAML: ${known ?? message.charAt(0).toLowerCase() + message.slice(1)}`;
}

/** To YAML the brace of `${NAME}` begins a mapping, which cannot follow the `$` where braces or brackets are open. */
function variableSentence(text: string, offset: number): string | undefined {
  if (text.slice(offset - 1, offset + 1) !== "${") return undefined;
  const name = /^\{([A-Za-z_][A-Za-z0-9_]{0,79})\}/.exec(text.slice(offset, offset + 82))?.[1];
  const found = `\${${name ?? "..."}}`;
  return `broken YAML: ${found} is not replaced by the value of a variable; a secret is written { env: ${name ?? "NAME"} }`;
}

interface Repeat {
  readonly key: string;
  readonly offset: number;
  readonly first: number;
}

/** Stops the reading of a document at the node that makes it useless. */
class Unreadable extends Error {
  constructor(
    readonly offset: number,
    message: string,
  ) {
    super(message);
  }
}

/** Turns nodes into plain data, with aliases bounded, and finds nodes again by path. */
class Reader {
  readonly #targets = new Map<Alias, Node>();
  readonly #anchors = new Map<string, Node>();
  readonly #open = new Set<Node>();
  readonly #repeats: Repeat[] = [];
  #values = 0;

  readonly #document: Document.Parsed;

  constructor(document: Document.Parsed) {
    this.#document = document;
  }

  read(): { value: unknown; fatal?: Unreadable; repeats: readonly Repeat[] } {
    const root: Node | null = this.#document.contents;
    try {
      this.#link(root);
      return { value: this.#valueOf(root, 0), repeats: this.#repeats };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      return { value: undefined, fatal: error, repeats: [] };
    }
  }

  offsetOf(path: Path, where: Where): number | undefined {
    let node: Node | null = this.#document.contents;
    let key: Node | null = null;
    for (const part of path) {
      const resolved = this.#resolve(node);
      let next: Node | null | undefined;
      if (isSeq(resolved)) [next, key] = [resolved.items[Number(part)] as Node | undefined, null];
      const pair: Pair | undefined = isMap(resolved) ? entryOf(resolved, String(part)) : undefined;
      if (pair) [next, key] = [pair.value as Node | null, pair.key as Node];
      if (next === undefined) return startOf(node) ?? startOf(key);
      node = next;
    }
    return where === "key" || isEmpty(node) ? (startOf(key) ?? startOf(node)) : startOf(node);
  }

  #resolve(node: Node | null): Node | null {
    return (isAlias(node) ? this.#targets.get(node) : node) ?? null;
  }

  /** First walk, in the order of the text: which node an alias stands for, and which keys repeat. */
  #link(node: Node | null): void {
    if (isAlias(node)) this.#linkAlias(node);
    if (node === null || isAlias(node)) return;
    if (node.anchor) this.#anchors.set(node.anchor, node);
    this.#open.add(node);
    if (isSeq(node)) for (const item of node.items) this.#link(item as Node | null);
    if (isMap(node)) this.#linkMap(node);
    this.#open.delete(node);
  }

  #linkAlias(alias: Alias): void {
    const target = this.#anchors.get(alias.source);
    if (!target)
      throw new Unreadable(startOf(alias)!, `the alias *${alias.source} follows no anchor &${alias.source}`);
    if (this.#open.has(target))
      throw new Unreadable(startOf(alias)!, `the alias *${alias.source} contains itself`);
    this.#targets.set(alias, target);
  }

  #linkMap(map: YAMLMap): void {
    const offsets = new Map<string, number>();
    for (const { key: keyNode, value } of map.items) {
      const key = keyOf(keyNode);
      const offset = startOf(keyNode as Node | null) ?? startOf(map)!;
      if (key === undefined) throw new Unreadable(offset, "a key must be a word or a number");
      const first = offsets.get(key);
      if (first === undefined) offsets.set(key, offset);
      else this.#repeats.push({ key, offset, first });
      this.#link(keyNode as Node);
      this.#link(value as Node | null);
    }
  }

  #valueOf(node: Node | null, spelledOut: number, depth = 0): unknown {
    this.#values += 1;
    if (depth > MAX_DEPTH) {
      throw new Unreadable(spelledOut, `aliases make the file nest deeper than ${MAX_DEPTH} levels`);
    }
    if (this.#values > MAX_VALUES) {
      throw new Unreadable(spelledOut, `aliases make the file hold more than ${MAX_VALUES} values`);
    }
    if (isAlias(node)) return this.#valueOf(this.#resolve(node), startOf(node)!, depth);
    if (isSeq(node))
      return node.items.map((item) => this.#valueOf(item as Node | null, spelledOut, depth + 1));
    if (isMap(node)) return this.#mappingOf(node, spelledOut, depth + 1);
    return isScalar(node) ? node.value : null;
  }

  #mappingOf(map: YAMLMap, spelledOut: number, depth: number): Record<string, unknown> {
    const entries = new Map<string, unknown>();
    for (const { key, value } of map.items) {
      const name = keyOf(key)!;
      if (!entries.has(name)) entries.set(name, this.#valueOf(value as Node | null, spelledOut, depth));
    }
    // Unlike an assignment, this makes `__proto__` a key like any other.
    return Object.fromEntries(entries);
  }
}

function keyOf(key: unknown): string | undefined {
  if (!isScalar(key) || key.value === null || typeof key.value === "object") return undefined;
  return String(key.value);
}

function entryOf(map: YAMLMap, name: string): Pair | undefined {
  return map.items.find(({ key }) => keyOf(key) === name);
}

function startOf(node: Node | null): number | undefined {
  return node?.range?.[0];
}

/** A value that is not written at all, as in `key:`. */
function isEmpty(node: Node | null): boolean {
  return node === null || (isScalar(node) && node.value === null && node.range?.[0] === node.range?.[1]);
}
