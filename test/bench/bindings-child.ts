// Fills a binding table through the router and measures it, in a process of its own that has `--expose-gc`. Prints the figures as
// JSON. Arguments: bindings, rounds.

import { createRouter, loadPolicy } from "../../host/index.js";
import { cpuNanoseconds } from "./stats.js";

/** What a full table costs. */
export interface BindingFigures {
  /** Resident megabytes that the bindings added. */
  readonly megabytes: number;
  /** Bindings held at the end. */
  readonly held: number;
  /** Of a first request, filling included. */
  readonly placeNs: number;
  /** Of a request of a session taken at random, one value a round. */
  readonly turnNs: number[];
  /** Longest milliseconds on the wall clock in which a first request passed through. */
  readonly longestMs: number;
}

const WORKERS = 64;

/** A key of the form that clients send, as the bytes of a header: no string is made while it is measured. */
function keyOf(session: number): string {
  return Buffer.from(`0a6f6b2e-1111-4222-8333-${String(session).padStart(12, "0")}`).toString("latin1");
}

function measure(bindings: number, rounds: number): BindingFigures {
  const router = createRouter({
    policy: loadPolicy("soft-affinity-load-guard"),
    workers: Array.from({ length: WORKERS }, (_, row) => ({ id: `w${row}`, models: ["m"] })),
    session: { maxBindings: bindings },
    seed: 1,
  });
  const serve = (key: string): void => {
    const lease = router.acquire({ key, model: "m" });
    lease.commit();
    lease.release();
  };
  globalThis.gc!();
  const before = process.memoryUsage.rss();
  let longestMs = 0;
  const filling = process.cpuUsage();
  for (let session = 0; session < bindings; session++) {
    const key = keyOf(session);
    const start = performance.now();
    serve(key);
    longestMs = Math.max(longestMs, performance.now() - start);
  }
  const placeNs = cpuNanoseconds(filling) / bindings;
  globalThis.gc!();
  const megabytes = (process.memoryUsage.rss() - before) / 1e6;
  const turns = rounds === 1 ? 1_000 : 200_000;
  const turnNs = Array.from({ length: rounds }, () => {
    const keys = Array.from({ length: turns }, () => keyOf(Math.floor(Math.random() * bindings)));
    globalThis.gc!();
    const start = process.cpuUsage();
    for (const key of keys) serve(key);
    return cpuNanoseconds(start) / turns;
  });
  return { megabytes, held: router.status().bindings, placeNs, turnNs, longestMs };
}

const [bindings, rounds] = process.argv.slice(2);
process.stdout.write(JSON.stringify(measure(Number(bindings), Number(rounds))));
