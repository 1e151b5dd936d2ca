// Reading a trace: sessions in order, and one sentence with its line number for what is broken.
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { directoryOf } from "../fixtures/directory.js";
import { readTrace, type TraceSession } from "./trace-file.js";

const TURN = { t: 0, in: 130, out: 5, think: 0, api: 1.5, stop: "end_turn", h: [[1, 2]] };

function session(id: string, changes: object = {}): string {
  const fields = {
    session_id: id,
    group: "g",
    parent: null,
    kind: "main",
    start_s: 0,
    block: 64,
    turns: [TURN],
  };
  return JSON.stringify({ ...fields, ...changes });
}

function turn(changes: object): string {
  return session("b", { turns: [TURN, { ...TURN, ...changes }] });
}

async function read(...lines: string[]): Promise<TraceSession[]> {
  const file = join(directoryOf({ "trace.jsonl": lines.map((line) => `${line}\n`).join("") }), "trace.jsonl");
  const sessions: TraceSession[] = [];
  for await (const one of readTrace(file)) sessions.push(one);
  return sessions;
}

describe("readTrace", () => {
  it("gives the sessions in the file's order, with or without fields it does not know", async () => {
    const turns = [TURN, { ...TURN, think: null, out: 0, h: [[7, 1], [0, 1]] }]; // biome-ignore format: one line
    const sessions = await read(session("b"), session("a", { parent: "b", extra: 1, turns }));
    expect(sessions.map(({ session_id }) => session_id)).toEqual(["b", "a"]);
    expect(sessions[1]).toMatchObject({ parent: "b", turns });
  });

  it("leaves unread what nobody asks for", async () => {
    const file = join(directoryOf({ "trace.jsonl": `${session("a")}\nbroken\n` }), "trace.jsonl");
    for await (const { session_id } of readTrace(file)) {
      expect(session_id).toBe("a");
      break;
    }
  });

  it("says so when there is no such file", async () => {
    const file = join(directoryOf({}), "none.jsonl");
    await expect(readTrace(file).next()).rejects.toThrow(`${file} cannot be read: ENOENT`);
  });

  it.each([
    ["{", 'a JSON object is needed, found "{".'],
    ["", 'a JSON object is needed, found "".'],
    ["[1]", "a JSON object is needed, found [1]."],
    [session("a"), 'session_id "a" is there twice.'],
    [session("with blank"), "session_id must be a string of 1 to 256 printable ASCII"],
    [session("b", { group: "" }), 'group must be a string that is not empty, found "".'],
    [session("b", { group: undefined }), "group must be a string that is not empty, found nothing."],
    [session("b", { parent: 5 }), "parent must be the id of a session or null, found 5."],
    [session("b", { kind: null }), "kind must be a string that is not empty, found null."],
    [session("b", { start_s: -1 }), "start_s must be a number from 0, found -1."],
    [session("b", { block: 0 }), "block must be a whole number from 1, found 0."],
    [session("b", { turns: [] }), "turns must be a list of at least one turn, found []."],
    [session("b", { turns: [3] }), "turns[0] must be a JSON object, found 3."],
    [turn({ t: "0" }), 'turns[1].t must be a number from 0, found "0".'],
    [turn({ in: 0 }), "turns[1].in must be a whole number from 1, found 0."],
    [turn({ out: 1.5 }), "turns[1].out must be a whole number from 0, found 1.5."],
    [turn({ think: -1 }), "turns[1].think must be a number from 0 or null, found -1."],
    [turn({ h: [[1, 0]] }), "turns[1].h must be a list of pairs [start, count]"],
    [turn({ h: [[1, 2, 3]] }), "turns[1].h must be a list of pairs [start, count]"],
    [turn({ h: [[1, 3]] }), "turns[1].h has 3 blocks, but 130 tokens fill 2."],
  ])("names the line of %s", async (line, message) => {
    const reading = read(session("a"), line, session("c"));
    await expect(reading).rejects.toThrow(/^\S+trace\.jsonl, line 2: /);
    await expect(reading).rejects.toThrow(message);
  });
});
