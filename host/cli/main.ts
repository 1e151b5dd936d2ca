#!/usr/bin/env node
// The `hawser` command: one file per subcommand.
import { Command } from "commander";
import { checkCommand } from "./check.js";
import { demoCommand } from "./demo.js";
import { policyCommand } from "./policy.js";
import { serveCommand } from "./serve.js";
import { workerCommand } from "./worker.js";

const program = new Command("hawser")
  .description("Session affinity for LLM workers, decided by sandboxed WebAssembly policies.")
  .showHelpAfterError();

program.addCommand(serveCommand());
program.addCommand(checkCommand());
program.addCommand(policyCommand());
program.addCommand(workerCommand());
program.addCommand(demoCommand());

await program.parseAsync();
