// What the router fills of the frame, as a policy sees it.
import { beforeAll, describe, expect, it } from "vitest";
import { FILLED } from "../../host/policy/filled.js";
import type { Program } from "../../host/policy/live.js";
import { SeedGenerator } from "../../host/policy/random.js";
import { hashSession, hashWorker } from "../../host/routing/hash.js";
import type { AcquireRequest } from "../../host/routing/requests.js";
import { Router } from "../../host/routing/router.js";
import { NO_REPORT } from "../../host/routing/worker.js";
import { admit } from "../../host/sandbox/admit.js";
import { compileAssembly } from "../fixtures/assembly.js";

/** In the order of the switch below. */
const READERS: Program["manifest"]["reads"] = [
  "now",
  "seed",
  "session",
  "session_requests",
  "bound_sessions",
  "weight",
  "worker_hash",
  "slots",
  "kv_used",
  "queue_depth",
  "kv_blocks",
  "block_tokens",
  "eligible",
  "active_requests",
];

// Its k-th answer tells byte k of the value that parameter 0 names, in row parameter 1, as reason 256 + byte.
const PROBE = `
import * as sdk from "../../../assembly/sdk";
export { init } from "../../../assembly/sdk";
let calls: i32 = 0;
function value(what: i32, row: i32): u64 {
  switch (what) {
    case 0: return reinterpret<u64>(sdk.now());
    case 1: return sdk.seed();
    case 2: return sdk.session();
    case 3: return sdk.sessionRequests();
    case 4: return sdk.boundSessions(row);
    case 5: return sdk.weight(row);
    case 6: return sdk.workerHash(row);
    case 7: return sdk.slots(row);
    case 8: return sdk.kvUsed(row);
    case 9: return sdk.queueDepth(row);
    case 10: return sdk.kvBlocks(row);
    case 11: return sdk.blockTokens();
    case 12: return sdk.isEligible(row) ? 1 : 0;
    default: return sdk.activeRequests(row);
  }
}
export function select(n: i32, bound: i32): i32 {
  const shift = <u64>((calls++ & 7) << 3);
  const told = value(<i32>sdk.param(0), <i32>sdk.param(1)) >> shift;
  return sdk.answer(bound < 0 ? 0 : bound, 256 + <i32>(told & 255));
}`;

let module: ReturnType<typeof admit>;
beforeAll(async () => {
  module = admit(await compileAssembly({ text: PROBE }));
});

const workers = [
  { id: "w0", weight: 100, slots: 0 },
  { id: "w1", weight: 50, slots: 256 },
];

function probe(what: string, row = 0, reads: Program["manifest"]["reads"] = READERS.slice(0, 12)): Router {
  const manifest = {
    type: "probe",
    reads,
    reasons: new Map(Array.from({ length: 256 }, (_, byte) => [256 + byte, `byte_${byte}`] as const)),
  };
  return new Router({
    instance: {
      name: "probe",
      policy: { manifest, admitted: module },
      parameters: Float64Array.of(READERS.indexOf(what as never), row),
    },
    workers,
    clock: () => 1234.5,
    seed: 42,
  });
}

/** Eight decisions of one request, put together to the 64-bit value that the policy saw. */
function told(router: Router, request: AcquireRequest = {}): bigint {
  let value = 0n;
  for (let byte = 0n; byte < 8n; byte++) {
    const lease = router.acquire(request);
    lease.release();
    value |= BigInt(lease.reason.slice("byte_".length)) << (byte * 8n);
  }
  return BigInt.asIntN(64, value);
}

