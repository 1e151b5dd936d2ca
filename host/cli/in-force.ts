// What of a config takes effect while a gateway serves, and what waits for its restart: addresses, and what memory is made for.

import { isLoopback } from "../config/admin.js";
import type { Config } from "../config/config.js";
import type { RestartNeeded } from "../gateway/config-control.js";

/** What stays what it was. */
const FIXED: readonly (readonly [string, (config: Config) => unknown])[] = [
  ["listen.host", ({ listen }) => listen.host],
  ["listen.port", ({ listen }) => listen.port],
  ["admin.host", ({ admin }) => admin.host],
  ["admin.port", ({ admin }) => admin.port],
  ["session.max_bindings", ({ session }) => session.maxBindings],
];

/** The keys of a file that are not in force, and will be at a restart. */
export function restartNeededBy(inForce: Config, inFile: Config): RestartNeeded[] {
  return FIXED.map(([key, of]) => ({
    ...{ key, in_force: of(inForce), in_file: of(inFile) },
  })).filter(({ in_force, in_file }) => in_force !== in_file);
}

/** What is in force once a file takes effect, behind what was before. */
export function inForceOf(before: Config, inFile: Config): Config {
  const { listen, admin, session } = before;
  const { host, port } = admin;
  const { maxBindings } = session;
  const token = tokenOf(before, inFile);
  const isKept = token !== inFile.admin.token;
  const shownToken = isKept && { token: (before.view.admin as { token?: unknown }).token };
  return {
    ...inFile,
    listen,
    admin: { host, port, token },
    session: { ...inFile.session, maxBindings },
    view: {
      ...inFile.view,
      listen: before.view.listen,
      admin: { ...(inFile.view.admin as object), host, port, ...shownToken },
      session: { ...(inFile.view.session as object), max_bindings: maxBindings },
    },
  };
}

/** A file that would have the admin listener on this machine alone may do without a token; the listener that is open still may not. */
function tokenOf({ admin }: Config, { admin: { token } }: Config): string | undefined {
  return token ?? (isLoopback(admin.host) ? undefined : admin.token);
}
