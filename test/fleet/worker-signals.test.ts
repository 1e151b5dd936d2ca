// One worker's signals over time: their age, what is ours in them, restarts, and what an operator sees.
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { EngineSignals } from "../../host/fleet/options.js";
import { readSignals } from "../../host/fleet/signals.js";
import { WorkerSignals } from "../../host/fleet/worker-signals.js";
import { startWorker } from "../../host/worker/server.js";
import { chat, post } from "../worker/http.js";

const STALE_MS = 10_000;
const PAGE: EngineSignals = {
  running: 3,
  waiting: 2,
  kvUsed: 400,
  blockSize: 16,
  blocks: 1000,
  startSeconds: 1_763_712_345.12,
  promptTokens: 90_000,
};
const UNKNOWN = { running: -1, waiting: -1, kvUsed: -1, elsewhere: 0 };

function taken(more: Partial<EngineSignals> = {}, mostLocal = 0, now = 0): WorkerSignals {
  const signals = new WorkerSignals(STALE_MS);
  signals.take({ ...PAGE, ...more }, now, mostLocal);
  return signals;
}

describe("values", () => {
  it("are unknown before the first scrape", () => {
    expect(new WorkerSignals(STALE_MS).view(7)).toEqual({
      ...{ ...UNKNOWN, blockSize: 0, blocks: 0, ageMs: null, lastError: null },
    });
  });

  it("are those of the last scrape", () => {
    const signals = taken();
    const values = { running: 3, waiting: 2, kvUsed: 400, elsewhere: 5, blockSize: 16, blocks: 1000 };
    expect(signals.values(0)).toEqual(values);
    signals.take({ ...PAGE, running: 0, waiting: 0, kvUsed: 0, blocks: 900 }, 2_000, 0);
    expect(signals.values(2_000)).toEqual({
      ...{ running: 0, waiting: 0, kvUsed: 0, elsewhere: 0, blockSize: 16, blocks: 900 },
    });
  });

  it("are unknown as soon as they are too old, but for the cache's size", () => {
    const signals = taken({}, 0, 500);
    expect(signals.values(500 + STALE_MS - 1)).toMatchObject({ running: 3, elsewhere: 5 });
    expect(signals.values(500 + STALE_MS)).toEqual({ ...UNKNOWN, blockSize: 16, blocks: 1000 });
    expect(signals.values(1e9)).toEqual({ ...UNKNOWN, blockSize: 16, blocks: 1000 });
    signals.take({ ...PAGE, running: 4 }, 1e9, 0);
    expect(signals.values(1e9)).toMatchObject({ running: 4, elsewhere: 6 });
  });

  it("are unknown where a newer page lacks them, but for the cache's size", () => {
    const signals = taken();
    const nothing = { running: undefined, waiting: undefined, kvUsed: undefined };
    signals.take(
      {
        ...nothing,
        ...{ blockSize: undefined, blocks: undefined, startSeconds: undefined, promptTokens: undefined },
      },
      1,
      0,
    );
    expect(signals.values(1)).toEqual({ ...UNKNOWN, blockSize: 16, blocks: 1000 });
  });
});

describe("what is elsewhere", () => {
  it.each([
    [3, 2, 0, 5],
    [3, 2, 5, 0],
    [3, 2, 8, 0],
    [0, 0, 0, 0],
    [undefined, 7, 2, 5],
    [7, undefined, 2, 5],
    [undefined, undefined, 2, 0],
  ])("of %s running and %s waiting with %i of ours: %i", (running, waiting, mostLocal, elsewhere) => {
    expect(taken({ running, waiting }, mostLocal).values(0).elsewhere).toBe(elsewhere);
  });

  // However our requests come and go while a scrape is under way, and whenever in it the engine counts.
  it("has never anything of ours in it", () => {
    const steps = fc.array(fc.constantFrom(-1, 1), { maxLength: 30 });
    fc.assert(
      fc.property(fc.nat(50), fc.nat(20), steps, fc.nat(1_000), (foreign, first, steps, moment) => {
        const ours = [first];
        for (const step of steps) ours.push(Math.max(0, ours.at(-1)! + step));
        const counted = ours[moment % ours.length]!;
        const running = Math.min(4, foreign + counted);
        const waiting = foreign + counted - running;
        const { elsewhere } = taken({ running, waiting }, Math.max(...ours)).values(0);
        expect(elsewhere).toBeLessThanOrEqual(foreign);
        if (steps.length === 0) expect(elsewhere).toBe(foreign);
      }),
      { numRuns: 1_000 },
    );
  });
});

/** A fleet whose load is polled, and the least loaded of it by our own requests and those elsewhere. */
class PolledFleet {
  readonly local: number[];
  readonly signals: WorkerSignals[];

  constructor(readonly foreign: readonly number[]) {
    this.local = foreign.map(() => 0);
    this.signals = foreign.map(() => new WorkerSignals(STALE_MS));
  }

