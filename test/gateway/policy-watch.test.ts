import { pino } from "pino";
import { expect, test } from "vitest";
import { PolicyWatch } from "../../host/gateway/policy-watch.js";
import { loadPolicy } from "../../host/index.js";
import { Router } from "../../host/routing/router.js";
import { policyFromText } from "../fixtures/puppet.js";

const LIAR = `export { init } from "../../../assembly/sdk"; export function select(n: i32, bound: i32): i32 { return 9999; }`;

test("each kind of failure is told once, and so is the quarantine", async () => {
  const router = new Router({
    instance: { name: "mine", policy: await policyFromText(LIAR), parameters: new Float64Array(2) },
    fallback: { name: "spare", policy: loadPolicy("least-loaded"), parameters: new Float64Array(1) },
    workers: [{ id: "a" }],
    clock: () => 0,
    seed: 1,
  });
  const lines: Record<string, unknown>[] = [];
  const watch = new PolicyWatch(
    router,
    pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) }),
  );
  for (let i = 0; i < 6; i++) {
    const lease = router.acquire({});
    if (lease.failure) watch.failed(lease);
  }
  expect(lines).toMatchObject(
    [
      { level: 40, policy: "mine", failure: "bad_row", msg: "a policy failed; the built-in rule answered" },
      { level: 50, policy: "mine", reason: "3 failures in a row, the last a bad_row", msg: /quarantined/ },
    ].map((line) => ({ ...line, msg: expect.stringMatching(line.msg) })),
  );
  expect(lines.length).toBe(2);
});
