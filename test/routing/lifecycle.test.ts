// The life of a binding: made, held, moved, idle, gone. The numbered vectors are those of Dynamo's affinity coordinator,
// restated for first binds that later requests join instead of waiting for them.
import { describe, expect, it } from "vitest";
import { SessionKeyError } from "../../host/index.js";
import { type Fixture, fixture } from "./fixture.js";

const session = { ttlMs: 10_000 };
const mover = { policy: "least-loaded", session } as const;

/** A session bound to w0, and two requests of it that are to move it, one to w1 and the other to w2. */
function twoMovers() {
  const self = fixture(mover);
  self.turn("s");
  self.worker("w0").addRequests(9);
  const one = self.router.acquire({ key: "s" });
  self.worker("w1").addRequests(9);
  const other = self.router.acquire({ key: "s" });
  expect([one.worker.id, other.worker.id]).toEqual(["w1", "w2"]);
  one.commit();
  other.commit();
  return { self, one, other };
}

function boundTo({ router }: Fixture, key = "s"): string | undefined {
  return router.query({ key })?.id;
}

// Vector 6 cannot arise: a lease is dispatched to its own worker; `invalidate` in hard.test.ts is its like.
// Vectors 8 and 11 cannot arise: they differ from 7 by ranks alone. Vector 10 without its ranks is 9.
describe("lifecycle vectors", () => {
  it("a binding is idle from its last release on (vector 1)", () => {
    const self = fixture({ session });
    const lease = self.router.acquire({ key: "s" });
    lease.commit();
    self.time = 9_000;
    lease.release();
    self.time = 18_000;
    expect(boundTo(self)).toBe("w0");
    self.time = 20_000;
    expect(boundTo(self)).toBeUndefined();
  });

  it("a lease holds expiry off at any age (vector 2)", () => {
    const self = fixture({ session });
    self.router.acquire({ key: "s" }).commit();
    self.time = 20_000;
    expect(boundTo(self)).toBe("w0");
  });

  it("the idle time after a long request ends at the very millisecond (vector 3)", () => {
    const self = fixture({ session });
    const lease = self.router.acquire({ key: "s" });
    lease.commit();
    self.time = 20_000;
    lease.release();
    self.time = 29_999;
    expect(boundTo(self)).toBe("w0");
    self.time = 30_000;
    expect(boundTo(self)).toBeUndefined();
    expect(self.router.acquire({ key: "s" }).reason).toBe("place");
  });

  it("a second request joins the first one's worker before that is accepted (vector 4) (B19)", () => {
    const self = fixture({ session });
    const first = self.router.acquire({ key: "s" });
    const second = self.router.acquire({ key: "s" });
    expect(second).toMatchObject({ worker: first.worker, reason: "keep" });
    first.commit();
    expect(self.binding("s")).toMatchObject({ worker: "w0", leases: 2, turns: 1 });
  });

  it("the joiner's commit binds where the first request is dropped (vector 5) (B17)", () => {
    const self = fixture({ session });
    const first = self.router.acquire({ key: "s" });
    const second = self.router.acquire({ key: "s" });
    first.release();
    expect(self.router.status().bindings).toBe(1);
    second.commit();
    expect(self.router.status().bindings).toBe(1);
    expect(self.binding("s")).toMatchObject({ worker: second.worker.id, leases: 1, turns: 1 });
  });

  it.each(["ended", "failed"] as const)(
    "the joiner takes over where the first is dropped, unless the worker failed it (vector 5): %s",
    (outcome) => {
      const self = fixture({ session });
      const first = self.router.acquire({ key: "s" });
      const joiner = self.router.acquire({ key: "s" });
      first.release(outcome);
      self.worker("w0").addRequests(5);
      const [worker, reason] = outcome === "ended" ? ["w0", "keep"] : ["w1", "place"];
      expect(self.router.acquire({ key: "s" })).toMatchObject({ worker: { id: worker }, reason });
      expect(joiner.worker.id).toBe("w0");
    },
  );

  it("hard: an accepted request leaves the binding where it is (vector 7)", () => {
    const self = fixture({ policy: "least-loaded", session: { ...session, mode: "hard" } });
    self.turn("s");
    self.worker("w0").addRequests(9);
    self.turn("s");
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 2, moves: 0 });
  });

  it("soft: an accepted move rebinds, and the next turn agrees (vector 9) (B20)", () => {
    const self = fixture({
      policy: "soft-affinity-load-guard",
      parameters: { max_active_requests: 2, move_margin: 2 },
      session,
    });
    self.turn("s");
    self.worker("w0").addRequests(5);
    expect(self.turn("s")).toMatchObject({ worker: { id: "w1" }, reason: "move_load" });
    expect(self.binding("s")).toMatchObject({ worker: "w1", moves: 1, why: "move_load" });
    self.worker("w0").addRequests(-5);
    expect(self.turn("s")).toMatchObject({ worker: { id: "w1" }, reason: "keep" });
  });

  it("of two moves at once the first accepted wins, the other is served and loses (vector 12)", () => {
    const { self, other } = twoMovers();
    expect(boundTo(self)).toBe("w1");
    expect(self.binding("s")).toMatchObject({ leases: 2, moves: 1 });
    expect(self.router.status().rebinds_lost).toBe(1);
    expect(other.release()).toBe(true);
  });

  it("the loser's release only ends its lease and does not restart the idle time (vector 13)", () => {
    const { self, one, other } = twoMovers();
    other.release();
    expect(self.binding("s")).toMatchObject({ worker: "w1", leases: 1 });
    one.release();

    const again = twoMovers();
    again.self.time = 5_000;
    again.one.release();
    again.self.time = 9_000;
    again.other.release();
    again.self.time = 14_999;
    expect(boundTo(again.self)).toBe("w1");
    again.self.time = 15_000;
    expect(boundTo(again.self)).toBeUndefined();
  });

  it("soft: a dispatch that fails before an answer leaves the binding (vector 14) (B16)", () => {
    const self = fixture(mover);
    self.turn("s");
    self.worker("w0").addRequests(9);
    const failed = self.router.acquire({ key: "s" });
    expect(failed.worker.id).toBe("w1");
    failed.release();
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1, moves: 0 });
  });

  it("soft: a stream that breaks after the move keeps it and restarts the idle time (vector 15)", () => {
    const self = fixture(mover);
    self.turn("s");
    self.worker("w0").addRequests(9);
    const lease = self.router.acquire({ key: "s" });
    lease.commit();
    self.time = 8_000;
    lease.release();
    self.time = 17_999;
    expect(boundTo(self)).toBe("w1");
    self.time = 18_000;
    expect(boundTo(self)).toBeUndefined();
  });

  it("a key of 257 bytes is refused, not served unbound (vector 16)", () => {
    const { router, loads, turn } = fixture({ session });
    const tooLong = expect.objectContaining({ code: "too_long" });
    for (const key of ["k".repeat(257), "é".repeat(129)]) {
      expect(() => router.acquire({ key })).toThrow(SessionKeyError);
      expect(() => router.acquire({ key })).toThrow(tooLong);
      expect(() => router.query({ key })).toThrow(tooLong);
    }
    expect(router.status()).toMatchObject({ bindings: 0, bindings_refused: 0 });
    expect(loads()).toEqual({ w0: 0, w1: 0, w2: 0 });
    expect(turn("é".repeat(128)).reason).toBe("place");
  });

  it.each(["evict-idle", "refuse-new"] as const)(
    "%s: with the table full of bindings in use a new session is served unbound and counted (vector 17)",
    (whenFull) => {
      const self = fixture({ session: { ...session, maxBindings: 1, whenFull } });
      const held = self.router.acquire({ key: "s" });
      held.commit();
      const unbound = self.turn("t");
      expect(unbound.session).toBeNull();
      expect(boundTo(self, "t")).toBeUndefined();
      expect(self.router.status()).toMatchObject({ bindings: 1, bindings_evicted: 0, bindings_refused: 1 });
      expect(self.binding("s")).toMatchObject({ worker: "w0", leases: 1 });
    },
  );

  it("a joiner binds and leaves; the first request's lease holds the binding (vector 18)", () => {
    const self = fixture({ session });
    const first = self.router.acquire({ key: "s" });
    const joiner = self.router.acquire({ key: "s" });
    joiner.commit();
    expect(self.binding("s")).toMatchObject({ worker: "w0", leases: 2 });
    joiner.release();
    self.time = 11_000;
    expect(boundTo(self)).toBe("w0");
    first.commit();
    expect(self.binding("s")).toMatchObject({ worker: "w0", leases: 1, moves: 0 });
  });

  it.each(["hard", "soft"] as const)(
    "%s: a joiner bound it, the first request fails: the binding is kept (vector 19)",
    (mode) => {
      const self = fixture({ session: { ...session, mode } });
      const first = self.router.acquire({ key: "s" });
      const joiner = self.router.acquire({ key: "s" });
      joiner.commit();
      first.release();
      expect(self.binding("s")).toMatchObject({ worker: "w0", leases: 1, moves: 0 });
    },
  );

  it("a clock that goes backwards stands still (vector 20)", () => {
    const self = fixture({ session });
    self.time = 10_000;
    const lease = self.router.acquire({ key: "s" });
    lease.commit();
    self.time = 0;
    lease.release();
    expect(self.binding("s")).toMatchObject({ idle_ms: 0 });
    self.time = 19_999;
    expect(boundTo(self)).toBe("w0");
    self.time = 20_000;
    expect(boundTo(self)).toBeUndefined();
  });
});

