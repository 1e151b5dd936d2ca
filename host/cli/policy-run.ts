// `hawser policy run`: cases in, decisions out, through the code that decides in the gateway.
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Command, InvalidArgumentError } from "commander";
import { MAX_CAPACITY } from "../abi/frame.js";
import { CaseError, CaseRunner, DEFAULT_CAPACITY } from "../policy/case.js";
import { PolicyStartError } from "../policy/live.js";
import { loadPolicy, PolicyError } from "../policy/load.js";
import { resolveParameters } from "../policy/parameters.js";

interface Flags {
  parameters?: Record<string, unknown>;
  seed: number;
  capacity: number;
  path: string[];
}

/** Decisions are written in pieces of about this many characters: one write a line would cost more than deciding. */
const WRITE_SIZE = 65_536;

/** The `policy run` subcommand. A broken line ends it with exit code 1, after the decisions before it. */
export function policyRunCommand(): Command {
  return new Command("run")
    .description("read cases from stdin, one JSON object a line, and write one decision a line")
    .argument("<policy>", "a type or alias, or a manifest or .wasm file")
    .option("--parameters <json>", "parameters as a JSON object", jsonObject)
    .option(
      "--seed <number>",
      "seed of the random bits that cases leave out",
      integer(0, Number.MAX_SAFE_INTEGER),
      0,
    )
    .option("--capacity <rows>", "most rows a case may have", integer(1, MAX_CAPACITY), DEFAULT_CAPACITY)
    .option("--path <dir...>", "directories to search before the shipped policies", [])
    .action(run);
}

async function run(name: string, flags: Flags, command: Command): Promise<void> {
  const runner = start(name, flags, command);
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    // A reader that has seen enough, such as `head`, is no error.
    if (error.code === "EPIPE") process.exit(0);
    command.error(`error: cannot write: ${error.message}`, { exitCode: 1 });
  });
  let number = 0;
  let output = "";
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY })) {
    number++;
    if (line.trim() === "") continue;
    const decision = decide(runner, line);
    if (typeof decision === "string") {
      await write(output);
      command.error(`error: line ${number}: ${decision}`, { exitCode: 1 });
    }
    output += `${JSON.stringify(decision)}\n`;
    if (output.length < WRITE_SIZE) continue;
    await write(output);
    output = "";
  }
  await write(output);
}

function start(name: string, flags: Flags, command: Command): CaseRunner {
  try {
    const policy = loadPolicy(name, flags.path);
    const { values, mistakes } = resolveParameters(policy.manifest.parameters, flags.parameters);
    if (mistakes.length > 0)
      throw new PolicyError(mistakes.map(({ message }) => `--parameters: ${message}`).join("\n"));
    return new CaseRunner(policy, values, flags.capacity, flags.seed);
  } catch (error) {
    if (error instanceof PolicyError || error instanceof PolicyStartError) {
      command.error(`error: ${error.message}`, { exitCode: 1 });
    }
    throw error;
  }
}

/** A decision, or what is wrong with the line. */
function decide(runner: CaseRunner, line: string): object | string {
  try {
    return runner.run(JSON.parse(line));
  } catch (error) {
    if (error instanceof CaseError) return error.message;
    if (error instanceof SyntaxError) return `not valid JSON: ${error.message}`;
    throw error;
  }
}

async function write(text: string): Promise<void> {
  if (text !== "" && !process.stdout.write(text)) await once(process.stdout, "drain");
}

function jsonObject(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidArgumentError("It must be a JSON object.");
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new InvalidArgumentError("It must be a JSON object.");
}

function integer(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
  };
}
