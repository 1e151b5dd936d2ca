// A fleet as an operator runs it: simulated workers and the gateway, each a process of its own, from the built CLI.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { stringify } from "yaml";
import type { RouterStatus } from "../../host/index.js";

/** The built command. */
export const MAIN = fileURLToPath(new URL("../../build/host/cli/main.js", import.meta.url));

export interface Running {
  readonly url: string;
  readonly child: ChildProcess;
  /** Resolves to where its admin listener is. */
  admin(): Promise<string>;
}

/** Starts a command that says on stdout where it listens; it is stopped when the test ends. */
export async function start(args: readonly string[], cwd?: string): Promise<Running> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    ...(cwd && { cwd }),
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let printed = "";
  let errors = "";
  child.stdout.on("data", (chunk) => {
    printed += chunk;
  });
  child.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  const find = async (pattern: RegExp): Promise<string> => {
    const found = () => pattern.exec(printed)?.[1];
    await until(async () => found() !== undefined || child.exitCode !== null);
    const url = found();
    if (url === undefined) throw new Error(`${args.join(" ")} ended: ${errors}`);
    return url;
  };
  const url = await find(/listening on (http:\/\/[^\s(]+)/);
  return { url, child, admin: () => find(/^admin on (http:\S+)/m) };
}

/** Starts a simulated worker. */
export function worker(...options: string[]): Promise<Running> {
  return start(["worker", "--port", "0", "--tpot", "1", ...options]);
}

export interface PolicyChoice {
  readonly type: string;
  readonly parameters?: Record<string, unknown>;
}

/** Starts a gateway over workers at `urls`, named a, b, c ...; the policy's instance is named `chosen`. */
export function serve(urls: readonly string[], policy: PolicyChoice, session: object = {}): Promise<Running> {
  const directory = mkdtempSync(join(tmpdir(), "hawser-e2e-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = join(directory, "hawser.yaml");
  writeFileSync(
    file,
    stringify({
      listen: { port: 0 },
      admin: { port: 0 },
      workers: urls.map((url, i) => ({ id: String.fromCharCode(97 + i), url })),
      session,
      worker_selection: { aggregated: "chosen", instances: [{ name: "chosen", ...policy }] },
    }),
  );
  return start(["serve", "-c", file]);
}

/** Starts `count` workers and a gateway over them. */
export async function fleet(
  count: number,
  policy: PolicyChoice,
  session: object = {},
): Promise<{ gateway: Running; workers: Running[] }> {
  const workers = await Promise.all(Array.from({ length: count }, () => worker()));
  return {
    gateway: await serve(
      workers.map(({ url }) => url),
      policy,
      session,
    ),
    workers,
  };
}

/** What `GET /health` says. */
export async function health(url: string): Promise<RouterStatus & { status: string }> {
  return (await fetch(`${url}/health`)).json() as Promise<RouterStatus & { status: string }>;
}

/** Requests in flight per worker. */
export async function loads(url: string): Promise<number[]> {
  return (await health(url)).workers.map(({ active_requests }) => active_requests);
}

/** A number of a worker's metrics, 0 where it is not there. */
export async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const line = text.split("\n").find((candidate) => candidate.startsWith(name));
  return line ? Number(line.split(" ").at(-1)) : 0;
}

/** Resolves when `holds` does. */
export async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 10));
}
