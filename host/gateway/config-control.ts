// What the gateway's routes tell of the config that is in force, and do about it: whoever reads the file provides it.

/** A key of the file that takes effect at a restart. */
export interface RestartNeeded {
  /** Such as `listen.port`. */
  readonly key: string;
  readonly in_force: unknown;
  readonly in_file: unknown;
}

/** What a reload came to. */
export interface ReloadReport {
  readonly result: "applied" | "failed";
  /** That of what is in force now. */
  readonly generation: number;
  /** What is another than before: top-level keys, and workers as `workers.ID`. */
  readonly changed: readonly string[];
  /** Keys that stay what they were until a restart. */
  readonly restart_needed: readonly RestartNeeded[];
  /**
   * What is wrong, a line each: `FILE:LINE:COLUMN: ...`. Nothing was changed then; or, where it was applied, which workers could not be had.
   */
  readonly mistakes: readonly string[];
  readonly warnings: readonly string[];
}

/** The config as an operator sees it. */
export interface ConfigStatus {
  readonly file: string;
  /** 1 for what the gateway started with, one more with every reload that was applied. */
  readonly generation: number;
  /** When that was, in milliseconds since 1970. */
  readonly loadedAt: number;
  /** What is in force, with its defaults, secrets masked. */
  readonly view: object;
  readonly warnings: readonly string[];
  readonly restartNeeded: readonly RestartNeeded[];
  /** Reloads so far. */
  readonly applied: number;
  readonly failed: number;
  /** Null before the first. */
  readonly lastReload: LastReload | null;
}

export interface LastReload {
  readonly result: ReloadReport["result"];
  /** Milliseconds since 1970. */
  readonly at: number;
  /** What asked for it: the file changed, a signal, an operator's call. */
  readonly by: "watch" | "signal" | "admin";
  /** As in its report; they stand until the next one. */
  readonly mistakes: readonly string[];
}

/** Whoever reads the config. */
export interface ConfigControl {
  status(): ConfigStatus;
  /** Reads the file now, and has it take effect. Never rejects for what is in it. */
  reload(by: LastReload["by"]): Promise<ReloadReport>;
}