  poll(now: number, failing: number[] = []): void {
    for (const [i, signals] of this.signals.entries()) {
      const running = this.foreign[i]! + this.local[i]!;
      if (failing.includes(i)) signals.failed(now, "it does not answer");
      else signals.take({ ...PAGE, running, waiting: 0 }, now, this.local[i]!);
    }
  }

  send(now: number, requests: number): void {
    for (let i = 0; i < requests; i++) {
      const loads = this.loads(now);
      this.local[loads.indexOf(Math.min(...loads))]!++;
    }
  }

  loads(now: number): number[] {
    return this.signals.map((signals, i) => this.local[i]! + signals.values(now).elsewhere);
  }
}

describe("field faults", () => {
  it("A16: a poll that fails for ever after reporting 0 ages out", () => {
    const signals = new WorkerSignals(STALE_MS);
    signals.take({ ...PAGE, running: 0, waiting: 0, kvUsed: 0 }, 0, 0);
    for (let now = 2_000; now <= 3_600_000; now += 2_000) {
      signals.failed(now, "it does not answer");
      const { running, waiting, kvUsed } = signals.values(now);
      const isKnown = now < STALE_MS;
      expect([running, waiting, kvUsed]).toEqual(isKnown ? [0, 0, 0] : [-1, -1, -1]);
    }
    expect(signals.view(3_600_000)).toMatchObject({
      ageMs: 3_600_000,
      lastError: { reason: "it does not answer", ageMs: 0 },
    });
  });

  it("A16: the worker that cannot be polled is not the emptiest for ever", () => {
    const fleet = new PolledFleet([0, 0, 0]);
    fleet.poll(0);
    for (let now = 2_000; now <= 60_000; now += 2_000) {
      fleet.poll(now, [2]);
      fleet.send(now, 3);
    }
    expect(fleet.local).toEqual([30, 30, 30]);
  });

  it("A17: of 8 requests inside one poll interval each worker gets its part", () => {
    const fleet = new PolledFleet([5, 5, 5, 5]);
    fleet.poll(0);
    fleet.send(100, 8);
    expect(fleet.local).toEqual([2, 2, 2, 2]);
    // The next poll sees them, and they count once all the same.
    fleet.poll(2_000);
    expect(fleet.loads(2_000)).toEqual([7, 7, 7, 7]);
  });

  it("A17: others' requests count beside ours", () => {
    const fleet = new PolledFleet([0, 4]);
    fleet.poll(0);
    fleet.send(100, 8);
    expect(fleet.local).toEqual([6, 2]);
  });
});

describe("a restart", () => {
  const start = PAGE.startSeconds!;

  it("is told once, by another start of the process", () => {
    const signals = new WorkerSignals(STALE_MS);
    const take = (startSeconds: number | undefined, now: number) =>
      signals.take({ ...PAGE, startSeconds }, now, 0);
    expect(take(start, 0)).toBe(false);
    expect(take(start, 1)).toBe(false);
    expect(take(start + 60, 2)).toBe(true);
    expect(take(start + 60, 3)).toBe(false);
    // A clock that was set back.
    expect(take(start - 3_600, 4)).toBe(true);
  });

  it("is not seen in a start that is computed a little differently each time", () => {
    const signals = taken();
    for (let i = 1; i <= 100; i++)
      expect(signals.take({ ...PAGE, startSeconds: start + i * 0.9 }, i, 0)).toBe(false);
    expect(signals.take({ ...PAGE, startSeconds: start + 90 + 1.5 }, 101, 0)).toBe(true);
  });

  it("is told over an outage, and over pages that tell no start", () => {
    const signals = taken();
    for (let now = 2_000; now < 600_000; now += 2_000) signals.failed(now, "it does not answer");
    expect(signals.take({ ...PAGE, startSeconds: undefined }, 600_000, 0)).toBe(false);
    expect(signals.take({ ...PAGE, startSeconds: start + 300 }, 602_000, 0)).toBe(true);
  });

  it("is not told where no start was ever known", () => {
    const signals = taken({ startSeconds: undefined });
    expect(signals.take(PAGE, 1, 0)).toBe(false);
  });

  it("is told by prompt tokens that are fewer than they were, where no start is told", () => {
    const signals = new WorkerSignals(STALE_MS);
    const take = (promptTokens: number | undefined, now: number) =>
      signals.take({ ...PAGE, startSeconds: undefined, promptTokens }, now, 0);
    expect(take(5_000, 0)).toBe(false);
    expect(take(5_000, 1)).toBe(false);
    expect(take(undefined, 2)).toBe(false);
    expect(take(4_999, 3)).toBe(true);
    expect(take(4_999, 4)).toBe(false);
    expect(take(90_000, 5)).toBe(false);
    expect(take(0, 6)).toBe(true);
  });

  it("is told once where both tell it, one after the other", () => {
    const signals = taken({ promptTokens: 5_000 });
    const next = { ...PAGE, startSeconds: start + 60 };
    expect(signals.take({ ...next, promptTokens: undefined }, 1, 0)).toBe(true);
    expect(signals.take({ ...next, promptTokens: 10 }, 2, 0)).toBe(false);
    expect(signals.take({ ...next, promptTokens: 20 }, 3, 0)).toBe(false);
    expect(signals.take({ ...next, startSeconds: undefined, promptTokens: 10 }, 4, 0)).toBe(true);
  });

  it("is not seen in fewer prompt tokens where the start that is told stays the same", () => {
    const signals = taken({ promptTokens: 5_000 });
    for (const [now, promptTokens] of [10, 0, 90_000, 3].entries())
      expect(signals.take({ ...PAGE, startSeconds: start + 0.5, promptTokens }, 1 + now, 0)).toBe(false);
    expect(signals.values(9)).toMatchObject({ blockSize: 16, blocks: 1000 });
    // A page without a start is compared with what the one before it told.
    const page = (promptTokens: number) => ({ ...PAGE, startSeconds: undefined, promptTokens });
    expect(signals.take(page(3), 10, 0)).toBe(false);
    expect(signals.take(page(2), 11, 0)).toBe(true);
    expect(signals.take({ ...PAGE, promptTokens: 1 }, 12, 0)).toBe(false);
  });

  it("makes the cache's size unknown until the new process tells it", () => {
    const signals = taken();
    const unsized = { ...PAGE, blockSize: undefined, blocks: undefined };
    signals.take(unsized, 1, 0);
    expect(signals.values(1)).toMatchObject({ blockSize: 16, blocks: 1000 });
    signals.take({ ...unsized, startSeconds: start + 60 }, 2, 0);
    expect(signals.values(2)).toMatchObject({ blockSize: 0, blocks: 0 });
    signals.take({ ...PAGE, blockSize: 32, blocks: 500, startSeconds: start + 60 }, 3, 0);
    expect(signals.values(3)).toMatchObject({ blockSize: 32, blocks: 500 });
  });
});

