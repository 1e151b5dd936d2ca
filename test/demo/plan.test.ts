// The plan: what is cut and capped, how everything is scaled, and what an endless cache would find.
import { describe, expect, it } from "vitest";
import { generateTrace } from "./generator.js";
import { makePlan, type PlanOptions } from "./plan.js";
import type { BlockRun, TraceSession } from "./trace-file.js";

const OPTIONS: PlanOptions = {
  ...{ scale: 16, speed: 10, maxThink: 30, maxTurns: 9, workers: 2, concurrency: 4 },
  ...{ kvTokens: 6400, blockSize: 64, maxNumSeqs: 4, prefillRate: 8000, tpot: 20 },
};

function session(thinks: (number | null)[], h: (index: number) => BlockRun[]): TraceSession {
  const turns = thinks.map((think, index) => {
    const tokens = h(index).reduce((sum, [, count]) => sum + count * 64, 0);
    return { t: index, in: tokens, out: 160, think, h: h(index) };
  });
  return { session_id: "s", group: "g", parent: null, kind: "main", start_s: 0, block: 64, turns };
}

describe("makePlan", () => {
  it("caps think times, then speeds them up; the first turn waits for nothing", () => {
    const plan = makePlan([session([99, 20, null, 31, 30], () => [[1, 2]])], OPTIONS);
    expect(plan.sessions[0].turns.map(({ thinkMs }) => thinkMs)).toEqual([0, 2000, 0, 3000, 3000]);
    expect(plan).toMatchObject({ turns: 5, thinks: 4, thinksCapped: 1 });
  });

  it("cuts sessions to the turns asked for and counts the rest", () => {
    const plan = makePlan([session([0, 0, 50], () => [[1, 2]])], { ...OPTIONS, maxTurns: 2 });
    expect(plan).toMatchObject({ turns: 2, turnsLeftOut: 1, thinks: 1, thinksCapped: 0 });
  });

  it("scales tokens by the one factor and times by the other", () => {
    const plan = makePlan([session([0], () => [[1, 2]])], OPTIONS);
    expect(plan.sessions[0].turns[0].maxTokens).toBe(10);
    expect(plan.promptTokens).toBe(8);
    const worker = { kvBlocks: 100, blockSize: 4, maxNumSeqs: 4, prefillRate: 5000, tpotMs: 32 };
    expect(plan.worker).toEqual(worker);
  });

  it("finds in an endless cache every block that came before, save the one that holds the last token", () => {
    const plan = makePlan([session([0, 0, 0], (index) => [[1, 2 + index]])], OPTIONS);
    expect(plan.promptTokens).toBe(8 + 12 + 16);
    expect(plan.idealCachedTokens).toBe(0 + 8 + 12);
    const again = makePlan([session([0, 0], () => [[1, 2]])], OPTIONS);
    expect(again.idealCachedTokens).toBe(4);
  });

  it("refuses a scale that does not divide a block", () => {
    const trace = generateTrace({ seed: 1, sessions: 1 });
    expect(() => makePlan(trace, { ...OPTIONS, scale: 3, blockSize: 3 })).toThrow(
      'The scale 3 does not divide the 64 tokens of a block of session "group-0/session-0".',
    );
    expect(() => makePlan(trace, { ...OPTIONS, blockSize: 24 })).toThrow(
      "The scale 16 does not divide the 24 tokens of a worker's block.",
    );
  });
});
