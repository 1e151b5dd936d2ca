// What a request costs the gateway: the real command in a process of its own, between a load generator and an upstream
// in theirs. Processor time per request is the figure to trust on a shared machine.

import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { median, quantile, table } from "./stats.js";
import { EVENT_MS, type Order, type Outcome } from "./wire.js";

const ROUNDS = 3;
const KILOBYTES = [1, 8, 60];
const CONNECTIONS = 16;
const STREAMS = 200;
/** Of the kernel's accounting in /proc: USER_HZ is 100 on every Linux that Node runs on. */
const MICROSECONDS_PER_TICK = 10_000;

/** How much is sent: of each size per round, and events per stream. */
interface Amount {
  readonly requests: number;
  readonly streams: number;
  readonly events: number;
  readonly rounds: number;
}

/** The three processes. */
interface Bench {
  readonly load: ChildProcess;
  /** Rejects when the load generator ends. */
  readonly loadEnded: Promise<never>;
  readonly gateway: ChildProcess;
  readonly origin: string;
  readonly upstream: string;
}

/** Measures and prints; a quick run shows only that everything runs. Needs Linux: it reads /proc. */
export async function benchGateway(quick: boolean): Promise<void> {
  const amount = quick
    ? { requests: 32, streams: 8, events: 3, rounds: 1 }
    : { requests: 4_000, streams: STREAMS, events: 75, rounds: ROUNDS };
  const directory = mkdtempSync(join(tmpdir(), "hawser-bench-"));
  const children: ChildProcess[] = [];
  try {
    const bench = await start(directory, children);
    await printRequests(bench, amount);
    await printStreams(bench, amount);
  } finally {
    for (const child of children) child.kill();
    rmSync(directory, { recursive: true });
  }
}

async function start(directory: string, children: ChildProcess[]): Promise<Bench> {
  const server = fork(script("./upstream.ts"), { execArgv: ["--import", "tsx"], silent: true });
  children.push(server);
  const upstream = `http://127.0.0.1:${await firstLine(server)}`;
  const config = join(directory, "hawser.yaml");
  writeFileSync(config, configFor(upstream));
  const cli = script("../../build/host/cli/main.js");
  const gateway = spawn(process.execPath, [cli, "serve", "-c", config], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(gateway);
  const origin = (await firstLine(gateway)).match(/http:\S+/)![0];
  const load = fork(script("./load.ts"), { execArgv: ["--import", "tsx"] });
  children.push(load);
  const loadEnded = once(load, "exit").then(() => Promise.reject(new Error("the load generator failed")));
  return { load, loadEnded, gateway, origin, upstream };
}

/** Two workers at one upstream, told apart by their base path, and the policy of the demo. */
function configFor(upstream: string): string {
  return `listen: { port: 0 }
admin: { port: 0 }
workers:
  - { id: a, url: ${upstream}/a }
  - { id: b, url: ${upstream}/b }
worker_selection:
  aggregated: guard
  instances:
    - name: guard
      type: soft-affinity-load-guard
      parameters: { max_active_requests: 32, move_margin: 2, ties: random }
`;
}

async function printRequests(bench: Bench, { requests, rounds }: Amount): Promise<void> {
  const rows: string[][] = [];
  const common = { requests, connections: CONNECTIONS, spreadMs: 0, events: 0 };
  for (const kilobytes of KILOBYTES) {
    const one = { ...common, origin: bench.origin, bytes: kilobytes * 1024 };
    const measured = await measure(bench, one, rounds);
    const cpu = measured.map(({ cpu }) => cpu / requests);
    rows.push([`${kilobytes} KB`, median(cpu).toFixed(0), range(cpu), ...figures(measured)]);
  }
  const direct = await measure(bench, { ...common, origin: bench.upstream, bytes: 8_192 }, rounds);
  rows.push(["8 KB, no gateway", "-", "-", ...figures(direct)]);
  const heading = `Gateway: requests over ${CONNECTIONS} connections, its processor time (user + system)`;
  const columns = ["body", "us/request", "range", "requests/s", "p50 ms", "p99 ms"];
  process.stdout.write(`${table(heading, columns, rows)}\n`);
}

async function printStreams(bench: Bench, { streams, events, rounds }: Amount): Promise<void> {
  const one = {
    origin: bench.origin,
    requests: streams,
    connections: streams,
    spreadMs: 1_000,
    bytes: 1_024,
    events,
  };
  const measured = await measure(bench, one, rounds);
  const cpu = measured.map(({ cpu, outcome }) => cpu / outcome.events);
  const eventsPerSecond = median(measured.map(({ outcome }) => outcome.events / outcome.seconds));
  const row = [
    String(streams),
    median(cpu).toFixed(0),
    range(cpu),
    eventsPerSecond.toFixed(0),
    ...latencies(measured),
  ];
  const heading = `Gateway: event streams, ${1_000 / EVENT_MS} events a second each`;
  const columns = ["streams", "us/event", "range", "events/s", "first byte p50 ms", "p99 ms"];
  process.stdout.write(`${table(heading, columns, [row])}\n`);
}

interface Measured {
  readonly outcome: Outcome;
  /** Microseconds of the gateway. */
  readonly cpu: number;
}

/** Carries out an order once to warm up and then `rounds` times. Throws where events are missing or the load fails. */
async function measure(bench: Bench, one: Order, rounds: number): Promise<Measured[]> {
  const measured: Measured[] = [];
  for (let round = -1; round < rounds; round++) {
    const before = cpuOf(bench.gateway);
    const outcome = await carryOut(bench, one);
    if (round >= 0) measured.push({ outcome, cpu: cpuOf(bench.gateway) - before });
    const wanted = one.requests * one.events;
    if (outcome.events !== wanted) throw new Error(`${outcome.events} events arrived, ${wanted} were sent`);
  }
  return measured;
}

async function carryOut({ load, loadEnded }: Bench, one: Order): Promise<Outcome> {
  load.send(one);
  const [outcome] = await Promise.race([once(load, "message"), loadEnded]);
  return outcome as Outcome;
}

/** Microseconds of processor time, user and system, that a process has used so far. */
function cpuOf({ pid }: ChildProcess): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  // Behind the name in parentheses, which may hold anything; utime and stime are fields 14 and 15 of the line.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * MICROSECONDS_PER_TICK;
}

function figures(measured: readonly Measured[]): string[] {
  const perSecond = median(measured.map(({ outcome }) => outcome.latencies.length / outcome.seconds));
  return [perSecond.toFixed(0), ...latencies(measured)];
}

function latencies(measured: readonly Measured[]): string[] {
  return [0.5, 0.99].map((at) =>
    median(measured.map(({ outcome }) => quantile(outcome.latencies, at))).toFixed(2),
  );
}

function range(values: readonly number[]): string {
  return `${Math.min(...values).toFixed(0)}-${Math.max(...values).toFixed(0)}`;
}

async function firstLine(child: ChildProcess): Promise<string> {
  const ended = once(child, "exit").then(() =>
    Promise.reject(new Error("a process ended before it was ready")),
  );
  const [line] = await Promise.race([once(createInterface({ input: child.stdout! }), "line"), ended]);
  return line as string;
}

function script(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}
