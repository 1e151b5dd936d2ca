// A trace is run through the gateway, its decisions are logged, and the log is replayed: the same policy decides the same.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { stringify } from "yaml";
import { MAIN } from "../e2e/fleet.js";
import { directoryOf } from "../fixtures/directory.js";
import { generateTrace } from "./generator.js";
import { makePlan, type PlanOptions } from "./plan.js";
import { choosePolicy } from "./policies.js";
import { replay } from "./replay.js";
import { readTrace, type TraceSession } from "./trace-file.js";

const TIMEOUT = 300_000;
const OPTIONS: PlanOptions = {
  ...{ scale: 16, speed: 10_000, maxThink: 60, maxTurns: 5, workers: 3, concurrency: 8 },
  ...{ kvTokens: 1_000_000, blockSize: 64, maxNumSeqs: 4, prefillRate: 10_000, tpot: 20 },
};
const OTHERS = ["sticky", "least-loaded"];

interface Line {
  readonly kind: "decision" | "outcome";
  readonly n: number;
  readonly worker: string;
  readonly accepted: boolean;
  readonly ms: Record<string, number>;
  readonly tokens: Record<string, number>;
}

/** Runs a trace under a policy, and what `hawser replay` makes of its log. */
async function record(trace: TraceSession[], type: string) {
  const policy = choosePolicy(type, OPTIONS.concurrency, OPTIONS.workers);
  const types = [...new Set([type, ...OTHERS])];
  const instances = types.map((name) =>
    name === type ? { name, ...policy } : { name, type: name, parameters: { ties: "first" } },
  );
  const directory = directoryOf({
    "hawser.yaml": stringify({
      workers: [{ id: "a", url: "http://127.0.0.1:9" }],
      worker_selection: { aggregated: type, instances },
    }),
  });
  const log = join(directory, "decisions.jsonl");
  const outcome = await replay(makePlan(trace, OPTIONS), policy, () => {}, log);
  const lines = readFileSync(log, "utf8").trimEnd().split("\n");
  const replayed = async (name: string, ...flags: string[]) => {
    const args = [MAIN, "replay", log, "-c", join(directory, "hawser.yaml"), "--policy", name, ...flags];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    return stdout;
  };
  return { outcome, lines: lines.map((line) => JSON.parse(line) as Line), replayed };
}

describe("the decision log of a trace", { timeout: TIMEOUT }, () => {
  const trace = generateTrace({ seed: 3, sessions: 12 });

  it.each(["soft-affinity-load-guard", "round-robin"])(
    "replays to the same answers, bit for bit: %s",
    async (type) => {
      const { outcome, lines, replayed } = await record(trace, type);
      expect(outcome.failures).toEqual([]);
      const decisions = lines.filter(({ kind }) => kind === "decision");
      const outcomes = lines.filter(({ kind }) => kind === "outcome");
      expect([decisions.length, outcomes.length]).toEqual([outcome.turns, outcome.turns]);
      expect(outcomes.every(({ accepted }) => accepted)).toBe(true);
      const sum = (name: string) => outcomes.reduce((all, { tokens }) => all + tokens[name]!, 0);
      expect([sum("prompt"), sum("cached")]).toEqual([outcome.promptTokens, outcome.cachedTokens]);
      for (const { ms } of outcomes) expect(ms.first_byte).toBeLessThanOrEqual(ms.total!);

      // It fails where any differs.
      const text = await replayed(type, "--same");
      expect(text).toMatch(new RegExp(`${decisions.length} identical, 0 different`));
      expect(text).toMatch(type === "round-robin" ? /stateful/ : /stateless/);
    },
  );

  it("tells where another policy would have sent it", async () => {
    const { lines, replayed } = await record(trace, "soft-affinity-load-guard");
    const asked = lines.filter(({ kind }) => kind === "decision").length;
    const [summary, ...differences] = (await replayed("least-loaded", "--json"))
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line))
      .reverse();
    expect(differences.length).toBe(summary.different);
    expect(summary.identical + summary.different).toBe(asked);
    // It never keeps a session, so that its reason is another one wherever a session was kept.
    expect(summary.different).toBeGreaterThan(0);
    await expect(replayed("least-loaded", "--same")).rejects.toMatchObject({ code: 1 });
  });
});

const traces = process.env.HAWSER_TRACES;

describe.skipIf(!traces)("a real trace (needs HAWSER_TRACES)", { timeout: TIMEOUT }, () => {
  it("replays to the same answers: the first sessions of claude-code-sessions.jsonl", async () => {
    const sessions: TraceSession[] = [];
    for await (const session of readTrace(join(traces!, "claude-code-sessions.jsonl")))
      if (sessions.push(session) === 16) break;
    const { outcome, replayed } = await record(sessions, "affinity-break-margin");
    expect(outcome.failures).toEqual([]);
    expect(await replayed("affinity-break-margin", "--same")).toMatch(/\d+ identical, 0 different/);
  });
});
