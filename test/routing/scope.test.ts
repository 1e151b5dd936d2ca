// What a session is: models, tenants, what one request asks for, other names, and what an operator sees of it.
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { AcquireRequest, Lease } from "../../host/index.js";
import { type Fixture, type FixtureOptions, fixture } from "./fixture.js";

describe("model suffixes", () => {
  const session = { modelSuffixes: ["-thinking", "-fast"] };
  const models = ["m", "m-thinking", "m-fast", "m-slow", "-thinking"];

  it("are one session with the model itself (B4)", () => {
    const { turn, router } = fixture({ policy: "sticky", models, session });
    expect(turn({ key: "s", model: "m-thinking", pin: "w2" }).reason).toBe("explicit");
    for (const model of ["m", "m-fast", "m-thinking"])
      expect(turn({ key: "s", model })).toMatchObject({ worker: { id: "w2" }, reason: "keep" });
    expect(router.status().bindings).toBe(1);
    expect(router.sessionIdOf("s", "m-fast")).toBe(router.sessionIdOf("s", "m"));
  });

  it("are those given and no others, and a name that is nothing else is a model", () => {
    const { turn } = fixture({ models, session });
    turn({ key: "s", model: "m" });
    expect(turn({ key: "s", model: "m-slow" }).reason).toBe("place");
    expect(turn({ key: "s", model: "-thinking" }).reason).toBe("place");
  });

  it("are models of their own unless given (B3)", () => {
    const { turn, router } = fixture({ models });
    for (const model of ["m", "m-thinking"]) expect(turn({ key: "s", model }).reason).toBe("place");
    for (const model of ["m", "m-thinking"]) expect(turn({ key: "s", model }).reason).toBe("keep");
    expect(router.status().bindings).toBe(2);
  });
});

it("tenants have their own sessions, whatever the names add up to (B12)", () => {
  const { turn, router } = fixture();
  const requests = [
    { key: "1" },
    { key: "1", tenant: "a" },
    { key: "1", tenant: "b" },
    { key: "b1", tenant: "a" },
    { key: "1", tenant: "ab" },
  ];
  expect(requests.map((request) => turn(request).reason)).toEqual(Array(5).fill("place"));
  expect(requests.map((request) => turn(request).reason)).toEqual(Array(5).fill("keep"));
  expect(router.status().bindings).toBe(5);
  expect(new Set(router.sessions(10).views.map(({ id }) => id)).size).toBe(5);
});

describe("a request that asks to be bound", () => {
  const own = { key: "s", affinity: "session" } as const;

  it.each(["round-robin", "random", "least-loaded", "power-of-two"])(
    "stays on its worker under %s (B5)",
    (policy) => {
      const self = fixture({ policy });
      const { worker } = self.turn(own);
      worker.addRequests(9);
      for (let i = 0; i < 10; i++) expect(self.turn(own)).toMatchObject({ worker, reason: "hard" });
      expect(self.router.status()).toMatchObject({ affinity_kept: 10, affinity_broken: 0 });
    },
  );

  it("is bound also where nothing else is (B5)", () => {
    const self = fixture({ policy: "round-robin", session: { mode: "off" } });
    const { worker } = self.turn(own);
    expect(["x", "x", "x"].map((key) => self.turn(key).worker.id)).toEqual(["w1", "w2", "w0"]);
    expect(self.turn(own).worker).toBe(worker);
    expect(self.router.status().bindings).toBe(1);
  });
});

it("a request that asks not to be bound is placed anew and leaves its session alone (B6)", () => {
  const self = fixture({ session: { ttlMs: 10_000 } });
  self.turn({ key: "s", pin: "w2" });
  self.time = 9_000;
  const free = self.router.acquire({ key: "s", affinity: "off" });
  expect(free).toMatchObject({ worker: { id: "w0" }, reason: "place", session: null });
  free.commit();
  free.release();
  expect(self.turn({ key: "t", affinity: "off" }).reason).toBe("place");
  expect(self.router.query({ key: "s", affinity: "off" })).toBeNull();
  expect(self.binding("s")).toMatchObject({ worker: "w2", turns: 1, idle_ms: 9_000 });
  expect(self.router.status()).toMatchObject({ bindings: 1, affinity_kept: 0, affinity_broken: 0 });
  self.time = 10_000;
  expect(self.binding("s")).toBeUndefined();
});

