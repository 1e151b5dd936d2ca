// Where workers are found while the gateway runs: the shape of `discovery`, its rules, and what it comes to.
import { isIP, isIPv4, isIPv6 } from "node:net";
import { dirname, resolve } from "node:path";
import Type, { type Static } from "typebox";
import type { DiscoveryOptions } from "../fleet/options.js";
import { isSlip } from "../yaml/check.js";
import type { Path } from "../yaml/parse.js";
import { describe, pathText, quote } from "../yaml/words.js";
import { ModelsSchema } from "./models.js";
import { isMapping, list, type Raw, type Remarks } from "./remarks.js";
import { SecretSchema } from "./secret.js";

const MAX_SOURCES = 64;
const MAX_SERVERS = 8;
const MAX_PORT = 65_535;
const MAX_COUNT = 2 ** 31 - 1;

const FILE_FORM = "{ file: PATH }";
const DNS_FORM = "{ dns: NAME, ... }";
const SERVER_FORM = "an IP address, with a port or without, such as 127.0.0.1:8600 or [::1]:53";

const TYPES = ["a", "aaaa", "srv"] as const;

const Count = Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_COUNT }));

const SourceSchema = Type.Object(
  {
    file: Type.Optional(Type.String({ minLength: 1, allowed: "the path of a file of targets" })),
    dns: Type.Optional(
      Type.String({
        pattern: "^(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(\\.[A-Za-z0-9_-]{1,63})*\\.?$",
        allowed: "a full DNS name, such as vllm.default.svc.cluster.local",
      }),
    ),
    type: Type.Optional(Type.Enum(TYPES, { default: "a" })),
    port: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAX_PORT, allowed: `a port from 1 to ${MAX_PORT}` }),
    ),
    scheme: Type.Optional(Type.Enum(["http", "https"], { default: "http" })),
    path: Type.Optional(
      Type.String({
        pattern: '^/[!"$->@-\\[\\]-~]{0,1023}$',
        allowed: "a path that begins with a slash and has no query and no fragment, such as /llama",
      }),
    ),
    models: Type.Optional(ModelsSchema),
    weight: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })),
    max_num_seqs: Count,
    max_in_flight: Count,
    servers: Type.Optional(
      Type.Array(Type.String({ allowed: SERVER_FORM }), {
        ...{ minItems: 1, maxItems: MAX_SERVERS },
        allowed: `a list of 1 to ${MAX_SERVERS} DNS servers`,
      }),
    ),
    api_key: Type.Optional(SecretSchema),
  },
  { additionalProperties: false, allowed: `${FILE_FORM} or ${DNS_FORM}` },
);

/** The shape of `discovery`. */
export const DiscoverySchema = Type.Array(SourceSchema, {
  ...{ minItems: 1, maxItems: MAX_SOURCES },
  allowed: `a list of 1 to ${MAX_SOURCES} sources of workers`,
});

/** `discovery` as the file has it. */
export type RawDiscovery = Static<typeof DiscoverySchema>;

/** Keys of sources of both kinds, and those that name the kind. */
const OTHER_KEYS = ["file", "dns", "api_key"];
/** Keys that say something of the workers behind a name; in a file the labels do. */
const DNS_KEYS = Object.keys(SourceSchema.properties).filter((key) => !OTHER_KEYS.includes(key));

/**
 * Applies the rules of `discovery`, and of where workers are named at all, to the root of a config. `file` is the config
 * file: paths are relative to its directory.
 */
export function checkDiscovery(root: unknown, file: string, remarks: Remarks): void {
  if (!isMapping(root)) return;
  needWorkers(root, remarks);
  const files = new Map<string, Path>();
  const names = new Map<string, Path>();
  for (const [index, source] of list(root.discovery).entries()) {
    if (!isMapping(source)) continue;
    const path = ["discovery", index];
    if (!hasOneForm(path, source, remarks)) continue;
    if (source.dns !== undefined) checkDns(path, source, names, remarks);
    else checkFile(path, source, file, files, remarks);
  }
}

function needWorkers(root: Raw, remarks: Remarks): void {
  if (root.discovery !== undefined) return;
  if (root.workers === undefined) {
    const isMisspelt = (key: string) => isSlip(key, "workers") || isSlip(key, "discovery");
    // That key is told as an unknown one.
    if (Object.keys(root).some(isMisspelt)) return;
    remarks.mistake([], "value", 'the config needs the key "workers", or "discovery"');
  } else if (Array.isArray(root.workers) && root.workers.length === 0) {
    const message = "workers must name at least one worker where there is no discovery, found an empty list";
    remarks.mistake(["workers"], "value", message);
  }
}

