import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { COLUMNS, MAX_CAPACITY } from "../../host/abi/frame.js";
import { type AskedDecision, readEntry } from "../../host/decisions/entry.js";
import { inOrder, linesOf } from "../../host/decisions/lines.js";
import { DecisionLog } from "../../host/decisions/log.js";
import { Replay } from "../../host/decisions/replay.js";
import { policyInstance } from "../../host/index.js";
import { CaseError } from "../../host/policy/case.js";
import { directoryOf } from "../fixtures/directory.js";
import { fixture, shipped } from "../routing/fixture.js";
import { optionsOf } from "./history.js";

const ENTRY: AskedDecision = {
  ...{ kind: "decision", run: "0a1b2c3d", n: 1, time: 1, asked: true, model: "", session: null, policy: "p" },
  ...{ instance: 1, call: 0, capacity: 64, workers: ["a", "b"], bound: -1, fields: {} },
  columns: { eligible: [1, 1], active_requests: [0, 0], worker_hash: [7, 9] },
  ...{ answer: 5 << 16, row: 0, reason: "place" },
};

const replayOf = (policy: string) =>
  new Replay({ ...policyInstance({ policy: shipped(policy) }), policy: shipped(policy) });

/** What a stateful policy makes of calls of instances, given as `[instance, call]`: its row and whether all is there. */
function decided(...calls: (readonly [number, number])[]): (readonly [number, boolean])[] {
  const replay = replayOf("round-robin");
  return calls.map(([instance, call]) => {
    const { now, isWhole } = replay.decide({ ...ENTRY, instance, call });
    return [now.row, isWhole];
  });
}

describe("a replay of a policy that remembers", () => {
  it("keeps instances apart", () => {
    expect(decided([1, 0], [2, 0], [1, 1], [2, 1])).toEqual([
      ...[
        [0, true],
        [0, true],
      ],
      ...[
        [1, true],
        [1, true],
      ],
    ]);
  });

  it("says where a call is missing, from there on", () => {
    expect(decided([1, 0], [1, 1], [1, 3], [1, 4]).map(([, isWhole]) => isWhole)).toEqual([
      true,
      true,
      false,
      false,
    ]);
    expect(decided([1, 1], [1, 2]).map(([, isWhole]) => isWhole)).toEqual([false, false]);
    expect(decided([1, 0], [1, 0]).map(([, isWhole]) => isWhole)).toEqual([true, false]);
  });

  it("has so many instances at once, and says so of those that it has to give up", () => {
    const numbers = Array.from({ length: 130 }, (_, i) => i + 1);
    const found = decided(...numbers.map((i) => [i, 0] as const), [3, 1], [1, 1], [130, 1]);
    expect(found.slice(0, 130).every(([row, isWhole]) => row === 0 && isWhole)).toBe(true);
    expect(found.slice(130)).toEqual([
      [1, true],
      [0, false],
      [1, true],
    ]);
  });
});

describe("a replay", () => {
  it.each<[string, Partial<AskedDecision>, boolean]>([
    ["what the log has", {}, true],
    ["another answer", { answer: (5 << 16) | 1 }, false],
    ["no answer", { answer: null }, false],
    ["another row", { row: 1 }, false],
    ["another reason", { reason: "keep" }, false],
    ["a failure", { failure: "trap" }, false],
  ])("tells %s", (_name, change, isSame) => {
    expect(replayOf("round-robin").decide({ ...ENTRY, ...change }).isSame).toBe(isSame);
  });

  it("makes the hash of a worker from its id, where the log does not have it", () => {
    const replay = replayOf("sticky");
    const { worker_hash: _, ...columns } = ENTRY.columns;
    replay.decide({ ...ENTRY, columns });
    expect([...replay.missing]).toEqual(["seed"]);
  });

  it.each<[string, Partial<AskedDecision>]>([
    ["a bound row that is none", { bound: 2 }],
    ["columns of different lengths", { columns: { eligible: [1], active_requests: [0, 0] } }],
    ["no loads", { columns: { eligible: [1, 1] } }],
    ["no word of who is eligible", { columns: { active_requests: [0, 0] } }],
    ["more rows than its capacity", { capacity: 1 }],
    ["a seed that is none", { fields: { seed: 7 } }],
  ])("refuses a decision with %s", (_name, change) => {
    expect(() => replayOf("random").decide({ ...ENTRY, ...change })).toThrow(CaseError);
  });
});

