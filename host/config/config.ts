// The config file -> a typed config with its defaults, or every mistake in it at its place.
import type { DecisionLogOptions } from "../decisions/options.js";
import type { DiscoveryOptions, FleetOptions } from "../fleet/options.js";
import type { AccessOptions, AdmissionOptions, DataPlaneOptions } from "../gateway/options.js";
import type { SourceSpec, TenantSpec } from "../session/sources.js";
import { compileCheck } from "../yaml/check.js";
import { type Mistake, sortMistakes } from "../yaml/mistake.js";
import { parseYaml } from "../yaml/parse.js";
import { readText } from "../yaml/read.js";
import { accessOptions, checkAccess } from "./access.js";
import { checkAdmin } from "./admin.js";
import { readApiKeys } from "./api-key.js";
import { checkDataPlane, dataPlane } from "./data-plane.js";
import { checkDecisionLog, decisionLogOptions } from "./decision-log.js";
import { checkDiscovery, discoveryOptions } from "./discovery.js";
import { parseDuration } from "./duration.js";
import { admissionOptions, checkFleet, fleetOptions } from "./fleet.js";
import { refuseOwnAddress } from "./own-address.js";
import { mapping, Remarks } from "./remarks.js";
import { type InstanceConfig, Rules } from "./rules.js";
import { ConfigSchema, DEFAULTS, type RawConfig } from "./schema.js";
import type { Environment } from "./secret.js";
import { checkSession } from "./session.js";
import { baseUrl } from "./url.js";
import { type ConfigView, configView } from "./view.js";

export type { InstanceConfig } from "./rules.js";

export interface Config {
  /** The file it came from, as it was named. */
  readonly file: string;
  /** Port 0 takes any that is free. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly admin: AdminConfig;
  /** Milliseconds that what is under way gets to finish when the gateway is told to end. */
  readonly shutdownMs: number;
  /** At least one where nothing is to be discovered. */
  readonly workers: readonly WorkerConfig[];
  /** Where more workers are found. */
  readonly discovery: readonly DiscoveryOptions[];
  readonly fleet: FleetOptions;
  readonly admission: AdmissionOptions;
  readonly session: SessionConfig;
  readonly dataPlane: DataPlaneOptions;
  /** Undefined where decisions are not logged. */
  readonly decisionLog: DecisionLogOptions | undefined;
  /** Undefined where anybody may use the gateway. */
  readonly access: AccessOptions | undefined;
  /** What decides: the selected instance, or the shipped guard under the name `default`. */
  readonly policy: InstanceConfig;
  /** What takes over where that one is quarantined, if the file says so. */
  readonly fallback: InstanceConfig | undefined;
  /** Every instance of the file, selected or not, in its order. */
  readonly instances: readonly InstanceConfig[];
  /** All of it as an operator is shown it. */
  readonly view: ConfigView;
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
  /** Most requests in flight; undefined for no limit. */
  readonly maxInFlight: number | undefined;
  /** Printable ASCII characters without spaces; undefined where the worker asks for none. */
  readonly apiKey: string | undefined;
}

export interface AdminConfig {
  readonly host: string;
  /** Port 0 takes any that is free. */
  readonly port: number;
  /** At least 16 printable ASCII characters without spaces; undefined only where the host is loopback. */
  readonly token: string | undefined;
}

export interface SessionConfig {
  readonly mode: "soft" | "hard" | "off";
  /** Wins over the mode. */
  readonly fullDeterminism: boolean;
  /** Idle time after which a binding ends, in milliseconds. */
  readonly ttlMs: number;
  readonly maxBindings: number;
  /** What happens to a new session where no more bindings may be held. */
  readonly whenFull: "evict-idle" | "refuse-new";
  /** Whether the sessions of one parent have a binding each or one together. */
  readonly binding: "session" | "parent-group";
  /** Whether an unbound child starts where the policy says or on its parent's worker. */
  readonly firstPlacement: "policy" | "parent";
  /** In the order they are asked; `default` is spelled out, headers are in lower case. */
  readonly sources: readonly SourceSpec[];
  readonly tenant: TenantSpec | undefined;
  /** Endings of a model's name that do not make another session. */
  readonly modelSuffixes: readonly string[];
  /** Whether a request may name its worker. */
  readonly allowPin: boolean;
  /** Whether a request may say how it is bound. */
  readonly allowAffinityHeader: boolean;
}

export interface LoadedConfig {
  /** Absent where there are mistakes. */
  readonly config?: Config;
  /** Those of the config file in the order of its lines, then those of manifests and modules. */
  readonly mistakes: readonly Mistake[];
  /** What is accepted but has no effect. */
  readonly warnings: readonly Mistake[];
}

