// Rows that follow who comes and goes one by one, against rows that are made afresh after every step.
import fc from "fast-check";
import { describe, expect, it, test } from "vitest";
import { capacityFor, MAX_CAPACITY, MIN_CAPACITY } from "../../host/abi/frame.js";
import { type AcquireRequest, createRouter, type Lease, loadPolicy, type Router } from "../../host/index.js";
import { Turn } from "../../host/policy/decider.js";
import { PolicyStartError, type Program } from "../../host/policy/live.js";
import { Contender } from "../../host/routing/contenders.js";
import type { Pool } from "../../host/routing/pool.js";
import { Roster } from "../../host/routing/roster.js";
import { Scope } from "../../host/routing/scope.js";
import { type EngineReport, NO_REPORT, type Worker } from "../../host/routing/worker.js";
import { policyFromText } from "../fixtures/puppet.js";

const leastLoaded = loadPolicy("least-loaded");
const MODELS = ["", "a", "b", "c"];
/** Their order is that of their code units: `w10` before `w9`, capitals before small letters. */
const IDS = [
  ...Array.from({ length: 12 }, (_, i) => `w${i}`),
  "W",
  "a",
  "w",
  "z",
  "é",
  "\u{1F600}",
  "\uFFFD",
];

const byId = (a: Worker, b: Worker): number => (a.id < b.id ? -1 : 1);

function rosterOf(policy: Program = leastLoaded): Roster {
  const contender = new Contender({ name: "under-test", policy, parameters: new Float64Array(0) });
  return new Roster([contender], (model) => new Scope(model, new Int32Array(4)));
}

/** What a row shows, as its worker says. */
function columnsOf(worker: Worker) {
  const { report } = worker;
  return {
    eligible: worker.eligible ? 1 : 0,
    active_requests: Math.min(2 ** 31 - 1, worker.activeRequests + report.elsewhere),
    bound_sessions: worker.boundSessions,
    worker_hash: worker.hash,
    weight: worker.weight,
    slots: worker.slots,
    queue_depth: report.queueDepth,
    kv_used: report.kvUsed,
    kv_blocks: report.kvBlocks,
  };
}

/** The smallest block of which one of the workers knows, 0 where none does. */
function leastBlock(workers: readonly Worker[]): number {
  const known = workers.map(({ report }) => report.blockTokens).filter((tokens) => tokens > 0);
  return known.length === 0 ? 0 : Math.min(...known);
}

/** A pool is what one would be that is made of these workers now. */
function expectPool(pool: Pool, members: readonly Worker[]): void {
  const workers = [...members].sort(byId);
  const { candidates } = pool;
  const { truth } = candidates;
  expect(pool.workers.map(({ id }) => id)).toEqual(workers.map(({ id }) => id));
  expect(pool.workers.every((worker, row) => worker === workers[row])).toBe(true);
  expect(candidates.n).toBe(workers.length);
  for (const [row, worker] of workers.entries()) {
    const columns = columnsOf(worker);
    const seen = Object.keys(columns).map((name) => [name, truth[name as keyof typeof columns][row]]);
    expect(Object.fromEntries(seen), worker.id).toEqual(columns);
    expect(worker.rowIn(pool), worker.id).toBe(row);
  }
  const eligible = workers.filter((worker) => worker.eligible);
  expect(candidates.eligibleCount).toBe(eligible.length);
  // Rows behind the last one are nobody's.
  expect(truth.eligible.subarray(workers.length).every((value) => value === 0)).toBe(true);
  expect(candidates.blockTokens).toBe(leastBlock(workers));
  expectDecision(pool, eligible);
}

/** The policy sees the same rows: the least loaded of those that are eligible. */
function expectDecision(pool: Pool, eligible: readonly Worker[]): void {
  if (eligible.length === 0) return;
  const { decider } = pool;
  decider.decide(new Turn(), -1);
  expect(decider.failure).toBeUndefined();
  const chosen = pool.workers[decider.row]!;
  expect(eligible).toContain(chosen);
  expect(chosen.shownRequests).toBe(Math.min(...eligible.map((worker) => worker.shownRequests)));
}