describe("the router fills", () => {
  it("just what config accepts under `reads`", () => {
    expect([...FILLED].sort()).toEqual([...READERS].sort());
  });

  it("now", () => {
    const bits = new BigInt64Array(Float64Array.of(1234.5).buffer)[0];
    expect(told(probe("now"))).toBe(bits);
  });

  it("seed, with fresh bits for every decision", () => {
    const random = new SeedGenerator(42);
    const router = probe("seed");
    for (let byte = 0; byte < 16; byte++) {
      random.next();
      const word = byte % 8 < 4 ? random.low : random.high;
      const lease = router.acquire({});
      expect(lease.reason).toBe(`byte_${(word >>> ((byte % 4) * 8)) & 255}`);
    }
  });

  it("session: the hash of model, tenant and key; 0 without a key, and again after one with a key", () => {
    const { low, high } = hashSession("", "t", "k");
    const router = probe("session");
    expect(told(router, { key: "k", tenant: "t" })).toBe((BigInt(high) << 32n) | BigInt(low >>> 0));
    expect(told(router)).toBe(0n);
  });

  it("session_requests: those of the binding on the bound worker, this one not counted", () => {
    const router = probe("session_requests");
    const held = [
      router.acquire({ key: "k" }),
      router.acquire({ key: "k" }),
      router.acquire({ key: "other" }),
    ];
    for (let i = 3; i < 8; i++) router.acquire({}).release();
    expect(told(router, { key: "k" })).toBe(2n);
    held[1]!.release();
    expect(told(router, { key: "k" })).toBe(1n);
    expect(told(router)).toBe(0n);
  });

  it("bound_sessions", () => {
    const router = probe("bound_sessions");
    expect(told(router)).toBe(0n);
    for (const key of ["a", "b", "c"]) {
      const lease = router.acquire({ key });
      lease.commit();
      lease.release();
    }
    for (let i = 3; i < 8; i++) router.acquire({}).release();
    expect(told(router)).toBe(3n);
  });

  it.each([
    ["weight", 0, 100n],
    ["weight", 1, 50n],
    ["slots", 0, 0n],
    ["slots", 1, 256n],
    ["eligible", 1, 1n],
    ["worker_hash", 0, BigInt(hashWorker("w0", () => false))],
    ["worker_hash", 1, BigInt(hashWorker("w1", () => false))],
  ])("%s of row %i", (what, row, expected) => {
    expect(told(probe(what, row))).toBe(expected);
  });

  it("active_requests: before this one", () => {
    const router = probe("active_requests");
    router.acquire({ key: "a" });
    for (let i = 1; i < 8; i++) router.acquire({ key: "a" });
    expect(told(router)).toBe(8n);
  });

  it.each([
    ["kv_used", -1n, 310n],
    ["queue_depth", -1n, 7n],
    ["kv_blocks", 0n, 4_096n],
    ["block_tokens", 0n, 16n],
    ["active_requests", 0n, 4n],
  ])("%s: what engines say, and that it is not known", (what, unknown, expected) => {
    const router = probe(what, 1);
    expect(told(router)).toBe(unknown);
    const [, worker] = router.workers;
    const report = { elsewhere: 4, queueDepth: 7, kvUsed: 310, kvBlocks: 4_096, blockTokens: 16 };
    worker!.report = report;
    expect(told(router)).toBe(expected);
    // A larger pool has a fresh instance, which is shown the same.
    for (let i = 0; i < 70; i++) router.addWorker({ id: `x${i}` });
    expect(told(router)).toBe(expected);
    worker!.report = NO_REPORT;
    expect(told(router)).toBe(unknown);
  });

  it("block_tokens: of engines with several sizes the smallest", () => {
    const router = probe("block_tokens");
    const [first, second] = router.workers;
    first!.report = { ...NO_REPORT, blockTokens: 64 };
    second!.report = { ...NO_REPORT, blockTokens: 16 };
    expect(told(router)).toBe(16n);
    router.removeWorker(second!);
    expect(told(router)).toBe(64n);
  });

  it("nothing that the manifest does not read", () => {
    for (const what of READERS.slice(0, 12)) expect(told(probe(what, 1, []), { key: "k" })).toBe(0n);
  });
});
