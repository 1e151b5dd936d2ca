// The processes of a replay: simulated workers and the gateway before them, as the built command runs them.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import type { WorkerSettings } from "./plan.js";
import type { PolicyChoice } from "./policies.js";

const MAIN = fileURLToPath(new URL("../../build/host/cli/main.js", import.meta.url));
/** What is kept of a child's stderr, in characters. */
const STDERR_KEPT = 4096;

/** Children and their files. They go with this process, however it ends, save by SIGKILL. */
export class Processes {
  readonly #directory = mkdtempSync(join(tmpdir(), "hawser-replay-"));
  readonly #children: ChildProcess[] = [];
  readonly #onExit = () => this.#kill("SIGKILL");

  constructor() {
    process.once("exit", this.#onExit);
  }

  /** Starts a worker with a cold cache and returns its url. Throws an Error with what it said if it does not start. */
  worker({ kvBlocks, blockSize, maxNumSeqs, prefillRate, tpotMs }: WorkerSettings): Promise<string> {
    const options = {
      ...{ port: 0, "kv-blocks": kvBlocks, "block-size": blockSize, "max-num-seqs": maxNumSeqs },
      ...{ "prefill-rate": prefillRate, tpot: tpotMs.toFixed(4) },
    };
    return this.#start(
      "worker",
      Object.entries(options).flatMap(([name, value]) => [`--${name}`, `${value}`]),
    );
  }

  /**
   * Starts a gateway over workers, by their ids, that logs its decisions where a file is given, and returns its url. Throws as `worker`
   * does.
   */
  gateway(
    workers: ReadonlyMap<string, string>,
    { type, parameters }: PolicyChoice,
    decisionLog?: string,
  ): Promise<string> {
    const file = join(this.#directory, "hawser.yaml");
    const config = {
      listen: { host: "127.0.0.1", port: 0 },
      admin: { port: 0 },
      workers: [...workers].map(([id, url]) => ({ id, url })),
      ...(decisionLog !== undefined && { decision_log: { file: decisionLog } }),
      worker_selection: { aggregated: type, instances: [{ name: type, type, parameters }] },
    };
    writeFileSync(file, stringify(config));
    return this.#start("serve", ["-c", file]);
  }

  /** Ends all children and removes their files. */
  async stop(): Promise<void> {
    const ended = this.#children.filter(isRunning).map((child) => once(child, "exit"));
    this.#kill("SIGTERM");
    await Promise.all(ended);
    process.off("exit", this.#onExit);
  }

  #kill(signal: NodeJS.Signals): void {
    for (const child of this.#children) child.kill(signal);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #start(command: string, options: readonly string[]): Promise<string> {
    const child = spawn(process.execPath, [MAIN, command, ...options], { stdio: ["ignore", "pipe", "pipe"] });
    this.#children.push(child);
    let [stdout, stderr] = ["", ""];
    child.stderr.on("data", (chunk) => {
      stderr = (stderr + chunk).slice(-STDERR_KEPT);
    });
    return new Promise((resolve, reject) => {
      child.stdout.on("data", (chunk) => {
        stdout += chunk;
        const address = /listening on (http:\S+)/.exec(stdout)?.[1];
        if (address) resolve(address);
      });
      child.once("error", reject);
      // Not `exit`: only now its last words are there.
      child.once("close", () => reject(new Error(`"hawser ${command}" did not start: ${stderr.trim()}`)));
    });
  }
}

function isRunning(child: ChildProcess): boolean {
  return child.pid !== undefined && child.exitCode === null && child.signalCode === null;
}
