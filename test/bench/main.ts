// `npm run bench [decision|bindings|gateway|reload]`: prints tables of what a decision, a session, a request and a reload cost on this
// machine.
// `--quick` runs everything for a moment, to show that it runs.

import { Command } from "commander";
import { benchBindings } from "./bindings.js";
import { benchDecision } from "./decision.js";
import { benchGateway } from "./gateway.js";
import { benchReloads } from "./reloads.js";

const PARTS: Readonly<Record<string, (quick: boolean) => Promise<void>>> = {
  decision: benchDecision,
  bindings: benchBindings,
  gateway: benchGateway,
  reload: benchReloads,
};

const command = new Command("bench")
  .argument("[part]", `one of ${Object.keys(PARTS).join(", ")}; all unless named`)
  .option("--quick", "a moment of everything, for tests: the figures mean nothing", false)
  .action(async (part: string | undefined, { quick }: { quick: boolean }) => {
    if (part !== undefined && !(part in PARTS)) {
      command.error(`error: there is no part "${part}", known are ${Object.keys(PARTS).join(", ")}`);
    }
    for (const [name, run] of Object.entries(PARTS))
      if (part === undefined || part === name) await run(quick);
  });

await command.parseAsync();
