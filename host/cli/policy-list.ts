// `hawser policy list`: the policies that a config can name.
import { Command } from "commander";
import { Catalog, type PolicyFile } from "../policy/catalog.js";
import { allowedText, type ParameterSpec } from "../policy/parameters.js";
import { formatMistake } from "../yaml/mistake.js";

/** Exit code 1 where a manifest or a module is broken; the others are listed all the same. */
export function policyListCommand(): Command {
  return new Command("list")
    .description("list the shipped policies and those of some directories")
    .option("--path <dir...>", "directories to search before the shipped policies", [])
    .option("--json", "print one JSON array")
    .action(({ path, json }: { path: string[]; json?: boolean }) => {
      const catalog = Catalog.open(path);
      const policies = catalog.list();
      const mistakes = [...catalog.mistakes, ...policies.flatMap((policy) => policy.check())];
      const usable = policies.filter((policy) => policy.check().length === 0);
      process.stdout.write(
        json ? `${JSON.stringify(usable.map(jsonOf), null, 2)}\n` : usable.map(textOf).join("\n"),
      );
      for (const mistake of mistakes) process.stderr.write(`${formatMistake(mistake)}\n`);
      if (mistakes.length > 0) process.exitCode = 1;
    });
}

function jsonOf({ manifest, file, modulePath }: PolicyFile) {
  const { type, aliases, version, summary, description, reads, stateful, parameters } = manifest;
  return {
    type,
    aliases,
    version,
    summary,
    description,
    reads,
    stateful,
    parameters,
    file,
    module: modulePath,
  };
}

function textOf({ manifest, file }: PolicyFile): string {
  const { type, version, summary, aliases, parameters } = manifest;
  const alias = aliases.length > 0 ? [`  aliases: ${aliases.join(", ")}`] : [];
  const lines = [
    `${type} ${version}`,
    `  ${summary}`,
    ...alias,
    ...parameters.map(parameterText),
    `  from ${file}`,
  ];
  return `${lines.join("\n")}\n`;
}

function parameterText(spec: ParameterSpec): string {
  const fallback = spec.default === undefined ? "required" : `default ${spec.default}`;
  const description = spec.description === undefined ? "" : `: ${spec.description.trim()}`;
  return `  - ${spec.name} (${allowedText(spec)}; ${fallback})${description}`;
}
