// A process of the gateway's bench: started, awaited, ended; what it and all that came from it use, as /proc tells.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

/** Of the kernel's accounting in /proc: USER_HZ is 100 on every Linux that Node runs on. */
const MICROSECONDS_PER_TICK = 10_000;
/** Guards against hangs only. */
const START_MS = 30_000;
const STOP_MS = 10_000;
/** The end of what a process says on stderr is kept, to tell why it ended. */
const ERROR_CHARS = 2_000;

export class Process {
  readonly #name: string;
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #closed: Promise<unknown>;
  #errors = "";

  /** Starts it. With `ipc` it can be asked. */
  constructor(name: string, command: string, args: readonly string[], ipc = false) {
    this.#name = name;
    this.#child = spawn(command, args, {
      stdio: ["ignore", "pipe", "pipe", ...(ipc ? ["ipc" as const] : [])],
    });
    this.#closed = once(this.#child, "close").catch((error: Error) => {
      this.#errors = error.message;
    });
    this.#child.stderr!.on("data", (text: Buffer) => {
      this.#errors = (this.#errors + text.toString()).slice(-ERROR_CHARS);
    });
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  get pid(): number {
    return this.#child.pid!;
  }

  /** The next line on stdout. Rejects where the process ends before. */
  async line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (!done) return value;
    await this.#closed;
    throw this.#ended();
  }

  /** The last line on stdout, once the process has ended. Rejects where it failed. */
  async lastLine(): Promise<string> {
    let last = "";
    for (let next = await this.#lines.next(); !next.done; next = await this.#lines.next()) last = next.value;
    await this.#closed;
    if (this.#child.exitCode !== 0) throw this.#ended();
    return last;
  }

  /** Sends an order, over the channel that `ipc` opened, and resolves to the answer. Rejects where the process ends before. */
  async ask(order: object): Promise<unknown> {
    this.#child.send(order);
    const ended = this.#closed.then(() => Promise.reject(this.#ended()));
    const [answer] = await Promise.race([once(this.#child, "message"), ended]);
    return answer;
  }

  /** Resolves once something listens on the port. Rejects where the process ends before. */
  async listening(port: number): Promise<void> {
    for (let waited = 0; !(await isOpen(port)); waited += 20) {
      await delay(20);
      const isOver = this.#child.exitCode !== null || this.#child.signalCode !== null;
      if (isOver || this.#child.pid === undefined || waited > START_MS) throw this.#ended();
    }
  }

  /** Ends it, and resolves once it is gone. */
  async stop(): Promise<void> {
    if (this.#child.pid === undefined) return;
    this.#child.kill();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS);
    await this.#closed;
    clearTimeout(timer);
  }

  /** Microseconds of processor time, user and system, that it and its descendants have used so far. */
  cpu(): number {
    return family(this.pid).reduce((sum, { ticks }) => sum + ticks * MICROSECONDS_PER_TICK, 0);
  }

  /** Bytes of resident memory, of its descendants too; what they share counts for each. */
  resident(): number {
    return family(this.pid).reduce((sum, { pid }) => sum + residentOf(pid), 0);
  }

  #ended(): Error {
    return new Error(`${this.#name} failed: ${this.#errors.trim() || "it ended without a word"}`);
  }
}

/** A free port; it may be taken by another before it is used. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

async function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

interface Entry {
  readonly pid: number;
  readonly parent: number;
  /** Of the kernel's clock, user and system. */
  readonly ticks: number;
}

/** A process and its descendants. */
function family(pid: number): Entry[] {
  const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const entries = all.flatMap((name) => entryOf(Number(name)) ?? []);
  const members = entries.filter((entry) => entry.pid === pid);
  // Grows while it is walked.
  for (const { pid } of members) members.push(...entries.filter(({ parent }) => parent === pid));
  return members;
}

function entryOf(pid: number): Entry | undefined {
  const stat = read(`/proc/${pid}/stat`);
  // Behind the name in parentheses, which may hold anything: the state, the parent; utime and stime are fields 14 and 15.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return stat === ""
    ? undefined
    : { pid, parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) };
}

function residentOf(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) * 1_024;
}

/** A file of /proc, empty where its process has ended meanwhile. */
function read(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return "";
  }
}
