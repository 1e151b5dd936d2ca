// Reads a text file, or says in one sentence why it cannot be read.
import { readFileSync } from "node:fs";
import type { Mistake } from "./mistake.js";

const CAUSES: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  EACCES: "permission is denied",
  EPERM: "permission is denied",
  EISDIR: "it is a directory",
  ENOTDIR: "it is not in a directory",
};

/** Why a file-system call failed, to follow "cannot read it: ". */
export function causeOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return CAUSES[code ?? ""] ?? message;
}

/** The text of a UTF-8 file; a mistake at line 1, column 1 where it cannot be read, or has more than `maxBytes`. */
export function readText(
  file: string,
  maxBytes = Number.POSITIVE_INFINITY,
): { text: string } | { mistake: Mistake } {
  const mistake = (message: string) => ({ mistake: { file, line: 1, column: 1, message } });
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    return mistake(`cannot read the file: ${causeOf(error)}`);
  }
  if (bytes.length > maxBytes)
    return mistake(`cannot read the file: it has ${bytes.length} bytes, at most ${maxBytes} are allowed`);
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes) };
  } catch {
    return mistake("cannot read the file: it is not UTF-8 text");
  }
}
