// `hawser policy new`: a folder with a policy that builds at once.
import { relative } from "node:path";
import { Command, Option } from "commander";
import { BuildError } from "../kit/build-error.js";
import { scaffold, TEMPLATE_LANGUAGES, type TemplateLanguage } from "../kit/scaffold.js";

/** The `policy new` subcommand. Exit code 1 where a file is there already; nothing is written then. */
export function policyNewCommand(): Command {
  return new Command("new")
    .description("make a folder with a policy that builds and passes its decision table")
    .argument("<name>", "the folder; its last part is the policy's type")
    .addOption(
      new Option("--language <language>", "what it is written in")
        .choices(TEMPLATE_LANGUAGES)
        .default("assemblyscript"),
    )
    .action((name: string, { language }: { language: TemplateLanguage }, command: Command) => {
      try {
        for (const file of scaffold(name, language)) process.stdout.write(`wrote ${relative("", file)}\n`);
        process.stdout.write(`next: cd ${name} && npx hawser policy build\n`);
      } catch (error) {
        if (error instanceof BuildError) command.error(`error: ${error.message}`, { exitCode: 1 });
        throw error;
      }
    });
}
