import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  createRouter,
  type Lease,
  loadPolicy,
  NoWorkerError,
  PolicyError,
  SessionKeyError,
} from "../../host/index.js";
import { fixture } from "./fixture.js";

const guard = { policy: "soft-affinity-load-guard" } as const;

describe("counting requests in flight", () => {
  it("counts up at acquire and down exactly once", () => {
    const { router, loads } = fixture();
    const lease = router.acquire({ key: "s" });
    expect(loads()).toEqual({ w0: 1, w1: 0, w2: 0 });
    lease.commit();
    expect(loads().w0).toBe(1);
    expect(lease.release()).toBe(true);
    expect(lease.release()).toBe(false);
    expect(loads()).toEqual({ w0: 0, w1: 0, w2: 0 });
  });

  it("shows the policy every change at once (A15)", () => {
    const { router, loads } = fixture({ policy: "least-loaded" });
    for (let i = 0; i < 9; i++) router.acquire({});
    expect(loads()).toEqual({ w0: 3, w1: 3, w2: 3 });
  });

  it("counts a worker's requests over all its models", () => {
    const { router, worker } = fixture({ policy: "least-loaded", models: ["m", "n"] });
    router.acquire({ model: "m" });
    router.acquire({ model: "n" });
    expect(worker("w0").activeRequests + worker("w1").activeRequests).toBe(2);
    expect(worker("w0").activeRequests).toBe(1);
  });

  it("decrements the object it incremented, also where a worker was removed and added again (A9)", () => {
    const { router, worker, loads } = fixture({ workers: ["w0"] });
    const first = worker("w0");
    const a = router.acquire({ key: "a" });
    router.removeWorker(first);
    router.addWorker({ id: "w0" });
    const b = router.acquire({ key: "b" });
    expect(loads()).toEqual({ w0: 1 });
    a.release();
    expect(first.activeRequests).toBe(0);
    expect(loads()).toEqual({ w0: 1 });
    b.release();
    expect(loads()).toEqual({ w0: 0 });
  });

  it("has no TTL on counts (A10, A12)", () => {
    const self = fixture({ session: { ttlMs: 1_000 } });
    const leases = Array.from({ length: 100 }, (_, i) => self.router.acquire({ key: `s${i}` }));
    self.time = 24 * 3_600_000;
    self.router.acquire({ key: "other" }).release();
    expect(Object.values(self.loads()).reduce((a, b) => a + b)).toBe(100);
    for (const lease of leases) lease.release();
    expect(Object.values(self.loads())).toEqual([0, 0, 0]);
  });

  it("spreads a burst over an idle fleet with random ties (A18, A21)", () => {
    const { router, loads } = fixture({ ...guard, parameters: { ties: "random" } });
    const seen = new Set<string>();
    for (let i = 0; i < 200; i++) {
      const lease = router.acquire({ key: `s${i}` });
      seen.add(lease.worker.id);
      lease.release();
    }
    expect(seen.size).toBe(3);
    for (let i = 0; i < 18; i++) router.acquire({ key: `burst${i}` });
    expect(loads()).toEqual({ w0: 6, w1: 6, w2: 6 });
  });

  it("leaves a worker that is not eligible out of every comparison (A19, G8)", () => {
    const { router, worker } = fixture({
      policy: "imbalance-gate",
      parameters: { balance_abs_threshold: 4 },
    });
    const first = router.acquire({ key: "s" });
    first.commit();
    router.acquire({ key: "s" }).commit();
    worker("w1").ready = false;
    worker("w2").ready = false;
    for (let i = 0; i < 10; i++) router.acquire({});
    expect(router.acquire({ key: "s" }).reason).toBe("keep");
  });
});

