// `hawser serve`: the gateway.
import { randomInt } from "node:crypto";
import { setFlagsFromString } from "node:v8";
import { Command } from "commander";
import { type Logger, pino } from "pino";
import { type Config, MAX_CONFIG_BYTES, parseConfig } from "../config/config.js";
import { parseWorkerEntry } from "../config/worker-entry.js";
import { PROCESS_CLOCK } from "../fleet/clock.js";
import type { ReadWorker } from "../gateway/admin-workers.js";
import { createGateway, type Gateway } from "../gateway/server.js";
import type { GatewaySettings } from "../gateway/settings.js";
import { Router } from "../routing/router.js";
import { RequestReader } from "../session/request-reader.js";
import { formatMistake } from "../yaml/mistake.js";
import { readText } from "../yaml/read.js";
import { Reloads } from "./reloads.js";
import { remarksOf } from "./remarks.js";
import { VERSION } from "./version.js";
import { warmUp } from "./warm-up.js";

/** The config file that is read unless another is named. */
export const DEFAULT_CONFIG = "hawser.yaml";

interface ServeOptions {
  readonly config: string;
  /** Whether the config is read again when its file changes. */
  readonly watch: boolean;
}

/** The `serve` subcommand. It serves until SIGINT or SIGTERM: see EXIT for how it ends then. */
export function serveCommand(): Command {
  return new Command("serve")
    .description("start the gateway")
    .option("-c, --config <file>", "the config file", DEFAULT_CONFIG)
    .option(
      "--no-watch",
      "do not read the config again when its file changes; SIGHUP and POST /admin/reload do still",
    )
    .action(async ({ config: file, watch }: ServeOptions, command: Command) => {
      compileAtOnce();
      await serve(readConfig(file, command), command, watch);
    });
}

/**
 * Has V8 compile a policy as a whole when it is loaded, and not each function at its first call: that call is a
 * request's decision. To be called before the first policy is loaded. The flag holds for the whole process, so that a
 * command may set it and the library may not.
 */
export function compileAtOnce(): void {
  setFlagsFromString("--no-wasm-lazy-compilation");
}

/** A config as it was read. */
export interface ReadConfig {
  readonly config: Config;
  /** The file's content. */
  readonly text: string;
  /** What is accepted but has no effect, a line each. */
  readonly warnings: readonly string[];
}

/** The config in a file; where it has mistakes the command prints them all and ends with exit code 1. */
export function readConfig(file: string, command: Command): ReadConfig {
  const { config, text, remarks } = readWithRemarks(file);
  if (!config) command.error(remarks.join("\n"), { exitCode: 1 });
  for (const remark of remarks) process.stderr.write(`${remark}\n`);
  return { config, text, warnings: remarks };
}

/** A config file's content and what is to be said of it, a line each, in the order of the file. */
export function readWithRemarks(file: string): {
  config: Config | undefined;
  text: string;
  remarks: string[];
} {
  const read = readText(file, MAX_CONFIG_BYTES);
  const [text, loaded] =
    "mistake" in read
      ? ["", { mistakes: [read.mistake], warnings: [] }]
      : [read.text, parseConfig(read.text, file)];
  return { config: loaded.config, text, remarks: remarksOf(loaded, file) };
}

/**
 * Starts the gateway of a config and says where it listens; SIGINT and SIGTERM end it, from the beginning on, and SIGHUP has the
 * config read again, as a change of its file does with `watch`. Resolves to its address.
 */
export async function serve(read: ReadConfig, command: Command, watch = true): Promise<string> {
  const { config } = read;
  const { listen, admin, session, policy, fallback } = config;
  const log = logger();
  const reloads = new Reloads({ ...read, log, clock: PROCESS_CLOCK });
  // From the beginning on: a process that does not take it is ended by it.
  process.on("SIGHUP", () => void reloads.reload("signal"));
  await warmUp(config);
  const router = new Router({
    instance: policy,
    fallback,
    session,
    clock: () => performance.now(),
    seed: randomInt(2 ** 47),
  });
  const gateway = createGateway({
    ...settingsOf(config),
    router,
    log,
    readWorker,
    config: reloads,
    version: VERSION,
    withProcess: true,
  });
  reloads.begin((next, by) => {
    const { policy: instance, fallback, session } = next;
    // An operator who asks for it may have mended what a policy failed by.
    return gateway.reconfigure(settingsOf(next), { instance, fallback, session, revive: by !== "watch" });
  });
  endOnSignals(gateway, reloads);
  const started = <T>(
    { host, port }: Address,
    start: (host: string, port: number) => Promise<T>,
  ): Promise<T> =>
    start(host, port).catch(async (error: Error) => {
      await gateway.close();
      command.error(`error: cannot listen on ${host}, port ${port}: ${error.message}`, { exitCode: 1 });
    });
  const adminAddress = await started(admin, gateway.listenAdmin);
  const address = await started(listen, gateway.listen);
  if (watch) reloads.watch();
  process.stdout.write(`hawser listening on ${asSeen(address, listen.host)} (${summaryOf(config)})\n`);
  process.stdout.write(`admin on ${asSeen(adminAddress, admin.host)}\n`);
  return address;
}

/** What of a config the gateway goes by, and may go by otherwise later. */
export function settingsOf(config: Config): GatewaySettings {
  const { admin, workers, discovery, session, access, fleet, admission, dataPlane, decisionLog } = config;
  const { allowPin, allowAffinityHeader } = session;
  return {
    ...{ reader: new RequestReader(session), allowPin, allowAffinityHeader, adminToken: admin.token },
    ...{ access, dataPlane, workers, discovery, fleet, admission, decisionLog },
  };
}

/** Reads a worker that an operator adds. */
export function readWorker(text: string): ReturnType<ReadWorker> {
  const { entry, mistakes } = parseWorkerEntry(text);
  return entry ? { entry } : { mistakes: mistakes.map(formatMistake) };
}

/** Exit codes of a gateway that was told to end: all answers finished, some cut at the deadline, some cut at a second signal. */
const EXIT = { finished: 0, deadline: 3, hurried: 4 } as const;

/** The first SIGINT or SIGTERM lets what is under way finish, for as long as the config says; the second cuts it. */
function endOnSignals(gateway: Gateway, reloads: Reloads): void {
  let signals = 0;
  const onSignal = (): void => {
    signals++;
    reloads.stop();
    if (signals > 1) void gateway.close();
    else
      void gateway.drain(reloads.config.shutdownMs).then(({ cut, by }) => {
        process.exitCode = cut === 0 ? EXIT.finished : by === "close" ? EXIT.hurried : EXIT.deadline;
      });
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, onSignal);
}

/** Where it listens: fastify tells one address for a host that stands for all of the machine's. */
function asSeen(address: string, host: string): string {
  const isOpen = host === "0.0.0.0" || host === "::";
  return isOpen ? `http://${host === "::" ? "[::]" : host}:${new URL(address).port || 80}` : address;
}

interface Address {
  readonly host: string;
  readonly port: number;
}

/** A config in a few words: `2 workers, policy guard = soft-affinity-load-guard`. */
export function summaryOf({ workers, policy }: Config): string {
  const count = workers.length === 1 ? "1 worker" : `${workers.length} workers`;
  return `${count}, policy ${policy.name} = ${policy.policy.manifest.type}`;
}

/** Logs to stderr. Whoever read there may leave: that costs its lines, never the gateway. */
function logger(): Logger {
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  // Not pino's own destination: it tries a closed pipe again for ever, on the only thread.
  return pino({ base: null }, { write: (line) => void process.stderr.write(line) });
}
