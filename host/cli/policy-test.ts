// `hawser policy test`: the decision table of a policy's manifest, run through the code that decides in the gateway.
import { Command } from "commander";
import { type ExampleResult, runExamples } from "../policy/examples.js";
import { PolicyStartError } from "../policy/live.js";
import { loadPolicy, PolicyError } from "../policy/load.js";
import { printExamples } from "./example-lines.js";

/** The `policy test` subcommand. Exit code 1 where an example fails or there is none. */
export function policyTestCommand(): Command {
  return new Command("test")
    .description("run the decision table of a policy's manifest")
    .argument("<policy>", "a type or alias, or a manifest or .wasm file")
    .option("--path <dir...>", "directories to search before the shipped policies", [])
    .action((name: string, { path }: { path: string[] }, command: Command) => {
      const results = run(name, path, command);
      if (printExamples(results) > 0) process.exitCode = 1;
    });
}

function run(name: string, path: readonly string[], command: Command): ExampleResult[] {
  try {
    const policy = loadPolicy(name, path);
    if (policy.manifest.examples.length > 0) return runExamples(policy);
    throw new PolicyError(`${policy.file}: the manifest has no examples to test`);
  } catch (error) {
    if (error instanceof PolicyError || error instanceof PolicyStartError) {
      command.error(`error: ${error.message}`, { exitCode: 1 });
    }
    throw error;
  }
}
