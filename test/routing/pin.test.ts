// Explicit targets: a request that names its worker.
import { describe, expect, it } from "vitest";
import { NoWorkerError, PinError } from "../../host/index.js";
import { fixture } from "./fixture.js";

describe.each(["hard", "soft"] as const)("%s: an explicit target", (mode) => {
  const session = { mode };

  it("agrees with the binding: served there, counted as kept", () => {
    const self = fixture({ policy: "least-loaded", session });
    self.turn({ key: "s", pin: "w2" });
    self.worker("w2").addRequests(9);
    expect(self.turn({ key: "s", pin: "w2" })).toMatchObject({ worker: { id: "w2" }, reason: "explicit" });
    expect(self.binding("s")).toMatchObject({ worker: "w2", turns: 2, moves: 0 });
    expect(self.router.status()).toMatchObject({ affinity_kept: 1, affinity_broken: 0 });
  });

  it("is refused where the session is bound elsewhere, and nothing is counted", () => {
    const self = fixture({ session });
    self.turn("s");
    const before = [self.router.status(), self.binding("s")];
    const elsewhere = expect.objectContaining({ code: "bound_elsewhere" });
    expect(() => self.router.acquire({ key: "s", pin: "w1" })).toThrow(PinError);
    expect(() => self.router.acquire({ key: "s", pin: "w1" })).toThrow(elsewhere);
    expect([self.router.status(), self.binding("s")]).toEqual(before);
    expect(self.turn("s").worker.id).toBe("w0");
  });

  it("is no longer refused once the binding expired", () => {
    const self = fixture({ session: { mode, ttlMs: 10_000 } });
    self.turn("s");
    self.time = 10_000;
    expect(self.turn({ key: "s", pin: "w1" }).reason).toBe("explicit");
    expect(self.binding("s")).toMatchObject({ worker: "w1", turns: 1 });
  });

  it("binds a session that is not bound, once accepted", () => {
    const self = fixture({ session });
    self.router.acquire({ key: "s", pin: "w1" }).release();
    expect(self.router.status().bindings).toBe(0);
    const lease = self.router.acquire({ key: "s", pin: "w1" });
    expect(self.router.query({ key: "s" })).toBeNull();
    lease.commit();
    lease.release();
    expect(self.binding("s")).toMatchObject({ worker: "w1", why: "explicit" });
    expect(self.turn("s").worker.id).toBe("w1");
  });

  it("moves a session whose worker is not eligible, once accepted", () => {
    const self = fixture({ session });
    self.turn("s");
    self.worker("w0").ready = false;
    expect(self.turn({ key: "s", pin: "w2" })).toMatchObject({ worker: { id: "w2" }, reason: "explicit" });
    self.worker("w0").ready = true;
    expect(self.binding("s")).toMatchObject({ worker: "w2", moves: 1 });
    expect(self.turn("s").worker.id).toBe("w2");
    expect(self.router.status().affinity_broken).toBe(0);
  });

  it("must be there, and be eligible", () => {
    const self = fixture({ session });
    self.router.addWorker({ id: "other", models: ["m"] });
    for (const pin of ["nobody", "", "other", "W0"]) {
      const unknown = expect.objectContaining({ code: "unknown_worker" });
      expect(() => self.router.acquire({ key: "s", pin })).toThrow(PinError);
      expect(() => self.router.acquire({ key: "s", pin })).toThrow(unknown);
    }
    self.worker("w1").ready = false;
    const exclude = [self.worker("w2")];
    const none = expect.objectContaining({ code: "no_worker" });
    expect(() => self.router.acquire({ key: "s", pin: "w1" })).toThrow(NoWorkerError);
    expect(() => self.router.acquire({ key: "s", pin: "w1" })).toThrow(none);
    expect(() => self.router.acquire({ key: "s", pin: "w2", exclude })).toThrow(none);
    expect(self.router.status().bindings).toBe(0);
    expect(self.loads()).toEqual({ w0: 0, w1: 0, w2: 0, other: 0 });
  });

  it("asks no policy", () => {
    const { turn } = fixture({ policy: "round-robin", session });
    expect(turn({ key: "a", pin: "w2" }).worker.id).toBe("w2");
    expect(turn("b").worker.id).toBe("w0");
  });

  it("is served without a key, and binds nothing", () => {
    const self = fixture({ session });
    expect(self.turn({ pin: "w2" })).toMatchObject({ worker: { id: "w2" }, reason: "explicit" });
    expect(self.router.status()).toMatchObject({ bindings: 0, affinity_kept: 0 });
  });
});

it("soft: a target that did not accept leaves the session on its worker, eligible or not", () => {
  const self = fixture();
  self.turn("s");
  self.worker("w0").ready = false;
  self.router.acquire({ key: "s", pin: "w2" }).release();
  expect(self.router.query({ key: "s" })).toBe(self.worker("w0"));
});

it("a request that is not its session's may go anywhere", () => {
  const self = fixture();
  self.turn("s");
  expect(self.turn({ key: "s", pin: "w1", affinity: "off" }).worker.id).toBe("w1");
  expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1 });
});

it("stands above full determinism, for one request", () => {
  const self = fixture({ session: { fullDeterminism: true } });
  const derived = self.turn("s").worker;
  const other = [...self.router.workers].find((worker) => worker !== derived)!;
  expect(self.turn({ key: "s", pin: other.id })).toMatchObject({ worker: other, reason: "explicit" });
  expect(self.turn("s").worker).toBe(derived);
  expect(() => self.router.acquire({ key: "s", pin: "nobody" })).toThrow(PinError);
  expect(self.router.status().bindings).toBe(0);
});
