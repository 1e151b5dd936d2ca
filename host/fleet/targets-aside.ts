// Reading a file of targets beside the thread that carries requests: the YAML parser takes seconds for a large one.
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { readTargets, type Targets } from "./targets.js";

/** What the thread is told. */
export interface TargetsOrder {
  readonly text: string;
  readonly file: string;
}

/** Characters up to which a text is read at once: for so many the parser takes about as long as a thread to start. */
const SMALL = 16_384;

/** What reading a large text may take. */
export interface ReadingBounds {
  readonly timeoutMs: number;
  readonly memoryMib: number;
}

/** Several times what 4 MiB of ordinary YAML take. */
const BOUNDS: ReadingBounds = { timeoutMs: 120_000, memoryMib: 512 };

/**
 * Does what `readTargets` does, for a large text in a thread of its own. One that takes more than `bounds` to read is a
 * mistake.
 */
export async function readTargetsAside(text: string, file: string, bounds = BOUNDS): Promise<Targets> {
  if (text.length <= SMALL) return readTargets(text, file);
  const workerData: TargetsOrder = { text, file };
  const resourceLimits = { maxOldGenerationSizeMb: bounds.memoryMib };
  const thread = new Worker(new URL("./targets-thread.js", import.meta.url), { workerData, resourceLimits });
  // Nobody waits for it when the process is about to end.
  thread.unref();
  try {
    const [targets] = (await once(thread, "message", { signal: AbortSignal.timeout(bounds.timeoutMs) })) as [
      Targets,
    ];
    return targets;
  } catch (error) {
    const message = `cannot read the file: ${breachOf(error as NodeJS.ErrnoException, bounds)}`;
    return { mistakes: [{ file, line: 1, column: 1, message }] };
  } finally {
    await thread.terminate();
  }
}

function breachOf({ name, code, message }: NodeJS.ErrnoException, bounds: ReadingBounds): string {
  if (name === "AbortError") return `that takes more than ${bounds.timeoutMs} ms`;
  return code === "ERR_WORKER_OUT_OF_MEMORY"
    ? `that takes more than ${bounds.memoryMib} MiB of memory`
    : message;
}
