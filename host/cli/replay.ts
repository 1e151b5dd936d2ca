// `hawser replay`: another policy, or the same, over the decisions of a log, and where and why they differ.
import { once } from "node:events";
import { Command } from "commander";
import { type InstanceConfig, loadConfig } from "../config/config.js";
import { type AskedDecision, type LogEntry, readEntry } from "../decisions/entry.js";
import { inOrder, linesOf } from "../decisions/lines.js";
import { Replay, type Verdict } from "../decisions/replay.js";
import { comparisonText, differenceOf, differenceText, plain, summaryText } from "../decisions/report.js";
import { Tally } from "../decisions/tally.js";
import { loadPolicy } from "../policy/load.js";
import { resolveParameters } from "../policy/parameters.js";
import { formatMistake } from "../yaml/mistake.js";
import { unknownWord } from "../yaml/words.js";
import { integer } from "./options.js";

interface Flags {
  config: string;
  policy: string;
  limit?: number;
  json?: boolean;
  same?: boolean;
}

/** Differences that are printed for people unless told otherwise. */
const DEFAULT_LIMIT = 20;
/** Lines that are told of one file where something is wrong with them, and damaged ones that show that it is no log. */
const MAX_FAULTS = 10;
/** Policies of a log that are told. */
const MAX_MAKERS = 10;
/** What decides where a config selects no instance. */
const DEFAULT_INSTANCE = { name: "default", type: "soft-affinity-load-guard" };

/** A log that cannot be replayed, as one sentence. */
class ReplayError extends Error {}

/**
 * The `replay` subcommand. Exit code 1 where nothing can be replayed, and with --same where anything differs, or a decision of a
 * policy is not replayed.
 */
export function replayCommand(): Command {
  return new Command("replay")
    .description("run a policy over the decisions of a decision log, and show where it decides otherwise")
    .argument("<log...>", "files of a decision log; of one that was rotated, the oldest is read first")
    .requiredOption("-c, --config <file>", "the config file that has the instance")
    .requiredOption("--policy <instance>", "the name of an instance in it, or default")
    .option(
      "--limit <number>",
      `print so many differences (${DEFAULT_LIMIT}; with --json all)`,
      integer(0, Number.MAX_SAFE_INTEGER),
    )
    .option("--json", "print differences and the summary as JSON, one object a line")
    .option("--same", "end with exit code 1 where any decision differs or cannot be replayed")
    .action(async (files: string[], flags: Flags, command: Command) => {
      process.stdout.on("error", (error: NodeJS.ErrnoException) => {
        // A reader that has seen enough, such as `head`, is no error.
        if (error.code === "EPIPE") process.exit(0);
        command.error(`error: cannot write: ${error.message}`, { exitCode: 1 });
      });
      const run = new Run(instanceOf(flags, command), flags);
      try {
        for (const file of inOrder(files)) await run.read(file);
        if (!(await run.end())) process.exitCode = 1;
      } catch (error) {
        if (error instanceof ReplayError) command.error(`error: ${plain(error.message)}`, { exitCode: 1 });
        throw error;
      }
    });
}

function instanceOf({ config: file, policy: name }: Flags, command: Command): InstanceConfig {
  const { config, mistakes } = loadConfig(file);
  if (!config) return command.error(mistakes.map(formatMistake).join("\n"), { exitCode: 1 });
  const instances = [...config.instances, config.policy];
  const found = instances.find((instance) => instance.name === name);
  if (found) return found;
  if (name === DEFAULT_INSTANCE.name) {
    const policy = loadPolicy(DEFAULT_INSTANCE.type);
    return { name, policy, parameters: resolveParameters(policy.manifest.parameters, undefined).values };
  }
  const names = [...new Set([...instances.map((instance) => instance.name), DEFAULT_INSTANCE.name])];
  const message = unknownWord(`${file} has no instance "${name}"`, name, names, "instances");
  return command.error(`error: ${message}`, { exitCode: 1 });
}

/** One run of the command. */
class Run {
  readonly #instance: InstanceConfig;
  readonly #replay: Replay;
  readonly #tally = new Tally();
  readonly #flags: Flags;
  #left: number;
  #damaged = 0;
  /** How the policies of the log were told to stand to this one. */
  readonly #makers = new Set<string>();

