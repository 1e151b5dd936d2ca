// `hawser policy test`: the decision table of a policy's manifest, random cases, and the comparison with another policy.
import { Command } from "commander";
import { trialParameters } from "../kit/parameters.js";
import { compare, type Finding, fuzz, type Subject } from "../kit/trial.js";
import type { PolicyFile } from "../policy/catalog.js";
import { runExamples } from "../policy/examples.js";
import { PolicyStartError } from "../policy/live.js";
import { loadPolicy, PolicyError } from "../policy/load.js";
import { printExamples } from "./example-lines.js";
import { integer, jsonObject } from "./options.js";

interface Flags {
  path: string[];
  fuzz?: number;
  against?: string;
  seed: number;
  parameters?: Record<string, unknown>;
  againstParameters?: Record<string, unknown>;
}

const DEFAULT_FRAMES = 1_000;

/** The `policy test` subcommand. Exit code 1 where an example fails or there is none, and for a finding. */
export function policyTestCommand(): Command {
  return new Command("test")
    .description("run the decision table of a policy's manifest, and random cases")
    .argument("<policy>", "a type or alias, or a manifest or .wasm file")
    .option("--path <dir...>", "directories to search before the shipped policies", [])
    .option("--fuzz <frames>", "give it so many random cases, too", integer(1, 10_000_000))
    .option(
      "--against <policy>",
      `show where it differs from another (${DEFAULT_FRAMES} cases, or as --fuzz says)`,
    )
    .option("--seed <number>", "draw other cases", integer(0, Number.MAX_SAFE_INTEGER), 0)
    .option("--parameters <json>", "parameters for the random cases, as a JSON object", jsonObject)
    .option("--against-parameters <json>", "parameters of the other policy", jsonObject)
    .action((name: string, flags: Flags, command: Command) => {
      try {
        if (!run(name, flags)) process.exitCode = 1;
      } catch (error) {
        if (error instanceof PolicyError || error instanceof PolicyStartError) {
          command.error(`error: ${error.message}`, { exitCode: 1 });
        }
        throw error;
      }
    });
}

/** False where something failed. */
function run(name: string, flags: Flags): boolean {
  const policy = loadPolicy(name, flags.path);
  const isRandom = flags.fuzz !== undefined || flags.against !== undefined;
  if (policy.manifest.examples.length === 0 && !isRandom) {
    throw new PolicyError(`${policy.file}: the manifest has no examples to test`);
  }
  let passed = policy.manifest.examples.length === 0 || printExamples(runExamples(policy)) === 0;
  const subject = subjectOf(policy, flags.parameters);
  if (flags.fuzz !== undefined) passed = runFuzz(name, subject, flags.fuzz, flags) && passed;
  if (flags.against !== undefined) passed = runAgainst(name, subject, flags.against, flags) && passed;
  return passed;
}

function subjectOf(policy: PolicyFile, parameters: Record<string, unknown> | undefined): Subject {
  return { policy, parameters: trialParameters(policy.manifest.parameters, parameters) };
}

function runFuzz(name: string, subject: Subject, count: number, flags: Flags): boolean {
  const { finding, mostFuel, budget } = fuzz(subject, count, flags.seed);
  if (!finding) {
    const fuel = `fuel ${mostFuel} of ${budget} units at most`;
    process.stdout.write(`ok    ${count} random cases, seed ${flags.seed}, ${fuel}\n`);
    return true;
  }
  process.stdout.write(`FAIL  random case ${finding.frame}, seed ${flags.seed}: ${finding.what}\n`);
  printCases(finding, [[name, subject]]);
  return false;
}

function runAgainst(name: string, subject: Subject, other: string, flags: Flags): boolean {
  const second = subjectOf(loadPolicy(other, flags.path), flags.againstParameters);
  const count = flags.fuzz ?? DEFAULT_FRAMES;
  const finding = compare(subject, second, count, flags.seed);
  if (!finding) {
    process.stdout.write(`ok    ${count} random cases, seed ${flags.seed}, decided as ${other} decides\n`);
    return true;
  }
  process.stdout.write(`FAIL  random case ${finding.frame}, seed ${flags.seed}: it differs from ${other}\n`);
  printCases(finding, [
    [name, subject],
    [other, second],
  ]);
  return false;
}

/** The cases stand on lines of their own, as `policy run` reads them. */
function printCases(
  { cases, decisions, capacity }: Finding,
  subjects: readonly (readonly [name: string, subject: Subject])[],
): void {
  for (const one of cases) process.stdout.write(`${JSON.stringify(one)}\n`);
  for (const [index, [name, { parameters }]] of subjects.entries()) {
    const given = parameters.given ? ` --parameters '${JSON.stringify(parameters.given)}'` : "";
    const decision = JSON.stringify(decisions[index]);
    process.stdout.write(`      policy run ${name} --capacity ${capacity}${given}: ${decision}\n`);
  }
}
