// `hawser policy run`: cases in, decisions out, through the code that decides in the gateway.
import { once } from "node:events";
import { extname } from "node:path";
import { createInterface } from "node:readline";
import { Command } from "commander";
import { MAX_CAPACITY } from "../abi/frame.js";
import { BuildError } from "../kit/build-error.js";
import { compile } from "../kit/compile.js";
import { DebugPolicy } from "../kit/debug.js";
import { projectOfSource } from "../kit/project.js";
import { CaseError, CaseRunner, DEFAULT_CAPACITY } from "../policy/case.js";
import { PolicyStartError } from "../policy/live.js";
import { loadPolicy, PolicyError } from "../policy/load.js";
import type { Manifest } from "../policy/manifest.js";
import { resolveParameters } from "../policy/parameters.js";
import { integer, jsonObject } from "./options.js";

interface Flags {
  parameters?: Record<string, unknown>;
  seed: number;
  capacity: number;
  path: string[];
  debug?: boolean;
}

/** Decisions are written in pieces of about this many characters: one write a line would cost more than deciding. */
const WRITE_SIZE = 65_536;

/** The `policy run` subcommand. A broken line ends it with exit code 1, after the decisions before it. */
export function policyRunCommand(): Command {
  return new Command("run")
    .description("read cases from stdin, one JSON object a line, and write one decision a line")
    .argument("<policy>", "a type or alias, or a manifest or .wasm file; with --debug a .ts file")
    .option("--debug", "run an AssemblyScript source, printing what it asserts and traces")
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
  const runner = await start(name, flags, command);
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

async function start(name: string, flags: Flags, command: Command): Promise<CaseRunner> {
  try {
    if (flags.debug) return await startDebug(name, flags);
    const policy = loadPolicy(name, flags.path);
    const values = valuesOf(policy.manifest, flags);
    return new CaseRunner(policy, values, flags.capacity, flags.seed);
  } catch (error) {
    if ([PolicyError, PolicyStartError, BuildError].some((kind) => error instanceof kind)) {
      command.error(`error: ${(error as Error).message}`, { exitCode: 1 });
    }
    throw error;
  }
}

function valuesOf(manifest: Manifest, flags: Flags): Float64Array {
  const { values, mistakes } = resolveParameters(manifest.parameters, flags.parameters);
  if (mistakes.length === 0) return values;
  throw new PolicyError(mistakes.map(({ message }) => `--parameters: ${message}`).join("\n"));
}

async function startDebug(source: string, flags: Flags): Promise<CaseRunner> {
  if (extname(source) !== ".ts")
    throw new PolicyError(`${source}: --debug runs an AssemblyScript source, a .ts file`);
  const { manifest } = projectOfSource(source);
  const parameters = valuesOf(manifest, flags);
  const module = new WebAssembly.Module(await compile(source, "assemblyscript", "debug"));
  const print = (line: string) => void process.stderr.write(`${line}\n`);
  return new CaseRunner(
    { manifest, admitted: { module } },
    parameters,
    flags.capacity,
    flags.seed,
    (candidates) => {
      return new DebugPolicy({ manifest, module, parameters, print }, candidates);
    },
  );
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
