// `hawser worker`: the simulated worker, a process of its own.
import { Command, InvalidArgumentError } from "commander";
import { type RunningWorker, startWorker, WORKER_DEFAULTS } from "../worker/server.js";

interface Flags {
  host: string;
  port: number;
  model?: string[];
  maxNumSeqs: number;
  prefillRate: number;
  tpot: number;
  kvBlocks: number;
  blockSize: number;
}

/** The `worker` subcommand. It serves until SIGINT or SIGTERM, then exits with 0; what it cannot use exits with 1. */
export function workerCommand(): Command {
  const defaults = WORKER_DEFAULTS;
  return new Command("worker")
    .description("Run a simulated LLM worker: every endpoint, an honest prefix cache, made-up words.")
    .requiredOption("--port <number>", "port to listen on, 0 picks a free one", integer(0, 65_535))
    .option("--host <address>", "address to listen on", defaults.host)
    .option("--model <name>", 'model name to serve, repeatable (default: "sim")', modelNames)
    .option("--max-num-seqs <count>", "requests that run at once", integer(1, 65_536), defaults.maxNumSeqs)
    .option(
      "--prefill-rate <rate>",
      "uncached prompt tokens per second",
      integer(1, 1e9),
      defaults.prefillRate,
    )
    .option("--tpot <ms>", "milliseconds per output token", milliseconds, defaults.tpotMs)
    .option("--kv-blocks <count>", "blocks in the prefix cache", integer(1, 4_194_304), defaults.kvBlocks)
    .option("--block-size <tokens>", "tokens in a block", integer(1, 4096), defaults.blockSize)
    .action(run);
}

async function run(flags: Flags, command: Command): Promise<void> {
  const { host, port, maxNumSeqs, prefillRate, tpot: tpotMs, kvBlocks, blockSize } = flags;
  const models = flags.model ?? WORKER_DEFAULTS.models;
  const options = { host, port, models, maxNumSeqs, prefillRate, tpotMs, kvBlocks, blockSize };
  let worker: RunningWorker;
  try {
    worker = await startWorker(options);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    command.error(`error: the worker cannot listen on ${host}, port ${port}: ${reason}.`, { exitCode: 1 });
  }
  process.once("SIGINT", worker.close);
  process.once("SIGTERM", worker.close);
  process.stdout.write(`worker ${models.join(",")} listening on ${worker.url}\n`);
}

function integer(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
  };
}

function milliseconds(text: string): number {
  const value = Number(text);
  if (/^\d+(\.\d+)?$/.test(text) && value <= 60_000) return value;
  throw new InvalidArgumentError("It must be a number from 0 to 60000.");
}

/** Collects names over repeated flags and commas. */
function modelNames(text: string, earlier: string[] = []): string[] {
  const names = text.split(",").map((name) => name.trim());
  for (const name of names) {
    if (!/^[\x21-\x7e]{1,256}$/.test(name)) {
      throw new InvalidArgumentError("A model name is 1 to 256 printable ASCII characters without blanks.");
    }
  }
  return [...new Set([...earlier, ...names])];
}