/** Bytes of the largest config: 16,384 workers with all that can be said of them are half of it. */
export const MAX_CONFIG_BYTES = 16 * 2 ** 20;

const checkShape = compileCheck(ConfigSchema, "the config");

/**
 * Reads a config file, and the manifests, modules and secrets that it uses. `environment` is where it looks variables
 * up. Never throws for what is in them.
 */
export function loadConfig(file: string, environment: Environment = process.env): LoadedConfig {
  const read = readText(file);
  if ("mistake" in read) return { mistakes: [read.mistake], warnings: [] };
  return parseConfig(read.text, file, environment);
}

/** The same for a text; `file` names it in mistakes, and its directory is what paths in it are relative to. */
export function parseConfig(
  text: string,
  file: string,
  environment: Environment = process.env,
): LoadedConfig {
  const document = parseYaml(text, file);
  if (document.value === undefined) return { mistakes: document.mistakes, warnings: [] };
  const remarks = new Remarks(document);
  const rules = new Rules(document, remarks);
  rules.run();
  const root = mapping(document.value);
  const places = { environment, file };
  const token = checkAdmin(root, places, remarks);
  const apiKeys = readApiKeys(root, "workers", places, remarks);
  const foundKeys = readApiKeys(root, "discovery", places, remarks);
  refuseOwnAddress(root, remarks);
  checkDataPlane(root, remarks);
  checkDecisionLog(root, file, remarks);
  checkDiscovery(document.value, file, remarks);
  checkFleet(root, remarks);
  checkAccess(root, remarks);
  const origins = checkSession(mapping(root.session), remarks);
  const mistakes = sortMistakes([...document.mistakes, ...checkShape(document), ...remarks.mistakes], file);
  const warnings = sortMistakes(remarks.warnings, file);
  const { selected, fallback, instances } = rules;
  if (mistakes.length > 0 || !selected) return { mistakes, warnings };
  const raw = document.value as RawConfig;
  const { listen = {}, shutdown = {} } = raw;
  const chosen = { policy: selected, fallback, instances };
  const config: Config = {
    file,
    listen: { host: listen.host ?? DEFAULTS.host, port: listen.port ?? DEFAULTS.port },
    admin: adminConfig(raw, token),
    shutdownMs: parseDuration(shutdown.deadline ?? DEFAULTS.shutdownDeadline),
    workers: (raw.workers ?? []).map((worker, index) => ({
      ...workerConfig(worker),
      apiKey: apiKeys[index],
    })),
    discovery: discoveryOptions(raw.discovery, file, foundKeys),
    ...{ fleet: fleetOptions(raw), admission: admissionOptions(raw) },
    session: { ...sessionConfig(raw), ...origins },
    dataPlane: dataPlane(raw),
    decisionLog: decisionLogOptions(raw.decision_log, file),
    access: accessOptions(raw.access),
    ...chosen,
    view: configView(raw, chosen),
  };
  return { config, mistakes, warnings };
}

function adminConfig({ admin = {} }: RawConfig, token: string | undefined): AdminConfig {
  return { host: admin.host ?? DEFAULTS.host, port: admin.port ?? DEFAULTS.adminPort, token };
}

function workerConfig(raw: NonNullable<RawConfig["workers"]>[number]): Omit<WorkerConfig, "apiKey"> {
  const {
    id,
    url,
    models,
    weight = DEFAULTS.weight,
    max_num_seqs: slots = 0,
    max_in_flight: maxInFlight,
  } = raw;
  return { id, url: baseUrl(url), models, weight, slots, maxInFlight };
}

function sessionConfig({ session = {} }: RawConfig): Omit<SessionConfig, "sources" | "tenant"> {
  return {
    mode: session.mode ?? DEFAULTS.mode,
    fullDeterminism: session.full_determinism ?? DEFAULTS.fullDeterminism,
    ttlMs: parseDuration(session.ttl ?? DEFAULTS.ttl),
    maxBindings: session.max_bindings ?? DEFAULTS.maxBindings,
    whenFull: session.when_full ?? DEFAULTS.whenFull,
    binding: session.binding ?? DEFAULTS.binding,
    firstPlacement: session.first_placement ?? DEFAULTS.firstPlacement,
    modelSuffixes: session.model_suffixes ?? [],
    allowPin: session.allow_pin ?? DEFAULTS.allowPin,
    allowAffinityHeader: session.allow_affinity_header ?? DEFAULTS.allowAffinityHeader,
  };
}