describe("bindings", () => {
  it("binds at the first commit and keeps", () => {
    const { router } = fixture(guard);
    const first = router.acquire({ key: "s" });
    expect(first.reason).toBe("place");
    first.commit();
    first.release();
    const second = router.acquire({ key: "s" });
    expect([second.worker, second.reason]).toEqual([first.worker, "keep"]);
    expect(router.status()).toMatchObject({ bindings: 1, affinity_kept: 0 });
    second.commit();
    expect(router.status()).toMatchObject({ affinity_kept: 1, affinity_broken: 0 });
  });

  it("leaves nothing behind where the first request is never accepted (B16)", () => {
    const { router, worker } = fixture(guard);
    router.acquire({ key: "s" }).release();
    expect(router.status().bindings).toBe(0);
    worker("w0").addRequests(1);
    expect(router.acquire({ key: "s" })).toMatchObject({ reason: "place", worker: { id: "w1" } });
  });

  it("moves only by an accepted request (G15)", () => {
    const { router, worker } = fixture({ ...guard, parameters: { max_active_requests: 0, move_margin: 1 } });
    const first = router.acquire({ key: "s" });
    first.commit();
    first.release();
    worker("w0").addRequests(5);
    const refused = router.acquire({ key: "s" });
    expect(refused).toMatchObject({ reason: "move_load", worker: { id: "w1" } });
    refused.release();
    worker("w0").addRequests(-5);
    expect(router.acquire({ key: "s" })).toMatchObject({ reason: "keep", worker: { id: "w0" } });
    expect(router.status()).toMatchObject({ affinity_kept: 0, affinity_broken: 0 });
  });

  it("joins a tentative first bind: parallel first requests of one key share a worker (B18, B19)", () => {
    const { router, loads } = fixture();
    const leases = Array.from({ length: 8 }, () => router.acquire({ key: "s" }));
    expect(loads()).toEqual({ w0: 8, w1: 0, w2: 0 });
    expect(leases.map(({ reason }) => reason)).toEqual(["place", ...Array(7).fill("keep")]);
    expect(router.status().workers[0]!.bound_sessions).toBe(0);
    leases[3]!.commit();
    expect(router.status().workers[0]!.bound_sessions).toBe(1);
  });

  it("lets a joiner's commit bind where the request that chose ended uncommitted (B17)", () => {
    const { router } = fixture();
    const [chooser, left, stays, last] = Array.from({ length: 4 }, () => router.acquire({ key: "s" }));
    chooser!.release();
    left!.release();
    stays!.commit();
    stays!.release();
    last!.release();
    expect(router.acquire({ key: "s" })).toMatchObject({ worker: stays!.worker, reason: "keep" });
  });

  it("goes on with the choice while anyone who joined it is on the worker, whoever left", () => {
    const { router, worker } = fixture();
    const [chooser, joiner] = [router.acquire({ key: "s" }), router.acquire({ key: "s" })];
    chooser.release();
    worker("w0").addRequests(5);
    const late = router.acquire({ key: "s" });
    expect(late).toMatchObject({ reason: "keep", worker: { id: "w0" } });
    joiner.release();
    late.release();
    expect(router.acquire({ key: "s" })).toMatchObject({ reason: "place", worker: { id: "w1" } });
  });

  it("chooses anew after the worker failed one of them, and the first commit wins", () => {
    const { router, worker } = fixture();
    const chooser = router.acquire({ key: "s" });
    const joiner = router.acquire({ key: "s" });
    chooser.release("failed");
    worker("w0").addRequests(5);
    const second = router.acquire({ key: "s" });
    expect(second).toMatchObject({ reason: "place", worker: { id: "w1" } });
    joiner.commit();
    second.commit();
    expect(router.acquire({ key: "s" }).worker.id).toBe("w0");
    expect(router.status().workers.map(({ bound_sessions }) => bound_sessions)).toEqual([1, 0, 0]);
  });

  it("rebinds by compare-and-set: the loser is served, the winner's worker stays", () => {
    const { router, worker } = fixture({ policy: "least-loaded", workers: ["w0", "w1", "w2"] });
    const first = router.acquire({ key: "s" });
    first.commit();
    worker("w0").addRequests(9);
    const one = router.acquire({ key: "s" });
    worker("w1").addRequests(9);
    const other = router.acquire({ key: "s" });
    expect([one.worker.id, other.worker.id]).toEqual(["w1", "w2"]);
    one.commit();
    other.commit();
    worker("w1").addRequests(-9);
    expect(router.status().workers.map(({ bound_sessions }) => bound_sessions)).toEqual([0, 1, 0]);
    expect(router.status()).toMatchObject({ affinity_broken: 2 });
  });

  it("keeps a joiner's move open while the tentative choice is only confirmed", () => {
    const { router, worker } = fixture({ ...guard, parameters: { max_active_requests: 0, move_margin: 1 } });
    const chooser = router.acquire({ key: "s" });
    worker("w0").addRequests(5);
    const mover = router.acquire({ key: "s" });
    expect(mover.worker.id).toBe("w1");
    chooser.commit();
    mover.commit();
    expect(router.status().workers.map(({ bound_sessions }) => bound_sessions)).toEqual([0, 1, 0]);
  });

  it("counts kept and broken at commit, first placements and gone workers as neither", () => {
    const { router, worker } = fixture({
      policy: "affinity-break-margin",
      parameters: { affinity_break_margin: 2 },
    });
    const turn = (key: string) => {
      const lease = router.acquire({ key });
      lease.commit();
      lease.release();
      return lease.reason;
    };
    expect([turn("s"), turn("s")]).toEqual(["place", "keep"]);
    worker("w0").addRequests(11);
    expect(turn("s")).toBe("move_load");
    worker("w1").ready = false;
    expect(turn("s")).toBe("move_gone");
    expect(router.status()).toMatchObject({ affinity_kept: 1, affinity_broken: 1 });
  });

  it("commits once, and never after the release", () => {
    const { router } = fixture();
    const lease = router.acquire({ key: "s" });
    lease.commit();
    lease.commit();
    lease.release();
    const late = router.acquire({ key: "s" });
    late.release();
    late.commit();
    expect(router.status()).toMatchObject({ affinity_kept: 0, bindings: 1 });
  });

  it("expires after the idle time, at the very millisecond; leases hold it off", () => {
    const self = fixture({ session: { ttlMs: 10_000 } });
    const lease = self.router.acquire({ key: "s" });
    lease.commit();
    self.time = 20_000;
    self.router.acquire({ key: "other" }).release();
    expect(self.router.status().bindings).toBe(1);
    lease.release();
    self.time = 29_999;
    self.router.acquire({ key: "other" }).release();
    expect(self.router.status()).toMatchObject({ bindings: 1, workers: [{ bound_sessions: 1 }, {}, {}] });
    self.time = 30_000;
    self.router.acquire({ key: "other" }).release();
    expect(self.router.status()).toMatchObject({ bindings: 0, workers: [{ bound_sessions: 0 }, {}, {}] });
  });

  it("does not let a lease whose view is stale refresh the idle time", () => {
    const self = fixture({ policy: "least-loaded", session: { ttlMs: 10_000 } });
    const stale = self.router.acquire({ key: "s" });
    self.worker("w0").addRequests(5);
    const mover = self.router.acquire({ key: "s" });
    mover.commit();
    mover.release();
    self.time = 9_000;
    stale.release();
    self.time = 10_000;
    self.router.acquire({}).release();
    expect(self.router.status().bindings).toBe(0);
  });

  it("evicts the longest unused binding at the cap (E3)", () => {
    const self = fixture({ session: { maxBindings: 2 } });
    const turn = (key: string) => {
      self.time++;
      const lease = self.router.acquire({ key });
      lease.commit();
      lease.release();
      return lease.reason;
    };
    expect(["a", "b", "a", "c"].map(turn)).toEqual(["place", "place", "keep", "place"]);
    expect(self.router.status()).toMatchObject({ bindings: 2, bindings_evicted: 1 });
    expect(["a", "b"].map(turn)).toEqual(["keep", "place"]);
  });

  it("serves a session unbound, and counts it, where every binding is in use", () => {
    const { router } = fixture({ session: { maxBindings: 1 } });
    const held = router.acquire({ key: "a" });
    held.commit();
    const unbound = router.acquire({ key: "b" });
    unbound.commit();
    unbound.release();
    expect(router.status()).toMatchObject({ bindings: 1, bindings_evicted: 0, bindings_refused: 1 });
    expect(router.acquire({ key: "a" }).reason).toBe("keep");
  });

  it("keeps models and tenants apart, and keys that share a beginning (B1, B3, B12)", () => {
    const { router } = fixture({ models: ["m", "n"] });
    for (const request of [
      { key: "1", model: "m" },
      { key: "1", model: "n" },
      { key: "1", model: "m", tenant: "t" },
      { key: "12", model: "m" },
    ]) {
      const lease = router.acquire(request);
      lease.commit();
      expect(lease.reason).toBe("place");
    }
    expect(router.status().bindings).toBe(4);
  });

  it("forgets what was bound to a removed worker", () => {
    const { router, worker } = fixture();
    const bind = (key: string) => {
      const lease = router.acquire({ key });
      lease.commit();
      lease.release();
      return lease;
    };
    bind("s");
    const inFlight = router.acquire({ key: "t" });
    router.removeWorker(worker("w0"));
    inFlight.commit();
    inFlight.release();
    router.addWorker({ id: "w0" });
    expect(bind("s").reason).toBe("place");
    expect(router.status().workers.find(({ id }) => id === "w0")!.bound_sessions).toBe(1);
    expect(router.acquire({ key: "t" }).reason).toBe("place");
  });

  it("binds nothing with mode off", () => {
    const { router } = fixture({ session: { mode: "off" } });
    for (let i = 0; i < 2; i++) {
      const lease = router.acquire({ key: "s" });
      lease.commit();
      lease.release();
      expect(lease.reason).toBe("place");
    }
    expect(router.status()).toMatchObject({ bindings: 0, affinity_kept: 0 });
  });
});

