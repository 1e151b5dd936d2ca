import { beforeAll, describe, expect, it } from "vitest";
import { loadPolicy } from "../../host/index.js";
import type { Program } from "../../host/policy/live.js";
import { Router } from "../../host/routing/router.js";
import { policyFromText } from "../fixtures/puppet.js";

/** Lies about its row, in every decision. */
const LIAR = `export { init } from "../../../assembly/sdk"; export function select(n: i32, bound: i32): i32 { return 9999; }`;
/** Traps while there are three workers. */
const STUMBLER = `export { init } from "../../../assembly/sdk";
export function select(n: i32, bound: i32): i32 { if (n === 3) unreachable(); return 0 | (5 << 16); }`;

let liar: Program;
let stumbler: Program;
beforeAll(async () => {
  liar = await policyFromText(LIAR);
  stumbler = await policyFromText(STUMBLER);
});

function routerOf(policy: Program, fallback?: Program, models = ["m"]): Router {
  return new Router({
    instance: { name: "chosen", policy, parameters: new Float64Array(2) },
    fallback: fallback && { name: "spare", policy: fallback, parameters: new Float64Array(2) },
    workers: ["w0", "w1", "w2"].map((id) => ({ id, models })),
    clock: () => 0,
    seed: 1,
  });
}

function decisions(router: Router, count: number, model = "m"): string[] {
  return Array.from({ length: count }, () => {
    const { worker, policy, reason } = router.acquire({ model });
    return `${worker.id} ${policy} ${reason}`;
  });
}

describe("a policy that fails three times in a row", () => {
  it("is followed by the fallback, which sees the true loads, and is seen to be (G11)", () => {
    const router = routerOf(liar, loadPolicy("least-loaded"));
    expect(decisions(router, 5)).toEqual([
      ...["w0 chosen fallback", "w1 chosen fallback", "w2 chosen fallback"],
      ...["w0 spare place", "w1 spare place"],
    ]);
    expect(router.status().policies).toMatchObject([
      {
        name: "chosen",
        state: "quarantined",
        reason: "3 failures in a row, the last a bad_row",
        failures: { bad_row: 3 },
      },
      { name: "spare", type: "least-loaded", state: "deciding", failures: {} },
    ]);
  });

  it("is quarantined in all pools at once", () => {
    const router = routerOf(liar, loadPolicy("sticky"), ["m", "n"]);
    decisions(router, 2);
    expect(decisions(router, 1, "n")).toEqual(["w2 chosen fallback"]);
    expect(decisions(router, 1, "m")).toEqual(["w0 spare place"]);
    expect(decisions(router, 1, "n")).toEqual(["w1 spare place"]);
  });

  it("gives way to the built-in rule where there is no fallback, and is not asked any more (G3)", () => {
    const router = routerOf(liar);
    expect(decisions(router, 6).map((decision) => decision.split(" ")[0])).toEqual([
      "w0",
      "w1",
      "w2",
      "w0",
      "w1",
      "w2",
    ]);
    expect(router.status().policies[0]!.failures).toEqual({ bad_row: 3 });
    expect(router.acquire({ model: "m" })).toMatchObject({ reason: "fallback", failure: undefined });
  });

  it("gives way to the built-in rule where the fallback fails, too", () => {
    const router = routerOf(liar, liar);
    decisions(router, 9);
    expect(router.status().policies).toMatchObject([
      { state: "quarantined", failures: { bad_row: 3 } },
      { state: "quarantined", failures: { bad_row: 3 } },
    ]);
    expect(router.acquire({ model: "m" }).policy).toBe("spare");
  });

  it("keeps bindings and counts", () => {
    const router = routerOf(liar, loadPolicy("sticky"));
    const bound = router.acquire({ model: "m", key: "s" });
    bound.commit();
    decisions(router, 3);
    expect(router.acquire({ model: "m", key: "s" })).toMatchObject({
      worker: { id: "w0" },
      reason: "keep",
      policy: "spare",
    });
    expect(router.status().workers.reduce((sum, { active_requests }) => sum + active_requests, 0)).toBe(5);
  });

  it("stays quarantined when its pool grows into a fresh instance", () => {
    const router = routerOf(liar, loadPolicy("least-loaded"));
    decisions(router, 3);
    for (let i = 0; i < 100; i++) router.addWorker({ id: `x${i}`, models: ["m"] });
    expect(decisions(router, 1)).toEqual(["x0 spare place"]);
  });
});

it("a policy that stumbles once is asked again", () => {
  const router = routerOf(stumbler);
  expect(decisions(router, 1)).toEqual(["w0 chosen fallback"]);
  router.addWorker({ id: "w3", models: ["m"] });
  expect(decisions(router, 1)).toEqual(["w0 chosen place"]);
  expect(router.status().policies).toMatchObject([{ state: "deciding", failures: { trap: 1 } }]);
});
