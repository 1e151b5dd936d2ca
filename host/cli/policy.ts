// `hawser policy`: what a policy author and an operator do with single policies.
import { Command } from "commander";
import { policyBuildCommand } from "./policy-build.js";
import { policyInspectCommand } from "./policy-inspect.js";
import { policyListCommand } from "./policy-list.js";
import { policyNewCommand } from "./policy-new.js";
import { policyRunCommand } from "./policy-run.js";
import { policyTestCommand } from "./policy-test.js";

/** The `policy` group of subcommands. */
export function policyCommand(): Command {
  return new Command("policy")
    .description("Write, build, inspect, list, run and test policies.")
    .addCommand(policyNewCommand())
    .addCommand(policyBuildCommand())
    .addCommand(policyInspectCommand())
    .addCommand(policyListCommand())
    .addCommand(policyRunCommand())
    .addCommand(policyTestCommand());
}