describe("idle expiry", () => {
  const keys = Array.from({ length: 100 }, (_, i) => `s${i}`);
  const bound = ({ router }: Fixture) =>
    [...router.workers].reduce((sum, { boundSessions }) => sum + boundSessions, 0);

  function hundredIdle(): Fixture {
    const self = fixture({ session });
    for (const key of keys) self.turn(key);
    expect(bound(self)).toBe(100);
    return self;
  }

  it("is not a millisecond early", () => {
    const self = hundredIdle();
    self.time = 9_999;
    for (const key of keys) expect(self.binding(key)).toMatchObject({ worker: "w0", idle_ms: 9_999 });
    expect(self.router.sessions(200).views.length).toBe(100);
    for (const key of keys) expect(self.turn(key).reason).toBe("keep");
  });

  it("hides every binding at once, also those that no request has cleared away yet", () => {
    const self = hundredIdle();
    self.time = 10_000;
    for (const key of keys) {
      expect(boundTo(self, key)).toBeUndefined();
      expect(self.binding(key)).toBeUndefined();
      expect(self.router.endSession(self.router.sessionIdOf(key, ""))).toBe(false);
    }
    expect(self.router.sessions(200).views).toEqual([]);
    expect(bound(self)).toBe(100);
    self.worker("w0").addRequests(1);
    for (const key of keys.toReversed()) {
      expect(self.turn(key)).toMatchObject({ worker: { id: "w1" }, reason: "place" });
      expect(self.binding(key)).toMatchObject({ turns: 1, moves: 0 });
    }
    expect(self.router.status()).toMatchObject({ bindings: 100, bindings_evicted: 0, affinity_kept: 0 });
  });

  it("clears away a few with every request until none is left", () => {
    const self = hundredIdle();
    self.time = 10_000;
    const counts = [100];
    while (counts.at(-1)! > 0 && counts.length < 100) {
      self.router.acquire({}).release();
      counts.push(bound(self));
    }
    const steps = counts.slice(1).map((count, i) => counts[i]! - count);
    expect(counts.at(-1)).toBe(0);
    expect(Math.min(...steps)).toBeGreaterThan(0);
    expect(Math.max(...steps)).toBeLessThanOrEqual(8);
    expect(self.router.status()).toMatchObject({ bindings: 0, bindings_evicted: 0 });
  });

  it("leaves alone what was used meanwhile", () => {
    const self = hundredIdle();
    self.time = 5_000;
    self.turn("s0");
    self.time = 10_000;
    for (let i = 0; i < 50; i++) self.router.acquire({}).release();
    expect(self.router.sessions(200).views.map(({ id }) => id)).toEqual([self.router.sessionIdOf("s0", "")]);
    expect(self.router.status().bindings).toBe(1);
  });
});

