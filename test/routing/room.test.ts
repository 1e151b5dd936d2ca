// Which workers have room: limits on requests in flight, slow beginners, and what engines carry from elsewhere.
import { describe, expect, it } from "vitest";
import { createRouter, loadPolicy, type Worker } from "../../host/index.js";
import { NO_REPORT } from "../../host/routing/worker.js";

const leastLoaded = loadPolicy("least-loaded");

function routerOf(limits: readonly (number | undefined)[], policy = leastLoaded) {
  const router = createRouter({
    policy,
    workers: limits.map((maxInFlight, i) => ({
      id: `w${i}`,
      ...(maxInFlight !== undefined && { maxInFlight }),
    })),
  });
  return { router, workers: [...router.workers] as Worker[] };
}

describe("a worker with a limit", () => {
  it("is not eligible while it has as many requests as it may, and is again when one ends", () => {
    const { router, workers } = routerOf([2, 3]);
    const leases = Array.from({ length: 5 }, () => router.acquire({}));
    expect(workers.map(({ activeRequests }) => activeRequests)).toEqual([2, 3]);
    expect(workers.map(({ eligible, ready }) => [eligible, ready])).toEqual([
      [false, true],
      [false, true],
    ]);
    expect(() => router.acquire({})).toThrow(expect.objectContaining({ code: "full" }));
    leases.find(({ worker }) => worker === workers[1])!.release();
    expect(router.acquire({}).worker).toBe(workers[1]);
    expect(() => router.acquire({})).toThrow(expect.objectContaining({ code: "full" }));
  });

  it("is full in every pool that it serves", () => {
    const router = createRouter({
      policy: leastLoaded,
      workers: [{ id: "both", models: ["a", "b"], maxInFlight: 1 }],
    });
    const lease = router.acquire({ model: "a" });
    expect(() => router.acquire({ model: "b" })).toThrow(expect.objectContaining({ code: "full" }));
    lease.release();
    expect(router.acquire({ model: "b" }).worker.id).toBe("both");
  });

  it("that is full lets its session move, and the session goes where it was accepted", () => {
    const { router, workers } = routerOf([1, undefined], loadPolicy("soft-affinity-load-guard"));
    const first = router.acquire({ key: "s" });
    first.commit();
    expect(first.worker).toBe(workers[0]);
    const second = router.acquire({ key: "s" });
    expect([second.worker, second.reason]).toEqual([workers[1], "move_gone"]);
  });

  it("tells a pinned request that its target is full, and one whose workers are out of service otherwise", () => {
    const { router, workers } = routerOf([1, 1]);
    router.acquire({ pin: "w0" });
    expect(() => router.acquire({ pin: "w0" })).toThrow(expect.objectContaining({ code: "full" }));
    workers[1]!.ready = false;
    expect(() => router.acquire({ pin: "w1" })).toThrow(expect.objectContaining({ code: "no_worker" }));
    workers[0]!.ready = false;
    expect(() => router.acquire({})).toThrow(expect.objectContaining({ code: "no_worker" }));
  });

  it("takes its limit at any time: a lower one than it has requests gives it none until they end", () => {
    const { router, workers } = routerOf([undefined]);
    const leases = [router.acquire({}), router.acquire({}), router.acquire({})];
    workers[0]!.maxInFlight = 2;
    expect(workers[0]!.eligible).toBe(false);
    leases[0]!.release();
    expect(workers[0]!.eligible).toBe(false);
    leases[1]!.release();
    expect(workers[0]!.eligible).toBe(true);
    workers[0]!.maxInFlight = 0;
    expect(workers[0]!.eligible).toBe(false);
    workers[0]!.maxInFlight = Number.POSITIVE_INFINITY;
    expect(workers[0]!.eligible).toBe(true);
  });

  it.each([0, -1, 1.5, Number.NaN])("cannot be made with a limit of %s", (maxInFlight) => {
    expect(() => createRouter({ policy: leastLoaded, workers: [{ id: "w", maxInFlight }] })).toThrow(
      /maxInFlight/,
    );
  });

  it("stays full where a request excluded it meanwhile", () => {
    const { router, workers } = routerOf([1, 1]);
    router.acquire({ exclude: [workers[1]!] });
    expect(() => router.acquire({ exclude: [workers[1]!] })).toThrow();
    expect(workers[1]!.eligible).toBe(true);
    expect(router.acquire({ exclude: [workers[0]!] }).worker).toBe(workers[1]);
    expect(() => router.acquire({})).toThrow(expect.objectContaining({ code: "full" }));
  });
});

describe("a worker that begins slowly", () => {
  it("is given no more than it may have, under a policy that looks at no load", () => {
    const { router, workers } = routerOf([undefined, undefined], loadPolicy("round-robin"));
    workers[0]!.easing = 1;
    const chosen = Array.from({ length: 6 }, () => router.acquire({}).worker.id);
    expect(chosen.filter((id) => id === "w0")).toEqual(["w0"]);
    workers[0]!.easing = 3;
    Array.from({ length: 6 }, () => router.acquire({}));
    expect(workers[0]!.activeRequests).toBe(3);
  });

  it("is given more where no other worker is eligible, but never beyond its limit", () => {
    const { router, workers } = routerOf([3, undefined]);
    workers[0]!.easing = 1;
    workers[1]!.ready = false;
    for (let i = 0; i < 3; i++) expect(router.acquire({}).worker).toBe(workers[0]);
    expect(() => router.acquire({})).toThrow(expect.objectContaining({ code: "full" }));
    expect(workers[0]!.eligible).toBe(false);
    expect(() => router.explain({})).toThrow(expect.objectContaining({ code: "full" }));
  });

  it("does not take what excludes it for a reason to be chosen", () => {
    const { router, workers } = routerOf([undefined, undefined]);
    workers[0]!.easing = 0;
    expect(router.acquire({ exclude: [workers[1]!] }).worker).toBe(workers[0]);
    expect(() => router.acquire({ exclude: workers })).toThrow(
      expect.objectContaining({ code: "no_worker" }),
    );
    expect(workers.map(({ eligible }) => eligible)).toEqual([false, true]);
    expect(router.acquire({}).worker).toBe(workers[1]);
  });
});