/** All pools are what they would be, made now; nobody has a row elsewhere. */
function expectRoster(roster: Roster, known: ReadonlySet<Pool>): void {
  const workers = [...roster.workers.values()];
  const served = new Set(workers.flatMap(({ models }) => models));
  expect(new Set(roster.pools.keys())).toEqual(served);
  for (const [model, pool] of roster.pools) {
    const members = workers.filter(({ models }) => models.includes(model));
    expectPool(pool, members);
    for (const other of workers) if (!members.includes(other)) expect(other.rowIn(pool)).toBe(-1);
  }
  const current = new Set(roster.pools.values());
  for (const pool of known)
    if (!current.has(pool)) for (const worker of workers) expect(worker.rowIn(pool)).toBe(-1);
}

const models = fc.uniqueArray(fc.constantFrom(...MODELS), { maxLength: MODELS.length });
const tokens = fc.constantFrom(0, 0, 16, 16, 32, 64);
const report: fc.Arbitrary<EngineReport> = fc.record({
  elsewhere: fc.oneof(fc.nat(5), fc.constant(2 ** 31 - 1)),
  queueDepth: fc.integer({ min: -1, max: 9 }),
  kvUsed: fc.integer({ min: -1, max: 1_000 }),
  kvBlocks: fc.nat(5_000),
  blockTokens: tokens,
});

