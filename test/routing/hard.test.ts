// What a binding means for the choice: hard, where the host alone keeps it, next to soft, where the policy may move it.
import { describe, expect, it } from "vitest";
import { NoWorkerError } from "../../host/index.js";
import type { Lease } from "../../host/routing/lease.js";
import { type Fixture, type FixtureOptions, fixture } from "./fixture.js";

const MODES = ["hard", "soft"] as const;
type Mode = (typeof MODES)[number];

function under(mode: Mode, options: FixtureOptions = {}): Fixture {
  return fixture({ ...options, session: { mode, ttlMs: 10_000 } });
}

/** A session bound to w0, whose worker is then far busier than the others. */
function boundToBusy(mode: Mode, policy: string): Fixture {
  const self = under(mode, { policy });
  self.turn({ key: "s", pin: "w0" });
  self.worker("w0").addRequests(9);
  return self;
}

function fail(lease: Lease): void {
  lease.invalidate();
  lease.release();
}

describe("a policy that would move the session", () => {
  it.each([
    { mode: "hard", worker: "w0", reason: "hard", kept: 1, broken: 0 },
    { mode: "soft", worker: "w1", reason: "move_load", kept: 0, broken: 1 },
  ] as const)("$mode: goes to $worker", ({ mode, worker, reason, kept, broken }) => {
    const self = boundToBusy(mode, "least-loaded");
    expect(self.turn("s")).toMatchObject({ worker: { id: worker }, reason });
    expect(self.binding("s")).toMatchObject({ worker, turns: 2 });
    expect(self.router.status()).toMatchObject({ affinity_kept: kept, affinity_broken: broken });
  });

  it.each([
    { mode: "hard", turns: ["w0", "w0", "w0"], next: "w1" },
    { mode: "soft", turns: ["w0", "w1", "w2"], next: "w0" },
  ] as const)("$mode: the policy's own turn goes on by those requests alone that ask it", (expected) => {
    const { turn } = under(expected.mode, { policy: "round-robin" });
    expect(["s", "s", "s"].map((key) => turn(key).worker.id)).toEqual(expected.turns);
    expect(turn("other").worker.id).toBe(expected.next);
  });

  it.each([
    { mode: "hard", loads: { w0: 4, w1: 0, w2: 0 } },
    { mode: "soft", loads: { w0: 2, w1: 1, w2: 1 } },
  ] as const)("$mode: parallel first requests follow the first, or the policy", ({ mode, loads }) => {
    const self = under(mode, { policy: "least-loaded" });
    for (let i = 0; i < 4; i++) self.router.acquire({ key: "s" });
    expect(self.loads()).toEqual(loads);
  });

  it.each(MODES)("%s: a session without a binding is the policy's to place", (mode) => {
    const self = under(mode, { policy: "least-loaded" });
    self.worker("w0").addRequests(1);
    expect(self.turn("s")).toMatchObject({ worker: { id: "w1" }, reason: "place" });
  });
});

describe("a bound worker that is not eligible", () => {
  it("hard: the session is placed anew, once, and requests before that is accepted join it there (B30)", () => {
    const self = under("hard", { policy: "least-loaded" });
    self.turn("s");
    self.worker("w0").ready = false;
    const first = self.router.acquire({ key: "s" });
    const second = self.router.acquire({ key: "s" });
    expect(self.router.query({ key: "s" })).toBe(self.worker("w0"));
    expect([first, second]).toMatchObject([
      { worker: { id: "w1" }, reason: "place" },
      { worker: { id: "w1" }, reason: "hard" },
    ]);
    second.commit();
    first.commit();
    for (const lease of [first, second]) lease.release();
    expect(self.binding("s")).toMatchObject({ worker: "w1", moves: 1, turns: 3 });
    self.worker("w0").ready = true;
    expect(self.turn("s")).toMatchObject({ worker: { id: "w1" }, reason: "hard" });
    expect(self.router.status()).toMatchObject({ affinity_broken: 0, rebinds_lost: 0 });
  });

  it("hard: placed anew but not accepted, it is bound where it was", () => {
    const self = under("hard");
    self.turn("s");
    self.worker("w0").ready = false;
    self.router.acquire({ key: "s" }).release("failed");
    expect(self.router.status()).toMatchObject({ bindings: 1, workers: [{ bound_sessions: 1 }, {}, {}] });
    self.worker("w0").ready = true;
    expect(self.router.acquire({ key: "s" })).toMatchObject({ worker: { id: "w0" }, reason: "hard" });
  });

  it("soft: the binding is not touched before another worker accepted, which then keeps it (B30)", () => {
    const self = under("soft");
    self.turn("s");
    self.worker("w0").ready = false;
    const refused = self.router.acquire({ key: "s" });
    expect(refused).toMatchObject({ worker: { id: "w1" }, reason: "move_gone" });
    refused.release();
    expect(self.router.query({ key: "s" })).toBe(self.worker("w0"));
    self.worker("w0").ready = true;
    expect(self.turn("s")).toMatchObject({ worker: { id: "w0" }, reason: "keep" });
    self.worker("w0").ready = false;
    self.turn("s");
    self.worker("w0").ready = true;
    expect(self.turn("s")).toMatchObject({ worker: { id: "w1" }, reason: "keep" });
    expect(self.router.status().affinity_broken).toBe(0);
  });

  it.each(MODES)("%s: with no worker eligible nothing is counted and the binding waits", (mode) => {
    const self = under(mode);
    self.turn("s");
    for (const worker of self.router.workers) worker.ready = false;
    expect(() => self.router.acquire({ key: "s" })).toThrow(NoWorkerError);
    expect(self.loads()).toEqual({ w0: 0, w1: 0, w2: 0 });
    for (const worker of self.router.workers) worker.ready = true;
    expect(self.turn("s").worker.id).toBe("w0");
    expect(self.binding("s")).toMatchObject({ turns: 2, moves: 0 });
  });
});

