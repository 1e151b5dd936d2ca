// The gateway's bench: requests that are answered at once, of several sizes.

import { aimed, busy, measureInTurn, medianOf, ratios, twoColumns, typical } from "./cells.js";
import { HAPROXY, HAWSER, NGINX, type Target } from "./proxies.js";
import { DIRECT, type Sample, type Stand } from "./stand.js";
import { table } from "./stats.js";
import type { RequestOutcome } from "./wire.js";

/** Sizes of a body, and how many times HAProxy's processor time Hawser is to need at most. */
const LOADS = [
  { kilobytes: 1, aim: 3.8 },
  { kilobytes: 8, aim: 3 },
  { kilobytes: 60, aim: 3.2 },
];
const CONNECTIONS = 16;
const COLUMNS = [
  ...["body", "through", "us/request", "range", `x ${HAPROXY}`, "range", `x ${NGINX}`, "aim"],
  ...["requests/s", "p50 ms", "p99 ms", "proxy busy", "load busy", "upstream busy"],
];

const perRequest = ({ cpu, outcome }: Sample<RequestOutcome>): number => cpu / outcome.requests;

/** Measures every size through every target, `seconds` each per round, and prints the table. */
export async function printRequests(
  stand: Stand,
  { seconds, rounds }: { seconds: number; rounds: number },
): Promise<void> {
  await stand.withTargets(async (targets) => {
    const measure = ({ kilobytes }: { kilobytes: number }, { port }: Target) => {
      const body = stand.bodyFile(kilobytes * 1_024, false);
      return stand.generators.requests({ kind: "requests", port, connections: CONNECTIONS, seconds, body });
    };
    if (rounds > 1) await warmUp(targets, measure);
    const cells = await measureInTurn(LOADS, targets, rounds, (load, target) =>
      stand.sample(target, () => measure(load, target)),
    );
    const rows = cells.map((cell) => {
      const { load, target, samples } = cell;
      const isProxy = target.name !== DIRECT;
      const costs = isProxy ? samples.map(perRequest) : [];
      const timesHaproxy = ratios(cell, cells, HAPROXY, perRequest);
      const timesNginx = ratios(cell, cells, NGINX, perRequest);
      return [
        ...[`${load.kilobytes} KB`, target.name, ...twoColumns(costs, 0)],
        ...twoColumns(timesHaproxy, 2),
        medianOf(timesNginx, 2),
        target.name === HAWSER ? aimed(timesHaproxy, load.aim) : "",
        typical(cell, ({ outcome }) => outcome.requests / outcome.seconds, 0),
        ...[typical(cell, ({ outcome }) => outcome.p50, 2), typical(cell, ({ outcome }) => outcome.p99, 2)],
        isProxy ? busy(cell, ({ cpu }) => cpu) : "-",
        ...[busy(cell, ({ outcome }) => outcome.cpu), busy(cell, ({ upstreamCpu }) => upstreamCpu)],
      ];
    });
    const heading = `Gateway: requests over ${CONNECTIONS} connections, the proxy's processor time (user + system)`;
    process.stdout.write(`${table(heading, COLUMNS, rows)}\n`);
  });
}

/** What is compiled as it runs is compiled then. */
async function warmUp(
  targets: readonly Target[],
  measure: (load: { kilobytes: number }, target: Target) => Promise<RequestOutcome>,
): Promise<void> {
  for (const load of LOADS) for (const target of targets) await measure(load, target);
}