/** Something that happens to one of the workers. */
const change = fc.oneof(
  fc.record({ kind: fc.constant("models" as const), models }),
  fc.record({ kind: fc.constant("ready" as const), ready: fc.boolean() }),
  fc.record({
    kind: fc.constant("limit" as const),
    most: fc.constantFrom(0, 1, 3, Number.POSITIVE_INFINITY),
  }),
  fc.record({ kind: fc.constant("easing" as const), most: fc.constantFrom(0, 2, Number.POSITIVE_INFINITY) }),
  fc.record({ kind: fc.constant("report" as const), report }),
  fc.record({
    kind: fc.constant("refit" as const),
    weight: fc.integer({ min: 1, max: 300 }),
    slots: fc.nat(9),
  }),
  fc.record({ kind: fc.constant("requests" as const), count: fc.integer({ min: -2, max: 3 }) }),
  fc.record({ kind: fc.constant("sessions" as const), count: fc.integer({ min: -2, max: 3 }) }),
  fc.record({ kind: fc.constant("remove" as const) }),
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;

const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("add" as const), id: fc.constantFrom(...IDS), models, report }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("crowd" as const), count: fc.nat(50), models }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("leave" as const), count: fc.nat(50) }) },
  {
    weight: 9,
    arbitrary: fc.record({ kind: fc.constant("change" as const), at: fc.nat(99), change }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** One of them, or several together. */
const steps = fc.oneof(
  { weight: 4, arbitrary: step.map((one) => [one]) },
  { weight: 1, arbitrary: fc.array(step, { minLength: 2, maxLength: 6 }) },
);

function apply(roster: Roster, worker: Worker, change: Change): void {
  if (change.kind === "models") roster.setModels(worker, change.models);
  else if (change.kind === "ready") worker.ready = change.ready;
  else if (change.kind === "limit") worker.maxInFlight = change.most;
  else if (change.kind === "easing") worker.easing = change.most;
  else if (change.kind === "report") worker.report = change.report;
  else if (change.kind === "refit") worker.refit(change);
  else if (change.kind === "requests") worker.addRequests(Math.max(change.count, -worker.activeRequests));
  else if (change.kind === "sessions") worker.addSessions(Math.max(change.count, -worker.boundSessions));
  else expect(roster.remove(worker)).toBe(true);
}

function take(roster: Roster, step: Step, serial: string): void {
  const workers = [...roster.workers.values()];
  if (step.kind === "add") {
    if (roster.workers.has(step.id)) expect(() => roster.add({ id: step.id })).toThrow(/exists already/);
    else roster.add({ id: step.id, models: step.models }).report = step.report;
  } else if (step.kind === "crowd") {
    for (let i = 0; i < step.count; i++)
      roster.add({ id: `x${(i * 37) % 100}-${serial}`, models: step.models });
  } else if (step.kind === "leave") {
    for (const worker of workers.slice(0, step.count)) roster.remove(worker);
  } else if (workers.length > 0) apply(roster, workers[step.at % workers.length]!, step.change);
}

describe("the rows of every pool", () => {
  it("are those of a pool that is made afresh, whatever happens in whatever order", () => {
    /** How often a pool had so many rows as to need a larger instance. */
    let grown = 0;
    fc.assert(
      fc.property(fc.array(steps, { maxLength: 40, size: "max" }), (all) => {
        const roster = rosterOf();
        const known = new Set<Pool>();
        for (const [serial, each] of all.entries()) {
          if (each.length === 1) take(roster, each[0]!, `${serial}`);
          else roster.change(() => each.forEach((one, i) => void take(roster, one, `${serial}.${i}`)));
          for (const pool of roster.pools.values()) known.add(pool);
          expectRoster(roster, known);
        }
        for (const { candidates } of known) if (candidates.capacity > MIN_CAPACITY) grown++;
      }),
      { seed: 21, numRuns: 60 },
    );
    expect(grown).toBeGreaterThan(10);
  }, 120_000);

  it("follow growth past every capacity, and shrinking, in any order of ids", () => {
    const roster = rosterOf();
    const order = Array.from({ length: 300 }, (_, i) => `w${(i * 7) % 300}`);
    const workers = order.map((id, i) => {
      const worker = roster.add({ id, weight: 1 + i, slots: i });
      worker.report = { ...NO_REPORT, elsewhere: i % 5, queueDepth: i, blockTokens: i === 3 ? 16 : 32 };
      worker.addRequests(i % 3);
      worker.addSessions(i);
      return worker;
    });
    const pool = roster.pools.get("")!;
    expect(pool.candidates.capacity).toBe(capacityFor(300));
    expectPool(pool, workers);
    // The only one of that size goes.
    roster.remove(workers[3]!);
    expect(pool.candidates.blockTokens).toBe(32);
    for (const [i, worker] of workers.entries()) if (i !== 3 && i % 2 === 0) roster.remove(worker);
    expectPool(pool, [...roster.workers.values()]);
    expect(roster.workers.size).toBe(149);
    for (const worker of [...roster.workers.values()]) roster.remove(worker);
    expect(roster.pools.size).toBe(0);
    expect(workers.map((worker) => worker.rowIn(pool))).toEqual(workers.map(() => -1));
  });

  it("keep the smallest block where the one by whom they outgrow their capacity has a larger one", () => {
    const roster = rosterOf();
    for (let i = 0; i < MIN_CAPACITY; i++) roster.add({ id: `w${i}`, models: ["a"] });
    roster.workers.get("w7")!.report = { ...NO_REPORT, blockTokens: 16 };
    const late = roster.add({ id: "late", models: ["b"] });
    late.report = { ...NO_REPORT, blockTokens: 64 };
    roster.setModels(late, ["a", "b"]);
    const pool = roster.pools.get("a")!;
    expect([pool.candidates.capacity, pool.candidates.blockTokens]).toEqual([2 * MIN_CAPACITY, 16]);
    expectPool(roster.pools.get("b")!, [late]);
  });

  it("are written where they change alone: others keep the very same place", () => {
    const roster = rosterOf();
    for (const id of ["b", "c", "d"]) roster.add({ id });
    const pool = roster.pools.get("")!;
    const { candidates, decider } = pool;
    roster.add({ id: "e" });
    roster.remove(roster.workers.get("c")!);
    expect(pool.candidates).toBe(candidates);
    expect(pool.decider).toBe(decider);
    expectPool(pool, [...roster.workers.values()]);
  });
});

describe("a worker that cannot be taken in changes nothing", () => {
  /** All that pools are. */
  const picture = (roster: Roster) =>
    [...roster.pools].map(([model, { workers, candidates }]) => ({
      ...{ model, ids: workers.map(({ id }) => id), n: candidates.n, eligible: candidates.eligibleCount },
      ...{ rows: Array.from(candidates.truth.worker_hash.subarray(0, candidates.n)) },
      ...{ blockTokens: candidates.blockTokens, capacity: candidates.capacity },
    }));

  it("where it would be one of more than 1,024 models", () => {
    const roster = rosterOf();
    for (let i = 0; i < 4; i++)
      roster.add({ id: `w${i}`, models: Array.from({ length: 256 }, (_, at) => `m${256 * i + at}`) });
    expect(roster.pools.size).toBe(1_024);
    const before = picture(roster);
    const add = () => roster.add({ id: "a", models: ["m0", "m1023", "one too many", "m5"] });
    expect(add).toThrow(new RangeError("at most 1024 models can be served"));
    expect(roster.workers.has("a")).toBe(false);
    expect(picture(roster)).toEqual(before);
    // Nor does another list of one that is there.
    const w3 = roster.workers.get("w3")!;
    expect(() => roster.setModels(w3, [...w3.models, "one too many"])).toThrow(/at most 1024/);
    expect(picture(roster)).toEqual(before);
    expect(w3.models).toHaveLength(256);
    expectPool(roster.pools.get("m0")!, [roster.workers.get("w0")!]);
    // The name is free, and what all serve already can be served by one more.
    const added = roster.add({ id: "a", models: ["m0", "m1023"] });
    expectPool(roster.pools.get("m0")!, [added, roster.workers.get("w0")!]);
    expectPool(roster.pools.get("m1023")!, [added, w3]);
    // What goes makes room for what comes, also where it goes later.
    roster.setModels(w3, ["m0", "another", "m1023"]);
    expect(roster.pools.has("m800")).toBe(false);
    expectPool(roster.pools.get("another")!, [w3]);
    roster.change(() => {
      roster.setModels(w3, []);
      roster.setModels(
        added,
        Array.from({ length: 256 }, (_, at) => `n${at}`),
      );
      expect(() => roster.setModels(w3, ["m0", ...Array.from({ length: 256 }, (_, at) => `o${at}`)])).toThrow(
        /at most 1024/,
      );
    });
    expectPool(roster.pools.get("n255")!, [added]);
    expectPool(roster.pools.get("m0")!, [roster.workers.get("w0")!]);
    expect(roster.pools.has("m1023")).toBe(false);
  }, 120_000);

  it("where a pool needs a larger instance that does not start", async () => {
    const small = await policyFromText(`
import * as sdk from "../../../assembly/sdk";
export function init(capacity: i32): i32 { return capacity > 64 ? 0 : sdk.init(capacity); }
export function select(n: i32, bound: i32): i32 { return sdk.answer(n - 1, 1); }
`);
    const roster = rosterOf(small);
    for (let i = 0; i < MIN_CAPACITY; i++) roster.add({ id: `w${i}`, models: ["a"] }).addRequests(i);
    const pool = roster.pools.get("a")!;
    const { decider } = pool;
    const before = picture(roster);
    expect(() => roster.add({ id: "first", models: ["b", "a", "c"] })).toThrow(PolicyStartError);
    expect([...roster.pools.keys()]).toEqual(["a"]);
    expect(picture(roster)).toEqual(before);
    expect(roster.workers.size).toBe(MIN_CAPACITY);
    expect(pool.decider).toBe(decider);
    for (const [row, worker] of pool.workers.entries()) expect(worker.rowIn(pool)).toBe(row);
    decider.decide(new Turn(), -1);
    expect(decider.row).toBe(MIN_CAPACITY - 1);
    // Where one leaves there is a place again.
    roster.remove(pool.workers[5]!);
    const added = roster.add({ id: "first", models: ["a"] });
    expect(added.rowIn(pool)).toBe(0);
  });

  it("where a model has as many workers as rows can be numbered", () => {
    const roster = rosterOf();
    // In the order of their ids, where each takes the last row.
    for (let i = 0; i < MAX_CAPACITY; i++) roster.add({ id: String(i).padStart(5, "0") });
    const pool = roster.pools.get("")!;
    expect(() => roster.add({ id: "-" })).toThrow(
      new RangeError('model "" has 16385 workers, at most 16384 are allowed'),
    );
    expect([pool.workers.length, pool.candidates.n, roster.workers.size]).toEqual([
      ...[MAX_CAPACITY, MAX_CAPACITY, MAX_CAPACITY],
    ]);
    expect(pool.workers[0]!.rowIn(pool)).toBe(0);
  }, 120_000);
});

/** A router, and what is under way in it. */
class Bench {
  readonly router: Router = createRouter({ policy: leastLoaded, seed: 1, clock: () => 0 });
  readonly leases: Lease[] = [];

  get workers(): Worker[] {
    return [...this.router.workers];
  }

  acquire(request: AcquireRequest): void {
    const { model = "", exclude = [] } = request;
    const open = this.workers.filter((it) => it.models.includes(model) && !exclude.includes(it));
    const eligible = open.filter((worker) => worker.eligible);
    const allowed = eligible.length > 0 ? eligible : open.filter((worker) => worker.hasRoom);
    if (allowed.length === 0) {
      expect(() => this.router.acquire(request)).toThrow();
      return;
    }
    const loads = new Map(allowed.map((worker) => [worker, worker.shownRequests]));
    const lease = this.router.acquire(request);
    expect(loads.get(lease.worker)).toBe(Math.min(...loads.values()));
    lease.commit();
    this.leases.push(lease);
  }

  /** What each model's policy is shown, and how many requests run on each worker. */
  check(): void {
    for (const worker of this.workers) {
      const mine = this.leases.filter((lease) => lease.worker === worker);
      expect(worker.activeRequests, worker.id).toBe(mine.length);
    }
    for (const model of MODELS) {
      const members = this.workers.filter(({ models }) => models.includes(model)).sort(byId);
      expect(this.router.serves(model)).toBe(members.length > 0);
      if (!members.some((worker) => worker.hasRoom)) continue;
      const { candidates, worker } = this.router.explain({ model });
      expect(candidates.map((row) => row.worker)).toEqual(members.map(({ id }) => id));
      // Where no other is eligible those may be chosen that begin slowly.
      const isEased = !members.some((member) => member.eligible);
      const expected = members.map((member) => {
        const columns = columnsOf(member);
        return isEased ? { ...columns, eligible: member.hasRoom ? 1 : 0 } : columns;
      });
      expect(candidates.map(({ columns }) => columns)).toEqual(expected);
      expect(members.map(({ id }) => id)).toContain(worker);
    }
  }
}

const deed = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      ...{ kind: fc.constant("acquire" as const), model: fc.constantFrom(...MODELS) },
      ...{ key: fc.constantFrom(undefined, "s", "t", "u"), excluded: fc.subarray(IDS, { maxLength: 3 }) },
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("release" as const), at: fc.nat(99) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("add" as const), id: fc.constantFrom(...IDS), models, report }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("change" as const), at: fc.nat(99), change }) },
);

