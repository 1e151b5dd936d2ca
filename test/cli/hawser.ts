// Runs the built command to its end.
import { spawnSync } from "node:child_process";
import { MAIN } from "../e2e/fleet.js";

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `hawser ARGS` in a directory, with `input` on its stdin. */
export function hawser(directory: string, args: readonly string[], input = ""): Ended {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    cwd: directory,
    encoding: "utf8",
    input,
    maxBuffer: 1 << 28,
  });
  return { status, stdout, stderr };
}
