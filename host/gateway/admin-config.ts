// What an operator sees of the config that is in force, and has it read again.

import type { FastifyInstance } from "fastify";
import { AdminError, type Query, refuseOthers } from "./admin-error.js";
import type { ConfigControl, ConfigStatus } from "./config-control.js";

/** Adds the routes of the config. */
export function addConfig(app: FastifyInstance, config: ConfigControl): void {
  app.get<{ Querystring: Query }>("/admin/config", ({ query }) => {
    refuseOthers(query, []);
    return configView(config.status());
  });
  app.post<{ Querystring: Query }>("/admin/reload", async ({ query }) => {
    refuseOthers(query, []);
    const { mistakes, ...report } = await config.reload("admin");
    if (report.result === "applied") return mistakes.length > 0 ? { ...report, mistakes } : report;
    throw new AdminError({ status: 400, code: "invalid_config", message: mistakes.join("\n") });
  });
}

function configView(status: ConfigStatus): object {
  const { file, generation, loadedAt, view, warnings, restartNeeded, lastReload } = status;
  return {
    ...{ file, generation, loaded: new Date(loadedAt).toISOString() },
    last_reload: lastReload && {
      ...{ result: lastReload.result, at: new Date(lastReload.at).toISOString(), by: lastReload.by },
      mistakes: lastReload.mistakes,
    },
    restart_needed: restartNeeded,
    warnings,
    config: view,
  };
}
