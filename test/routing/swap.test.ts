// Policies that are replaced while requests are under way: what stays, what goes, and who takes over.
import { beforeAll, describe, expect, it } from "vitest";
import { type Lease, loadPolicy, policyInstance } from "../../host/index.js";
import { PolicyStartError, type Program } from "../../host/policy/live.js";
import type { PolicyInstance } from "../../host/routing/contenders.js";
import type { RouterChange } from "../../host/routing/requests.js";
import { Router } from "../../host/routing/router.js";
import { policyFromText } from "../fixtures/puppet.js";
import { fixture, shipped } from "./fixture.js";

const SDK = `export { init } from "../../../assembly/sdk";`;
/** Lies about its row, in every decision. */
const LIAR = `${SDK} export function select(n: i32, bound: i32): i32 { return 9999; }`;
/** Answers the row of its own number of calls. */
const COUNTER = `${SDK} let calls: i32 = -1; export function select(n: i32, bound: i32): i32 { calls++; return (calls % n) | (5 << 16); }`;
/** Always the last row. */
const LAST = `${SDK} export function select(n: i32, bound: i32): i32 { return (n - 1) | (5 << 16); }`;
/** Takes pools of 64 rows alone. */
const SMALL = `import { init as start } from "../../../assembly/sdk";
export function init(capacity: i32): i32 { return capacity > 64 ? -1 : start(capacity); }
export function select(n: i32, bound: i32): i32 { return 5 << 16; }`;

let liar: Program;
let counter: Program;
let last: Program;
let small: Program;
beforeAll(async () => {
  const all = await Promise.all([LIAR, COUNTER, LAST, SMALL].map(policyFromText));
  [liar, counter, last, small] = all as unknown as [Program, Program, Program, Program];
});

function instance(name: string, policy: Program): PolicyInstance {
  return { name, policy, parameters: new Float64Array(2) };
}

function routerOf(first: PolicyInstance, models = ["m"]): Router {
  return new Router({
    instance: first,
    workers: ["w0", "w1", "w2"].map((id) => ({ id, models })),
    clock: () => 0,
    seed: 1,
  });
}

function swap(router: Router, change: RouterChange): void {
  router.apply(router.prepare(change));
}

function rows(router: Router, count: number, model = "m"): string[] {
  return Array.from({ length: count }, () => turn(router, model).worker.id);
}

function turn(router: Router, model = "m"): Lease {
  const lease = router.acquire({ model });
  lease.release();
  return lease;
}

