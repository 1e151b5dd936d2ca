// Children: sessions that name a parent, bound together as its group or started at its worker.
import { describe, expect, it } from "vitest";
import type { AcquireRequest, SessionOptions } from "../../host/index.js";
import { SessionKeyError } from "../../host/index.js";
import { type Fixture, type FixtureOptions, fixture } from "./fixture.js";

function grouped(options: FixtureOptions = {}, session: SessionOptions = {}): Fixture {
  return fixture({ ...options, session: { ...session, binding: "parent-group" } });
}

function child(key: string, parent = "p", rest: AcquireRequest = {}): AcquireRequest {
  return { key, parent, ...rest };
}

/** Binds the group of "p" to a worker by its first child, by making the others look busy. */
function bindGroup(self: Fixture, id: string): void {
  const others = [...self.router.workers].filter((worker) => worker.id !== id);
  for (const worker of others) worker.addRequests(9);
  expect(self.turn(child("first")).worker.id).toBe(id);
  for (const worker of others) worker.addRequests(-9);
}

function groupOf({ router }: Fixture, parent = "p", rest: AcquireRequest = {}): string | undefined {
  return router.query(child("anyone", parent, rest))?.id;
}

describe("a parent's group", () => {
  it("is one binding, decided once", () => {
    const self = grouped();
    bindGroup(self, "w1");
    expect(["a", "b", "c"].map((key) => self.turn(child(key)).worker.id)).toEqual(["w1", "w1", "w1"]);
    expect(self.router.sessions(10).views).toMatchObject([
      { kind: "parent-group", worker: "w1", turns: 4, moves: 0, why: "place" },
    ]);
    expect(self.router.status()).toMatchObject({ bindings: 1, affinity_kept: 3 });
  });

  it("takes parallel first requests of its children to one worker (B18, B19)", () => {
    const self = grouped();
    const leases = Array.from({ length: 8 }, (_, i) => self.router.acquire(child(`c${i}`)));
    expect(self.loads()).toEqual({ w0: 8, w1: 0, w2: 0 });
    leases[5]!.commit();
    expect(self.router.sessions(10).views).toMatchObject([{ worker: "w0", leases: 8 }]);
  });

  it.each([
    {
      name: "hard, also under a policy that moves",
      session: { mode: "hard" },
      loads: { w0: 3, w1: 0, w2: 0 },
    },
    { name: "soft, where the policy says so", session: { mode: "soft" }, loads: { w0: 1, w1: 1, w2: 1 } },
  ] as const)("$name", ({ session, loads }) => {
    const self = grouped({ policy: "least-loaded" }, session);
    for (const key of ["a", "b", "c"]) self.router.acquire(child(key));
    expect(self.loads()).toEqual(loads);
  });

  it("moves as a whole", () => {
    const self = grouped();
    bindGroup(self, "w0");
    self.worker("w0").ready = false;
    expect(self.turn(child("a"))).toMatchObject({ worker: { id: "w1" }, reason: "move_gone" });
    self.worker("w0").ready = true;
    expect(self.turn(child("b")).worker.id).toBe("w1");
  });

  it("is not its parent's own session", () => {
    const self = grouped();
    self.turn({ key: "p", pin: "w2" });
    bindGroup(self, "w1");
    expect(self.turn("p").worker.id).toBe("w2");
    expect(self.router.sessions(10).views).toMatchObject([
      { id: self.router.sessionIdOf("p", ""), kind: "session", worker: "w2" },
      { id: expect.not.stringMatching(self.router.sessionIdOf("p", "")), kind: "parent-group", worker: "w1" },
    ]);
  });

  it("is that of the immediate parent only", () => {
    const self = grouped();
    bindGroup(self, "w1");
    expect(self.turn(child("grandchild", "first"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
    expect(self.router.status().bindings).toBe(2);
  });

  it("is kept by children that come and go", () => {
    const self = fixture({ session: { binding: "parent-group", ttlMs: 10_000 } });
    bindGroup(self, "w2");
    for (let i = 1; i < 5; i++) {
      self.time = i * 9_000;
      expect(self.turn(child(`c${i}`)).worker.id).toBe("w2");
    }
    self.time += 10_000;
    expect(groupOf(self)).toBeUndefined();
  });

  it("stays when a child ends", () => {
    const self = grouped();
    bindGroup(self, "w1");
    self.turn(child("a", "p", { final: true }));
    expect(groupOf(self)).toBe("w1");
    const [view] = self.router.sessions(10).views;
    expect(view).toMatchObject({ turns: 2, ending: false });
  });

  it("lives apart in every tenant and model", () => {
    const self = grouped({ models: ["m", "n"] });
    expect(self.turn(child("a", "p", { model: "m" })).reason).toBe("place");
    expect(self.turn(child("a", "p", { model: "n" })).reason).toBe("place");
    expect(self.turn(child("a", "p", { model: "m", tenant: "t" })).reason).toBe("place");
    expect(self.turn(child("b", "p", { model: "m", tenant: "t" })).reason).toBe("keep");
    expect(self.router.status().bindings).toBe(3);
    expect(new Set(self.router.sessions(10).views.map(({ id }) => id)).size).toBe(3);
  });

  it("means its parent whatever a child's own key is, the parent's included", () => {
    const self = grouped();
    self.turn({ key: "a", pin: "w2" });
    bindGroup(self, "w1");
    expect(self.turn(child("a")).worker.id).toBe("w1");
    expect(self.turn("a").worker.id).toBe("w2");
  });
});

describe("a group cannot be forged", () => {
  const digest = "886df43b880e2237e15c62e84d39a656372ae4ca246a9f7b112d11d9d1a9e78d";
  const keys = [
    ...["p", " p", "p ", "P", "first", "parent-group", "parent-group:p", "p/first"],
    ...["\u0001p", "\u0002p", "1p", "p\u0001", "\u0001", "\u007f", "\ud800", "\ufeffp", "\ufffd", "p\u0301"],
    ...["\u0001sg:p", `\u0001sg:${digest}`, "sg:p", "\r\np", "'\"\\p", "group\u0001p", "\u2400p"],
  ];

  it.each(keys.map((key) => [JSON.stringify(key), key] as const))("by a session's key %s", (_, key) => {
    const self = grouped();
    bindGroup(self, "w1");
    const group = self.router.sessions(1).views[0]!;
    expect(self.router.query({ key })).toBeNull();
    expect(self.router.sessionIdOf(key, "")).not.toBe(group.id);
    expect(self.turn(key)).toMatchObject({ worker: { id: "w0" }, reason: "place" });
    self.router.endSession(self.router.sessionIdOf(key, ""));
    expect(self.router.session(group.id)).toEqual(group);
  });

  it.each(keys.filter((key) => key !== "p").map((key) => [JSON.stringify(key), key] as const))(
    "by another parent %s",
    (_, parent) => {
      const self = grouped();
      bindGroup(self, "w1");
      expect(groupOf(self, parent)).toBeUndefined();
    },
  );

  it("by a NUL in any name", () => {
    const self = grouped();
    bindGroup(self, "w1");
    for (const request of [
      { key: "\0p" },
      { key: "p\0" },
      child("a", "\0p"),
      child("a", "p", { tenant: "\0" }),
      { key: "x", tenant: "\0p" },
    ]) {
      expect(() => self.router.acquire(request)).toThrow(SessionKeyError);
      expect(() => self.router.query(request)).toThrow(SessionKeyError);
      expect(() => self.router.explain(request)).toThrow(SessionKeyError);
    }
    expect(self.router.status().bindings).toBe(1);
  });

  it("by the name of an answer", () => {
    const self = grouped();
    bindGroup(self, "w1");
    for (const previousResponse of [...keys, "\0p"])
      expect(self.router.query({ key: "x", previousResponse })).toBeNull();
  });
});

describe("a child that goes its own way", () => {
  it("pinned elsewhere, it does not move its group", () => {
    const self = grouped();
    bindGroup(self, "w0");
    expect(self.turn(child("a", "p", { pin: "w2" }))).toMatchObject({
      worker: { id: "w2" },
      reason: "explicit",
    });
    expect(groupOf(self)).toBe("w0");
    expect(self.router.sessions(10).views).toMatchObject([{ worker: "w0", turns: 1, moves: 0 }]);
    expect(self.router.status().bindings).toBe(1);
  });

  it("pinned, it does not make the group's binding", () => {
    const self = grouped();
    self.turn(child("a", "p", { pin: "w2" }));
    expect(self.router.status().bindings).toBe(0);
    expect(self.turn(child("b"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
  });

  it("pinned elsewhere while the group's worker is not eligible, it does not move it either", () => {
    for (const mode of ["hard", "soft"] as const) {
      const self = grouped({}, { mode });
      bindGroup(self, "w0");
      self.worker("w0").ready = false;
      self.turn(child("a", "p", { pin: "w2" }));
      self.worker("w0").ready = true;
      expect(groupOf(self)).toBe("w0");
    }
  });

  it("pinned to its group's worker, it belongs to it", () => {
    const self = grouped();
    bindGroup(self, "w1");
    self.turn(child("a", "p", { pin: "w1" }));
    expect(self.router.sessions(10).views).toMatchObject([{ worker: "w1", turns: 2 }]);
  });

  describe.each(["hard", "soft"] as const)(
    "%s: of a model that the group's worker does not serve",
    (mode) => {
      function mixed(): Fixture {
        const self = grouped({ workers: ["w0"], models: ["m"] }, { mode, modelSuffixes: ["-thinking"] });
        self.router.addWorker({ id: "w1", models: ["m", "m-thinking"] });
        return self;
      }

      it("is served elsewhere, and the group stays", () => {
        const self = mixed();
        expect(self.turn(child("a", "p", { model: "m" })).worker.id).toBe("w0");
        expect(self.turn(child("b", "p", { model: "m-thinking" })).worker.id).toBe("w1");
        expect(groupOf(self, "p", { model: "m" })).toBe("w0");
        expect(self.router.status()).toMatchObject({ bindings: 1, affinity_kept: 0, affinity_broken: 0 });
      });

      it("joins the group where the worker serves both", () => {
        const self = mixed();
        self.turn(child("a", "p", { model: "m-thinking" }));
        expect(self.turn(child("b", "p", { model: "m" })).worker.id).toBe("w1");
        expect(self.router.sessions(10).views).toMatchObject([{ worker: "w1", turns: 2 }]);
      });
    },
  );
});

describe("affinity of one request", () => {
  it("parent-group joins the group where sessions are bound one by one", () => {
    const self = fixture({ policy: "round-robin" });
    const group = { affinity: "parent-group" } as const;
    const first = self.turn(child("a", "p", group));
    expect(self.turn(child("b", "p", group))).toMatchObject({ worker: first.worker, reason: "hard" });
    expect(self.turn(child("a")).reason).toBe("place");
    expect(self.router.sessions(10).views.map(({ kind }) => kind)).toEqual(["parent-group", "session"]);
  });

  it("parent-group binds where nothing else is bound", () => {
    const self = fixture({ policy: "round-robin", session: { mode: "off" } });
    const group = { affinity: "parent-group" } as const;
    const first = self.turn(child("a", "p", group));
    self.turn(child("a"));
    expect(self.turn(child("b", "p", group)).worker).toBe(first.worker);
    expect(self.router.status().bindings).toBe(1);
  });

  it("parent-group of a request without a parent is its own session", () => {
    const self = fixture({ session: { mode: "off" } });
    self.turn({ key: "s", affinity: "parent-group" });
    expect(self.binding("s")).toMatchObject({ kind: "session" });
  });

  it("session leaves the group for the child's own session", () => {
    const self = grouped();
    bindGroup(self, "w1");
    const own = { affinity: "session" } as const;
    expect(self.turn(child("a", "p", own))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
    expect(self.binding("a")).toMatchObject({ kind: "session", worker: "w0" });
    expect(groupOf(self)).toBe("w1");
  });

  it("off touches no group", () => {
    const self = grouped({ policy: "least-loaded" });
    bindGroup(self, "w1");
    expect(self.turn(child("a", "p", { affinity: "off" })).reason).toBe("place");
    expect(self.router.sessions(10).views).toMatchObject([{ turns: 1 }]);
  });
});

it("children of one parent share a worker under full determinism", () => {
  const { turn } = grouped({}, { fullDeterminism: true });
  const worker = turn(child("a")).worker;
  for (const key of ["b", "c", "d", "e", "f"]) expect(turn(child(key)).worker).toBe(worker);
  const others = Array.from({ length: 20 }, (_, i) => turn(child("a", `p${i}`)).worker);
  expect(new Set(others).size).toBeGreaterThan(1);
});

describe("first placement at the parent", () => {
  const guard = {
    policy: "soft-affinity-load-guard",
    parameters: { max_active_requests: 4, move_margin: 2 },
  } as const;
  const session = { firstPlacement: "parent" } as const;

  function withParent(id = "w2", options: FixtureOptions = guard): Fixture {
    const self = fixture({ session, ...options });
    self.turn({ key: "p", pin: id });
    return self;
  }

  it("starts a child where its parent is, then the child is on its own", () => {
    const self = withParent();
    self.worker("w2").addRequests(4);
    expect(self.turn(child("a")).worker.id).toBe("w2");
    expect(self.binding("a")).toMatchObject({ worker: "w2", turns: 1, moves: 0 });
    self.worker("w2").addRequests(5);
    self.turn("p");
    expect([self.binding("p")!.worker, self.binding("a")!.worker]).toEqual(["w0", "w2"]);
  });

  it("starts it elsewhere where the policy would move it", () => {
    const self = withParent();
    self.worker("w2").addRequests(5);
    expect(self.turn(child("a")).worker.id).toBe("w0");
    expect(self.binding("a")).toMatchObject({ worker: "w0", moves: 0 });
    expect(self.binding("p")).toMatchObject({ worker: "w2", turns: 1 });
  });

  it("counts as neither kept nor broken", () => {
    const self = withParent();
    self.turn(child("a"));
    self.worker("w2").addRequests(5);
    self.turn(child("b"));
    expect(self.router.status()).toMatchObject({ affinity_kept: 0, affinity_broken: 0, rebinds_lost: 0 });
    self.worker("w2").addRequests(-5);
    self.turn(child("a"));
    expect(self.router.status()).toMatchObject({ affinity_kept: 1, affinity_broken: 0 });
  });

  it.each(["hard", "soft"] as const)("%s: holds for the first turn alone", (mode) => {
    const self = fixture({ ...guard, session: { ...session, mode } });
    self.turn({ key: "a", pin: "w1" });
    self.turn({ key: "p", pin: "w2" });
    expect(self.turn(child("a")).worker.id).toBe("w1");
    expect(self.turn(child("b")).worker.id).toBe("w2");
  });

  it("places a child as any other where its parent is not bound, not eligible, ended or unknown to its model", () => {
    const self = withParent();
    expect(self.turn(child("a", "nobody"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
    self.worker("w2").ready = false;
    expect(self.turn(child("b"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
    self.worker("w2").ready = true;
    expect(self.turn(child("c", "p", { tenant: "t" }))).toMatchObject({
      worker: { id: "w0" },
      reason: "place",
    });
    self.router.endSession(self.router.sessionIdOf("p", ""));
    expect(self.turn(child("d"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
  });

  it("is left alone by a worker that was removed", () => {
    const self = withParent();
    for (let i = 0; i < 20; i++) self.turn({ key: `s${i}`, pin: "w2" });
    self.router.removeWorker(self.worker("w2"));
    expect(self.turn(child("a"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
  });

  it("starts a whole group at its parent", () => {
    const self = withParent("w2", { ...guard, session: { ...session, binding: "parent-group" } });
    expect(self.turn(child("a")).worker.id).toBe("w2");
    self.worker("w2").addRequests(3);
    expect(self.turn(child("b")).worker.id).toBe("w2");
    expect(self.router.status().bindings).toBe(2);
  });

  it("is off unless asked for", () => {
    const self = withParent("w2", { ...guard, session: {} });
    expect(self.turn(child("a"))).toMatchObject({ worker: { id: "w0" }, reason: "place" });
  });
});
