// The rules of the admin address: who may reach it, and with which token.
import { BlockList, isIP } from "node:net";
import { pathText, quote } from "../yaml/words.js";
import { mapping, type Raw, type Remarks } from "./remarks.js";
import { DEFAULTS, HOST_PATTERN } from "./schema.js";
import { headerBreach, type NamedSecret, readSecret, type SecretPlaces } from "./secret.js";

/** The variable that holds the token where the file names no other place. */
const TOKEN_VARIABLE = "HAWSER_ADMIN_TOKEN";
const MIN_TOKEN_LENGTH = 16;
const TOKEN_FORM = "at least 16 printable ASCII characters without spaces";

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/** Hosts that stand for every address. */
const WILDCARDS = new BlockList();
WILDCARDS.addAddress("0.0.0.0", "ipv4");
WILDCARDS.addAddress("::", "ipv6");

/** Applies the rules of `admin` to the root of a config; returns the token, undefined where there is none. */
export function checkAdmin(root: Raw, places: SecretPlaces, remarks: Remarks): string | undefined {
  const admin = mapping(root.admin);
  refuseSharedAddress(mapping(root.listen), admin, remarks);
  const secret =
    admin.token === undefined
      ? variableOf(places)
      : readSecret(["admin", "token"], admin.token, places, remarks);
  if (secret !== undefined) return tokenOf(secret, remarks);
  if (admin.token === undefined) refuseOpenDoor(admin, remarks);
  return undefined;
}

/** An empty variable is what a container gets for one that its host does not set. */
function variableOf({ environment }: SecretPlaces): NamedSecret | undefined {
  const text = environment[TOKEN_VARIABLE];
  const origin = `the environment variable ${TOKEN_VARIABLE}`;
  return text ? { text, origin, path: ["admin"] } : undefined;
}

function tokenOf({ text, origin, path }: NamedSecret, remarks: Remarks): string | undefined {
  const breach = tokenBreach(text);
  if (breach === undefined) return text;
  remarks.mistake(path, "value", `the admin token in ${origin} must be ${TOKEN_FORM}, but ${breach}`);
  return undefined;
}

/** What is wrong with a token, in words that do not tell it. */
function tokenBreach(text: string): string | undefined {
  const breach = headerBreach(text);
  if (breach !== undefined) return breach;
  const { length } = text;
  return length < MIN_TOKEN_LENGTH ? `has ${length} character${length === 1 ? "" : "s"}` : undefined;
}

function refuseOpenDoor({ host }: Raw, remarks: Remarks): void {
  if (typeof host !== "string" || !new RegExp(HOST_PATTERN).test(host) || isLoopback(host)) return;
  const place = ["admin", "host"];
  const message = `${pathText(place)} ${quote(host)} is not loopback, so that it takes a token: set admin.token, or the environment variable ${TOKEN_VARIABLE}`;
  remarks.mistake(place, "value", message);
}

/** Whether a host is this machine's alone. */
export function isLoopback(host: string): boolean {
  return isIP(host) === 0 ? host.toLowerCase() === "localhost" : isIn(LOOPBACK, host);
}

function isIn(addresses: BlockList, host: string): boolean {
  return isIP(host) !== 0 && addresses.check(host, isIP(host) === 4 ? "ipv4" : "ipv6");
}

function refuseSharedAddress(listen: Raw, admin: Raw, remarks: Remarks): void {
  const { host = DEFAULTS.host, port = DEFAULTS.port } = listen;
  const { host: adminHost = DEFAULTS.host, port: adminPort = DEFAULTS.adminPort } = admin;
  if (typeof port !== "number" || port === 0 || port !== adminPort) return;
  if (typeof host !== "string" || typeof adminHost !== "string") return;
  const wildcard = [host, adminHost].find((one) => isIn(WILDCARDS, one));
  const isSame = host.toLowerCase() === adminHost.toLowerCase();
  if (!isSame && wildcard === undefined) return;
  const path = admin.port === undefined ? ["listen", "port"] : ["admin", "port"];
  const where = isSame
    ? `on host ${quote(host)}, port ${port}`
    : `on port ${port}, since the host ${quote(wildcard!)} is every address`;
  const message = `${pathText(path)} must not be ${port}: listen and admin would both be ${where}`;
  remarks.mistake(path, "value", message);
}