describe("a policy that is replaced", () => {
  it("leaves bindings and counts as they were, and its requests to their end (F6)", () => {
    const { router, loads, binding } = fixture({ policy: "sticky" });
    const running = router.acquire({ key: "a" });
    running.commit();
    const { turns, worker } = binding("a")!;
    swap(router, { instance: policyInstance({ policy: shipped("least-loaded") }) });
    expect(binding("a")).toMatchObject({ turns, worker, leases: 1 });
    expect(loads()).toEqual({ w0: 1, w1: 0, w2: 0 });
    // It goes by load now, and moves the session.
    const next = router.acquire({ key: "a" });
    expect(next).toMatchObject({ worker: { id: "w1" }, policy: "least-loaded" });
    next.commit();
    next.release();
    running.release();
    expect(binding("a")).toMatchObject({ worker: "w1", turns: 2, moves: 1, leases: 0 });
    expect(loads()).toEqual({ w0: 0, w1: 0, w2: 0 });
  });

  it("decides until the very moment, in every pool, and never after it", () => {
    const router = routerOf(instance("old", counter), ["m", "n"]);
    expect(rows(router, 2)).toEqual(["w0", "w1"]);
    const preparation = router.prepare({ instance: instance("new", last) });
    let steps = 0;
    while (preparation.step()) {
      steps++;
      expect(turn(router).policy).toBe("old");
    }
    expect(steps).toBe(2);
    // What was prepared saw nothing of it, and cost its predecessor nothing.
    expect(rows(router, 1)).toEqual(["w1"]);
    expect(rows(router, 1, "n")).toEqual(["w0"]);
    router.apply(preparation);
    expect(rows(router, 2)).toEqual(["w2", "w2"]);
    expect(rows(router, 2, "n")).toEqual(["w2", "w2"]);
  });

  it("that stays the same goes on with what it remembers", () => {
    const router = routerOf(instance("same", counter));
    expect(rows(router, 2)).toEqual(["w0", "w1"]);
    swap(router, { instance: instance("same", counter), fallback: instance("spare", last) });
    expect(rows(router, 2)).toEqual(["w2", "w0"]);
    swap(router, { instance: { ...instance("same", counter), parameters: new Float64Array([1, 0]) } });
    expect(rows(router, 2)).toEqual(["w0", "w1"]);
    swap(router, { instance: instance("another name", counter) });
    expect(rows(router, 1)).toEqual(["w0"]);
  });

  it("sees true rows when it takes over, whatever changed while it was prepared", () => {
    const router = routerOf(instance("old", counter));
    const preparation = router.prepare({ instance: policyInstance({ policy: loadPolicy("least-loaded") }) });
    while (preparation.step());
    const leases = [router.acquire({ model: "m" }), router.acquire({ model: "m" })];
    router.addWorker({ id: "w3", models: ["m"] });
    router.addWorker({ id: "w9", models: ["m", "late"] });
    router.apply(preparation);
    expect(leases.map(({ worker }) => worker.id)).toEqual(["w0", "w1"]);
    expect(router.acquire({ model: "m" })).toMatchObject({
      worker: { id: "w2" },
      policy: "least-loaded",
    });
    // A model that came meanwhile is decided over by the new one as well.
    expect(router.acquire({ model: "late" }).policy).toBe("least-loaded");
  });

  it("starts in a pool that outgrew what was prepared for it", () => {
    const router = routerOf(instance("old", counter));
    const preparation = router.prepare({ instance: instance("new", last) });
    while (preparation.step());
    for (let i = 10; i < 80; i++) router.addWorker({ id: `w${i}`, models: ["m"] });
    router.apply(preparation);
    expect(turn(router)).toMatchObject({ worker: { id: "w79" }, policy: "new" });
  });

  it("that cannot start in some pool changes nothing", () => {
    const router = routerOf(instance("old", counter), ["m", "n"]);
    for (let i = 10; i < 80; i++) router.addWorker({ id: `w${i}`, models: ["n"] });
    const before = JSON.stringify(router.status());
    expect(() => swap(router, { instance: instance("new", small) })).toThrow(PolicyStartError);
    expect(JSON.stringify(router.status())).toBe(before);
    expect([turn(router).policy, turn(router, "n").policy]).toEqual(["old", "old"]);
    expect(rows(router, 1)).toEqual(["w1"]);
  });

  it("is refused where another change came first, or the same one", () => {
    const router = routerOf(instance("old", counter));
    const [first, second] = [
      router.prepare({ instance: instance("first", last) }),
      router.prepare({ instance: instance("second", counter) }),
    ];
    router.apply(second);
    for (const late of [first, second])
      expect(() => router.apply(late)).toThrow("another change has taken effect");
    expect(turn(router).policy).toBe("second");
  });

  it("is the one owner of state: what the old one remembered decides nothing any more (F7, G10)", () => {
    const router = routerOf(instance("one", counter));
    rows(router, 2);
    swap(router, { instance: instance("other", last) });
    expect(rows(router, 1)).toEqual(["w2"]);
    swap(router, { instance: instance("one", counter) });
    // It was gone meanwhile, and begins anew.
    expect(rows(router, 1)).toEqual(["w0"]);
  });
});

describe("a policy that is quarantined after it was replaced", () => {
  const policies = (router: Router) =>
    router.status().policies.map(({ name, state, previous = false }) => `${name} ${state} ${previous}`);

  it("is followed by what its name stood for before", () => {
    const router = routerOf(instance("p", counter));
    rows(router, 1);
    swap(router, { instance: instance("p", liar), fallback: instance("spare", last) });
    expect(policies(router)).toEqual(["p deciding false", "p standby true", "spare standby false"]);
    rows(router, 3);
    expect(policies(router)).toEqual(["p quarantined false", "p deciding true", "spare standby false"]);
    // With what it remembers.
    expect(rows(router, 2)).toEqual(["w1", "w2"]);
  });

  it("keeps that through changes of something else, and through another try of its own", () => {
    const router = routerOf(instance("p", counter));
    swap(router, { instance: instance("p", liar) });
    swap(router, { instance: instance("p", liar), session: { mode: "hard" } });
    rows(router, 3);
    expect(policies(router)).toEqual(["p quarantined false", "p deciding true"]);
    swap(router, { instance: instance("p", liar), fallback: instance("spare", last) });
    expect(policies(router)).toEqual(["p quarantined false", "p deciding true", "spare standby false"]);
    swap(router, { instance: instance("p", liar), revive: true });
    expect(policies(router)).toEqual(["p deciding false", "p standby true"]);
    rows(router, 3);
    expect(policies(router)).toEqual(["p quarantined false", "p deciding true"]);
  });

  it("is not followed by one that was quarantined itself, but by the one before that", () => {
    const router = routerOf(instance("p", counter));
    swap(router, { instance: instance("p", liar) });
    rows(router, 3);
    swap(router, { instance: { ...instance("p", liar), parameters: new Float64Array([7, 0]) } });
    rows(router, 3);
    expect(policies(router)).toEqual(["p quarantined false", "p deciding true"]);
    expect(rows(router, 1)).toEqual(["w0"]);
  });

  it("gives way to the one before by one edit, which goes on where it was", () => {
    const router = routerOf(instance("p", counter));
    rows(router, 2);
    swap(router, { instance: instance("p", liar) });
    rows(router, 4);
    swap(router, { instance: instance("p", counter) });
    expect(policies(router)).toEqual(["p deciding false"]);
    expect(rows(router, 2)).toEqual(["w0", "w1"]);
  });

  it("is followed by no instance of another name but the fallback", () => {
    const router = routerOf(instance("p", counter));
    swap(router, { instance: instance("q", liar) });
    expect(policies(router)).toEqual(["q deciding false"]);
    rows(router, 3);
    expect(turn(router)).toMatchObject({ policy: "q", reason: "fallback" });
  });
});

