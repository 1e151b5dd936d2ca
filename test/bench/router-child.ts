// Measures a whole request of a bound session, `acquire` + `commit` + `release`, in a process of its own that has
// `--expose-gc`, and prints the figures as JSON. Arguments: workers, rounds.

import { createRouter, loadPolicy } from "../../host/index.js";
import { cpuNanoseconds } from "./stats.js";

/** Per request, one value per round. */
export interface RouterFigures {
  readonly ns: number[];
  readonly bytes: number[];
}

const SESSIONS = 512;
/** So few that the young generation holds all that they allocate: nothing is collected while it is counted. */
const COUNTED_REQUESTS = 1_000;

function measure(size: number, rounds: number): RouterFigures {
  const router = createRouter({
    policy: loadPolicy("soft-affinity-load-guard"),
    workers: Array.from({ length: size }, (_, row) => ({ id: `w${row}`, models: ["m"] })),
    seed: 1,
  });
  const requests = Array.from({ length: SESSIONS }, (_, at) => ({ key: `session-${at}`, model: "m" }));
  const serve = (count: number): void => {
    for (let i = 0; i < count; i++) {
      const lease = router.acquire(requests[i & (SESSIONS - 1)]!);
      lease.commit();
      lease.release();
    }
  };
  const timedRequests = rounds === 1 ? COUNTED_REQUESTS : 20_000;
  const figures: RouterFigures = { ns: [], bytes: [] };
  for (let round = -4; round < rounds; round++) {
    const start = process.cpuUsage();
    serve(timedRequests);
    const ns = cpuNanoseconds(start) / timedRequests;
    globalThis.gc!();
    const before = process.memoryUsage().heapUsed;
    serve(COUNTED_REQUESTS);
    const bytes = (process.memoryUsage().heapUsed - before) / COUNTED_REQUESTS;
    if (round < 0) continue;
    figures.ns.push(ns);
    figures.bytes.push(bytes);
  }
  return figures;
}

const [size, rounds] = process.argv.slice(2);
process.stdout.write(JSON.stringify(measure(Number(size), Number(rounds))));
