#!/usr/bin/env node
// The `hawser` command: one file per subcommand.
import { Command } from "commander";
import { VERSION } from "./version.js";

/** Each is loaded when it is asked for: who tests a policy waits for nothing of a gateway. All are for the help on them. */
const COMMANDS: ReadonlyMap<string, () => Promise<Command>> = new Map([
  ["serve", async () => (await import("./serve.js")).serveCommand()],
  ["check", async () => (await import("./check.js")).checkCommand()],
  ["key", async () => (await import("./key.js")).keyCommand()],
  ["policy", async () => (await import("./policy.js")).policyCommand()],
  ["replay", async () => (await import("./replay.js")).replayCommand()],
  ["worker", async () => (await import("./worker.js")).workerCommand()],
  ["demo", async () => (await import("./demo.js")).demoCommand()],
]);

// Before there is a config it has nothing to be read again: until then the signal would end the process.
if (process.argv[2] === "serve" || process.argv[2] === "demo") process.on("SIGHUP", () => {});

const program = new Command("hawser")
  .version(VERSION, "-v, --version")
  .description("Session affinity for LLM workers, decided by sandboxed WebAssembly policies.")
  .showHelpAfterError();

const named = COMMANDS.get(process.argv[2] ?? "");
for (const load of named ? [named] : COMMANDS.values()) program.addCommand(await load());

await program.parseAsync();
