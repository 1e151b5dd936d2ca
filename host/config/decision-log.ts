// The decision log: the shape of `decision_log`, its rules, and what it comes to.
import { type Stats, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import Type, { type Static } from "typebox";
import type { DecisionLogOptions } from "../decisions/options.js";
import { quote } from "../yaml/words.js";
import { mapping, type Raw, type Remarks } from "./remarks.js";
import { parseSize, SIZE_PATTERN } from "./size.js";

const DEFAULTS = { sample: 1, columns: "read", maxSize: "64MiB", maxFiles: 8 } as const;

/** The shape of `decision_log`. */
export const DecisionLogSchema = Type.Object(
  {
    file: Type.String({ minLength: 1, allowed: "the path of the file to write" }),
    sample: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 1, default: DEFAULTS.sample })),
    columns: Type.Optional(Type.Enum(["read", "all"], { default: DEFAULTS.columns })),
    max_size: Type.Optional(
      Type.String({
        pattern: SIZE_PATTERN,
        allowed: "a size above zero with its unit (KB, MB, GB, KiB, MiB or GiB), such as 64KB or 64MiB",
        default: DEFAULTS.maxSize,
      }),
    ),
    max_files: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000, default: DEFAULTS.maxFiles })),
  },
  { additionalProperties: false, allowed: "a mapping with the key file" },
);

/** `decision_log` as the file has it. */
export type RawDecisionLog = Static<typeof DecisionLogSchema>;

/** Applies the rules of `decision_log` to the root of a config. `config` is its file: a path is relative to its directory. */
export function checkDecisionLog(root: Raw, config: string, remarks: Remarks): void {
  const { file } = mapping(root.decision_log);
  if (typeof file !== "string" || file === "") return;
  const path = resolve(dirname(config), file);
  const refuse = (what: string) =>
    remarks.mistake(
      ["decision_log", "file"],
      "value",
      `decision_log.file must be a file of its own, ${what}`,
    );
  const stats = statsOf(path);
  if (path === resolve(config)) refuse("found this config");
  else if (stats?.isDirectory()) refuse(`found the directory ${quote(path)}`);
  // Whoever opens a pipe may wait for ever.
  else if (stats && !stats.isFile()) refuse(`found ${quote(path)}, which is no regular file`);
}

function statsOf(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    // Whether it can be written is seen when that is tried.
    return undefined;
  }
}

/** What a `decision_log` whose shape is right comes to; undefined where nothing is logged. */
export function decisionLogOptions(
  raw: RawDecisionLog | undefined,
  config: string,
): DecisionLogOptions | undefined {
  if (!raw) return undefined;
  const { file, sample, columns, max_size, max_files } = raw;
  return {
    file: resolve(dirname(config), file),
    sample: sample ?? DEFAULTS.sample,
    columns: columns ?? DEFAULTS.columns,
    maxBytes: parseSize(max_size ?? DEFAULTS.maxSize),
    maxFiles: max_files ?? DEFAULTS.maxFiles,
  };
}