function hasOneForm(path: Path, source: Raw, remarks: Remarks): boolean {
  const { file, dns } = source;
  const forms = `${FILE_FORM} or ${DNS_FORM}`;
  if ((file === undefined) !== (dns === undefined)) return true;
  const isMisspelt = (key: string) => isSlip(key, "file") || isSlip(key, "dns");
  if (file !== undefined) {
    remarks.mistake(path, "value", `${pathText(path)} must be either ${forms}, found both`);
  } else if (!Object.keys(source).some((key) => !DNS_KEYS.includes(key) && isMisspelt(key))) {
    remarks.mistake(path, "value", `${pathText(path)} must be ${forms}, found neither "file" nor "dns"`);
  }
  return false;
}

function checkFile(path: Path, source: Raw, config: string, seen: Map<string, Path>, remarks: Remarks): void {
  for (const key of DNS_KEYS) {
    if (source[key] === undefined) continue;
    const place = [...path, key];
    const message = `${pathText(place)} is for ${DNS_FORM} alone: in a file of targets labels say it`;
    remarks.mistake(place, "key", message);
  }
  const { file } = source;
  if (typeof file === "string" && file !== "") {
    remarks.unique([...path, "file"], resolve(dirname(config), file), seen);
  }
}

function checkDns(path: Path, source: Raw, seen: Map<string, Path>, remarks: Remarks): void {
  const { dns, type = "a", port } = source;
  if (typeof dns === "string" && isIP(dns) !== 0) {
    const message = `${pathText([...path, "dns"])} must be a name, found the address ${quote(dns)}`;
    remarks.mistake([...path, "dns"], "value", message);
  }
  checkPort(path, source, remarks);
  refuseRepeat([...path, "dns"], [dns, type, port], seen, remarks);
  const models = new Map<string, Path>();
  for (const [index, model] of list(source.models).entries()) {
    remarks.unique([...path, "models", index], model, models);
  }
  const servers = new Map<string, Path>();
  for (const [index, server] of list(source.servers).entries()) {
    const place = [...path, "servers", index];
    if (typeof server === "string" && !isServer(server)) {
      remarks.mistake(place, "value", `${pathText(place)} must be ${SERVER_FORM}, found ${quote(server)}`);
    } else remarks.unique(place, server, servers);
  }
  if (typeof source.path === "string" && /\/v1\/*$/.test(source.path)) {
    const place = [...path, "path"];
    const message = `${pathText(place)} ends in /v1, below which the gateway would ask for /v1/models and the like: leave it out`;
    remarks.warning(place, "value", message);
  }
}

function checkPort(path: Path, source: Raw, remarks: Remarks): void {
  const { type = "a", port } = source;
  if (type === "srv" && port !== undefined) {
    const place = [...path, "port"];
    const message = `${pathText(place)} must be left out, since SRV records name the port, found ${describe(port)}`;
    remarks.mistake(place, "value", message);
  }
  const isMisspelt = Object.keys(source).some((key) => key !== "port" && isSlip(key, "port"));
  if ((type === "a" || type === "aaaa") && port === undefined && !isMisspelt) {
    const message = `${pathText(path)} needs the key "port": ${type.toUpperCase()} records name none`;
    remarks.mistake(path, "value", message);
  }
}

/** The same workers would be found twice. Names are compared as DNS does. */
function refuseRepeat(
  path: Path,
  [dns, type, port]: unknown[],
  seen: Map<string, Path>,
  remarks: Remarks,
): void {
  if (typeof dns !== "string") return;
  const text = JSON.stringify([dns.toLowerCase().replace(/\.$/, ""), type, port]);
  const first = seen.get(text);
  if (first === undefined) seen.set(text, path);
  else {
    const message = `${pathText(path)} repeats ${quote(dns)} with the same type and port, first at line ${remarks.lineOf(first)}`;
    remarks.mistake(path, "value", message);
  }
}

function isServer(text: string): boolean {
  const [, ipv6, ipv4, port = "53"] = /^(?:\[([^\]]*)\]|([^:]*))(?::([0-9]{1,5}))?$/.exec(text) ?? [];
  if (isIPv6(text)) return true;
  if (ipv6 === undefined ? !isIPv4(ipv4 ?? "") : !isIPv6(ipv6)) return false;
  return Number(port) >= 1 && Number(port) <= MAX_PORT;
}

/** What a `discovery` whose shape is right comes to; `file` is the config file, `apiKeys` has what each source's workers are shown. */
export function discoveryOptions(
  raw: RawDiscovery | undefined,
  file: string,
  apiKeys: readonly (string | undefined)[],
): readonly DiscoveryOptions[] {
  return (raw ?? []).map((source, index) => optionsOf(source, file, apiKeys[index]));
}

function optionsOf(raw: RawDiscovery[number], file: string, apiKey: string | undefined): DiscoveryOptions {
  if (raw.file !== undefined) return { kind: "file", file: resolve(dirname(file), raw.file), apiKey };
  const { dns, type = "a", port = 0, scheme = "http", path = "" } = raw;
  return {
    ...{ kind: "dns", name: dns!, type, port, scheme, path },
    ...{ models: raw.models, weight: raw.weight, slots: raw.max_num_seqs, maxInFlight: raw.max_in_flight },
    ...{ servers: raw.servers ?? [], apiKey },
  };
}