describe("a full table", () => {
  const full = (whenFull: "evict-idle" | "refuse-new", maxBindings = 2) =>
    fixture({ session: { ...session, maxBindings, whenFull } });

  it("evict-idle has the longest unused give way", () => {
    const self = full("evict-idle");
    for (const key of ["a", "b", "a", "c"]) self.turn(key);
    expect(["a", "b", "c"].map((key) => boundTo(self, key))).toEqual(["w0", undefined, "w0"]);
    expect(self.router.status()).toMatchObject({ bindings: 2, bindings_evicted: 1, bindings_refused: 0 });
  });

  it("refuse-new serves the new session unbound at every turn and leaves the others", () => {
    const self = full("refuse-new");
    for (const key of ["a", "b", "c", "c"]) self.turn(key);
    expect(["a", "b", "c"].map((key) => boundTo(self, key))).toEqual(["w0", "w0", undefined]);
    expect(self.router.status()).toMatchObject({ bindings: 2, bindings_evicted: 0, bindings_refused: 2 });
    expect(self.turn("a").reason).toBe("keep");
  });

  it("refuse-new binds again once a session has ended", () => {
    const self = full("refuse-new", 1);
    self.turn("a");
    self.turn("b");
    self.turn({ key: "a", final: true });
    self.turn("b");
    expect(boundTo(self, "b")).toBe("w0");
  });

  describe.each(["evict-idle", "refuse-new"] as const)("%s", (whenFull) => {
    it("has an expired binding give way first", () => {
      const self = full(whenFull);
      self.turn("a");
      self.time = 5_000;
      self.turn("b");
      self.time = 10_000;
      self.turn("c");
      expect(["a", "b", "c"].map((key) => boundTo(self, key))).toEqual([undefined, "w0", "w0"]);
      expect(self.router.status()).toMatchObject({ bindings: 2, bindings_evicted: 0, bindings_refused: 0 });
    });

    it("also where a stale lease was the last to let go of it", () => {
      const self = fixture({ policy: "least-loaded", session: { ...session, maxBindings: 2, whenFull } });
      const stale = self.router.acquire({ key: "a" });
      self.turn("a");
      expect(boundTo(self, "a")).toBe("w1");
      self.time = 5_000;
      self.turn("b");
      self.time = 6_000;
      stale.release();
      self.time = 10_000;
      expect(boundTo(self, "a")).toBeUndefined();
      self.turn("c");
      expect(boundTo(self, "b")).toBe("w1");
      expect(boundTo(self, "c")).toBe("w0");
      expect(self.router.status()).toMatchObject({ bindings: 2, bindings_evicted: 0, bindings_refused: 0 });
    });

    it("has the bindings of removed workers give way first, also behind those that requests still hold", () => {
      const self = full(whenFull, 14);
      self.turn({ key: "kept", pin: "w1" });
      self.turn({ key: "idle", pin: "w0" });
      const held = Array.from({ length: 12 }, (_, i) => self.router.acquire({ key: `h${i}`, pin: "w0" }));
      for (const lease of held) lease.commit();
      self.router.removeWorker(self.worker("w0"));
      self.turn("new");
      expect(boundTo(self, "new")).toBe("w1");
      expect(boundTo(self, "kept")).toBe("w1");
      expect(boundTo(self, "idle")).toBeUndefined();
      expect(self.router.status()).toMatchObject({ bindings: 14, bindings_evicted: 0, bindings_refused: 0 });
    });

    it("never takes a tentative binding away", () => {
      const self = full(whenFull, 1);
      const first = self.router.acquire({ key: "a" });
      self.turn("b");
      first.commit();
      expect(boundTo(self, "a")).toBe("w0");
      expect(self.router.status()).toMatchObject({ bindings: 1, bindings_evicted: 0, bindings_refused: 1 });
    });
  });
});