describe("full determinism", () => {
  it("derives the worker from the key, asks no policy and binds nothing", () => {
    const { router, worker } = fixture({ policy: "round-robin", session: { fullDeterminism: true } });
    const first = router.acquire({ key: "s" });
    first.commit();
    expect(first.reason).toBe("deterministic");
    worker(first.worker.id).addRequests(1000);
    for (let i = 0; i < 5; i++) expect(router.acquire({ key: "s" }).worker).toBe(first.worker);
    expect(router.status()).toMatchObject({ bindings: 0, affinity_kept: 0, affinity_broken: 0 });
  });

  it("is the same in every process and moves only the sessions of a lost worker", () => {
    const [one, two] = [
      fixture({ session: { fullDeterminism: true } }),
      fixture({ session: { fullDeterminism: true }, seed: 9 }),
    ];
    const place = (self: typeof one) =>
      Array.from({ length: 60 }, (_, i) => self.router.acquire({ key: `s${i}` }).worker.id);
    const before = place(one);
    expect(place(two)).toEqual(before);
    expect(new Set(before).size).toBe(3);
    one.worker("w1").ready = false;
    expect(place(one)).toEqual(
      before.map((id, i) => (id === "w1" ? expect.not.stringMatching(/^w1$/) : before[i])),
    );
  });

  it("takes the least-loaded, lowest worker for a request without a key", () => {
    const { router, worker } = fixture({ session: { fullDeterminism: true } });
    worker("w0").addRequests(1);
    expect(router.acquire({})).toMatchObject({ worker: { id: "w1" }, reason: "deterministic" });
  });
});

