// What of the tools that the gateway's bench can do without is installed, and how its native programs are compiled.

import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The file of a command on the PATH, undefined where there is none. */
export function commandOf(name: string): string | undefined {
  const files = (process.env.PATH ?? "").split(delimiter).map((directory) => join(directory, name));
  return files.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Compiles a C file that stands beside this one into `directory`; undefined where that does not work. */
export function compile(name: string, directory: string): string | undefined {
  const compiler = commandOf("cc") ?? commandOf("clang");
  if (!compiler) return undefined;
  const program = join(directory, name);
  try {
    execFileSync(compiler, ["-O2", "-o", program, fileBeside(`${name}.c`)], { stdio: "ignore" });
    return program;
  } catch {
    return undefined;
  }
}

/** The path of a file that stands beside this one. */
export function fileBeside(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

/** The arguments that let Node run a TypeScript file that stands beside this one. */
export function nodeArguments(name: string): string[] {
  return ["--import", "tsx", fileBeside(name)];
}
