import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DecisionLog } from "../../host/decisions/log.js";
import { policyInstance } from "../../host/index.js";
import { hashSession, sessionId } from "../../host/routing/hash.js";
import { directoryOf } from "../fixtures/directory.js";
import { fixture, shipped } from "../routing/fixture.js";
import { entriesOf, optionsOf, record, SECRET } from "./history.js";

const STEPS = 1_500;
const sticky = () => policyInstance({ policy: shipped("sticky"), name: "keep-them" });
const guard = () =>
  policyInstance({
    policy: shipped("soft-affinity-load-guard"),
    name: "guard",
    parameters: { max_active_requests: 2 },
  });

const place = () => join(directoryOf({}), "d.jsonl");
const failing = { onError: (error: Error) => expect.fail(error.message) };

describe("the decision log", () => {
  it("has every decision, in their order, with all that the policy read", async () => {
    const file = place();
    const seen = await record({ file, instance: sticky(), seed: 7, steps: STEPS });
    const entries = entriesOf(file).filter(({ kind }) => kind === "decision");
    expect(entries.length).toBe(seen.length);
    const { manifest, admitted } = shipped("sticky");
    expect(manifest.reads).toEqual(["seed", "worker_hash"]);
    for (const [index, entry] of entries.entries()) {
      const { key, model, trace, asked, turn, eligible, loads, workers, ...decided } = seen[index]!;
      const { row, worker, reason } = decided;
      const { low, high } = hashSession(model, SECRET, key ?? "");
      const session = key === undefined ? null : sessionId(low, high);
      expect(entry).toMatchObject({ n: trace, model, session, asked, row, worker, reason });
      if (!asked) continue;
      const { bound, answer } = decided;
      const { sha256 } = admitted;
      expect(entry).toMatchObject({
        policy: "keep-them",
        type: "sticky",
        sha256,
        parameters: [0, 0],
        bound,
        answer,
      });
      expect(entry).toMatchObject({ workers, capacity: 64, us: 1.3 });
      const hex = (word: number) => (word >>> 0).toString(16).padStart(8, "0");
      expect(entry.fields).toEqual({ seed: `0x${hex(turn.seedHigh)}${hex(turn.seedLow)}` });
      expect(entry.columns).toMatchObject({ eligible, active_requests: loads });
      expect(Object.keys(entry.columns as object).sort()).toEqual([
        "active_requests",
        "eligible",
        "worker_hash",
      ]);
      expect(entry.fuel).toBeGreaterThan(0);
    }
    expect(new Set(seen.map(({ asked }) => asked)).size).toBe(2);
    const traces = seen.map(({ trace }) => trace);
    expect(traces).toEqual([...traces].sort((a, b) => a - b));
    expect(new Set(entries.map(({ run }) => run)).size).toBe(1);
  });

  it("counts the decisions of each instance from 0, none left out", async () => {
    const file = place();
    await record({ file, instance: sticky(), seed: 3, steps: STEPS });
    const next = new Map<unknown, number>();
    for (const { asked, instance, call } of entriesOf(file)) {
      if (!asked) continue;
      expect(call).toBe(next.get(instance) ?? 0);
      next.set(instance, (call as number) + 1);
    }
    expect(next.size).toBe(2);
  });

  it("has no key and no tenant in it", async () => {
    const file = place();
    await record({ file, instance: sticky(), seed: 4, steps: STEPS, options: { columns: "all" } });
    expect(readFileSync(file, "utf8")).not.toContain(SECRET);
  });

  it("has whatever the host fills, where that is asked for", async () => {
    const file = place();
    await record({ file, instance: guard(), seed: 5, steps: 300, options: { columns: "all" } });
    const { fields, columns } = entriesOf(file).find(({ asked }) => asked)!;
    expect(Object.keys(fields as object)).toEqual(["now", "session", "block_tokens", "seed"]);
    expect(Object.keys(columns as object).sort()).toEqual([
      ...["active_requests", "bound_sessions", "eligible", "kv_blocks", "kv_used", "queue_depth"],
      ...["slots", "weight", "worker_hash"],
    ]);
    expect((fields as { now: number }).now).toBeGreaterThan(1_000);
  });

  it("says how a request ended, under the number of its decision", async () => {
    const file = place();
    const seen = await record({ file, instance: sticky(), seed: 6, steps: 500 });
    const traces = new Set(seen.map(({ trace }) => trace));
    const outcomes = entriesOf(file).filter(({ kind }) => kind === "outcome");
    expect(outcomes.length).toBeGreaterThan(50);
    for (const { run, n, time, ...rest } of outcomes) {
      expect(traces.has(n as number)).toBe(true);
      expect(rest).toEqual({
        ...{ kind: "outcome", outcome: "complete", status: 200, accepted: true },
        ms: { first_byte: n },
        tokens: { prompt: 100, completion: n, cached: (n as number) % 2 === 0 ? 80 : 20 },
      });
    }
  });

  it("leaves out what is not known of an end, and ends that it knows no decision of", async () => {
    const file = place();
    const log = new DecisionLog(optionsOf(file), { ...failing, now: () => 1_700_000_000_000.5 });
    log.ended(0, { outcome: "complete", accepted: true });
    log.ended(9, {
      outcome: "client_gone",
      accepted: false,
      totalMs: 12.345,
      usage: { promptTokens: undefined },
    });
    await log.close();
    const [{ run, ...entry }, ...others] = entriesOf(file) as [Record<string, unknown>];
    expect(others).toEqual([]);
    expect(run).toMatch(/^[0-9a-f]{8}$/);
    expect(entry).toEqual({
      ...{ kind: "outcome", n: 9, time: 1_700_000_000_000.5, outcome: "client_gone", accepted: false },
      ms: { total: 12.3 },
    });
    expect([log.written, log.dropped]).toEqual([1, 0]);
  });

  it("logs what the host decides by its own rule as asked of nobody", async () => {
    const file = place();
    const log = new DecisionLog(optionsOf(file), failing);
    const { router } = fixture({
      session: { mode: "hard" },
      observer: {
        asking: () => {},
        decided: (lease, pool, turn, bound, decider) => log.decided(lease, pool, turn, bound, decider, 0),
      },
    });
    router.acquire({ key: "k" }).commit();
    router.acquire({ key: "k" });
    await log.close();
    const [first, second] = entriesOf(file);
    expect(first).toMatchObject({ asked: true, reason: "place" });
    expect(second).toEqual({
      ...{ kind: "decision", run: first!.run, n: (first!.n as number) + 1, time: second!.time, model: "" },
      ...{
        session: router.sessionIdOf("k", ""),
        asked: false,
        row: first!.row,
        worker: first!.worker,
        reason: "hard",
      },
    });
  });
});

