// The gateway's bench: streams of events, one at a time and many at once.

import { added, aimed, busy, measureInTurn, medianOf, ratios, twoColumns, typical } from "./cells.js";
import { HAPROXY, HAWSER, NGINX, type Target } from "./proxies.js";
import { DIRECT, type Sample, type Stand } from "./stand.js";
import { quantile, table } from "./stats.js";
import { EVENT_MS, type StreamOrder, type StreamOutcome } from "./wire.js";

const BODY_BYTES = 1_024;
/** Milliseconds between two streams, where there is one at a time: after a pause a processor's caches are cold. */
const PAUSES = [0, 5];
/** Milliseconds that a gateway adds at most to the first event of one stream at a time. */
const ADDED_AIM = 0.5;
const SINGLE_COLUMNS = [
  ...["pause ms", "through", "first event p50 ms", "range", "p99 ms"],
  ...["added p50 ms", "range", "aim", "added p99 ms"],
];
const COLUMNS = [
  ...["streams", "through", "us/chunk", "range", `x ${HAPROXY}`, "range", `x ${NGINX}`],
  ...["chunks/s", "first event p50 ms", "p99 ms", "added p50 ms", "added p99 ms"],
  ...["resident MB", "proxy busy", "load busy", "upstream busy"],
];

type Streams = Sample<StreamOutcome>;
const perChunk = ({ cpu, outcome }: Streams): number => cpu / outcome.events;
const p50 = ({ outcome }: Streams): number => quantile(outcome.latencies, 0.5);
const p99 = ({ outcome }: Streams): number => quantile(outcome.latencies, 0.99);

/** Measures the first event of one stream at a time, each of a single event, over one connection, and prints the table. */
export async function printSingleStreams(
  stand: Stand,
  { streams, rounds }: { streams: number; rounds: number },
): Promise<void> {
  await stand.withTargets(async (targets) => {
    const body = stand.bodyFile(BODY_BYTES, true);
    const orders = PAUSES.map((pauseMs) => {
      return { connections: 1, each: streams, spreadMs: 0, pauseMs, events: 1, body };
    });
    const warmUp = { ...orders[0]!, each: 3_000 };
    if (rounds > 1) for (const target of targets) await send(stand, target, warmUp);
    const cells = await measureInTurn(orders, targets, rounds, (order, target) => send(stand, target, order));
    const rows = cells.map((cell) => {
      const more = added(cell, cells, p50);
      return [
        ...[String(cell.load.pauseMs), cell.target.name],
        ...twoColumns(cell.samples.map(p50), 2),
        typical(cell, p99, 2),
        ...twoColumns(more, 2),
        cell.target.name === HAWSER ? aimed(more, ADDED_AIM) : "",
        medianOf(added(cell, cells, p99), 2),
      ];
    });
    const heading = "Gateway: one event stream at a time";
    process.stdout.write(`${table(heading, SINGLE_COLUMNS, rows)}\n`);
  });
}

/** Measures many streams at once, so many after one another on each connection, and prints the table. */
export async function printStreams(
  stand: Stand,
  amount: { concurrent: readonly number[]; each: number; events: number; spreadMs: number; rounds: number },
): Promise<void> {
  const { concurrent, each, events, spreadMs, rounds } = amount;
  const body = stand.bodyFile(BODY_BYTES, true);
  const rows: string[][] = [];
  for (const connections of concurrent) {
    await stand.withTargets(async (targets) => {
      const order = { connections, each, spreadMs, pauseMs: 0, events, body };
      const warmUp = { ...order, each: 10, events: 1 };
      if (rounds > 1) for (const target of targets) await send(stand, target, warmUp);
      const cells = await measureInTurn([order], targets, rounds, (_, target) => send(stand, target, order));
      for (const cell of cells) {
        const isProxy = cell.target.name !== DIRECT;
        const costs = isProxy ? cell.samples.map(perChunk) : [];
        rows.push([
          ...[String(connections), cell.target.name, ...twoColumns(costs, 0)],
          ...twoColumns(ratios(cell, cells, HAPROXY, perChunk), 2),
          medianOf(ratios(cell, cells, NGINX, perChunk), 2),
          typical(cell, ({ outcome }) => outcome.events / outcome.seconds, 0),
          ...[typical(cell, p50, 2), typical(cell, p99, 2)],
          ...[medianOf(added(cell, cells, p50), 2), medianOf(added(cell, cells, p99), 2)],
          isProxy ? typical(cell, ({ resident }) => resident / 1e6, 0) : "-",
          isProxy ? busy(cell, ({ cpu }) => cpu) : "-",
          ...[busy(cell, ({ outcome }) => outcome.cpu), busy(cell, ({ upstreamCpu }) => upstreamCpu)],
        ]);
      }
    });
  }
  const heading = `Gateway: event streams, ${1_000 / EVENT_MS} events a second each`;
  process.stdout.write(`${table(heading, COLUMNS, rows)}\n`);
}

function send(stand: Stand, target: Target, order: Omit<StreamOrder, "kind" | "port">): Promise<Streams> {
  const { port } = target;
  return stand.sample(target, () => stand.generators.streams({ kind: "streams", port, ...order }));
}