describe("refusals", () => {
  it("has no worker for an unknown model or where none is eligible, and counts nothing", () => {
    const { router, worker, loads } = fixture({ models: ["m"] });
    expect(() => router.acquire({ model: "x" })).toThrow(NoWorkerError);
    for (const id of ["w0", "w1", "w2"]) worker(id).ready = false;
    expect(() => router.acquire({ model: "m", key: "s" })).toThrow(
      "none of the 3 workers of the model is eligible",
    );
    expect(Object.values(loads())).toEqual([0, 0, 0]);
    expect(router.status().bindings).toBe(0);
  });

  it("refuses a session key of more than 256 characters, an empty one, and NUL", () => {
    const { router } = fixture();
    expect(router.acquire({ key: "k".repeat(256) }).reason).toBe("place");
    for (const request of [
      { key: "k".repeat(257) },
      { key: "" },
      { key: "a\0b" },
      { key: "a", tenant: "t\0" },
    ]) {
      expect(() => router.acquire(request)).toThrow(SessionKeyError);
    }
  });

  it("changes nothing where a worker cannot be added", () => {
    const { router } = fixture();
    const models = Array.from({ length: 1_025 }, (_, i) => `m${i}`);
    for (let i = 0; i < 2; i++) {
      expect(() => router.addWorker({ id: "x", models })).toThrow("at most 1024 models can be served");
    }
    expect(router.status().workers.length).toBe(3);
    expect(router.serves("m0")).toBe(false);
    router.addWorker({ id: "x", models: models.slice(0, 8) });
    expect(router.serves("m7")).toBe(true);
  });

  it("leaves the workers of other routers alone", () => {
    const [one, two] = [fixture(), fixture()];
    one.router.removeWorker(two.worker("w0"));
    expect(() => one.router.setModels(two.worker("w0"), ["m"])).toThrow('worker "w0" is not this router\'s');
    expect(one.router.status().workers.length).toBe(3);
    expect(one.router.acquire({}).worker).toBe(one.worker("w0"));
  });

  it.each([
    [{ session: { ttlMs: Number.NaN } }, "session.ttlMs must be above 0, found NaN"],
    [{ session: { ttlMs: 0 } }, "session.ttlMs must be above 0, found 0"],
    [
      { session: { maxBindings: 1.5 } },
      "session.maxBindings must be an integer from 1 to 16777216, found 1.5",
    ],
    [{ session: { mode: "firm" as never } }, 'session.mode must be soft, hard or off, found "firm"'],
    [{ session: { binding: 1 as never } }, "session.binding must be session or parent-group, found 1"],
    [{ session: { modelSuffixes: [""] } }, "session.modelSuffixes must be a list of endings"],
    [{ seed: 0.5 }, "seed must be a safe integer, found 0.5"],
  ])("refuses options out of range: %o", (options, message) => {
    expect(() => fixture(options)).toThrow(message);
  });

  it.each([
    [{ id: "x", weight: Number.NaN }, "a worker's weight must be an integer of at least 1, found NaN"],
    [{ id: "x", slots: -1 }, "a worker's slots must be an integer of at least 0, found -1"],
    [{ id: "x", models: "sim" as never }, "a worker's models must be a list of names"],
    [{ id: "" }, "a worker's id must be a name"],
  ])("refuses a worker out of range: %o", (options, message) => {
    const { router } = fixture();
    expect(() => router.addWorker(options)).toThrow(message);
    expect(router.status().workers.length).toBe(3);
    expect(() => createRouter({ policy: loadPolicy("sticky"), workers: [options] })).toThrow(message);
  });

  it("refuses a second worker of one id and parameters that the policy does not take", () => {
    const { router } = fixture();
    expect(() => router.addWorker({ id: "w0" })).toThrow('worker "w0" exists already');
    const policy = loadPolicy("soft-affinity-load-guard");
    expect(() => createRouter({ policy, parameters: { move_margin: 0 } })).toThrow(PolicyError);
  });
});

