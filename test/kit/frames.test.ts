import { describe, expect, it } from "vitest";
import { READABLE } from "../../host/abi/frame.js";
import { FrameSource } from "../../host/kit/frames.js";
import { CaseRunner } from "../../host/policy/case.js";
import { parseManifestJson } from "../../host/policy/manifest.js";
import { admit } from "../../host/sandbox/admit.js";
import { encodeModule } from "../fixtures/wasm.js";

type Reads = ConstructorParameters<typeof FrameSource>[0];
const manifest = { abi: 1, type: "own", version: "1.0.0", summary: "Row 0.", reads: READABLE };
const draw = (seed: number, count: number, reads = READABLE) => {
  const source = new FrameSource(reads as Reads, seed);
  return Array.from({ length: count }, () => source.next(64));
};

describe("random frames", () => {
  it("are cases that a runner reads, with every field and column", () => {
    const policy = {
      manifest: parseManifestJson(JSON.stringify(manifest), "own.wasm").manifest!,
      admitted: admit(encodeModule()),
    };
    const runner = new CaseRunner(policy, new Float64Array(0), 64);
    for (const one of draw(1, 2_000)) {
      runner.run(JSON.parse(JSON.stringify(one)));
      const named = [
        ...Object.keys(one.request!),
        ...Object.keys(one.columns!),
        "eligible",
        "active_requests",
      ];
      expect(named.sort()).toEqual([...READABLE].sort());
    }
  });

  it("are the same for a seed and others for another", () => {
    expect(draw(7, 50)).toEqual(draw(7, 50));
    expect(draw(7, 50)).not.toEqual(draw(8, 50));
  });

  it("hold ties, extremes, full pools, single rows, every binding and workers out of service", () => {
    const all = draw(3, 2_000, []);
    const some = (what: (one: (typeof all)[0]) => boolean) => all.filter(what).length;
    expect(some(({ loads }) => loads.length === 64)).toBeGreaterThan(50);
    expect(some(({ loads }) => loads.length === 1)).toBeGreaterThan(50);
    expect(some(({ loads }) => loads.includes(2 ** 31 - 1))).toBeGreaterThan(50);
    expect(some(({ loads }) => new Set(loads).size < loads.length)).toBeGreaterThan(500);
    expect(some(({ bound }) => bound === undefined)).toBeGreaterThan(100);
    expect(some(({ bound, loads }) => bound === loads.length - 1)).toBeGreaterThan(100);
    expect(some(({ eligible, bound }) => bound !== undefined && eligible?.[bound] === 0)).toBeGreaterThan(
      100,
    );
    expect(some(({ eligible }) => eligible?.filter(Boolean).length === 1)).toBeGreaterThan(50);
    expect(some(({ request, columns }) => request !== undefined || columns !== undefined)).toBe(0);
  });
});