it("a request that asks not to be bound is not held by full determinism either (B6)", () => {
  const { turn, worker } = fixture({ session: { fullDeterminism: true } });
  const derived = turn("s").worker;
  derived.addRequests(9);
  expect(turn({ key: "s", affinity: "off" }).worker).toBe(worker(derived.id === "w0" ? "w1" : "w0"));
  expect(turn("s").worker).toBe(derived);
});

it("a request must ask for what there is", () => {
  const { router } = fixture();
  const affinity = "hard" as never;
  expect(() => router.acquire({ key: "s", affinity })).toThrow(
    'affinity must be off, session or parent-group, found "hard"',
  );
});

describe("the end of a session", () => {
  it("comes with the release of its final request", () => {
    const self = fixture();
    self.turn("s");
    const last = self.router.acquire({ key: "s", final: true });
    expect(last.reason).toBe("keep");
    last.commit();
    expect(self.binding("s")).toMatchObject({ ending: true, leases: 1 });
    last.release();
    expect(self.binding("s")).toBeUndefined();
    expect(self.router.status()).toMatchObject({ bindings: 0, workers: [{ bound_sessions: 0 }, {}, {}] });
    expect(self.turn("s").reason).toBe("place");
  });

  it("waits for requests in flight, which stay together until then", () => {
    const self = fixture();
    const running = self.router.acquire({ key: "s" });
    running.commit();
    self.turn({ key: "s", final: true });
    expect(self.binding("s")).toMatchObject({ ending: true, leases: 1 });
    self.worker("w0").addRequests(9);
    expect(self.turn("s").worker.id).toBe("w0");
    running.release();
    expect(self.router.status().bindings).toBe(0);
  });

  it("comes at once by endSession where nothing is in flight, else with the last release", () => {
    const self = fixture();
    self.turn("s");
    const id = self.router.sessionIdOf("s", "");
    expect(self.router.endSession(id)).toBe(true);
    expect(self.router.endSession(id)).toBe(false);
    expect(self.router.status().bindings).toBe(0);
    const lease = self.router.acquire({ key: "s" });
    expect(self.router.endSession(id)).toBe(false);
    lease.commit();
    expect(self.router.endSession(id)).toBe(true);
    expect(self.router.session(id)).toMatchObject({ ending: true });
    lease.release();
    expect(self.router.session(id)).toBeUndefined();
  });

  it.each(["", "0", "zzzzzzzzzzzzzzzz", "0000000000000000", "ABCDEF0123456789", "0".repeat(17)])(
    "is not there for the id %j",
    (id) => {
      const self = fixture();
      self.turn("s");
      expect(self.router.endSession(id)).toBe(false);
      expect(self.router.session(id)).toBeUndefined();
      expect(self.router.status().bindings).toBe(1);
    },
  );
});