describe("what engines say", () => {
  it("adds what they have from elsewhere to what is live here (A17)", () => {
    const { router, workers } = routerOf([undefined, undefined, undefined, undefined]);
    // Polled loads are equal; eight requests come before the next poll.
    for (const worker of workers) worker.report = { ...NO_REPORT, elsewhere: 3 };
    for (let i = 0; i < 8; i++) router.acquire({});
    expect(workers.map(({ activeRequests }) => activeRequests)).toEqual([2, 2, 2, 2]);
    expect(workers.map(({ shownRequests }) => shownRequests)).toEqual([5, 5, 5, 5]);
    workers[2]!.report = { ...NO_REPORT, elsewhere: 0 };
    for (let i = 0; i < 3; i++) expect(router.acquire({}).worker).toBe(workers[2]);
  });

  it("does not count against the limit on this router's own", () => {
    const { router, workers } = routerOf([2]);
    workers[0]!.report = { ...NO_REPORT, elsewhere: 100 };
    router.acquire({});
    router.acquire({});
    expect(() => router.acquire({})).toThrow(expect.objectContaining({ code: "full" }));
  });

  it("is shown in the rows, and stays there through a renumbering", () => {
    const { router, workers } = routerOf([undefined, undefined]);
    workers[1]!.report = { elsewhere: 4, queueDepth: 7, kvUsed: 310, kvBlocks: 4_096, blockTokens: 16 };
    const shown = { active_requests: 4, queue_depth: 7, kv_used: 310, kv_blocks: 4_096 };
    expect(router.columnsOf(workers[1]!)).toMatchObject(shown);
    expect(router.columnsOf(workers[0]!)).toMatchObject({ queue_depth: -1, kv_used: -1, kv_blocks: 0 });
    router.addWorker({ id: "a" });
    expect(router.columnsOf(workers[1]!)).toMatchObject(shown);
    router.removeWorker(workers[0]!);
    expect(router.columnsOf(workers[1]!)).toMatchObject(shown);
  });
});

describe("a worker that lost what it held", () => {
  function bound(count: number) {
    const { router, workers } = routerOf([undefined, undefined], loadPolicy("sticky"));
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const lease = router.acquire({ key: `s${i}`, exclude: [workers[i % 2]!] });
      lease.commit();
      ids.push(lease.session!);
      lease.release();
    }
    return { router, workers, ids };
  }

  it("is no session's worker any more; those of others stay", () => {
    const { router, workers, ids } = bound(20);
    expect(workers.map(({ boundSessions }) => boundSessions)).toEqual([10, 10]);
    router.chill(workers[0]!);
    expect(workers.map(({ boundSessions }) => boundSessions)).toEqual([0, 10]);
    for (let i = 0; i < 20; i++) {
      const lease = router.acquire({ key: `s${i}` });
      expect(lease.reason).toBe(i % 2 === 0 ? "keep" : "place");
      lease.commit();
      lease.release();
      expect(router.session(ids[i]!)?.worker).toBe(lease.worker.id);
    }
    expect(workers[0]!.boundSessions + workers[1]!.boundSessions).toBe(20);
    expect(router.status().bindings).toBe(20);
  });

  it("binds again, and loses that again", () => {
    const { router, workers } = bound(2);
    for (let round = 0; round < 3; round++) {
      router.chill(workers[0]!);
      const lease = router.acquire({ key: "s1", exclude: [workers[1]!] });
      expect(lease.worker).toBe(workers[0]);
      lease.commit();
      lease.release();
      expect(workers[0]!.boundSessions).toBe(1);
      expect(router.acquire({ key: "s1" }).reason).toBe("keep");
    }
  });

  it("keeps its requests in flight; the session of one is placed anew meanwhile", () => {
    const { router, workers } = bound(2);
    const lease = router.acquire({ key: "s1" });
    expect([lease.worker, lease.reason]).toEqual([workers[0], "keep"]);
    router.chill(workers[0]!);
    expect(workers[0]!.activeRequests).toBe(1);
    const next = router.acquire({ key: "s1", exclude: [workers[0]!] });
    expect([next.worker, next.reason]).toEqual([workers[1], "place"]);
    next.commit();
    lease.release("failed");
    next.release();
    expect(router.acquire({ key: "s1" }).worker).toBe(workers[1]);
    expect(workers[0]!.activeRequests).toBe(0);
  });

  it("may be removed before its old bindings are cleared away", () => {
    const { router, workers } = bound(1_000);
    router.chill(workers[0]!);
    router.removeWorker(workers[0]!);
    const fresh = router.addWorker({ id: "w0" });
    expect(fresh.boundSessions).toBe(0);
    for (let i = 0; i < 1_000; i++) router.acquire({ key: `s${i}` }).release();
    expect(router.status().bindings).toBe(500);
  });
});
