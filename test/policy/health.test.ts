import { describe, expect, it } from "vitest";
import { FAILURES } from "../../host/abi/reasons.js";
import { PolicyHealth } from "../../host/policy/health.js";

const TRAP = FAILURES.indexOf("trap");
const BAD_ROW = FAILURES.indexOf("bad_row");

/** One failure every `period` decisions, `failures` times. */
function failing(period: number, failures: number): PolicyHealth {
  const health = new PolicyHealth();
  for (let i = 0; i < failures; i++) {
    health.fail(TRAP);
    if (i + 1 < failures) for (let good = 1; good < period; good++) health.succeed();
  }
  return health;
}

describe("quarantine", () => {
  it("comes at the third failure in a row, whatever its kinds", () => {
    const health = new PolicyHealth();
    health.fail(TRAP);
    health.fail(BAD_ROW);
    expect(health.quarantine).toBeNull();
    health.fail(BAD_ROW);
    expect(health.quarantine).toBe("3 failures in a row, the last a bad_row");
    expect(health.failures()).toEqual({ trap: 1, bad_row: 2 });
  });

  it("does not come where a good decision lies between", () => {
    const health = new PolicyHealth();
    for (let i = 0; i < 5; i++) {
      health.fail(TRAP);
      health.fail(TRAP);
      health.succeed();
    }
    expect(health.quarantine).toBeNull();
  });

  it("comes at 20 failures within 1,000 decisions, not at 19, and not where they are spread further", () => {
    expect(failing(52, 20).quarantine).toBe("20 failures within 1000 decisions, the last a trap");
    expect(failing(52, 19).quarantine).toBeNull();
    // 19 intervals of 52 decisions and one of 64 make the window 1,001 decisions wide.
    const wide = failing(52, 19);
    for (let i = 0; i < 63; i++) wide.succeed();
    wide.fail(TRAP);
    expect(wide.quarantine).toBeNull();
    expect(failing(60, 200).quarantine).toBeNull();
  });

  it("keeps its first reason", () => {
    const health = failing(1, 3);
    const { quarantine } = health;
    health.fail(BAD_ROW);
    expect(health.quarantine).toBe(quarantine);
  });
});