describe("the id of an answer", () => {
  /** One turn whose answer has an id. */
  function answered(self: Fixture, request: AcquireRequest, responseId: string): Lease {
    const lease = self.router.acquire(request);
    lease.commit();
    lease.alias(responseId);
    lease.release();
    return lease;
  }

  it("means the session of the answer, whatever the key says", () => {
    const self = fixture();
    answered(self, { key: "s", pin: "w2" }, "r1");
    self.turn({ key: "other", pin: "w1" });
    expect(self.turn({ previousResponse: "r1" })).toMatchObject({ worker: { id: "w2" }, reason: "keep" });
    expect(self.turn({ key: "other", previousResponse: "r1" }).worker.id).toBe("w2");
    expect(self.binding("s")).toMatchObject({ turns: 3 });
    expect(self.binding("other")).toMatchObject({ turns: 1 });
  });

  it("follows its session through a move", () => {
    const self = fixture();
    answered(self, { key: "s" }, "r1");
    self.worker("w0").ready = false;
    expect(self.turn("s").worker.id).toBe("w1");
    self.worker("w0").ready = true;
    expect(self.turn({ previousResponse: "r1" })).toMatchObject({ worker: { id: "w1" }, reason: "keep" });
  });

  it("expires and ends with it", () => {
    const self = fixture({ session: { ttlMs: 10_000 } });
    answered(self, { key: "s" }, "r1");
    self.time = 9_999;
    expect(self.router.query({ previousResponse: "r1" })?.id).toBe("w0");
    self.time = 10_000;
    expect(self.router.query({ previousResponse: "r1" })).toBeNull();
    self.turn("s");
    expect(self.router.query({ previousResponse: "r1" })).toBeNull();
    answered(self, { key: "s" }, "r2");
    self.router.endSession(self.router.sessionIdOf("s", ""));
    self.turn("t");
    expect(self.router.query({ previousResponse: "r2" })).toBeNull();
  });

  it("is no key where it is not known", () => {
    const self = fixture();
    expect(self.turn({ previousResponse: "nobody's" }).reason).toBe("place");
    expect(self.router.status().bindings).toBe(0);
    self.turn({ key: "s", pin: "w2" });
    expect(self.turn({ key: "s", previousResponse: "nobody's" }).worker.id).toBe("w2");
  });

  it("is not seen by other tenants and models", () => {
    const self = fixture({ models: ["m", "n"] });
    answered(self, { key: "s", model: "m", tenant: "a", pin: "w2" }, "r1");
    const previousResponse = "r1";
    for (const scope of [{ model: "m", tenant: "b" }, { model: "m" }, { model: "n", tenant: "a" }])
      expect(self.router.query({ ...scope, previousResponse })).toBeNull();
    expect(self.router.query({ model: "m", tenant: "a", previousResponse })?.id).toBe("w2");
  });

  it("starts a session where the request named none", () => {
    const self = fixture();
    self.worker("w0").addRequests(1);
    expect(answered(self, {}, "r1").worker.id).toBe("w1");
    self.worker("w1").addRequests(9);
    expect(answered(self, { previousResponse: "r1" }, "r2")).toMatchObject({ worker: { id: "w1" } });
    expect(self.turn({ previousResponse: "r2" })).toMatchObject({ worker: { id: "w1" }, reason: "keep" });
    expect(self.router.sessions(10).views).toMatchObject([{ kind: "session", worker: "w1", turns: 3 }]);
    expect(self.router.status().bindings).toBe(1);
  });

  it("starts sessions of different tenants that an operator can tell apart", () => {
    const self = fixture();
    for (const tenant of ["a", "b"]) answered(self, { tenant }, "r1");
    const ids = self.router.sessions(10).views.map(({ id }) => id);
    expect(ids.length).toBe(2);
    expect(new Set(ids).size).toBe(2);
  });

  it("is no key of a session, and a key is none of it", () => {
    const self = fixture();
    answered(self, {}, "r1");
    self.turn("k");
    expect(self.router.query({ key: "r1" })).toBeNull();
    expect(self.router.query({ previousResponse: "k" })).toBeNull();
  });

  it("stays with the session that has it, until that ends", () => {
    const self = fixture();
    answered(self, { key: "a", pin: "w1" }, "r1");
    answered(self, { key: "b", pin: "w2" }, "r1");
    expect(self.router.query({ previousResponse: "r1" })?.id).toBe("w1");
    self.turn({ key: "a", final: true });
    expect(self.router.query({ previousResponse: "r1" })).toBeNull();
    answered(self, { key: "c", pin: "w0" }, "r1");
    self.turn({ key: "c", final: true });
    expect(self.router.query({ previousResponse: "r1" })).toBeNull();
  });

  it("is not crowded out by another session's many", () => {
    const self = fixture({ session: { maxBindings: 50 } });
    answered(self, { key: "a", pin: "w1" }, "r");
    for (let i = 0; i < 1_000; i++) answered(self, { key: "b" }, `r${i}`);
    expect(self.router.query({ previousResponse: "r" })?.id).toBe("w1");
  });

  it("is given by accepted requests alone, before their release", () => {
    const self = fixture();
    const lease = self.router.acquire({ key: "s" });
    lease.alias("early");
    lease.commit();
    lease.release();
    lease.alias("late");
    for (const previousResponse of ["early", "late", ""])
      expect(self.router.query({ previousResponse })).toBeNull();
  });

  it("is nothing where nothing is bound", () => {
    for (const [options, request] of [
      [{}, { key: "s", affinity: "off" }],
      [{ session: { mode: "off" } }, { key: "s" }],
      [{ session: { fullDeterminism: true } }, { key: "s" }],
    ] as const) {
      const self = fixture(options);
      answered(self, request, "r1");
      expect(self.router.query({ previousResponse: "r1" })).toBeNull();
      expect(self.router.status().bindings).toBe(0);
    }
  });

  it("gives way to later ones of its session, and to no other's", () => {
    const self = fixture({ session: { maxBindings: 50 } });
    const known = (previousResponse: string) => self.router.query({ previousResponse }) !== null;
    for (let i = 0; i < 1_000; i++) answered(self, { key: "s" }, `r${i}`);
    expect([known("r0"), known("r983"), known("r984"), known("r999")]).toEqual([false, false, true, true]);
    for (let i = 0; i < 49; i++) for (let j = 0; j < 20; j++) answered(self, { key: `s${i}` }, `s${i}-${j}`);
    expect([known("r984"), known("s0-3"), known("s0-4"), known("s48-19")]).toEqual([true, false, true, true]);
  });

  it.each(["evict-idle", "refuse-new"] as const)(
    "begins sessions that displace no other and have half of the table at most: %s",
    (whenFull) => {
      const self = fixture({ session: { maxBindings: 10, whenFull } });
      for (let i = 0; i < 20; i++) answered(self, {}, `r${i}`);
      expect(self.router.status()).toMatchObject({ bindings: 5, bindings_evicted: 0, bindings_refused: 0 });
      for (let i = 0; i < 5; i++) self.turn(`s${i}`);
      answered(self, {}, "late");
      expect(self.router.query({ previousResponse: "late" })).toBeNull();
      expect(self.router.status()).toMatchObject({ bindings: 10, bindings_evicted: 0, bindings_refused: 0 });
      expect(self.router.query({ previousResponse: "r0" })).not.toBeNull();
    },
  );

  it("starts no session on a worker that was removed, nor on one that came after it", () => {
    const self = fixture({ workers: ["w0"] });
    const lease = self.router.acquire({});
    lease.commit();
    self.router.removeWorker(self.worker("w0"));
    expect(self.router.status().bindings).toBe(0);
    self.router.addWorker({ id: "w1" });
    lease.alias("r1");
    lease.release();
    expect(self.router.sessions(10).views).toEqual([]);
    expect(self.router.status()).toMatchObject({ bindings: 0, workers: [{ bound_sessions: 0 }] });
  });

  it("counts a request that the full table refused once", () => {
    const self = fixture({ session: { maxBindings: 1, whenFull: "refuse-new" } });
    self.turn("s");
    answered(self, { key: "t" }, "r1");
    expect(self.router.status()).toMatchObject({ bindings: 1, bindings_refused: 1 });
  });
});

