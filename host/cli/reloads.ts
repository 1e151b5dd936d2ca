// The config of a gateway that serves: read again when its file changes, and when somebody asks for it.

import type { Logger } from "pino";
import { type Config, type LoadedConfig, MAX_CONFIG_BYTES } from "../config/config.js";
import { loadConfigAside } from "../config/config-aside.js";
import { changesBetween } from "../config/view.js";
import type { Clock } from "../fleet/clock.js";
import type { ConfigControl, ConfigStatus, LastReload, ReloadReport } from "../gateway/config-control.js";
import { WatchedFile } from "../yaml/watched-file.js";
import { inForceOf, restartNeededBy } from "./in-force.js";
import { remarksOf } from "./remarks.js";

const POLL_MS = 1_000;
/** Mistakes told at once: of a file that is none of ours every line may be one. */
const MAX_TOLD = 100;

/** Has a config take effect, whole or not at all; resolves to what of it could not be had, a line each. Rejects where nothing was changed. */
export type ApplyConfig = (config: Config, by: LastReload["by"]) => Promise<readonly string[]>;

export interface ReloadsOptions {
  /** What the gateway begins with, and the text it was read from. */
  readonly config: Config;
  readonly text: string;
  readonly warnings: readonly string[];
  readonly log: Logger;
  readonly clock: Clock;
}

/** What is in force, and what becomes of its file. One reload is under way at a time. */
export class Reloads implements ConfigControl {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #file: WatchedFile;
  #apply: ApplyConfig = async () => [];
  #inForce: Config;
  /** What the file says, as far as it was read: of this some may wait for a restart. */
  #inFile: Config;
  /** What was read last. */
  #text: string;
  #warnings: readonly string[];
  #loadedAt = Date.now();
  #applied = 0;
  #failed = 0;
  #last: LastReload | null = null;
  /** Why the file cannot be read, as it was told. */
  #unreadable: string | undefined;
  /** Over when the next may begin; the first when there is somebody to have it take effect. */
  #running: Promise<unknown>;
  #letBegin: () => void = () => {};
  /** Asked for, and not begun. */
  #next: Promise<ReloadReport> | null = null;
  #isLooking = false;
  #isStopped = false;
  #stopWatching: () => void = () => {};

