// `hawser policy`: what a policy author and an operator do with single policies.
import { Command } from "commander";
import { policyListCommand } from "./policy-list.js";
import { policyRunCommand } from "./policy-run.js";
import { policyTestCommand } from "./policy-test.js";

/** The `policy` group of subcommands. */
export function policyCommand(): Command {
  return new Command("policy")
    .description("List, run and test policies.")
    .addCommand(policyListCommand())
    .addCommand(policyRunCommand())
    .addCommand(policyTestCommand());
}