describe("explain", () => {
  const policies = readdirSync(new URL("../../policies", import.meta.url)).map((file) => file.slice(0, -5));
  const parameters: Record<string, FixtureOptions["parameters"]> = {
    "soft-affinity-load-guard": { max_active_requests: 1, move_margin: 1, ties: "random" },
    "soft-pin-repin": { max_active_requests: 1, ties: "random" },
    "affinity-break-margin": { affinity_break_margin: 1, ties: "random" },
    "imbalance-gate": { balance_abs_threshold: 1, ties: "random" },
    "least-loaded": { ties: "random" },
    sticky: { placement: "round-robin" },
  };
  const requests: readonly AcquireRequest[] = [
    ...[{ key: "a" }, {}, { key: "b" }, { key: "a" }, { key: "c", parent: "a" }, { key: "d", parent: "a" }],
    ...[
      { key: "e", pin: "w1" },
      { key: "a", affinity: "session" },
      { key: "b", affinity: "off" },
      { key: "c" },
    ],
    ...[{ key: "a", tenant: "t" }, { previousResponse: "r0" }, { key: "e", final: true }, { key: "e" }, {}],
    ...[{ key: "f", affinity: "parent-group", parent: "a" }, { key: "b" }, { key: "a" }],
  ] as readonly AcquireRequest[];

  function explained(policy: string): Fixture {
    const chosen = parameters[policy];
    return fixture({
      policy,
      ...(chosen && { parameters: chosen }),
      session: { firstPlacement: "parent", ttlMs: 40, maxBindings: 4 },
    });
  }

  /** Serves the requests, with some in flight all the time; `before` is called ahead of each. */
  function serve(self: Fixture, before: (request: AcquireRequest) => void): (readonly [string, string])[] {
    const inFlight: Lease[] = [];
    return [...requests, ...requests].map((request, i) => {
      self.time += 7;
      self.worker("w2").ready = i % 5 !== 4;
      before(request);
      const lease = self.router.acquire(request);
      if (i % 4 !== 3) lease.commit();
      lease.alias(`r${i}`);
      inFlight.push(lease);
      if (inFlight.length > 5) inFlight.shift()!.release();
      return [lease.worker.id, lease.reason];
    });
  }

  const all = ({ router }: Fixture) => [router.status(), router.sessions(100)];

  it.each(policies)("changes nothing under %s", (policy) => {
    const [asked, plain] = [explained(policy), explained(policy)];
    const served = serve(asked, () => {
      for (const request of [...requests, { key: "new", exclude: [asked.worker("w0")] }]) {
        try {
          asked.router.explain(request);
        } catch (error) {
          expect(error).toMatchObject({ code: "bound_elsewhere" });
        }
      }
    });
    expect(served).toEqual(serve(plain, () => {}));
    expect(all(asked)).toEqual(all(plain));
  });

  it.each(policies)("tells what the next request gets under %s", (policy) => {
    const self = explained(policy);
    const told: (readonly [string, string])[] = [];
    const served = serve(self, (request) => {
      const { worker, decision, fresh, policy: name } = self.router.explain(request);
      expect([fresh, name]).toEqual([undefined, policy]);
      told.push([worker, decision]);
    });
    expect(told).toEqual(served);
  });

  it("shows the session, its binding as it is, and the workers of the model", () => {
    const self = fixture();
    const session = self.router.sessionIdOf("s", "");
    const look = () => self.router.explain({ key: "s" });
    const unbound = { session, binding: null, binds: true };
    expect(look()).toMatchObject({ ...unbound, decision: "place", bound_to: null });
    self.router.acquire({ key: "s" });
    expect(look()).toMatchObject({ ...unbound, decision: "keep", bound_to: "w0" });
    self.turn("s");
    self.worker("w1").ready = false;
    expect(look()).toMatchObject({ session, bound_to: "w0", binding: self.binding("s"), binds: true });
    expect(look().candidates).toMatchObject([
      { worker: "w0", columns: { eligible: 1, active_requests: 1, bound_sessions: 1 } },
      { worker: "w1", columns: { eligible: 0, active_requests: 0, bound_sessions: 0 } },
      { worker: "w2", columns: { eligible: 1, active_requests: 0, bound_sessions: 0 } },
    ]);
  });

  it.each([
    [{}, {}],
    [{}, { key: "s", affinity: "off" }],
    [{ session: { mode: "off" } }, { key: "s" }],
    [{ session: { fullDeterminism: true } }, { key: "s" }],
  ] as const)("says that nothing would be bound: %o %o", (options, request) => {
    expect(fixture(options).router.explain(request)).toMatchObject({ binding: null, binds: false });
  });

  it.each(["evict-idle", "refuse-new"] as const)(
    "says that nothing would be bound where the table is full and nothing gives way: %s",
    (whenFull) => {
      const self = fixture({ session: { maxBindings: 1, whenFull } });
      self.router.acquire({ key: "s" }).commit();
      expect(self.router.explain({ key: "t" }).binds).toBe(false);
      self.turn("t");
      expect(self.binding("t")).toBeUndefined();
      expect(self.router.explain({ key: "s" }).binds).toBe(true);
    },
  );

  it("says that a session would be bound where another one gives way", () => {
    const self = fixture({ session: { maxBindings: 1 } });
    self.turn("s");
    expect(self.router.explain({ key: "t" }).binds).toBe(true);
    self.turn("t");
    expect(self.binding("t")).toMatchObject({ worker: "w0" });
  });

  it("does not restart the idle time", () => {
    const self = fixture({ session: { ttlMs: 10_000 } });
    self.turn("s");
    self.time = 9_999;
    expect(self.router.explain({ key: "s" }).decision).toBe("keep");
    self.time = 10_000;
    expect(self.router.explain({ key: "s" })).toMatchObject({ decision: "place", binding: null });
  });

  it("places a session whose worker was removed", () => {
    const self = fixture();
    self.turn("s");
    self.router.removeWorker(self.worker("w0"));
    expect(self.router.explain({ key: "s" })).toMatchObject({ worker: "w1", binding: null, binds: true });
  });

  it("refuses what acquire refuses", () => {
    const self = fixture();
    self.turn("s");
    for (const request of [
      { key: "" },
      { model: "nothing" },
      { key: "s", pin: "w1" },
      { exclude: [...self.router.workers] },
    ]) {
      let refusal: unknown;
      try {
        self.router.acquire(request);
      } catch (error) {
        refusal = error;
      }
      expect(refusal).toBeInstanceOf(Error);
      expect(() => self.router.explain(request)).toThrow(refusal as Error);
    }
  });
});

