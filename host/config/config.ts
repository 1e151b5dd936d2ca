// The config file -> a typed config with its defaults, or every mistake in it at its place.
import { compileCheck } from "../yaml/check.js";
import { type Mistake, sortMistakes } from "../yaml/mistake.js";
import { parseYaml } from "../yaml/parse.js";
import { readText } from "../yaml/read.js";
import { parseDuration } from "./duration.js";
import { type InstanceConfig, Rules } from "./rules.js";
import { ConfigSchema, DEFAULTS, type RawConfig } from "./schema.js";
import { baseUrl } from "./url.js";

export type { InstanceConfig } from "./rules.js";

export interface Config {
  /** The file it came from, as it was named. */
  readonly file: string;
  /** Port 0 takes any that is free. */
  readonly listen: { readonly host: string; readonly port: number };
  /** At least one. */
  readonly workers: readonly WorkerConfig[];
  readonly session: SessionConfig;
  /** What decides: the selected instance, or the shipped guard under the name `default`. */
  readonly policy: InstanceConfig;
  /** What takes over where that one is quarantined, if the file says so. */
  readonly fallback: InstanceConfig | undefined;
  /** Every instance of the file, selected or not, in its order. */
  readonly instances: readonly InstanceConfig[];
}

export interface WorkerConfig {
  readonly id: string;
  /** Without a slash at its end. */
  readonly url: string;
  /** Undefined where the file leaves it to the worker to say. */
  readonly models: readonly string[] | undefined;
  /** Capacity weight, 1..10000, 100 = normal. */
  readonly weight: number;
  /** Requests the engine runs at once, 0 unknown. */
  readonly slots: number;
}

export interface SessionConfig {
  readonly mode: "soft" | "off";
  readonly fullDeterminism: boolean;
  /** Idle time after which a binding ends, in milliseconds. */
  readonly ttlMs: number;
  readonly maxBindings: number;
}

export interface LoadedConfig {
  /** Absent where there are mistakes. */
  readonly config?: Config;
  /** Those of the config file in the order of its lines, then those of manifests and modules. */
  readonly mistakes: readonly Mistake[];
  /** What is accepted but has no effect. */
  readonly warnings: readonly Mistake[];
}

const checkShape = compileCheck(ConfigSchema, "the config");

/** Reads a config file, and the manifests and modules that it uses. Never throws for what is in them. */
export function loadConfig(file: string): LoadedConfig {
  const read = readText(file);
  return "mistake" in read ? { mistakes: [read.mistake], warnings: [] } : parseConfig(read.text, file);
}

/** The same for a text; `file` names it in mistakes, and its directory is what `policies.path` is relative to. */
export function parseConfig(text: string, file: string): LoadedConfig {
  const document = parseYaml(text, file);
  if (document.value === undefined) return { mistakes: document.mistakes, warnings: [] };
  const rules = new Rules(document);
  rules.run();
  const mistakes = sortMistakes([...document.mistakes, ...checkShape(document), ...rules.mistakes], file);
  const warnings = sortMistakes(rules.warnings, file);
  const { selected, fallback, instances } = rules;
  if (mistakes.length > 0 || !selected) return { mistakes, warnings };
  const policies = { policy: selected, fallback, instances };
  return { config: build(file, document.value as RawConfig, policies), mistakes, warnings };
}

function build(
  file: string,
  raw: RawConfig,
  policies: Pick<Config, "policy" | "fallback" | "instances">,
): Config {
  const { listen = {}, session = {} } = raw;
  return {
    file,
    listen: { host: listen.host ?? DEFAULTS.host, port: listen.port ?? DEFAULTS.port },
    workers: raw.workers.map(({ id, url, models, weight = DEFAULTS.weight, max_num_seqs: slots = 0 }) => {
      return { id, url: baseUrl(url), models, weight, slots };
    }),
    session: {
      mode: session.mode ?? DEFAULTS.mode,
      fullDeterminism: session.full_determinism ?? DEFAULTS.fullDeterminism,
      ttlMs: parseDuration(session.ttl ?? DEFAULTS.ttl),
      maxBindings: session.max_bindings ?? DEFAULTS.maxBindings,
    },
    ...policies,
  };
}