describe("a policy that stands by, and does not start over as many workers as there are by now", () => {
  const many = Array.from({ length: 70 }, (_, i) => `x${i}`);
  const crowd = (router: Router) => {
    for (const id of many) router.addWorker({ id, models: ["m"] });
  };

  it("is passed over, and keeps no worker out: what a name stood for before", () => {
    const router = routerOf(instance("p", small));
    swap(router, { instance: instance("p", liar), fallback: instance("spare", last) });
    crowd(router);
    expect(router.status().policies[1]).toMatchObject({
      ...{ name: "p", previous: true },
      not_started: "init refuses a capacity of 128: it answers -1",
    });
    rows(router, 3);
    expect(turn(router)).toMatchObject({ policy: "spare", worker: { id: "x9" } });
  });

  it("is passed over, and keeps no worker out: a fallback", () => {
    const router = routerOf(instance("p", liar));
    swap(router, { instance: instance("p", liar), fallback: instance("spare", small) });
    crowd(router);
    rows(router, 3);
    expect(turn(router)).toMatchObject({ policy: "spare", reason: "fallback" });
    // It may be named while there are as many already.
    swap(router, { instance: instance("p", last), fallback: instance("other", small) });
    expect(turn(router)).toMatchObject({ policy: "p", worker: { id: "x9" } });
  });

  it("refuses more workers where it is the one that decides", () => {
    const router = routerOf(instance("p", small));
    expect(() => crowd(router)).toThrow(PolicyStartError);
    expect(router.status().workers.length).toBe(64);
    expect(turn(router).policy).toBe("p");
  });
});

describe("how sessions are bound", () => {
  it("changes with the next request, and forgets nothing (F12)", () => {
    const self = fixture({ policy: "least-loaded", session: { mode: "soft" } });
    const { router } = self;
    const first = router.acquire({ key: "a" });
    first.commit();
    const change = (session: RouterChange["session"]) =>
      swap(router, { instance: policyInstance({ policy: shipped("least-loaded") }), session });
    change({ mode: "hard" });
    expect(router.acquire({ key: "a" })).toMatchObject({ worker: first.worker, reason: "hard" });
    change({ fullDeterminism: true });
    expect(router.acquire({ key: "a" }).reason).toBe("deterministic");
    change({ mode: "off" });
    expect(router.acquire({ key: "a" }).reason).toBe("place");
    change({ mode: "hard", ttlMs: 5 });
    expect(router.acquire({ key: "a" })).toMatchObject({ worker: first.worker, reason: "hard" });
    expect(self.binding("a")).toMatchObject({ turns: 1, leases: 3 });
  });

  it("lets bindings end by the new idle time, and tells models apart by the new endings", () => {
    const self = fixture({ session: { ttlMs: 1_000 }, models: ["m", "m-thinking"] });
    const { router } = self;
    const bound = (model: string) => router.query({ key: "a", model })?.id;
    self.turn({ key: "a", model: "m" });
    const sticky = policyInstance({ policy: shipped("sticky") });
    swap(router, { instance: sticky, session: { ttlMs: 1_000, modelSuffixes: ["-thinking"] } });
    expect([bound("m"), bound("m-thinking")]).toEqual(["w0", "w0"]);
    swap(router, { instance: sticky, session: { ttlMs: 10 } });
    expect([bound("m"), bound("m-thinking")]).toEqual(["w0", undefined]);
    self.time = 10;
    expect(bound("m")).toBeUndefined();
  });

  it("refuses what cannot change, or is out of range, and changes nothing then", () => {
    const { router } = fixture({ session: { maxBindings: 4 } });
    const chosen = policyInstance({ policy: shipped("least-loaded") });
    expect(() => router.prepare({ instance: chosen, session: { maxBindings: 5 } })).toThrow(
      "session.maxBindings cannot change from 4 to 5",
    );
    expect(() => router.prepare({ instance: chosen, session: { maxBindings: 4, ttlMs: 0 } })).toThrow(
      "session.ttlMs must be above 0",
    );
    expect(router.status().policies[0]!.name).toBe("sticky");
  });
});