describe("pools", () => {
  it("follows the models that workers serve", () => {
    const { router, worker } = fixture({ models: ["m"] });
    const lease = router.acquire({ model: "m", key: "s" });
    lease.commit();
    lease.release();
    router.setModels(worker("w0"), ["n"]);
    expect(router.acquire({ model: "m", key: "s" })).toMatchObject({ reason: "place", worker: { id: "w1" } });
    expect(router.acquire({ model: "n" }).worker.id).toBe("w0");
    router.setModels(worker("w0"), []);
    expect(router.serves("n")).toBe(false);
  });

  it("keeps bindings and counts when it outgrows its capacity and rows are renumbered", () => {
    const { router, loads } = fixture({ workers: ["w500"] });
    const lease = router.acquire({ key: "s" });
    lease.commit();
    for (let i = 100; i < 300; i++) router.addWorker({ id: `w${i}` });
    expect(router.acquire({ key: "s" })).toMatchObject({ reason: "keep", worker: { id: "w500" } });
    expect(loads().w500).toBe(2);
    expect(router.acquire({ key: "t" }).worker.id).toBe("w100");
  });
});

it("never drifts: counts equal live leases whatever happens in whatever order", () => {
  const step = fc.record({
    kind: fc.constantFrom("acquire", "commit", "release", "remove", "add", "health", "time"),
    at: fc.nat(30),
    key: fc.constantFrom("a", "b", "c", undefined),
  });
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 120 }),
      fc.constantFrom("sticky", "least-loaded", "soft-affinity-load-guard"),
      (steps, policy) => {
        const self = fixture({ policy, session: { ttlMs: 50, maxBindings: 2 } });
        const { router } = self;
        const live = new Set<Lease>();
        let added = 0;
        for (const { kind, at, key } of steps) {
          const workers = [...router.workers];
          const worker = workers[at % Math.max(1, workers.length)];
          const lease = [...live][at % Math.max(1, live.size)];
          if (kind === "acquire") {
            try {
              live.add(router.acquire({ key }));
            } catch (error) {
              expect(error).toBeInstanceOf(NoWorkerError);
            }
          } else if (kind === "commit") lease?.commit();
          else if (kind === "release" && lease) {
            lease.release();
            live.delete(lease);
          } else if (kind === "remove" && worker) router.removeWorker(worker);
          else if (kind === "add") router.addWorker({ id: `w${added++ % 3}-${added}` });
          else if (kind === "health" && worker) worker.ready = !worker.eligible;
          else if (kind === "time") self.time += at;
          for (const known of router.workers) {
            expect(known.activeRequests).toBe([...live].filter((held) => held.worker === known).length);
            expect(known.boundSessions).toBeGreaterThanOrEqual(0);
          }
          const bound = [...router.workers].reduce((sum, { boundSessions }) => sum + boundSessions, 0);
          expect(bound).toBeLessThanOrEqual(router.status().bindings);
          expect(router.status().bindings).toBeLessThanOrEqual(2);
        }
      },
    ),
    { seed: 7, numRuns: 150 },
  );
});