describe("query", () => {
  it("never restarts the idle time, and holds nothing", () => {
    const self = fixture({ session });
    self.turn("s");
    for (const time of [5_000, 9_000, 9_999]) {
      self.time = time;
      expect(boundTo(self)).toBe("w0");
    }
    expect(self.binding("s")).toMatchObject({ leases: 0, turns: 1 });
    expect(self.loads()).toEqual({ w0: 0, w1: 0, w2: 0 });
    self.time = 10_000;
    expect(boundTo(self)).toBeUndefined();
  });

  it("sees no tentative binding, and makes none", () => {
    const self = fixture({ session });
    expect(boundTo(self)).toBeUndefined();
    expect(self.router.status().bindings).toBe(0);
    const lease = self.router.acquire({ key: "s" });
    expect(boundTo(self)).toBeUndefined();
    expect(self.binding("s")).toBeUndefined();
    expect(self.router.sessions(10).views).toEqual([]);
    lease.commit();
    expect(boundTo(self)).toBe("w0");
  });

  it("sees nothing of a worker that was removed", () => {
    const self = fixture({ session });
    for (let i = 0; i < 20; i++) self.turn({ key: `s${i}`, pin: "w0" });
    self.router.removeWorker(self.worker("w0"));
    for (let i = 0; i < 20; i++) {
      expect(boundTo(self, `s${i}`)).toBeUndefined();
      expect(self.binding(`s${i}`)).toBeUndefined();
    }
  });
});

it("spills the traffic of one hot session over the fleet, and settles again (B24)", () => {
  const { router, loads } = fixture({
    policy: "soft-affinity-load-guard",
    parameters: { max_active_requests: 8, move_margin: 2 },
    workers: Array.from({ length: 8 }, (_, i) => `w${i}`),
  });
  // Six of ten requests are of one key, and none ends: 100 requests for 8 workers.
  const leases = Array.from({ length: 100 }, (_, i) => {
    const lease = router.acquire({ key: i % 10 < 6 ? "hot" : `s${i}` });
    lease.commit();
    return lease;
  });
  const counts = Object.values(loads());
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(2);
  for (const lease of leases) lease.release();
  const stays = Array.from({ length: 8 }, () => router.acquire({ key: "hot" }).worker.id);
  expect(new Set(stays).size).toBe(1);
});