describe("an operator sees", () => {
  it("values, their age, and no error", () => {
    expect(taken({}, 1, 100).view(350)).toEqual({
      ...{ running: 3, waiting: 2, kvUsed: 400, elsewhere: 4, blockSize: 16, blocks: 1000 },
      ...{ ageMs: 250, lastError: null },
    });
  });

  it("the last error until a scrape succeeds", () => {
    const signals = new WorkerSignals(STALE_MS);
    signals.failed(0, "it answered GET /metrics with status 404");
    signals.failed(2_000, "it does not answer");
    expect(signals.view(2_500)).toMatchObject({
      ...{ ageMs: null, lastError: { reason: "it does not answer", ageMs: 500 } },
    });
    signals.take(PAGE, 4_000, 0);
    expect(signals.view(4_000)).toMatchObject({ ageMs: 0, lastError: null });
  });

  it("how old values are that do not count any more", () => {
    expect(taken().view(60_000)).toMatchObject({ ...UNKNOWN, ageMs: 60_000 });
  });
});

describe("with the simulated worker", () => {
  const closers: Array<() => Promise<void>> = [];

  afterEach(async () => {
    vi.useRealTimers();
    for (const close of closers.splice(0)) await close();
  });

  const start = async (port = 0) => {
    // One prompt token in 1,000 seconds: whoever is in prefill stays there until aborted.
    const worker = await startWorker({ port, prefillRate: 0.001, maxNumSeqs: 2 });
    closers.push(worker.close);
    return worker;
  };
  const scrape = async (url: string) => {
    // A connection that is kept would be one to the process that is gone.
    const response = await fetch(`${url}/metrics`, { headers: { connection: "close" } });
    return readSignals(await response.text());
  };

  it("tells others' requests from ours", async () => {
    const { url } = await start();
    const controller = new AbortController();
    const all = Array.from({ length: 5 }, (_, i) =>
      post(url, "/v1/chat/completions", chat(`question ${i}`), controller.signal).catch(() => {}),
    );
    await vi.waitFor(async () => expect(await scrape(url)).toMatchObject({ running: 2, waiting: 3 }), 60_000);
    const signals = new WorkerSignals(STALE_MS);
    signals.take(await scrape(url), 0, 2);
    expect(signals.values(0)).toMatchObject({ running: 2, waiting: 3, elsewhere: 3 });
    controller.abort();
    await Promise.all(all);
  }, 120_000);

  it("tells a restart on the same address", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const first = await start();
    const signals = new WorkerSignals(STALE_MS);
    expect(signals.take(await scrape(first.url), 0, 0)).toBe(false);
    vi.setSystemTime(Date.now() + 5_000);
    expect(signals.take(await scrape(first.url), 5_000, 0)).toBe(false);
    await first.close();
    const second = await start(Number(new URL(first.url).port));
    expect(signals.take(await scrape(second.url), 6_000, 0)).toBe(true);
  }, 120_000);
});
