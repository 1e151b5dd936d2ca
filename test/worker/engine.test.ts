// The engine's timing, proved on a virtual clock, and what an abort leaves behind: nothing.
import { beforeEach, describe, expect, it } from "vitest";
import { Engine, type Job } from "../../host/worker/engine.js";
import { PrefixCache } from "../../host/worker/prefix-cache.js";
import { settle, VirtualClock } from "./virtual-clock.js";

const range = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);

let clock: VirtualClock;
let cache: PrefixCache;
let engine: Engine;

interface Run {
  /** Times at which tokens came, in milliseconds. */
  readonly times: number[];
  readonly abort: () => void;
  readonly done: Promise<number | "aborted">;
}

function setUp(maxNumSeqs: number): void {
  clock = new VirtualClock();
  cache = new PrefixCache(1000, 10);
  engine = new Engine({ maxNumSeqs, prefillRate: 1000, tpotMs: 5, cache, clock });
}

function start(prompt: readonly number[], outputLength: number, finish: Job["finish"] = "stop"): Run {
  const controller = new AbortController();
  const times: number[] = [];
  const done = engine.run({
    prompt,
    output: range(-outputLength, outputLength),
    finish,
    signal: controller.signal,
    onToken: () => times.push(clock.now()),
  });
  const caught = done.catch((error) => {
    if (controller.signal.aborted) return "aborted" as const;
    throw error;
  });
  return { times, abort: () => controller.abort(), done: caught };
}

beforeEach(() => setUp(2));

describe("timing", () => {
  it("takes uncached / rate to the first token and tpot to each further one", async () => {
    const run = start(range(0, 200), 4);
    await clock.advanceTo(1000);
    expect(run.times).toEqual([200, 205, 210, 215]);
    expect(await run.done).toBe(0);
  });

  it("prefills only what is not cached", async () => {
    const first = start(range(0, 200), 1);
    await clock.advanceTo(1000);
    const second = start(range(0, 250), 2);
    await clock.advanceTo(2000);
    expect(first.times).toEqual([200]);
    expect(second.times).toEqual([1050, 1055]);
    expect(await second.done).toBe(200);
  });

  it("counts what was generated as cached in the next turn", async () => {
    start(range(0, 95), 25);
    await clock.advanceTo(1000);
    const next = start([...range(0, 95), ...range(-25, 25), ...range(500, 5)], 1);
    await clock.advanceTo(2000);
    expect(await next.done).toBe(120);
    expect(next.times).toEqual([1005]);
  });

  it("adds the wait for a seat, first come first served", async () => {
    const runs = [100, 300, 50, 20].map((length, i) => start(range(i * 10_000, length), 3));
    await settle();
    expect(engine.stats).toMatchObject({ running: 2, waiting: 2 });
    await clock.advanceTo(1000);
    // Seats are free at 110 (third starts) and, with the third done at 170, at 170 (fourth starts).
    expect(runs.map((run) => run.times)).toEqual([
      [100, 105, 110],
      [300, 305, 310],
      [160, 165, 170],
      [190, 195, 200],
    ]);
    expect(engine.stats).toMatchObject({ running: 0, waiting: 0 });
  });

  it("lets no newcomer pass the queue", async () => {
    setUp(1);
    const first = start(range(0, 10), 1);
    const queued = start(range(1000, 10), 1);
    await clock.advanceTo(9);
    const late = first.done.then(() => start(range(2000, 10), 1));
    await clock.advanceTo(100);
    expect(queued.times).toEqual([20]);
    expect((await late).times).toEqual([30]);
  });

  it("serves a prefill-only job", async () => {
    const run = start(range(0, 40), 0);
    await clock.advanceTo(39);
    expect(engine.stats.running).toBe(1);
    await clock.advanceTo(40);
    expect(await run.done).toBe(0);
    expect(engine.stats).toMatchObject({ running: 0, generationTokens: 0, promptTokens: 40 });
  });
});

describe("counts", () => {
  it("counts tokens, lookups, hits and reasons", async () => {
    start(range(0, 100), 3);
    await clock.advanceTo(1000);
    start(range(0, 100), 2, "length");
    await clock.advanceTo(2000);
    expect(engine.stats).toEqual({
      running: 0,
      waiting: 0,
      promptTokens: 200,
      generationTokens: 5,
      cacheQueries: 200,
      cacheHits: 90,
      finished: { stop: 1, length: 1, abort: 0 },
    });
  });
});

describe("abort", () => {
  it("leaves the queue at once and moves the others up", async () => {
    setUp(1);
    start(range(0, 100), 1);
    const [second, third] = [start(range(1000, 10), 1), start(range(2000, 10), 1)];
    await settle();
    second.abort();
    expect(engine.stats.waiting).toBe(1);
    expect(await second.done).toBe("aborted");
    await clock.advanceTo(1000);
    expect(second.times).toEqual([]);
    expect(third.times).toEqual([110]);
    expect(engine.stats.finished).toEqual({ stop: 2, length: 0, abort: 1 });
  });

  it("frees seat and blocks in the middle of a prefill, and caches nothing of it", async () => {
    setUp(1);
    const run = start(range(0, 100), 5);
    const next = start(range(0, 100), 1);
    await clock.advanceTo(50);
    expect(cache.usedBlocks).toBe(10);
    run.abort();
    expect(await run.done).toBe("aborted");
    await clock.advanceTo(1000);
    expect(next.times).toEqual([150]);
    expect(await next.done).toBe(0);
    expect(engine.stats).toMatchObject({ running: 0, promptTokens: 100, finished: { abort: 1 } });
  });

  it("stops in the middle of decoding and keeps what was computed in the cache", async () => {
    const run = start(range(0, 100), 50);
    await clock.advanceTo(110);
    expect(run.times).toEqual([100, 105, 110]);
    run.abort();
    expect(await run.done).toBe("aborted");
    expect(clock.pending).toBe(0);
    expect(cache.usedBlocks).toBe(0);
    expect(engine.stats).toMatchObject({ running: 0, generationTokens: 3, finished: { stop: 0, abort: 1 } });
    const again = start(range(0, 101), 1);
    await clock.advanceTo(1000);
    expect(await again.done).toBe(100);
    expect(run.times).toHaveLength(3);
  });

  it("gives back a seat that is handed over in the very moment of the abort", async () => {
    setUp(1);
    const first = start(range(0, 10), 1);
    const second = start(range(1000, 10), 1);
    await settle();
    first.abort();
    second.abort();
    expect(await Promise.all([first.done, second.done])).toEqual(["aborted", "aborted"]);
    const third = start(range(2000, 10), 1);
    await clock.advanceTo(100);
    expect(third.times).toEqual([10]);
    expect(engine.stats.running).toBe(0);
  });
});
