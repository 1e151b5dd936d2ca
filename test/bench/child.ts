// Runs one measurement in a fresh Node process.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);

/** What a script of this folder prints, as JSON. Rejects where it fails. */
export async function measureIn<Figures>(script: string, ...args: (string | number)[]): Promise<Figures> {
  const file = fileURLToPath(new URL(script, import.meta.url));
  const options = ["--import", "tsx", "--expose-gc", file, ...args.map(String)];
  const { stdout } = await run(process.execPath, options, { maxBuffer: 2 ** 24 });
  return JSON.parse(stdout) as Figures;
}