test("a router's workers carry what its leases say, through every change of its pools", () => {
  fc.assert(
    fc.property(fc.array(deed, { maxLength: 60, size: "max" }), (deeds) => {
      const bench = new Bench();
      const { router, leases } = bench;
      for (const each of deeds) {
        const { workers } = bench;
        if (each.kind === "acquire") {
          const exclude = workers.filter(({ id }) => each.excluded.includes(id));
          bench.acquire({ model: each.model, ...(each.key !== undefined && { key: each.key }), exclude });
        } else if (each.kind === "release") {
          if (leases.length > 0) leases.splice(each.at % leases.length, 1)[0]!.release();
        } else if (each.kind === "add") {
          if (workers.some(({ id }) => id === each.id)) continue;
          router.addWorker({ id: each.id, models: each.models }).report = each.report;
        } else if (workers.length > 0) {
          const worker = workers[each.at % workers.length]!;
          const { change } = each;
          if (change.kind === "models") router.setModels(worker, change.models);
          else if (change.kind === "remove") router.removeWorker(worker);
          else if (change.kind === "ready") worker.ready = change.ready;
          else if (change.kind === "limit") worker.maxInFlight = change.most;
          else if (change.kind === "easing") worker.easing = change.most;
          else if (change.kind === "report") worker.report = change.report;
          else if (change.kind === "refit") worker.refit(change);
        }
        bench.check();
      }
    }),
    { seed: 22, numRuns: 50 },
  );
}, 120_000);

test("what an engine says of itself cannot make a column negative", () => {
  const most = 2 ** 31 - 1;
  const router = createRouter({ policy: leastLoaded, workers: [{ id: "liar" }, { id: "idle" }] });
  const [liar, idle] = [...router.workers] as [Worker, Worker];
  const lease = router.acquire({ exclude: [idle] });
  for (const elsewhere of [most - 1, most, 2 * most]) {
    liar.report = { ...NO_REPORT, elsewhere, queueDepth: most };
    expect(liar.shownRequests).toBe(most);
    const again = router.acquire({ exclude: [idle] });
    expect([liar.shownRequests, liar.activeRequests]).toEqual([most, 2]);
    const [, row] = router.explain({}).candidates;
    expect(row).toMatchObject({ worker: "liar", columns: { active_requests: most, queue_depth: most } });
    const other = router.acquire({});
    expect(other.worker).toBe(idle);
    again.release();
    other.release();
  }
  liar.report = NO_REPORT;
  expect(liar.shownRequests).toBe(1);
  lease.release();
  expect(liar.shownRequests).toBe(0);
});
