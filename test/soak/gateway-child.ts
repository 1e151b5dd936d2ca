// The gateway of the soak, in a process of its own so that its memory is its own: takes orders from its parent.

import { readdirSync } from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { pino } from "pino";
import { parseConfig } from "../../host/config/config.js";
import { createGateway } from "../../host/gateway/server.js";
import type { WorkerOptions } from "../../host/index.js";
import { LeaseAudit } from "../../host/index.js";
import { Router } from "../../host/routing/router.js";
import { RequestReader } from "../../host/session/request-reader.js";

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

const POLL_INTERVAL_MS = 500;

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
const { policy, session, dataPlane, workers } = config;
const urls = new Map(workers.map(({ id, url }) => [id, url]));
const audit = new LeaseAudit();
const router = new Router({
  ...{ instance: policy, fallback: undefined, session, audit },
  workers: [...urls].map(([id, url]) => ({ id, url, models: [], eligible: false })),
  ...{ clock: () => performance.now(), seed: 1 },
});
const gateway = createGateway({
  ...{ router, dataPlane, reader: new RequestReader(session), pollIntervalMs: POLL_INTERVAL_MS },
  allowAffinityHeader: session.allowAffinityHeader,
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

function workerOptions({ id, url, models = [], weight, slots }: (typeof workers)[number]): WorkerOptions {
  return { id, url, models, weight, slots };
}

async function carryOut(order: Order): Promise<unknown> {
  switch (order.does) {
    case "listen":
      return gateway.listen("127.0.0.1", 0);
    case "measure":
      return measure();
    case "check":
      audit.check();
      return failures;
    case "add":
      gateway.addWorker(workerOptions(workers.find(({ id }) => id === order.worker)!));
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
