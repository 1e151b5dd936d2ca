// The rule that no worker is the gateway itself: a request to it would come back, and go round until a limit ends it.
import { isIP, isIPv4 } from "node:net";
import { pathText, quote } from "../yaml/words.js";
import { isLoopback } from "./admin.js";
import { list, mapping, type Raw, type Remarks } from "./remarks.js";
import { DEFAULTS } from "./schema.js";
import { urlBreach } from "./url.js";

/** Where connections to hosts go that are more than one address, or none. */
const REACHED: ReadonlyMap<string, readonly string[]> = new Map([
  ["localhost", ["127.0.0.1", "::1"]],
  ["0.0.0.0", ["127.0.0.1"]],
  ["::", ["::1"]],
]);

interface Listener {
  /** Its key in the config. */
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

/** Applies the rule to the root of a config. */
export function refuseOwnAddress(root: Raw, remarks: Remarks): void {
  const listeners = [
    ...listenerOf("listen", mapping(root.listen), DEFAULTS.port),
    ...listenerOf("admin", mapping(root.admin), DEFAULTS.adminPort),
  ];
  for (const [index, worker] of list(root.workers).entries()) {
    const { url } = mapping(worker);
    if (typeof url !== "string" || urlBreach(url) !== undefined) continue;
    const own = listeners.find((listener) => leadsTo(listener, new URL(url)));
    if (own === undefined) continue;
    const path = ["workers", index, "url"];
    const place = `which ${own.name} has on host ${quote(own.host)}, port ${own.port}`;
    const message = `${pathText(path)} must not be the address of the gateway itself, ${place}, found ${quote(url)}`;
    remarks.mistake(path, "value", message);
  }
}

/** None where its port is any that is free, or has the wrong type. */
function listenerOf(name: string, { host = DEFAULTS.host, port }: Raw, otherwise: number): Listener[] {
  const own = port ?? otherwise;
  if (typeof host !== "string" || typeof own !== "number" || own === 0) return [];
  return [{ name, host, port: own }];
}

function leadsTo({ host, port }: Listener, { protocol, hostname, port: stated }: URL): boolean {
  if (port !== Number(stated || (protocol === "https:" ? 443 : 80))) return false;
  const own = canonical(host);
  const reached = reachedBy(bare(hostname));
  if (own === "::") return reached.some(isLoopback);
  if (own === "0.0.0.0") return reached.some((address) => isIPv4(address) && isLoopback(address));
  return reachedBy(own).some((address) => reached.includes(address));
}

function reachedBy(host: string): readonly string[] {
  return REACHED.get(host) ?? [host];
}

/** A host in the one form that URLs have it in. */
function canonical(host: string): string {
  const url = `http://${isIP(host) === 6 ? `[${host}]` : host}`;
  return URL.canParse(url) ? bare(new URL(url).hostname) : host;
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, "");
}
