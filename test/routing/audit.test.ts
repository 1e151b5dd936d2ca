// The audit of leases: each must end exactly once, and what it finds says where.
import { describe, expect, it } from "vitest";
import { LeaseAudit } from "../../host/index.js";
import { type Fixture, fixture } from "./fixture.js";

interface Audited extends Fixture {
  readonly audit: LeaseAudit;
}

function audited(): Audited {
  const audit = new LeaseAudit();
  return Object.assign(fixture({ audit, seed: 1 }), { audit });
}

/** What `check` throws. */
function found(audit: LeaseAudit): AggregateError {
  try {
    audit.check();
  } catch (error) {
    if (error instanceof AggregateError) return error;
    throw error;
  }
  throw new Error("the audit found nothing");
}

function takeAndForget({ router }: Fixture): void {
  router.acquire({ key: "s" });
}

function releaseTwice({ router }: Fixture): void {
  const lease = router.acquire({ key: "s" });
  lease.release();
  expect(lease.release()).toBe(false);
}

describe("the audit of leases", () => {
  it("is content where each lease ended once, however it ended", () => {
    const self = audited();
    self.audit.check();
    self.turn("s");
    self.router.acquire({ key: "s" }).release("failed");
    self.router.acquire({}).release();
    expect(self.audit.open).toBe(0);
    self.audit.check();
  });

  it("counts the leases that are out", () => {
    const { audit, router } = audited();
    const leases = [router.acquire({ key: "s" }), router.acquire({ key: "t" })];
    expect(audit.open).toBe(2);
    leases[0]!.release();
    expect(audit.open).toBe(1);
    leases[1]!.release();
    expect(audit.open).toBe(0);
  });

  it("finds a lease that was never released, and shows where it was taken", () => {
    const self = audited();
    takeAndForget(self);
    const error = found(self.audit);
    expect(error.message).toBe("leases: 0 released twice, 1 not released");
    expect(error.errors).toHaveLength(1);
    expect(error.errors[0].message).toBe('a lease on worker "w0" was never released');
    expect(error.errors[0].stack).toContain("takeAndForget");
  });

  it("finds a lease that was released twice, and shows where the second time", () => {
    const self = audited();
    releaseTwice(self);
    expect(self.worker("w0").activeRequests).toBe(0);
    expect(self.audit.open).toBe(0);
    const error = found(self.audit);
    expect(error.message).toBe("leases: 1 released twice, 0 not released");
    expect(error.errors[0].message).toBe('a lease on worker "w0" was released twice');
    expect(error.errors[0].stack).toContain("releaseTwice");
  });

  it("counts each time that was too often, and tells all it has found at once", () => {
    const self = audited();
    releaseTwice(self);
    const lease = self.router.acquire({});
    for (let i = 0; i < 3; i++) lease.release();
    takeAndForget(self);
    takeAndForget(self);
    const error = found(self.audit);
    expect(error.message).toBe("leases: 3 released twice, 2 not released");
    expect(error.errors).toHaveLength(5);
  });

  it("is told of no lease where none was handed out", () => {
    const { audit, router, worker } = audited();
    for (const id of ["w0", "w1", "w2"]) worker(id).ready = false;
    expect(() => router.acquire({ key: "s" })).toThrow();
    expect(audit.open).toBe(0);
    audit.check();
  });
});