describe("what an operator sees", () => {
  it("names a session by what sha256sum prints over its scope and key", () => {
    const { router } = fixture({ models: ["m"] });
    // printf 'm\0t\0k' | sha256sum | cut -c 1-16, and without the tenant
    expect(router.sessionIdOf("k", "m", "t")).toBe("21267ec421402854");
    expect(router.sessionIdOf("k", "m")).toBe("35bcddcce0ee3ce8");
    const digest = createHash("sha256").update("m\0é\0🐙 key").digest("hex");
    expect(router.sessionIdOf("🐙 key", "m", "é")).toBe(digest.slice(0, 16));
  });

  it("shows the same id on the lease, in the list and by itself", () => {
    const self = fixture();
    const lease = self.router.acquire({ key: "s" });
    // printf '\0\0s' | sha256sum | cut -c 1-16
    expect(lease.session).toBe("33904953b99b4a27");
    lease.commit();
    self.time = 65_000;
    const view = {
      ...{ id: "33904953b99b4a27", kind: "session", worker: "w0", age_s: 65, idle_ms: 0, leases: 1 },
      ...{ turns: 1, moves: 0, why: "place", ending: false },
    };
    expect(self.router.session("33904953b99b4a27")).toEqual(view);
    lease.release();
    self.time = 66_500;
    expect(self.router.sessions(10)).toEqual({
      views: [{ ...view, age_s: 66, idle_ms: 1_500, leases: 0 }],
      next: 0,
    });
    expect(lease.session).toBeNull();
  });

  it("lists every binding once, page by page, and those of one worker", () => {
    const self = fixture();
    for (let i = 0; i < 10; i++) self.turn({ key: `s${i}`, pin: `w${i % 2}` });
    self.turn({ key: "s4", final: true });
    self.router.acquire({ key: "tentative" });
    const list = (id?: string) => {
      const seen: string[] = [];
      let after = 0;
      do {
        const page = self.router.sessions(3, after, id ? self.worker(id) : null);
        expect(page.views.length).toBeLessThanOrEqual(3);
        seen.push(...page.views.map((view) => view.id));
        after = page.next;
      } while (after !== 0);
      return seen.toSorted();
    };
    const ids = (numbers: readonly number[]) =>
      numbers.map((i) => self.router.sessionIdOf(`s${i}`, "")).toSorted();
    expect(list()).toEqual(ids([0, 1, 2, 3, 5, 6, 7, 8, 9]));
    expect(list("w0")).toEqual(ids([0, 2, 6, 8]));
    expect(list("w1")).toEqual(ids([1, 3, 5, 7, 9]));
    expect(list("w2")).toEqual([]);
  });
});

it("keeps nothing of a tenant's name: the sessions of a thousand long ones cost what those of short ones do", () => {
  const self = fixture();
  const held = () => process.memoryUsage().heapUsed;
  const visit = (name: (i: number) => string) => {
    for (let i = 0; i < 1_000; i++) self.turn({ key: "s", tenant: name(i) });
    expect(self.router.query({ key: "s", tenant: name(7) })).not.toBeNull();
  };
  visit((i) => `t${i}`);
  const before = held();
  // A slice of a long text keeps all of it, for as long as it is kept.
  visit((i) => `${" ".repeat(1_000_000)}tenant-number-${i}`.slice(1_000_000));
  expect(held() - before).toBeLessThan(500_000_000);
});
