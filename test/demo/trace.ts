// `npm run demo:trace -- [FILE]`: replays the sessions of a trace through the gateway, under one policy after another.
import { basename, resolve } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { generateTrace } from "./generator.js";
import { makePlan, type Plan, type PlanOptions } from "./plan.js";
import { COMPARED, choosePolicy, type PolicyChoice } from "./policies.js";
import { type Outcome, replay } from "./replay.js";
import { formatHead, formatOutcomes } from "./report.js";
import { readTrace, type TraceSession } from "./trace-file.js";

interface Flags extends Omit<PlanOptions, "kvTokens"> {
  readonly sessions: number;
  readonly seed: number;
  readonly policies?: readonly string[];
  readonly kvTokens?: number;
}

/** Tokens in a worker's KV pool: a large GPU's for real sessions; for the small ones made here, so that it is short. */
const KV_TOKENS = { file: 800_000, generated: 64_000 };

const program = new Command("npm run demo:trace --")
  .description("Replay the sessions of a trace through the gateway and compare policies.")
  .argument("[file]", "a trace, one session a line as JSON (default: a small one made from a seed)")
  .option("--policies <types>", `policy types, separated by commas (default: ${COMPARED.join(",")})`, list)
  .option("--sessions <count>", "sessions replayed at most, the first of the trace", integer(1), 60)
  .option("--max-turns <count>", "turns replayed of each session at most", integer(1), 10)
  .option("--max-think <seconds>", "longest think time, in seconds of the trace", positive, 60)
  .option("--speed <factor>", "how many times faster than the trace time passes", positive, 60)
  .option("--scale <factor>", "tokens of the trace that one token stands for", integer(1), 16)
  .option("--concurrency <count>", "sessions open at once", integer(1), 16)
  .option("--workers <count>", "simulated workers", integer(1), 4)
  .option(
    "--kv-tokens <count>",
    `tokens in a worker's KV pool, before scaling (default: ${KV_TOKENS.file}, or ${KV_TOKENS.generated} without a file)`,
    integer(1),
  )
  .option("--block-size <tokens>", "tokens in a worker's KV block, before scaling", integer(1), 64)
  .option("--max-num-seqs <count>", "requests that run at once on a worker", integer(1), 4)
  .option("--prefill-rate <rate>", "uncached prompt tokens per second, before scaling", positive, 10_000)
  .option("--tpot <ms>", "milliseconds per output token, before scaling", positive, 20)
  .option("--seed <number>", "seed of the trace made where no file is given", integer(0), 1)
  .showHelpAfterError()
  .action(run);

// The children go when this process does.
process.once("SIGINT", () => process.exit(130));
process.once("SIGTERM", () => process.exit(143));
await program.parseAsync();

async function run(file: string | undefined, flags: Flags): Promise<void> {
  try {
    const trace = file === undefined ? generateTrace(flags) : await readSome(file, flags.sessions);
    const source = file === undefined ? `a trace made from the seed ${flags.seed}` : basename(file);
    const kvTokens = flags.kvTokens ?? (file === undefined ? KV_TOKENS.generated : KV_TOKENS.file);
    const plan = makePlan(trace, { ...flags, kvTokens });
    const { concurrency, workers } = flags;
    const policies = (flags.policies ?? COMPARED).map((type) => choosePolicy(type, concurrency, workers));
    process.stdout.write(`${formatHead(plan, source)}\n`);
    const outcomes: Outcome[] = [];
    for (const policy of policies) outcomes.push(await replayShowing(plan, policy));
    process.stdout.write(formatOutcomes(plan, outcomes));
    if (outcomes.some(({ failures }) => failures.length > 0)) process.exitCode = 1;
  } catch (error) {
    process.stderr.write(`error: ${(error as Error).message}\n`);
    process.exitCode = 1;
  }
}

/** The first sessions of a file. */
async function readSome(file: string, most: number): Promise<TraceSession[]> {
  const sessions: TraceSession[] = [];
  // npm runs scripts in the package's directory; the path is meant from where npm was called.
  for await (const session of readTrace(resolve(process.env.INIT_CWD ?? ".", file))) {
    sessions.push(session);
    if (sessions.length === most) break;
  }
  if (sessions.length === 0) throw new Error(`${file} has no session.`);
  return sessions;
}

async function replayShowing(plan: Plan, policy: PolicyChoice): Promise<Outcome> {
  const { type } = policy;
  const { isTTY } = process.stderr;
  const show = (text: string) => isTTY && process.stderr.write(`\r\x1b[K${text}`);
  show(`${type}: starting`);
  try {
    return await replay(plan, policy, (done) => show(`${type}: ${done} of ${plan.turns} turns`));
  } finally {
    show("");
  }
}

function list(text: string): string[] {
  return text.split(",").map((part) => part.trim());
}

function integer(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= 2 ** 31) return value;
    throw new InvalidArgumentError(`It must be an integer from ${least}.`);
  };
}

function positive(text: string): number {
  const value = Number(text);
  if (/^\d+(\.\d+)?$/.test(text) && value > 0) return value;
  throw new InvalidArgumentError("It must be a number above 0.");
}