  constructor({ config, text, warnings, log, clock }: ReloadsOptions) {
    this.#log = log;
    this.#clock = clock;
    this.#file = new WatchedFile(config.file, MAX_CONFIG_BYTES);
    this.#inForce = config;
    this.#inFile = config;
    this.#text = text;
    this.#warnings = warnings;
    this.#running = new Promise<void>((resolve) => {
      this.#letBegin = resolve;
    });
  }

  /** What is in force. */
  get config(): Config {
    return this.#inForce;
  }

  /** Has configs take effect from now on; what was asked for before has waited for it. */
  begin(apply: ApplyConfig): void {
    this.#apply = apply;
    this.#letBegin();
  }

  /** Looks at the file every second, until `stop`. */
  watch(): void {
    this.#stopWatching = this.#clock.every(POLL_MS, () => void this.#look());
  }

  /** Nothing takes effect any more. */
  stop(): void {
    this.#isStopped = true;
    this.#stopWatching();
  }

  status(): ConfigStatus {
    return {
      file: this.#inForce.file,
      generation: this.#applied + 1,
      loadedAt: this.#loadedAt,
      view: this.#inForce.view,
      warnings: this.#warnings,
      restartNeeded: restartNeededBy(this.#inForce, this.#inFile),
      applied: this.#applied,
      failed: this.#failed,
      lastReload: this.#last,
    };
  }

  reload(by: LastReload["by"]): Promise<ReloadReport> {
    // Whoever asks while one waits for its turn means that one.
    this.#next ??= this.#inTurn(() => {
      this.#next = null;
      return this.#read(by);
    });
    return this.#next;
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const acted = this.#running.then(act);
    this.#running = acted.catch(() => {});
    return acted;
  }

  async #look(): Promise<void> {
    // A file system that hangs is not asked again meanwhile.
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      await this.#inTurn(() => this.#lookOnce());
    } finally {
      this.#isLooking = false;
    }
  }

  async #lookOnce(): Promise<void> {
    try {
      const look = await this.#file.look();
      if (typeof look === "string") return;
      // What was only touched is in force already.
      if (look.text !== this.#text || this.#last?.result === "failed") await this.#load(look.text, "watch");
    } catch (error) {
      this.#tellUnreadable(error as Error, "watch");
    }
  }

  async #read(by: LastReload["by"]): Promise<ReloadReport> {
    try {
      return await this.#load(await this.#file.read(), by);
    } catch (error) {
      return this.#tellUnreadable(error as Error, by);
    }
  }

  async #load(text: string, by: LastReload["by"]): Promise<ReloadReport> {
    this.#unreadable = undefined;
    this.#text = text;
    const loaded = await loadConfigAside(text, this.#inForce.file);
    if (!loaded.config) return this.#fail(by, remarksOf({ ...loaded, warnings: [] }, this.#inForce.file));
    return this.#take(loaded.config, loaded, by);
  }

  async #take(inFile: Config, loaded: LoadedConfig, by: LastReload["by"]): Promise<ReloadReport> {
    const before = this.#inForce;
    const config = inForceOf(before, inFile);
    if (this.#isStopped) return this.#fail(by, [`${before.file}:1:1: the gateway is shutting down`]);
    let missed: readonly string[];
    try {
      missed = await this.#apply(config, by);
    } catch (error) {
      return this.#fail(by, [`${before.file}:1:1: ${(error as Error).message}`]);
    }
    this.#inForce = config;
    this.#inFile = inFile;
    this.#warnings = atMost(remarksOf(loaded, before.file));
    this.#loadedAt = Date.now();
    this.#applied++;
    const mistakes = atMost(missed).map((line) => `${before.file}: ${line}`);
    const report = this.#conclude("applied", by, mistakes, changesBetween(before, config));
    this.#tellApplied(report, by);
    return report;
  }

  #tellApplied(report: ReloadReport, by: LastReload["by"]): void {
    const { generation, changed, restart_needed, warnings, mistakes } = report;
    const { name, policy } = this.#inForce.policy;
    const decides = `${name} = ${policy.manifest.type}`;
    this.#log.info({ generation, by, changed, policy: decides }, "the config was reloaded");
    for (const warning of warnings) this.#log.warn({ generation }, warning);
    if (mistakes.length > 0)
      this.#log.error({ generation, mistakes }, "not all workers of the config could be had");
    if (restart_needed.length > 0)
      this.#log.warn({ generation, restart_needed }, "some of the config takes effect at a restart");
  }

  #tellUnreadable({ message }: Error, by: LastReload["by"]): ReloadReport {
    const isTold = by === "watch" && this.#unreadable === message;
    this.#unreadable = message;
    const mistakes = [`${this.#inForce.file}:1:1: cannot read the file: ${message}`];
    return isTold ? this.#report("failed", mistakes, []) : this.#fail(by, mistakes);
  }

  #fail(by: LastReload["by"], all: readonly string[]): ReloadReport {
    this.#failed++;
    const mistakes = atMost(all);
    const report = this.#conclude("failed", by, mistakes, []);
    const { generation } = report;
    this.#log.error({ generation, by, mistakes }, "the config was not reloaded: what is in force stays");
    return report;
  }

  #conclude(
    result: ReloadReport["result"],
    by: LastReload["by"],
    mistakes: readonly string[],
    changed: readonly string[],
  ): ReloadReport {
    this.#last = { result, at: Date.now(), by, mistakes };
    return this.#report(result, mistakes, changed);
  }

  #report(
    result: ReloadReport["result"],
    mistakes: readonly string[],
    changed: readonly string[],
  ): ReloadReport {
    const { generation, restartNeeded, warnings } = this.status();
    return { result, generation, changed, restart_needed: restartNeeded, mistakes, warnings };
  }
}

/** As many lines as are told at once, and how many more there are. */
function atMost(lines: readonly string[]): readonly string[] {
  const rest = lines.length - MAX_TOLD;
  return rest > 0 ? [...lines.slice(0, MAX_TOLD), `and ${rest} more`] : lines;
}