describe.each(MODES)("%s: a worker that failed the request", (mode) => {
  it("gives the session up: the retry starts anew elsewhere and binds there", () => {
    const self = under(mode, { workers: ["w0", "w1"] });
    self.turn("s");
    const dead = self.router.acquire({ key: "s" });
    expect(dead.worker.id).toBe("w0");
    dead.invalidate();
    expect(self.router.query({ key: "s" })).toBeNull();
    dead.release();
    expect(self.router.status().bindings).toBe(0);
    const retry = self.router.acquire({ key: "s", exclude: [dead.worker] });
    expect(retry).toMatchObject({ worker: { id: "w1" }, reason: "place" });
    retry.commit();
    retry.release();
    expect(self.turn("s").worker.id).toBe("w1");
    expect(self.loads()).toEqual({ w0: 0, w1: 0 });
  });

  it("may be given up before the failed lease is released", () => {
    const self = under(mode);
    self.turn("s");
    const dead = self.router.acquire({ key: "s" });
    dead.invalidate();
    const retry = self.router.acquire({ key: "s", exclude: [dead.worker] });
    dead.release();
    retry.commit();
    expect(self.binding("s")).toMatchObject({ worker: "w1", leases: 1 });
  });

  it("leaves nothing bound where the retry fails too", () => {
    const self = under(mode, { workers: ["w0", "w1"] });
    self.turn("s");
    const dead = self.router.acquire({ key: "s" });
    fail(dead);
    const retry = self.router.acquire({ key: "s", exclude: [dead.worker] });
    fail(retry);
    const exclude = [dead.worker, retry.worker];
    expect(() => self.router.acquire({ key: "s", exclude })).toThrow(NoWorkerError);
    expect(self.router.status().bindings).toBe(0);
    expect(self.loads()).toEqual({ w0: 0, w1: 0 });
  });

  it("is not tried again: every attempt goes to another one (C8)", () => {
    const self = under(mode, { workers: ["w0", "w1", "w2", "w3", "w4"] });
    self.turn({ key: "s", pin: "w3" });
    const exclude = [];
    for (let i = 0; i < 5; i++) {
      const attempt = self.router.acquire({ key: "s", exclude });
      fail(attempt);
      exclude.push(attempt.worker);
    }
    expect(exclude[0]!.id).toBe("w3");
    expect(new Set(exclude).size).toBe(5);
  });

  it("is excluded from one request only", () => {
    const self = under(mode);
    self.turn("s");
    const other = self.router.acquire({ key: "t", exclude: [self.worker("w0")] });
    expect(other.worker.id).toBe("w1");
    expect(self.worker("w0").eligible).toBe(true);
    expect(self.turn("s").worker.id).toBe("w0");
  });

  it("stays out where it was not eligible before it was excluded", () => {
    const self = under(mode);
    self.worker("w2").ready = false;
    self.turn({ exclude: [self.worker("w2"), self.worker("w2")] });
    for (const id of ["w0", "w1"]) self.worker(id).addRequests(9);
    expect(self.turn("s").worker.id).not.toBe("w2");
  });

  it("cannot take off a session that was placed elsewhere meanwhile", () => {
    const self = under(mode);
    self.turn("s");
    const [dead, stale] = [self.router.acquire({ key: "s" }), self.router.acquire({ key: "s" })];
    fail(dead);
    const retry = self.router.acquire({ key: "s", exclude: [dead.worker] });
    retry.commit();
    stale.invalidate();
    expect(self.binding("s")).toMatchObject({ worker: "w1", leases: 2 });
    stale.release();
    expect(self.binding("s")).toMatchObject({ worker: "w1", leases: 1 });
    expect(self.loads()).toEqual({ w0: 0, w1: 1, w2: 0 });
  });

  it("cannot take the session back by a late answer", () => {
    const self = under(mode);
    self.turn("s");
    const [dead, late] = [self.router.acquire({ key: "s" }), self.router.acquire({ key: "s" })];
    fail(dead);
    self.turn({ key: "s", exclude: [dead.worker] });
    late.commit();
    late.release();
    expect(self.binding("s")).toMatchObject({ worker: "w1", leases: 0 });
    expect(self.router.status().rebinds_lost).toBe(1);
  });

  it("is not blamed by a lease that was released", () => {
    const self = under(mode);
    self.turn("s").invalidate();
    expect(self.router.query({ key: "s" })).toBe(self.worker("w0"));
  });
});

describe.each(MODES)("%s: a client that leaves before the answer", (mode) => {
  it("keeps the binding, and restarts its idle time", () => {
    const self = under(mode);
    self.turn("s");
    self.time = 9_000;
    self.router.acquire({ key: "s" }).release();
    self.time = 18_999;
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1, leases: 0 });
    self.time = 19_000;
    expect(self.binding("s")).toBeUndefined();
  });
});

it("soft: a failed dispatch keeps the binding (B16)", () => {
  const self = boundToBusy("soft", "least-loaded");
  const failed = self.router.acquire({ key: "s" });
  expect(failed.worker.id).toBe("w1");
  failed.release();
  expect(self.binding("s")).toMatchObject({ worker: "w0", moves: 0 });
  expect(self.router.status()).toMatchObject({ affinity_kept: 0, affinity_broken: 0 });
});
