// Where a worker is, as a source of workers names it: a host and a port.
import { isIPv6 } from "node:net";

/** What `isAddress` accepts, in words. */
export const ADDRESS_FORM = "a host and a port such as 10.0.0.1:8000 or [::1]:8000";

const ADDRESS = /^(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9._-]+):([0-9]{1,5})$/;
const LARGEST_PORT = 65_535;

/** Whether a text is a host with a port. */
export function isAddress(text: string): boolean {
  const [whole, ipv6, port] = ADDRESS.exec(text) ?? [];
  if (whole === undefined || Number(port) < 1 || Number(port) > LARGEST_PORT) return false;
  if (ipv6 !== undefined && !isIPv6(ipv6)) return false;
  return URL.canParse(`http://${text}`);
}

/** The URL at an address, without a slash at its end. `path` is empty or begins with a slash. */
export function urlAt(scheme: "http" | "https", address: string, path: string): string {
  return new URL(`${scheme}://${address}${path}`).href.replace(/\/+$/, "");
}