  constructor(instance: InstanceConfig, flags: Flags) {
    this.#instance = instance;
    this.#replay = new Replay(instance);
    this.#flags = flags;
    this.#left = flags.limit ?? (flags.json ? Number.POSITIVE_INFINITY : DEFAULT_LIMIT);
  }

  async read(file: string): Promise<void> {
    const faults: string[] = [];
    let isLog = false;
    try {
      for await (const { number, text } of linesOf(file)) {
        // Before a line that follows half a one, the log begins a new one.
        if (text === "") continue;
        const entry = text === null ? "it is too long" : readEntry(text);
        const isDamaged = typeof entry === "string";
        if (isDamaged) this.#damaged++;
        else isLog = true;
        const fault = isDamaged ? `passed over: ${entry}` : await this.#take(file, number, entry);
        if (fault !== undefined && faults.length < MAX_FAULTS) faults.push(`${file}:${number}: ${fault}`);
        if (!isLog && faults.length === MAX_FAULTS) break;
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
      throw new ReplayError(`cannot read ${file}: ${(error as Error).message}`);
    }
    // Only now it is known that it is a log at all.
    if (!isLog && faults.length > 0) throw new ReplayError(`${file} is no decision log (${faults[0]})`);
    for (const fault of faults) process.stderr.write(`${plain(fault)}\n`);
  }

  /** Takes up what a line says; answers why that cannot be, undefined where it can. */
  async #take(file: string, number: number, entry: LogEntry): Promise<string | undefined> {
    if (entry.kind === "outcome") this.#tally.end(entry);
    else if (!entry.asked) this.#tally.passOver();
    else {
      const missing = this.#replay.missing.size;
      const verdict = this.#decide(entry);
      if (this.#replay.missing.size > missing) this.#tellMissing(file, number, missing);
      if (typeof verdict === "string") return verdict;
      await this.#compare(file, number, entry, verdict);
    }
    return undefined;
  }

  /** A text says why a decision is not replayed: one that cannot be decided is no reason to leave the others. */
  #decide(logged: AskedDecision): Verdict | string {
    try {
      return this.#replay.decide(logged);
    } catch (error) {
      this.#tally.giveUp();
      return `not replayed: ${(error as Error).message}`;
    }
  }

  async #compare(file: string, number: number, logged: AskedDecision, verdict: Verdict): Promise<void> {
    await this.#introduce(logged);
    this.#tally.take(logged, verdict);
    if (verdict.isSame || this.#left === 0) return;
    this.#left--;
    const difference = differenceOf(file, number, logged, verdict);
    await print(this.#flags.json ? `${JSON.stringify(difference)}\n` : `${differenceText(difference)}\n`);
  }

  #tellMissing(file: string, number: number, known: number): void {
    const names = [...this.#replay.missing].slice(known).join(", ");
    const remedy =
      "log with decision_log.columns: all, or under a policy that reads them, to have what can be had";
    const unknown = "random bits are drawn, the rest is unknown to it";
    const told = `${file}:${number}: ${this.#instance.name} reads ${names}, which the log does not hold`;
    process.stderr.write(`${plain(`${told}: ${unknown} (${remedy})`)}\n`);
  }

  /** The first line, and another where the log goes on with decisions of another policy. */
  async #introduce(logged: AskedDecision): Promise<void> {
    if (this.#makers.size === MAX_MAKERS) return;
    const text = comparisonText(logged, this.#instance);
    if (this.#makers.has(text)) return;
    this.#makers.add(text);
    if (!this.#flags.json) await print(`${text}\n`);
  }

  /** Prints the summary; false where the exit code is to be 1: nothing was replayed of what there is, or --same does not hold. */
  async end(): Promise<boolean> {
    const summary = this.#tally.summary();
    const { asked, notReplayed, different } = summary;
    if (this.#flags.json) {
      const { isStateful, missing } = this.#replay;
      const comparisons = [...this.#makers];
      const rest = { missing: [...missing], damaged: this.#damaged, comparisons };
      await print(`${JSON.stringify({ stateful: isStateful, ...summary, ...rest })}\n`);
    } else {
      await print(summaryText(summary, this.#replay.isStateful));
      if (this.#damaged > 0) await print(`${this.#damaged} damaged lines were passed over\n`);
    }
    if (!this.#flags.same) return asked > 0 || notReplayed === 0;
    if (asked + notReplayed === 0)
      throw new ReplayError("the log has no decision of a policy: there is nothing to compare");
    return different + notReplayed === 0;
  }
}

async function print(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
}
