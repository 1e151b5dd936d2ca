// Blocks become words: as many tokens as the scale says, the same for the same block, others for any other.
import { describe, expect, it } from "vitest";
import { tokenize } from "../../host/worker/tokenizer.js";
import { generateTrace } from "./generator.js";
import { promptText, promptWords } from "./prompt.js";
import type { BlockRun, TraceSession } from "./trace-file.js";

function session(group: string, h: BlockRun[], tokens: number, id = "s"): TraceSession {
  const turn = { t: 0, in: tokens, out: 1, think: 0, h };
  const rest = { parent: null, kind: "main", start_s: 0, block: 64 };
  return { session_id: id, group, ...rest, turns: [turn, turn] };
}

describe("promptWords", () => {
  it.each([1, 2, 4, 8, 16, 32, 64])("gives text of exactly in / %i tokens", (scale) => {
    for (const made of generateTrace({ seed: 5, sessions: 3 })) {
      for (const [index, turn] of made.turns.entries()) {
        const words = promptWords(made, index, scale);
        expect(tokenize(promptText(words))).toHaveLength(Math.floor(turn.in / scale));
        expect(words).toHaveLength(Math.floor(turn.in / scale));
      }
    }
  });

  it("gives each word of each block a token of its own", () => {
    const words = promptWords(session("g", [[1, 2000]], 2000 * 64), 0, 16);
    expect(new Set(tokenize(promptText(words))).size).toBe(8000);
  });

  it("gives the same words for the same blocks of a group, whatever session they are in", () => {
    const one = promptWords(session("g", [[1, 3]], 192, "a"), 0, 16);
    const other = promptWords(session("g", [[1, 2], [9, 1]], 192, "b"), 1, 16); // biome-ignore format: one line
    expect(other.slice(0, 8)).toEqual(one.slice(0, 8));
    expect(other.slice(8)).not.toEqual(one.slice(8));
  });

  it("tells equal ids of different groups apart", () => {
    const one = promptWords(session("g", [[1, 3]], 192), 0, 16);
    const other = new Set(promptWords(session("h", [[1, 3]], 192), 0, 16));
    expect(one.some((word) => other.has(word))).toBe(false);
  });

  it("makes what fills no block differ from turn to turn", () => {
    const partial = session("g", [[1, 1]], 64 + 32);
    expect(promptWords(partial, 0, 16)).toHaveLength(6);
    expect(promptWords(partial, 0, 16).slice(4)).not.toEqual(promptWords(partial, 1, 16).slice(4));
  });

  it("never gives an empty prompt", () => {
    expect(promptWords(session("g", [], 3), 0, 16)).toHaveLength(1);
  });
});
