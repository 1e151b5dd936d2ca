// The gateway of the soak, in a process of its own so that its memory is its own: takes orders from its parent.

import { readdirSync } from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { pino } from "pino";
import { parseConfig } from "../../host/config/config.js";
import { parseWorkerEntry } from "../../host/config/worker-entry.js";
import { createGateway } from "../../host/gateway/server.js";
import { LeaseAudit } from "../../host/index.js";
import { Router } from "../../host/routing/router.js";
import { RequestReader } from "../../host/session/request-reader.js";
import { formatMistake } from "../../host/yaml/mistake.js";

/** What the parent can have done; `worker` is the id of one in the config. */
export type Order =
  | { readonly does: "listen" | "measure" | "check" | "close" }
  | { readonly does: "add" | "remove"; readonly worker: string };

/** What the process holds, garbage collected. */
export interface Measure {
  readonly heapBytes: number;
  /** Outside the heap: buffers, and the memory of Wasm. */
  readonly externalBytes: number;
  readonly rssBytes: number;
  /** Open files and sockets. */
  readonly descriptors: number;
  readonly openLeases: number;
}

/** More often than a config allows with the time that answers have. */
const POLL_INTERVAL_MS = Number(process.argv[3]);

const onParentGone = (): void => process.exit(1);
process.on("disconnect", onParentGone);
const failures: string[] = [];
process.on("uncaughtException", (error) => failures.push(`uncaught: ${error.stack}`));
process.on("unhandledRejection", (reason) =>
  failures.push(`unhandled: ${(reason as Error)?.stack ?? reason}`),
);
// Such a warning tells of listeners that pile up.
process.on("warning", (warning) => failures.push(`warning: ${warning.stack}`));

const { config, mistakes } = parseConfig(process.argv[2]!, "soak.yaml");
if (!config) throw new Error(JSON.stringify(mistakes));
const { policy, session, dataPlane, workers, discovery, fleet, admission } = config;
const audit = new LeaseAudit();
const router = new Router({
  ...{ instance: policy, fallback: undefined, session, audit },
  ...{ clock: () => performance.now(), seed: 1 },
});
const gateway = createGateway({
  ...{ router, dataPlane, reader: new RequestReader(session), workers, discovery, admission },
  fleet: { ...fleet, health: { ...fleet.health, intervalMs: POLL_INTERVAL_MS } },
  allowAffinityHeader: session.allowAffinityHeader,
  readWorker: (text) => {
    const { entry, mistakes } = parseWorkerEntry(text);
    return entry ? { entry } : { mistakes: mistakes.map(formatMistake) };
  },
  log: pino({ base: null }, { write: () => {} }),
});

async function measure(): Promise<Measure> {
  // What finalizers and weak references held goes with a later collection.
  for (let i = 0; i < 5; i++) {
    await turn();
    globalThis.gc!();
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return {
    ...{ heapBytes: heapUsed, externalBytes: external, rssBytes: rss },
    ...{ descriptors: readdirSync("/dev/fd").length, openLeases: audit.open },
  };
}

async function carryOut(order: Order): Promise<unknown> {
  switch (order.does) {
    case "listen":
      return {
        url: await gateway.listen("127.0.0.1", 0),
        admin: await gateway.listenAdmin("127.0.0.1", 0),
      };
    case "measure":
      return measure();
    case "check":
      audit.check();
      return failures;
    case "add":
      gateway.addWorker(workers.find(({ id }) => id === order.worker)!);
      return;
    case "remove":
      gateway.removeWorker([...router.workers].find(({ id }) => id === order.worker)!);
      return;
    case "close":
      // From here on nothing may hold the process.
      process.off("disconnect", onParentGone);
      return gateway.close();
  }
}

process.on("message", ({ id, order }: { id: number; order: Order }) => {
  carryOut(order).then(
    (result) => process.send!({ id, result }),
    (error: Error) => process.send!({ id, error: String(error.stack) }),
  );
});
