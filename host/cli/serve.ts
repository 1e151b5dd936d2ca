// `hawser serve`: the gateway.
import { randomInt } from "node:crypto";
import { Command } from "commander";
import { pino } from "pino";
import { type Config, loadConfig } from "../config/config.js";
import { createGateway, type Gateway } from "../gateway/server.js";
import { Router } from "../routing/router.js";
import { formatMistake } from "../yaml/mistake.js";

/** The config file that is read unless another is named. */
export const DEFAULT_CONFIG = "hawser.yaml";

/** The `serve` subcommand. It serves until SIGINT or SIGTERM, then exits with 0. */
export function serveCommand(): Command {
  return new Command("serve")
    .description("start the gateway")
    .option("-c, --config <file>", "the config file", DEFAULT_CONFIG)
    .action(async ({ config: file }: { config: string }, command: Command) => {
      const config = readConfig(file, command);
      const gateway = await serve(config, command);
      for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void gateway.close());
    });
}

/** The config in a file; where it has mistakes the command prints them all and ends with exit code 1. */
export function readConfig(file: string, command: Command): Config {
  const { config, mistakes, warnings } = loadConfig(file);
  for (const warning of warnings) process.stderr.write(`${formatMistake(warning)} (warning)\n`);
  if (!config) command.error(mistakes.map(formatMistake).join("\n"), { exitCode: 1 });
  return config;
}

/** Starts the gateway of a config and says where it listens. */
export async function serve(config: Config, command: Command): Promise<Gateway> {
  const { listen, workers, session, policy, fallback } = config;
  const router = new Router({
    instance: policy,
    fallback,
    // Not eligible until the gateway has their answer.
    workers: workers.map((worker) => ({ ...worker, models: worker.models ?? [], eligible: false })),
    session,
    clock: () => performance.now(),
    seed: randomInt(2 ** 47),
  });
  const gateway = createGateway({ router, log: pino(pino.destination(2)) });
  try {
    const address = await gateway.listen(listen.host, listen.port);
    const type = policy.policy.manifest.type;
    process.stdout.write(
      `hawser listening on ${address} (${workers.length} workers, policy ${policy.name} = ${type})\n`,
    );
  } catch (error) {
    await gateway.close();
    const reason = (error as Error).message;
    command.error(`error: cannot listen on ${listen.host}, port ${listen.port}: ${reason}`, { exitCode: 1 });
  }
  return gateway;
}
