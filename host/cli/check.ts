// `hawser check`: every mistake in a config file, and in the files of targets that it names, without starting anything.
import { Command } from "commander";
import type { Config } from "../config/config.js";
import { readTargets } from "../fleet/targets.js";
import { formatMistake } from "../yaml/mistake.js";
import { readText } from "../yaml/read.js";
import { DEFAULT_CONFIG, readWithRemarks, summaryOf } from "./serve.js";

/** Exit code 1 where a file has mistakes; warnings alone leave it 0. */
export function checkCommand(): Command {
  return new Command("check")
    .description("check a config file, and the policies and files of targets that it uses")
    .argument("[file]", "the config file", DEFAULT_CONFIG)
    .action((file: string) => {
      const { config, remarks } = readWithRemarks(file);
      const { mistakes, warnings } = config ? checkTargets(config) : { mistakes: [], warnings: [] };
      for (const remark of [...remarks, ...mistakes, ...warnings]) process.stderr.write(`${remark}\n`);
      if (config && mistakes.length === 0) process.stdout.write(`${file}: ok (${summaryOf(config)})\n`);
      else process.exitCode = 1;
    });
}

/** A file of targets that is not there yet, or names a worker of the config again, keeps no gateway from starting. */
function checkTargets({ discovery, workers }: Config): { mistakes: string[]; warnings: string[] } {
  const mistakes: string[] = [];
  const warnings: string[] = [];
  const configured = new Set(workers.map(({ id }) => id));
  for (const source of discovery) {
    if (source.kind !== "file") continue;
    const { file } = source;
    const read = readText(file);
    const targets = "mistake" in read ? { mistakes: [] } : readTargets(read.text, file);
    if ("mistake" in read) warnings.push(`${formatMistake(read.mistake)} (warning)`);
    if ("mistakes" in targets) mistakes.push(...targets.mistakes.map(formatMistake));
    else
      for (const { id } of targets.workers.filter(({ id }) => configured.has(id)))
        warnings.push(
          `${file}: worker "${id}" is the config's, what the file says of it does not count (warning)`,
        );
  }
  return { mistakes, warnings };
}
