// `hawser check`: every mistake in a config file, without starting anything.
import { Command } from "commander";
import { DEFAULT_CONFIG, readWithRemarks, summaryOf } from "./serve.js";

/** Exit code 1 where the file has mistakes; warnings alone leave it 0. */
export function checkCommand(): Command {
  return new Command("check")
    .description("check a config file and the policies it uses")
    .argument("[file]", "the config file", DEFAULT_CONFIG)
    .action((file: string) => {
      const { config, remarks } = readWithRemarks(file);
      for (const remark of remarks) process.stderr.write(`${remark}\n`);
      if (config) process.stdout.write(`${file}: ok (${summaryOf(config)})\n`);
      else process.exitCode = 1;
    });
}
