// `hawser policy build`: a policy's folder -> an admitted module that has passed its decision table.
import { type FSWatcher, watch } from "node:fs";
import { extname, relative } from "node:path";
import { Command } from "commander";
import { type Built, buildProject } from "../kit/build.js";
import { BuildError } from "../kit/build-error.js";
import { printExamples } from "./example-lines.js";

/** Changes that follow each other within this time are built once. */
const DEBOUNCE_MS = 100;
const SOURCES = [".ts", ".c", ".h", ".rs", ".wat", ".yaml"];

/** The `policy build` subcommand. Exit code 1 where the module is refused or its decision table fails. */
export function policyBuildCommand(): Command {
  return new Command("build")
    .description("compile a policy, put its manifest into it, check it and run its decision table")
    .argument("[dir]", "the policy's folder: one manifest and one source file", ".")
    .option("--watch", "build again whenever a file of the folder changes, until interrupted")
    .action(async (directory: string, { watch: stays }: { watch?: boolean }, command: Command) => {
      if (stays) return watchFolder(directory, command);
      if (!(await build(directory))) process.exitCode = 1;
    });
}

/** Builds and prints; false where something is wrong. */
async function build(directory: string): Promise<boolean> {
  try {
    return print(await buildProject(directory));
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    process.stderr.write(`error: ${error.message}\n`);
    return false;
  }
}

function print({ module, manifestFile, bytes, dryRun, examples, warnings }: Built): boolean {
  const { mostFuel, budget, capacity, decisions } = dryRun;
  const failed = printExamples(examples);
  for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`);
  if (examples.length === 0)
    process.stderr.write(`error: ${manifestFile}: the manifest has no examples to test\n`);
  const broken = decisions.find(({ failure }) => failure !== undefined);
  if (broken) {
    const { rows, bound, failure } = broken;
    process.stderr.write(`error: select fails with ${rows} rows and bound ${bound}: ${failure}\n`);
  }
  process.stdout.write(
    `${relative("", module)}: ${bytes} bytes, fuel ${mostFuel} of ${budget} units at most with up to ${capacity} rows\n`,
  );
  return failed === 0 && examples.length > 0 && !broken;
}

/** Builds now and after every change, one build at a time. What is broken is printed and waited for. */
async function watchFolder(directory: string, command: Command): Promise<void> {
  let watcher: FSWatcher;
  let timer: NodeJS.Timeout | undefined;
  let building: Promise<void> = Promise.resolve();
  const again = () => {
    building = building.then(async () => {
      await build(directory).catch((error) => process.stderr.write(`error: ${(error as Error).message}\n`));
      process.stdout.write(`watching ${directory}\n`);
    });
  };
  try {
    watcher = watch(directory, (_, name) => {
      if (name !== null && !SOURCES.includes(extname(name))) return;
      clearTimeout(timer);
      timer = setTimeout(again, DEBOUNCE_MS);
    });
  } catch (error) {
    command.error(`error: cannot watch ${directory}: ${(error as Error).message}`, { exitCode: 1 });
  }
  watcher.on("error", (error) =>
    process.stderr.write(`error: cannot watch ${directory}: ${error.message}\n`),
  );
  again();
}
