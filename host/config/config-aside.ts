// Reading a config beside the thread that decides: its YAML, its modules and their dry runs take a while.
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { PolicyFile } from "../policy/catalog.js";
import type { Config, LoadedConfig } from "./config.js";
import type { InstanceConfig } from "./rules.js";
import type { Environment } from "./secret.js";

/** What the thread is told. */
export interface ConfigOrder {
  readonly text: string;
  readonly file: string;
  readonly environment: Environment;
}

/** The parts of a policy, its module compiled. */
export type PolicyParts = Pick<PolicyFile, "manifest" | "file" | "modulePath" | "admitted">;

/** An instance whose policy is in parts. Those that are one object are one object on the other side, too. */
export type PostedInstance = Omit<InstanceConfig, "policy"> & { readonly policy: PolicyParts };

type Chosen = "policy" | "fallback" | "instances";

/** What the thread answers: a `LoadedConfig` that can be posted. */
export interface PostedConfig extends Omit<LoadedConfig, "config"> {
  readonly config?: Omit<Config, Chosen> & {
    readonly policy: PostedInstance;
    readonly fallback: PostedInstance | undefined;
    readonly instances: readonly PostedInstance[];
  };
}

/** What reading a config may take. */
export interface LoadingBounds {
  readonly timeoutMs: number;
  readonly memoryMib: number;
}

/** Several times what the largest config takes. */
const BOUNDS: LoadingBounds = { timeoutMs: 30_000, memoryMib: 1_024 };

/** How long a thread waits for another config: to begin one takes most of the time that a config takes. */
const KEPT_MS = 30_000;

/** Waits for the next config; it has done well so far. */
let kept: Worker | null = null;
let release: NodeJS.Timeout | undefined;

/**
 * Does what `parseConfig` does with the environment of this process, in a thread of its own. A text that takes more than
 * `bounds` to read, with the policies that it uses, is a mistake.
 */
export async function loadConfigAside(text: string, file: string, bounds = BOUNDS): Promise<LoadedConfig> {
  const order: ConfigOrder = { text, file, environment: { ...process.env } };
  const thread = (bounds === BOUNDS ? takeKept() : null) ?? begin(bounds);
  try {
    const signal = AbortSignal.timeout(bounds.timeoutMs);
    thread.postMessage(order);
    const [posted] = (await once(thread, "message", { signal })) as [PostedConfig];
    if (bounds === BOUNDS) keep(thread);
    else void thread.terminate();
    return rebuilt(posted);
  } catch (error) {
    // A compiler at work ends when it is done: that is not waited for.
    void thread.terminate();
    const message = `cannot read the config: ${breachOf(error as NodeJS.ErrnoException, bounds)}`;
    return { mistakes: [{ file, line: 1, column: 1, message }], warnings: [] };
  }
}

function begin({ memoryMib }: LoadingBounds): Worker {
  const thread = new Worker(new URL("./config-thread.js", import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: memoryMib },
    // What this process was started with may be of no use to a thread, or be refused by it.
    execArgv: [],
  });
  // Nobody waits for it when the process is about to end.
  thread.unref();
  thread.on("exit", () => {
    if (kept === thread) kept = null;
  });
  // One that is given up may still fail before it has ended, when nobody listens any more.
  return thread.on("error", () => {});
}

function takeKept(): Worker | null {
  const thread = kept;
  clearTimeout(release);
  kept = null;
  return thread;
}

function keep(thread: Worker): void {
  void takeKept()?.terminate();
  kept = thread;
  release = setTimeout(() => void takeKept()?.terminate(), KEPT_MS).unref();
}

function breachOf({ name, code, message }: NodeJS.ErrnoException, bounds: LoadingBounds): string {
  if (name === "AbortError") return `that takes more than ${bounds.timeoutMs} ms`;
  return code === "ERR_WORKER_OUT_OF_MEMORY"
    ? `that takes more than ${bounds.memoryMib} MiB of memory`
    : message;
}

function rebuilt({ config, ...remarks }: PostedConfig): LoadedConfig {
  if (!config) return remarks;
  const policy = memoized(policyOf);
  const instance = memoized((posted: PostedInstance) => ({ ...posted, policy: policy(posted.policy) }));
  return {
    ...remarks,
    config: {
      ...config,
      policy: instance(config.policy),
      fallback: config.fallback && instance(config.fallback),
      instances: config.instances.map(instance),
    },
  };
}

function policyOf({ manifest, file, modulePath, admitted }: PolicyParts): PolicyFile {
  return new PolicyFile(manifest, file, modulePath, { line: 1, column: 1 }, admitted);
}

/** Calls `make` once for each object, so that what is one object stays one. */
export function memoized<From extends object, To>(make: (from: From) => To): (from: From) => To {
  const made = new Map<From, To>();
  return (from) => {
    if (!made.has(from)) made.set(from, make(from));
    return made.get(from)!;
  };
}
