// `hawser demo`: a gateway together with a simulated worker for every worker of its config.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import type { Config, WorkerConfig } from "../config/config.js";
import { compileAtOnce, DEFAULT_CONFIG, readConfig, serve } from "./serve.js";

const MAIN = fileURLToPath(new URL("./main.js", import.meta.url));
const LOOPBACK = new Set(["127.0.0.1", "localhost", "[::1]"]);
const DEFAULT_MODEL = "sim";
const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/** The `demo` subcommand. It serves until SIGINT or SIGTERM, then stops its workers and exits with 0. */
export function demoCommand(): Command {
  return new Command("demo")
    .description("start the gateway and a simulated worker for every worker of its config")
    .option("-c, --config <file>", "the config file", DEFAULT_CONFIG)
    .action(run);
}

async function run({ config: file }: { config: string }, command: Command): Promise<void> {
  compileAtOnce();
  const read = readConfig(file, command);
  const { config } = read;
  const workers: ChildProcess[] = [];
  const stop = () => {
    for (const worker of workers) worker.removeAllListeners("exit").kill();
  };
  // Until the gateway runs and ends by itself, a signal ends the process.
  const end = () => process.exit(0);
  process.once("exit", stop);
  for (const signal of SIGNALS) process.once(signal, end);
  for (const worker of config.workers) workers.push(await startWorker(worker, command));
  for (const signal of SIGNALS) process.off(signal, end).once(signal, stop);
  for (const [index, worker] of workers.entries()) {
    const { id } = config.workers[index]!;
    worker.once("exit", () => process.stdout.write(`The simulated worker "${id}" has ended.\n`));
  }
  process.stdout.write(tryIt(config, await serve(read, command)));
}

async function startWorker({ id, url, models }: WorkerConfig, command: Command): Promise<ChildProcess> {
  const { hostname, port } = new URL(url);
  if (!LOOPBACK.has(hostname)) {
    command.error(`error: worker "${id}" is at ${url}: the demo starts workers on this machine only`, {
      exitCode: 1,
    });
  }
  const names = (models ?? [DEFAULT_MODEL]).flatMap((model) => ["--model", model]);
  const options = [
    "--host",
    hostname.replace(/^\[|\]$/g, ""),
    "--port",
    port || "80",
    "--tpot",
    "20",
    ...names,
  ];
  const child = spawn(process.execPath, [MAIN, "worker", ...options], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ready = once(createInterface({ input: child.stdout }), "line").then(() => true);
  if (!(await Promise.race([ready, once(child, "exit").then(() => false)]))) {
    command.error(`error: the simulated worker "${id}" did not start`, { exitCode: 1 });
  }
  return child;
}

function tryIt({ workers }: Config, address: string): string {
  const model = workers[0]?.models?.[0] ?? DEFAULT_MODEL;
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] });
  return `Try it:
  curl -i ${address}/v1/chat/completions \\
    -H 'content-type: application/json' -H 'x-session-id: demo' \\
    -d '${body}'
`;
}
