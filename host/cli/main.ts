#!/usr/bin/env node
// The `hawser` command: one file per subcommand.
import { createRequire } from "node:module";
import { Command } from "commander";
import { checkCommand } from "./check.js";
import { demoCommand } from "./demo.js";
import { policyCommand } from "./policy.js";
import { serveCommand } from "./serve.js";
import { workerCommand } from "./worker.js";

const program = new Command("hawser")
  .version(version(), "-v, --version")
  .description("Session affinity for LLM workers, decided by sandboxed WebAssembly policies.")
  .showHelpAfterError();

program.addCommand(serveCommand());
program.addCommand(checkCommand());
program.addCommand(policyCommand());
program.addCommand(workerCommand());
program.addCommand(demoCommand());

await program.parseAsync();

function version(): string {
  const require = createRequire(import.meta.url);
  return (require("hawser/package.json") as { version: string }).version;
}
