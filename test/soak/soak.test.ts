// Minutes of mixed traffic over workers that come and go, and clients that do: nothing is left behind, and nobody is deceived.
// `HAWSER_SOAK=SECONDS` runs it that long, `HAWSER_SOAK_SEED=N` repeats the draws of an earlier run.
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { Dice } from "../fixtures/dice.js";
import { FaultyWorker } from "./faulty-worker.js";
import { GatewayProcess } from "./gateway.js";
import type { Measure } from "./gateway-child.js";
import { Load } from "./load.js";
import { countsOf, GRACE_MS, heldBytes, MOST_GROWTH_BYTES, settles, underWayAt } from "./rest.js";
import { SimulatedWorker } from "./simulated-worker.js";
import { summaryOf } from "./summary.js";
import { Trouble } from "./trouble.js";

const SECONDS = Number(process.env.HAWSER_SOAK ?? 30);
const SEED = Number(process.env.HAWSER_SOAK_SEED ?? Math.floor(Math.random() * 2 ** 31));
const LANES = 300;
const WORKERS = 4;
const FAULTY = 2;
/** Below the number of sessions, so that some must go. */
const MAX_BINDINGS = 128;

/** Limits and deadlines that are met now and then; a policy and a mode of sessions by the draw. */
function configOf(workers: ReadonlyMap<string, string>, dice: Dice): object {
  const draw = <T>(choices: readonly T[]): T => choices[dice.upTo(choices.length - 1)]!;
  const type = draw(["soft-affinity-load-guard", "sticky", "power-of-two", "affinity-break-margin"]);
  return {
    workers: [...workers].map(([id, url]) => ({ id, url })),
    session: {
      ...{ mode: draw(["soft", "hard"]), binding: draw(["session", "parent-group"]), ttl: "10s" },
      ...{ max_bindings: MAX_BINDINGS, when_full: draw(["evict-idle", "refuse-new"]) },
      allow_affinity_header: true,
    },
    worker_selection: { aggregated: "chosen", instances: [{ name: "chosen", type }] },
    limits: {
      ...{ body: "64KiB", body_total: "8MiB" },
      ...{ stream_buffer: "256KiB", answer_buffer: "256KiB", buffered_total: "16MiB" },
    },
    timeouts: { connect: "1s", upload: "3s", first_byte: "8s", idle: "5s", total: "40s" },
    streams: { peek: true, keep_alive: "1s" },
    log: { requests: "all" },
  };
}

/** All that runs. */
interface Soak {
  readonly gateway: GatewayProcess;
  readonly load: Load;
  readonly trouble: Trouble;
  /** By their ids. */
  readonly simulated: ReadonlyMap<string, SimulatedWorker>;
  readonly faulty: ReadonlyMap<string, FaultyWorker>;
}

async function setUp(): Promise<Soak> {
  const dice = new Dice(SEED);
  const simulated = new Map<string, SimulatedWorker>();
  const faulty = new Map<string, FaultyWorker>();
  const urls = new Map<string, string>();
  for (let i = 0; i < WORKERS; i++) {
    const worker = await SimulatedWorker.start();
    simulated.set(`w${i}`, worker);
    urls.set(`w${i}`, worker.url);
  }
  for (let i = 0; i < FAULTY; i++) {
    const worker = new FaultyWorker(new Dice(SEED + 1 + i));
    faulty.set(`f${i}`, worker);
    urls.set(`f${i}`, await worker.listen());
  }
  const gateway = new GatewayProcess(configOf(urls, dice));
  await gateway.listen();
  const subjects = new Map<string, SimulatedWorker | null>(
    [...urls.keys()].map((id) => [id, simulated.get(id) ?? null]),
  );
  const trouble = new Trouble(gateway, dice, subjects);
  const load = new Load(gateway.url, LANES, SEED);
  onTestFinished(async () => {
    await load.leave();
    await trouble.stop();
  });
  return { gateway, load, trouble, simulated, faulty };
}

/** Lets the soak go on for so long, and looks at what must hold all the time. Resolves to the most requests at once. */
async function run({ gateway, load, trouble, simulated, faulty }: Soak, seconds: number): Promise<number> {
  for (const id of [...simulated.keys(), ...faulty.keys()]) await gateway.add(id);
  const end = performance.now() + seconds * 1_000;
  let most = 0;
  load.start();
  trouble.start();
  while (performance.now() < end) {
    await sleep(250);
    const { bindings, data_plane } = await gateway.health();
    expect(bindings).toBeLessThanOrEqual(MAX_BINDINGS);
    most = Math.max(most, data_plane.requests_in_flight);
  }
  await trouble.stop();
  return most;
}

/**
 * Waits until nothing is under way, takes all workers from the gateway, waits until it has no more files open than at an
 * earlier rest, and measures it.
 */
async function rest({ gateway, simulated, faulty }: Soak, earlier?: Measure): Promise<Measure> {
  await settles("the gateway", async () => countsOf(await gateway.health()));
  for (const [id, { url }] of simulated) await settles(`worker ${id}`, () => underWayAt(url));
  for (const [id, worker] of faulty) await settles(`worker ${id}`, async () => ({ open: worker.open }));
  for (const id of [...simulated.keys(), ...faulty.keys()]) await gateway.remove(id);
  await settles("what the gateway holds open", async () => {
    const { openLeases, descriptors } = await gateway.measure();
    return { openLeases, files: Math.max(0, descriptors - (earlier?.descriptors ?? descriptors)) };
  });
  expect(await gateway.check()).toEqual([]);
  return gateway.measure();
}

it(`leaves nothing behind after ${SECONDS} s of ${LANES} streams`, {
  timeout: SECONDS * 1_000 + 5 * GRACE_MS,
}, async () => {
  console.log(`soak: HAWSER_SOAK_SEED=${SEED}`);
  const soak = await setUp();
  const { gateway, load, trouble } = soak;
  const cold = await rest(soak);

  const mostAtFirst = await run(soak, SECONDS / 3);
  await load.leave();
  const warm = await rest(soak, cold);

  const mostLater = await run(soak, (SECONDS * 2) / 3);
  await load.finish();
  const { data_plane } = await gateway.health();
  const end = await rest(soak, cold);

  const most = Math.max(mostAtFirst, mostLater);
  console.log(
    `soak: ${summaryOf({ load, trouble, dataPlane: data_plane, most, measures: [cold, warm, end] })}`,
  );
  expect(load.dishonest).toEqual([]);
  expect(heldBytes(end) - heldBytes(warm)).toBeLessThan(MOST_GROWTH_BYTES);
  // That all lanes were in use, and all of it happened.
  expect(most).toBeGreaterThan(LANES / 2);
  for (const count of [trouble.kills, trouble.removals, data_plane.retries]) expect(count).toBeGreaterThan(0);
  for (const end of ["complete", "left in upload", "left in prefill", "left in answer", "told of an error"])
    expect(load.ends.get(end), end).toBeGreaterThan(0);
  expect(await gateway.close()).toBe(0);
});