describe("a sampled log", () => {
  /** Whether each of many sessions is logged, by its hash; and how many of as many requests without one. */
  function sampled(sample: number) {
    const file = place();
    const log = new DecisionLog(optionsOf(file, { sample }), failing);
    const { router } = fixture({
      observer: {
        asking: () => {},
        decided: (lease, pool, turn, bound, decider) => log.decided(lease, pool, turn, bound, decider, 0),
      },
    });
    const isLogged = (key?: string) => {
      const lease = router.acquire({ key });
      lease.release();
      return lease.trace > 0;
    };
    return { log, isLogged };
  }

  it.each([0.001, 0.3, 0.5, 1])("has all decisions of a session or none: a share of %d", async (sample) => {
    const { log, isLogged } = sampled(sample);
    let count = 0;
    for (let i = 0; i < 2_000; i++) {
      const logged = isLogged(`k${i}`);
      expect(isLogged(`k${i}`)).toBe(logged);
      expect(logged).toBe(hashSession("", "", `k${i}`).low >>> 0 < sample * 2 ** 32);
      if (logged) count++;
    }
    expect(Math.abs(count - sample * 2_000)).toBeLessThan(100);
    await log.close();
    expect(log.written).toBe(2 * count);
  });

  it("has the same sessions whatever their order, and of a smaller share a part of them", async () => {
    const small = sampled(0.2);
    const large = sampled(0.4);
    const keys = Array.from({ length: 500 }, (_, i) => `k${i}`);
    const inLarge = new Set([...keys].reverse().filter((key) => large.isLogged(key)));
    const inSmall = keys.filter((key) => small.isLogged(key));
    expect(inSmall.length).toBeGreaterThan(50);
    expect(inSmall.filter((key) => !inLarge.has(key))).toEqual([]);
    await Promise.all([small.log.close(), large.log.close()]);
  });

  it.each([0.1, 0.25, 1])("has the same share of requests without a session: %d", async (sample) => {
    const { log, isLogged } = sampled(sample);
    const logged = Array.from({ length: 400 }, () => isLogged());
    expect(logged.filter(Boolean).length).toBe(400 * sample);
    expect(logged.slice(0, 1 / sample)).toEqual([...new Array(1 / sample - 1).fill(false), true]);
    await log.close();
  });
});

describe("a log that cannot be written", () => {
  it("gives no decision a number that it could not log, and holds up none", async () => {
    const file = directoryOf({});
    const errors: Error[] = [];
    const log = new DecisionLog(optionsOf(file), {
      onError: (error) => errors.push(error),
      pace: { retryMs: 2 ** 30 },
    });
    const { router } = fixture({
      workers: Array.from({ length: 600 }, (_, i) => `${"w".repeat(100)}${i}`),
      observer: {
        asking: () => {},
        decided: (lease, pool, turn, bound, decider) => log.decided(lease, pool, turn, bound, decider, 0),
      },
    });
    const traces = Array.from({ length: 300 }, () => router.acquire({}).trace);
    const full = traces.indexOf(0);
    expect(full).toBeGreaterThan(50);
    expect(traces.slice(full).every((trace) => trace === 0)).toBe(true);
    await log.close();
    expect(log.dropped).toBe(300);
    expect(errors.length).toBe(1);
  });
});
