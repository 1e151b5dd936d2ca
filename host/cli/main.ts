#!/usr/bin/env node
// The `hawser` command: one file per subcommand.
import { createRequire } from "node:module";
import { Command } from "commander";

/** Each is loaded when it is asked for: who tests a policy waits for nothing of a gateway. All are for the help on them. */
const COMMANDS: ReadonlyMap<string, () => Promise<Command>> = new Map([
  ["serve", async () => (await import("./serve.js")).serveCommand()],
  ["check", async () => (await import("./check.js")).checkCommand()],
  ["key", async () => (await import("./key.js")).keyCommand()],
  ["policy", async () => (await import("./policy.js")).policyCommand()],
  ["worker", async () => (await import("./worker.js")).workerCommand()],
  ["demo", async () => (await import("./demo.js")).demoCommand()],
]);

const program = new Command("hawser")
  .version(version(), "-v, --version")
  .description("Session affinity for LLM workers, decided by sandboxed WebAssembly policies.")
  .showHelpAfterError();

const named = COMMANDS.get(process.argv[2] ?? "");
for (const load of named ? [named] : COMMANDS.values()) program.addCommand(await load());

await program.parseAsync();

function version(): string {
  const require = createRequire(import.meta.url);
  return (require("hawser/package.json") as { version: string }).version;
}
