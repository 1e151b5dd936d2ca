// The made-up trace: the same for the same seed, in the form of a real one, and with what real ones have.
import { describe, expect, it } from "vitest";
import { generateTrace } from "./generator.js";
import { parseLine, type TraceSession } from "./trace-file.js";

const trace = generateTrace({ seed: 1, sessions: 60 });

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

describe("generateTrace", () => {
  it("depends on the seed alone", () => {
    expect(generateTrace({ seed: 1, sessions: 60 })).toEqual(trace);
    expect(generateTrace({ seed: 2, sessions: 60 })).not.toEqual(trace);
  });

  it.each([1, 2, 3])("makes sessions in the trace's form, as many as asked for (seed %i)", (seed) => {
    const made = generateTrace({ seed, sessions: 100 });
    const read = made.map((session, index) => parseLine(JSON.stringify(session), `line ${index + 1}`));
    expect(read).toEqual(made);
    expect(new Set(made.map(({ session_id }) => session_id)).size).toBe(100);
  });

  it("starts the main sessions of a group with the same blocks", () => {
    const first = new Map<string, unknown>();
    for (const { group, parent, turns } of trace) {
      if (parent !== null) continue;
      if (!first.has(group)) first.set(group, turns[0].h[0]);
      expect(turns[0].h[0]).toEqual(first.get(group));
    }
    expect(first.size).toBeGreaterThan(1);
  });

  it("has sub-agents, each in the group of a parent that comes before it", () => {
    const before = new Map<string, TraceSession>();
    const agents = trace.filter((session) => {
      if (session.parent !== null) expect(before.get(session.parent)?.group).toBe(session.group);
      before.set(session.session_id, session);
      return session.parent !== null;
    });
    expect(agents.length).toBeGreaterThan(0);
    expect(agents.length).toBeLessThan(trace.length / 2);
  });

  it("grows a session's prefix from turn to turn, and breaks it now and then", () => {
    const pairs = trace.flatMap(({ turns }) => turns.slice(1).map((turn, index) => [turns[index], turn]));
    const grown = pairs.filter(([before, turn]) => {
      return JSON.stringify(turn.h.slice(0, before.h.length)) === JSON.stringify(before.h);
    });
    expect(grown.length).toBeGreaterThan(pairs.length * 0.9);
    expect(grown.length).toBeLessThan(pairs.length);
    expect(grown.every(([before, turn]) => turn.in > before.in - 64)).toBe(true);
  });

  it("spreads think times over orders of magnitude", () => {
    const thinks = generateTrace({ seed: 1, sessions: 500 }).flatMap(({ turns }) =>
      turns.slice(1).map(({ think }) => think!),
    );
    expect(median(thinks)).toBeGreaterThan(7);
    expect(median(thinks)).toBeLessThan(14);
    expect(thinks.filter((think) => think > 163).length / thinks.length).toBeCloseTo(0.1, 1);
  });
});