describe("a line of a log", () => {
  it.each<[string, object, string | undefined]>([
    ["as it is", {}, undefined],
    ["with keys that are not known", { more: 1 }, undefined],
    ["of no process", { run: 7 }, "run"],
    ["of a process that is none", { run: "0a1b2c3" }, "run"],
    ["of a process with a long name", { run: "0a1b2c3d".repeat(1_000) }, "run"],
    ["without a number", { n: undefined }, "n"],
    ["that does not say who was asked", { asked: undefined }, "asked"],
    ["of an instance that is none", { instance: 0 }, "instance"],
    ["with a capacity that is none", { capacity: 1e9 }, "capacity"],
    ["with workers that are no names", { workers: [1] }, "workers"],
    ["with columns that are none", { columns: [] }, "columns"],
    ["with an answer that is none", { answer: 0.5 }, "answer"],
    ["with a failure that is none", { failure: "bad mood" }, "failure"],
    ["with a reason longer than any", { reason: "r".repeat(1_001) }, "reason"],
    ["with parameters that are none", { parameters: ["1"] }, "parameters"],
    ["that asked nobody", { asked: false, columns: undefined }, undefined],
  ])("%s", (_name, change, wrong) => {
    const entry = readEntry(JSON.stringify({ ...ENTRY, ...change }));
    if (wrong === undefined) expect(entry).toMatchObject({ kind: "decision", n: 1 });
    else expect(entry).toBe(`its "${wrong}" is missing or not of its kind`);
  });

  const nested = (levels: number, end = "]".repeat(levels)) => `{"more":${"[".repeat(levels)}${end}}`;

  it.each([
    ["in lists that do not end", nested(2 ** 23, "")],
    ["in lists", nested(2 ** 20)],
    ["in mappings", `${'{"a":'.repeat(2 ** 20)}1${"}".repeat(2 ** 20)}`],
    ["a level deeper than it may be", nested(32)],
  ])("is not taken up where it is nested %s", (_name, text) => {
    expect(readEntry(text)).toBe("it is nested in more than 32 levels");
  });

  it("may be nested in some levels, and have any number of brackets in its names", () => {
    expect(readEntry(nested(31))).toBe('its "kind" is neither "decision" nor "outcome"');
    for (const name of ["[".repeat(99), `\\"${"{".repeat(99)}`, `"${"[{".repeat(99)}\\\\`]) {
      const entry = readEntry(JSON.stringify({ ...ENTRY, workers: [name, "b"], model: name }));
      expect(entry).toMatchObject({ workers: [name, "b"], model: name });
    }
  });

  it.each<[string, object, string | undefined]>([
    ["as it is", {}, undefined],
    ["with all that is known", { ms: { first_byte: 1.5 }, tokens: { prompt: 1, cached: 0 } }, undefined],
    ["with a time that is none", { ms: { first_byte: "1" } }, "ms"],
    ["with tokens that are none", { tokens: { prompt: -1 } }, "tokens"],
    ["that does not say whether", { accepted: 1 }, "accepted"],
  ])("about an end, %s", (_name, change, wrong) => {
    const outcome = { kind: "outcome", run: "0a1b2c3d", n: 1, time: 1, outcome: "complete", accepted: true };
    const entry = readEntry(JSON.stringify({ ...outcome, ...change }));
    if (wrong === undefined) expect(entry).toMatchObject({ kind: "outcome" });
    else expect(entry).toBe(`its "${wrong}" is missing or not of its kind`);
  });
});

describe("the files of a log", () => {
  it("are read from the oldest, sets of different names in the order given", () => {
    expect(inOrder(["d/x", "d/x.1", "d/x.10", "y.2", "d/x.9", "y", "x", "x.json"])).toEqual([
      ...["d/x.10", "d/x.9", "d/x.1", "d/x", "y.2", "y", "x", "x.json"],
    ]);
  });

  it("are read line by line, whatever their pieces", async () => {
    const long = "é".repeat(200_000);
    const file = join(directoryOf({ x: `a\r\n\n${long}\nb` }), "x");
    const lines: unknown[] = [];
    for await (const { number, text } of linesOf(file)) lines.push([number, text]);
    expect(lines).toEqual([
      ...[
        [1, "a"],
        [2, ""],
      ],
      ...[
        [3, long],
        [4, "b"],
      ],
    ]);
  });

  it("may have lines as long as those of the largest pool", async () => {
    const directory = directoryOf({});
    const file = join(directory, "small");
    const log = new DecisionLog(optionsOf(file, { columns: "all" }), {
      onError: (error) => expect.fail(error.message),
    });
    // Ids of 128 characters that take two each, in a pool that is a sixteenth of the largest.
    const workers = Array.from({ length: MAX_CAPACITY / 16 }, (_, i) => `${'"'.repeat(124)}${1_000 + i}`);
    const { router } = fixture({
      workers,
      observer: {
        asking: () => {},
        decided: (lease, pool, turn, bound, decider) => {
          // No number takes more room than the least one.
          for (const { name } of COLUMNS)
            if (name !== "eligible") pool.candidates.truth[name].fill(-(2 ** 31));
          log.decided(lease, pool, turn, bound, decider, 0);
        },
      },
    });
    router.acquire({});
    await log.close();
    const line = readFileSync(file, "utf8").trimEnd();
    expect(readEntry(line)).toMatchObject({ workers });
    writeFileSync(join(directory, "large"), `${line.repeat(16)}\n`);
    const lines: (string | null)[] = [];
    for await (const { text } of linesOf(join(directory, "large"))) lines.push(text);
    expect(lines.map((text) => text?.length)).toEqual([16 * line.length]);
    expect(16 * line.length).toBeGreaterThan(5 * 2 ** 20);
  });

  it("may have a line that is too long, and go on behind it", async () => {
    const file = join(directoryOf({ x: `a\n${"x".repeat(8 * 2 ** 20 + 1)}\nb\n` }), "x");
    const lines: unknown[] = [];
    for await (const { number, text } of linesOf(file)) lines.push([number, text]);
    expect(lines).toEqual([
      [1, "a"],
      [2, null],
      [3, "b"],
    ]);
  });
});
