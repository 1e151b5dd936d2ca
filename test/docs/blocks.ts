// The code blocks of a Markdown file.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The repository. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

export interface Block {
  readonly language: string;
  readonly text: string;
  /** The text block right behind this one, if any: what it prints. */
  readonly output: string | undefined;
}

/** Blocks of a file, in order. */
export function blocksOf(file: string): Block[] {
  const markdown = readFileSync(`${ROOT}${file}`, "utf8");
  const found = [...markdown.matchAll(/^```(\w+)\n([\s\S]*?)^```\n(\n?```text\n([\s\S]*?)^```)?/gm)];
  return found.map(([, language, text, , output]) => ({ language: language!, text: text!, output }));
}
