// Mixed traffic over a fleet that is changed all the time, some of whose workers are always well: no request is lost that a retry
// could save, and nothing is left behind. `HAWSER_SOAK=SECONDS` and `HAWSER_SOAK_SEED=N` as for the other soak.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { Dice } from "../fixtures/dice.js";
import { DnsServer } from "../fleet/dns-server.js";
import { drawManner } from "./client.js";
import { FleetTrouble, type Subject } from "./fleet-trouble.js";
import { fleetVerdictOf } from "./fleet-verdict.js";
import { GatewayProcess } from "./gateway.js";
import type { Measure } from "./gateway-child.js";
import { Load } from "./load.js";
import { DnsName, Operator, TargetsFile } from "./places.js";
import { type Asked, drawRequest } from "./request.js";
import { countsOf, GRACE_MS, heldBytes, MOST_GROWTH_BYTES, settles, underWayAt } from "./rest.js";
import { HAS_MANY_ADDRESSES, SimulatedWorker } from "./simulated-worker.js";
import { list, memoryText } from "./summary.js";

const SECONDS = Number(process.env.HAWSER_SOAK ?? 30);
const SEED = Number(process.env.HAWSER_SOAK_SEED ?? Math.floor(Math.random() * 2 ** 31));
const LANES = 300;
/** Workers that the config names, and the file of targets. */
const CONFIGURED = 3;
const LISTED = 3;
/** Where those listen that DNS tells. */
const DNS_HOSTS = HAS_MANY_ADDRESSES ? ["127.0.0.3", "127.0.0.4"] : ["127.0.0.1"];
const DNS_NAME = "workers.fleet.test";
/** Workers that are well at any time. */
const SPARED = 3;
/** Requests that a worker is given at once: all workers together have room for nearly all lanes, those that are well have not. */
const MAX_IN_FLIGHT = 36;
const LONGEST_ANSWER = 60;
const POLL_MS = 200;
/** Connections by which a worker may be asked how it is. */
const CHECKS = 3;
const READS = { does: "nothing", phase: "answer", share: 0, ms: 0 } as const;

/** All that runs. */
interface Soak {
  readonly gateway: GatewayProcess;
  readonly load: Load;
  readonly trouble: FleetTrouble;
  /** By their ids. */
  readonly subjects: ReadonlyMap<string, Subject>;
  readonly file: TargetsFile;
  readonly dns: DnsName;
  readonly sessions: Sessions;
}

/** Sessions that clients have named, and answers that may begin one. */
class Sessions {
  readonly #named = new Set<string>();
  #answers = 0;

  /** At most as many bindings may there be. */
  get most(): number {
    return this.#named.size + this.#answers;
  }

  see({ api, headers, json }: Asked): void {
    this.#named.add(JSON.stringify([headers, json.prompt_cache_key, json.user]));
    if (api.style === "responses") this.#answers++;
  }
}

/** Deadlines that nobody meets, and as many retries as there can be; how sessions are bound is drawn. */
function configOf(operated: ReadonlyMap<string, object>, discovery: readonly object[], dice: Dice): object {
  const draw = <T>(choices: readonly T[]): T => choices[dice.upTo(choices.length - 1)]!;
  const type = draw(["soft-affinity-load-guard", "sticky", "power-of-two", "affinity-break-margin"]);
  return {
    workers: [...operated].map(([id, body]) => ({ id, ...body })),
    discovery,
    session: { mode: draw(["soft", "hard"]), binding: draw(["session", "parent-group"]) },
    worker_selection: { aggregated: "chosen", instances: [{ name: "chosen", type }] },
    health: { slow_start: "500ms" },
    breaker: { open: "500ms", open_max: "2s" },
    signals: { interval: "500ms" },
    admission: { bound_first: draw([true, false]) },
    retries: { attempts: 16, budget: 1, stateful: true },
    limits: { body: "128KiB" },
  };
}

async function setUp(): Promise<Soak> {
  const dice = new Dice(SEED);
  const count = CONFIGURED + LISTED;
  const started = await Promise.all(Array.from({ length: count }, () => SimulatedWorker.start()));
  const configured = started.slice(0, CONFIGURED);
  const listed = started.slice(CONFIGURED);
  const named = await startBehindName();

  const bodies = new Map(
    configured.map(({ url }, i) => [`w${i}`, { url, max_in_flight: MAX_IN_FLIGHT }] as const),
  );
  const labels = { hawser_max_in_flight: String(MAX_IN_FLIGHT) };
  const path = join(temporaryDirectory(), "targets.json");
  const file = new TargetsFile(dice, path, listed.map(hostOf), labels);
  const server = await DnsServer.start();
  const dns = new DnsName(dice, server, named.map(hostOf));
  const port = Number(new URL(named[0]!.url).port);
  const discovery = [
    { file: path },
    { dns: DNS_NAME, port, servers: [server.address], max_in_flight: MAX_IN_FLIGHT },
  ];
  const gateway = new GatewayProcess(configOf(bodies, discovery, dice), POLL_MS);
  await gateway.listen();
  const operator = new Operator(gateway, bodies);

  const subjects = new Map<string, Subject>([
    ...configured.map((worker, i) => [`w${i}`, { worker, place: operator }] as const),
    ...listed.map((worker) => [hostOf(worker), { worker, place: file }] as const),
    ...named.map((worker) => [hostOf(worker), { worker, place: dns }] as const),
  ]);
  const trouble = new FleetTrouble(gateway, dice, subjects, subjects.size - SPARED);
  const sessions = new Sessions();
  const load = loadOf(gateway, trouble, sessions);
  onTestFinished(async () => {
    await load.leave();
    await trouble.stop();
  });
  return { gateway, load, trouble, subjects, file, dns, sessions };
}

