// `hawser replay`: another policy, or the same, over the decisions of a log, and where and why they differ.
import { once } from "node:events";
import { Command } from "commander";
import { type InstanceConfig, loadConfig } from "../config/config.js";
import { type AskedDecision, readEntry } from "../decisions/entry.js";
import { inOrder, linesOf } from "../decisions/lines.js";
import { Replay } from "../decisions/replay.js";
import { comparisonText, differenceOf, differenceText, summaryText } from "../decisions/report.js";
import { Tally } from "../decisions/tally.js";
import { CaseError } from "../policy/case.js";
import { PolicyStartError } from "../policy/live.js";
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
/** Damaged lines that are told of one file, and with which a file that begins with them is no log. */
const MAX_DAMAGED = 10;
/** Policies of a log that are told. */
const MAX_MAKERS = 10;
/** What decides where a config selects no instance. */
const DEFAULT_INSTANCE = { name: "default", type: "soft-affinity-load-guard" };

/** A log that cannot be replayed, as one sentence. */
class ReplayError extends Error {}

/** The `replay` subcommand. Exit code 1 where nothing can be replayed, and with --same where anything differs. */
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
    .option("--same", "end with exit code 1 where any decision differs")
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
        if (error instanceof ReplayError || error instanceof PolicyStartError)
          command.error(`error: ${error.message}`, { exitCode: 1 });
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
    let good = 0;
    let damaged: string[] = [];
    try {
      for await (const { number, text } of linesOf(file)) {
        // Before a line that follows half a one, the log begins a new one.
        if (text === "") continue;
        const fault = text === null ? "it is too long" : await this.#take(file, number, text);
        if (fault === undefined) good++;
        else damaged = this.#tellDamaged(damaged, good, `${file}:${number}: passed over: ${fault}`, file);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
      throw new ReplayError(`cannot read ${file}: ${(error as Error).message}`);
    }
    if (good === 0 && damaged.length > 0) throw noLog(file, damaged[0]!);
    for (const line of damaged) process.stderr.write(`${line}\n`);
  }

  /** Those that are told when it is known that the file is a log at all. */
  #tellDamaged(before: string[], good: number, line: string, file: string): string[] {
    this.#damaged++;
    if (good === 0 && before.length + 1 === MAX_DAMAGED) throw noLog(file, before[0] ?? line);
    return before.length < MAX_DAMAGED ? [...before, line] : before;
  }

  /** Takes up a line; what is wrong with it, undefined where nothing is. */
  async #take(file: string, number: number, text: string): Promise<string | undefined> {
    const entry = readEntry(text);
    if (typeof entry === "string") return entry;
    if (entry.kind === "outcome") this.#tally.end(entry);
    else if (!entry.asked) this.#tally.passOver();
    else {
      try {
        await this.#decide(file, number, entry);
      } catch (error) {
        if (error instanceof CaseError) return `it cannot be decided: ${error.message}`;
        throw error;
      }
    }
    return undefined;
  }

  async #decide(file: string, number: number, logged: AskedDecision): Promise<void> {
    const missing = this.#replay.missing.size;
    const verdict = this.#replay.decide(logged);
    if (this.#replay.missing.size > missing) this.#tellMissing(file, number, missing);
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
    process.stderr.write(
      `${file}:${number}: ${this.#instance.name} reads ${names}, which the log does not hold: ${unknown} (${remedy})\n`,
    );
  }

  /** The first line, and another where the log goes on with decisions of another policy. */
  async #introduce(logged: AskedDecision): Promise<void> {
    if (this.#makers.size === MAX_MAKERS) return;
    const text = comparisonText(logged, this.#instance);
    if (this.#makers.has(text)) return;
    this.#makers.add(text);
    if (!this.#flags.json) await print(`${text}\n`);
  }

  /** Prints the summary; false where the exit code is to be 1. */
  async end(): Promise<boolean> {
    const summary = this.#tally.summary();
    const { asked, different } = summary;
    if (this.#flags.json) {
      const { isStateful, missing } = this.#replay;
      const comparisons = [...this.#makers];
      const rest = { missing: [...missing], damaged: this.#damaged, comparisons };
      await print(`${JSON.stringify({ stateful: isStateful, ...summary, ...rest })}\n`);
    } else {
      await print(summaryText(summary, this.#replay.isStateful));
      if (this.#damaged > 0) await print(`${this.#damaged} damaged lines were passed over\n`);
    }
    if (!this.#flags.same) return true;
    if (asked === 0)
      throw new ReplayError("the log has no decision of a policy: there is nothing to compare");
    return different === 0;
  }
}

function noLog(file: string, line: string): ReplayError {
  return new ReplayError(`${file} is no decision log (${line})`);
}

async function print(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
}
