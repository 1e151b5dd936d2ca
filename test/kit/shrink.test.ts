import { describe, expect, it } from "vitest";
import { type FrameCase, FrameSource } from "../../host/kit/frames.js";
import { shrink } from "../../host/kit/shrink.js";

const large: FrameCase = {
  loads: Array.from({ length: 60 }, (_, row) => row * 1_000),
  eligible: Array.from({ length: 60 }, (_, row) => Number(row % 7 > 0)),
  bound: 40,
  request: { now: 12_345, seed: "0xabc", session_requests: 9 },
  columns: { weight: Array(60).fill(100), slots: Array(60).fill(8) },
};

describe("shrink", () => {
  it("keeps what is needed and nothing else", () => {
    expect(shrink([large], (cases) => cases.at(-1)!.loads.some((load) => load >= 20_123))).toEqual([
      { loads: [20_123], request: { seed: "0x0" } },
    ]);
    expect(shrink([large], ([one]) => (one!.bound ?? -1) > 2)).toEqual([
      { loads: [0, 0, 0, 0], bound: 3, request: { seed: "0x0" } },
    ]);
    expect(shrink([large], ([one]) => one!.eligible?.[one!.bound ?? 0] === 0)).toEqual([
      expect.objectContaining({ loads: [0], eligible: [0] }),
    ]);
    expect(shrink([large], ([one]) => Number(one!.request?.session_requests) >= 5)).toEqual([
      { loads: [0], request: { seed: "0x0", session_requests: 5 } },
    ]);
  });

  it("keeps the cases before the last that lead there, and no others", () => {
    const source = new FrameSource([], 1);
    const history = Array.from({ length: 100 }, () => source.next(64));
    const found = shrink(history, (cases) => {
      return cases.slice(0, -1).filter(({ loads }) => loads.length >= 3).length >= 2;
    });
    expect(found).toEqual([{ loads: [0, 0, 0] }, { loads: [0, 0, 0] }, { loads: [0] }]);
  });

  it("answers with something that still shows it, however often that is said", () => {
    let asked = 0;
    const found = shrink([large], ([one]) => ++asked < 50 && one!.loads.length > 0);
    expect(found[0]!.loads.length).toBeGreaterThan(0);
    expect(shrink([large], () => false)).toEqual([large]);
  });
});
