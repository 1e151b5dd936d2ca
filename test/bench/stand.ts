// Where the gateway's bench measures: one upstream that stands for two workers, the load generators, and the proxies
// between them, each in processes of its own.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chatBody } from "./chat.js";
import { Generators } from "./generators.js";
import { Process } from "./process.js";
import { peerLine, startProxies, type Target } from "./proxies.js";
import { compile, nodeArguments } from "./tools.js";

const WORKERS = 2;
/** The name of the target that is the upstream itself. */
export const DIRECT = "direct";
/** Milliseconds between two looks at a proxy's memory. */
const LOOK_MS = 250;

/** One order carried out through one target; the processor's time is in microseconds, user and system. */
export interface Sample<Outcome> {
  readonly outcome: Outcome;
  /** Of the proxy, 0 where there is none. */
  readonly cpu: number;
  readonly upstreamCpu: number;
  /** The most bytes of resident memory that the proxy was seen with. */
  readonly resident: number;
}

export class Stand {
  readonly generators: Generators;
  readonly #directory: string;
  readonly #upstream: Process;
  readonly #isNative: boolean;
  #workers: readonly number[] = [];

  private constructor() {
    this.#directory = mkdtempSync(join(tmpdir(), "hawser-bench-"));
    this.generators = new Generators(this.#directory);
    const stub = compile("stub", this.#directory);
    this.#isNative = stub !== undefined;
    const [command, args] = stub ? [stub, []] : [process.execPath, nodeArguments("upstream.ts")];
    this.#upstream = new Process("the upstream", command, [...args, String(WORKERS)]);
  }

  /** Starts the upstream. */
  static async open(): Promise<Stand> {
    const stand = new Stand();
    try {
      const ports: number[] = [];
      for (let i = 0; i < WORKERS; i++) ports.push(Number(await stand.#upstream.line()));
      stand.#workers = ports;
      return stand;
    } catch (error) {
      await stand.close();
      throw error;
    }
  }

  /** What is measured with, a line each. */
  get lines(): string[] {
    const upstream = this.#isNative ? "a native program" : "Node, for want of a C compiler";
    return [`load: ${this.generators.names}`, `upstream: ${upstream}`, peerLine()];
  }

  /** A file with a chat request of about so many bytes. */
  bodyFile(bytes: number, stream: boolean): string {
    const file = join(this.#directory, `body-${bytes}-${stream}.json`);
    writeFileSync(file, chatBody(bytes, stream));
    return file;
  }

  /** Has proxies that are new, for memory and warmth of one measurement not to show in the next; the upstream comes first. */
  async withTargets(use: (targets: readonly Target[]) => Promise<void>): Promise<void> {
    const proxies = await startProxies({ workers: this.#workers, directory: this.#directory });
    try {
      await use([{ name: DIRECT, port: this.#workers[0]!, process: undefined }, ...proxies]);
    } finally {
      for (const { process } of proxies) await process?.stop();
    }
  }

  /** Carries an order out and measures what it costs the target. */
  async sample<Outcome>(target: Target, carryOut: () => Promise<Outcome>): Promise<Sample<Outcome>> {
    let resident = 0;
    const look = (): void => {
      resident = Math.max(resident, target.process?.resident() ?? 0);
    };
    const timer = setInterval(look, LOOK_MS);
    const before = { proxy: target.process?.cpu() ?? 0, upstream: this.#upstream.cpu() };
    try {
      const outcome = await carryOut();
      look();
      const cpu = (target.process?.cpu() ?? 0) - before.proxy;
      return { outcome, cpu, upstreamCpu: this.#upstream.cpu() - before.upstream, resident };
    } finally {
      clearInterval(timer);
    }
  }

  /** Ends all processes and removes the files. */
  async close(): Promise<void> {
    await this.generators.stop();
    await this.#upstream.stop();
    rmSync(this.#directory, { recursive: true });
  }
}
