// `hawser check`: every mistake in a config file, without starting anything.
import { Command } from "commander";
import { type Config, loadConfig } from "../config/config.js";
import { formatMistake } from "../yaml/mistake.js";

/** Exit code 1 where the file has mistakes; warnings alone leave it 0. */
export function checkCommand(): Command {
  return new Command("check")
    .description("check a config file and the policies it uses")
    .argument("[file]", "the config file", "hawser.yaml")
    .action((file: string) => {
      const { config, mistakes, warnings } = loadConfig(file);
      for (const warning of warnings) process.stderr.write(`${formatMistake(warning)} (warning)\n`);
      for (const mistake of mistakes) process.stderr.write(`${formatMistake(mistake)}\n`);
      if (config) process.stdout.write(`${summaryOf(config)}\n`);
      else process.exitCode = 1;
    });
}

function summaryOf({ file, workers, policy }: Config): string {
  const count = workers.length === 1 ? "1 worker" : `${workers.length} workers`;
  return `${file}: ok (${count}, policy ${policy.name} = ${policy.policy.manifest.type})`;
}