/** Clients that read all of their answers, but for some that hang up. */
function loadOf(gateway: GatewayProcess, trouble: FleetTrouble, sessions: Sessions): Load {
  return new Load(gateway.url, LANES, SEED, {
    draw: (dice) => {
      const asked = drawRequest(dice, undefined, LONGEST_ANSWER);
      sessions.see(asked);
      return asked;
    },
    manner: (dice) => {
      const manner = drawManner(dice);
      return manner.does === "leaves" && dice.upTo(2) === 0 ? manner : READS;
    },
    judge: (asked, got, begunAt) => fleetVerdictOf(asked, got, begunAt, trouble.history),
  });
}

/** Workers at one port of several addresses. */
async function startBehindName(): Promise<SimulatedWorker[]> {
  const [host, ...others] = DNS_HOSTS;
  for (;;) {
    const first = await SimulatedWorker.start(host);
    const { port } = new URL(first.url);
    const rest = await Promise.allSettled(others.map((other) => SimulatedWorker.start(other, port)));
    const workers = rest.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    if (workers.length === others.length) return [first, ...workers];
    // The port is taken at one of them.
    await Promise.all([first, ...workers].map((worker) => worker.kill()));
  }
}

function hostOf({ url }: SimulatedWorker): string {
  return new URL(url).host;
}

function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "hawser-soak-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  return directory;
}

/** The most that there were at once. */
interface Most {
  atOnce: number;
  waiting: number;
}

/** What has not happened yet and is to. */
function missing({ load, trouble, file, dns }: Soak, most: Most): string[] {
  const deeds = ["kills", "restarts", "drains", "drains with a deadline", "removals"];
  const counts: [string, number | undefined][] = [
    ...deeds.map((deed): [string, number | undefined] => [deed, trouble.counts.get(deed)]),
    ["file changes", file.changes],
    ["DNS changes", dns.changes],
    ["waiting requests", most.waiting],
    ["complete answers", load.ends.get("complete")],
  ];
  return counts.filter(([, count = 0]) => count === 0).map(([what]) => what);
}

/** Lets the soak go on for so long, or longer until all has happened that is `due`; looks at what must hold all the time. */
async function run(soak: Soak, seconds: number, most: Most, due: () => string[]): Promise<void> {
  const { gateway, load, trouble, sessions } = soak;
  const end = performance.now() + seconds * 1_000;
  load.start();
  trouble.start();
  while (performance.now() < end || (due().length > 0 && performance.now() < end + GRACE_MS)) {
    await sleep(250);
    const { bindings, data_plane, workers } = await gateway.health();
    expect(bindings).toBeLessThanOrEqual(sessions.most);
    const bound = workers.reduce((sum, { bound_sessions }) => sum + bound_sessions, 0);
    expect(bound).toBeLessThanOrEqual(bindings);
    most.atOnce = Math.max(most.atOnce, data_plane.requests_in_flight);
    most.waiting = Math.max(most.waiting, data_plane.requests_waiting);
  }
  await trouble.stop();
}

/** Waits until all workers are well and nothing is under way or held open that was not at an earlier rest; measures the gateway. */
async function rest({ gateway, trouble, subjects }: Soak, earlier?: Measure): Promise<Measure> {
  await settles("the gateway", async () => countsOf(await gateway.health()));
  for (const [id, { worker }] of subjects) {
    await settles(`worker ${id}`, () => underWayAt(worker.url));
    await trouble.ready(id);
  }
  const most = (earlier?.descriptors ?? Number.POSITIVE_INFINITY) + CHECKS * subjects.size;
  await settles("what the gateway holds open", async () => {
    const { openLeases, descriptors } = await gateway.measure();
    return { openLeases, files: Math.max(0, descriptors - most) };
  });
  const { body } = await gateway.call("GET", "/admin/workers");
  expect(body.workers.map(({ id }: { id: string }) => id).sort()).toEqual([...subjects.keys()].sort());
  expect(body.queue).toEqual({ waiting: {}, refused: 0, expired: 0 });
  expect(await gateway.check()).toEqual([]);
  return gateway.measure();
}

it(`loses nothing in ${SECONDS} s of ${LANES} streams over a fleet that changes`, {
  timeout: SECONDS * 1_000 + 6 * GRACE_MS,
}, async () => {
  console.log(`fleet soak: HAWSER_SOAK_SEED=${SEED}`);
  const soak = await setUp();
  const { gateway, load, trouble, file, dns } = soak;
  const most: Most = { atOnce: 0, waiting: 0 };
  const cold = await rest(soak);

  await run(soak, SECONDS / 3, most, () => []);
  await load.leave();
  const warm = await rest(soak, cold);

  await run(soak, (SECONDS * 2) / 3, most, () => missing(soak, most));
  await load.finish();
  const end = await rest(soak, cold);

  const { data_plane } = await gateway.health();
  const summary = [
    `${load.requests} requests, at most ${most.atOnce} at once and ${most.waiting} waiting`,
    list(load.ends),
    `${list(trouble.counts)}, file changes ${file.changes}, DNS changes ${dns.changes}`,
    `${data_plane.retries} retries, ${data_plane.retries_refused} refused`,
    memoryText([cold, warm, end]),
  ];
  console.log(`fleet soak: ${summary.join("; ")}`);
  expect(load.dishonest).toEqual([]);
  expect(heldBytes(end) - heldBytes(warm)).toBeLessThan(MOST_GROWTH_BYTES);
  // That all lanes were in use, and all of it happened.
  expect(most.atOnce).toBeGreaterThan(LANES / 2);
  expect(missing(soak, most)).toEqual([]);
  expect(data_plane.retries).toBeGreaterThan(0);
  expect(await gateway.close()).toBe(0);
});
