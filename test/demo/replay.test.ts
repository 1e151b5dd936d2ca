// Replays through real processes: the numbers must come out, and nothing may be left behind.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { directoryOf } from "../fixtures/directory.js";
import { makePlan, type PlanOptions, sumOf } from "./plan.js";
import { choosePolicy } from "./policies.js";
import { type Outcome, replay } from "./replay.js";
import { formatHead, formatOutcomes } from "./report.js";
import { readTrace, type TraceSession } from "./trace-file.js";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const TIMEOUT = 300_000;
const POLL = { timeout: 60_000, interval: 100 };
const OPTIONS: PlanOptions = {
  ...{ scale: 16, speed: 10_000, maxThink: 60, maxTurns: 5, workers: 2, concurrency: 4 },
  ...{ kvTokens: 1_000_000, blockSize: 64, maxNumSeqs: 8, prefillRate: 10_000, tpot: 20 },
};

/** Sessions that share nothing: only its own worker knows a session's prefix. */
function loners(count: number, turns: number): TraceSession[] {
  return Array.from({ length: count }, (_, number) => ({
    ...{ session_id: `s${number}`, group: `g${number}`, parent: null, kind: "main", start_s: 0, block: 64 },
    turns: Array.from({ length: turns }, (_, index) => {
      const blocks = 20 + 5 * index;
      return { t: index, in: blocks * 64 + 20, out: 100, think: 0, h: [[1, blocks]] as const };
    }),
  }));
}

async function run(trace: TraceSession[], type: string, options: Partial<PlanOptions> = {}) {
  const plan = makePlan(trace, { ...OPTIONS, ...options });
  return { plan, outcome: await replay(plan, choosePolicy(type, 4, 2)) };
}

function servedBy({ workers }: Outcome): number {
  return sumOf([...workers.values()], ({ requests }) => requests);
}

const children: ChildProcess[] = [];

afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});

function demo(options: readonly string[], directory: string) {
  const command = ["--import", "tsx", "test/demo/trace.ts", ...options];
  const env = { ...process.env, TMPDIR: directory };
  const child = spawn(process.execPath, command, { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const output = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => {
    output.stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output.stderr += chunk;
  });
  return { child, output, exit: once(child, "close") as Promise<[number | null, string | null]> };
}

/** What a replay leaves in its temporary directory; the loader keeps a cache of its own there. */
function leftBehind(directory: string): string[] {
  return readdirSync(directory).filter((name) => name.startsWith("hawser-replay-"));
}

describe("replay", { timeout: TIMEOUT }, () => {
  it("keeps sessions on their workers under sticky, and so finds all that an endless cache would", async () => {
    const { plan, outcome } = await run(loners(8, 5), "sticky");
    expect(outcome.failures).toEqual([]);
    expect(outcome).toMatchObject({ turns: 40, moved: 0, kept: 32, broken: 0, evictedTokens: 0 });
    expect(outcome.promptTokens).toBe(plan.promptTokens);
    expect(outcome.cachedTokens).toBe(plan.idealCachedTokens);
    expect(servedBy(outcome)).toBe(40);
    expect(sumOf([...outcome.workers.values()], ({ promptTokens }) => promptTokens)).toBe(plan.promptTokens);
  });

  it("loses cached tokens under least-loaded, which moves sessions", async () => {
    // One session at a time: both workers are idle at every turn, so each turn is a toss-up.
    const { plan, outcome } = await run(loners(8, 5), "least-loaded", { concurrency: 1 });
    expect(outcome.failures).toEqual([]);
    expect(outcome.moved).toBeGreaterThan(0);
    expect(outcome.broken).toBe(outcome.moved);
    expect(outcome.kept + outcome.broken).toBe(32);
    expect(outcome.cachedTokens).toBeLessThan(plan.idealCachedTokens);
    expect(outcome.evictedTokens).toBe(0);
  });

  it("counts what was evicted", async () => {
    // A pool of 10 blocks, prompts of 20 and 25: what was computed beyond the pool is gone by the second turn.
    const { plan, outcome } = await run(loners(1, 2), "sticky", { kvTokens: 640 });
    expect(plan.idealCachedTokens).toBe(80);
    expect(outcome).toMatchObject({ turns: 2, cachedTokens: 40, evictedTokens: 40 });
  });

  it("starts every policy with cold caches", async () => {
    const first = await run(loners(2, 1), "sticky");
    const second = await run(loners(2, 1), "sticky");
    expect([first.outcome.cachedTokens, second.outcome.cachedTokens]).toEqual([0, 0]);
  });

  it("says why a process does not start", async () => {
    const wrong = { type: "sticky", parameters: { ties: "none" } };
    await expect(replay(makePlan(loners(1, 1), OPTIONS), wrong)).rejects.toThrow(
      /^"hawser serve" did not start: .*"none"/s,
    );
    await expect(run(loners(1, 1), "sticky", { maxNumSeqs: 0 })).rejects.toThrow(
      /^"hawser worker" did not start: .*65536/s,
    );
  });
});

describe("npm run demo:trace", { timeout: TIMEOUT }, () => {
  it("prints a table with a row per policy and exits with 0", async () => {
    const directory = directoryOf({});
    const { output, exit } = demo(
      ["--sessions=6", "--max-turns=3", "--workers=2", "--speed=2000", "--policies=sticky,least-loaded"],
      directory,
    );
    expect(await exit).toEqual([0, null]);
    expect(output.stderr).toBe("");
    const lines = output.stdout.split("\n");
    expect(lines[0]).toMatch(/^Replayed: 6 sessions of a trace made from the seed 1, .* turns/);
    expect(output.stdout).toMatch(/^Think time capped at 60 s, \d+ of \d+ turns/m);
    const table = lines.filter((line) => /^(policy|sticky|least-loaded|ideal) /.test(line));
    expect(table.map((line) => line.split(" ")[0])).toEqual(["policy", "sticky", "least-loaded", "ideal"]);
    expect(table[0]).toMatch(/turns +failed +hit rate +evicted +moved +kept +broken +TTFT p50 +p90 +wall/);
    for (const line of table.slice(1, 3)) expect(line).toHaveLength(table[0].length);
    const [, turns, failed] = table[1].split(/ +/);
    expect([Number(turns), failed]).toEqual([expect.any(Number), "0"]);
    expect(table[1]).toMatch(/^sticky +\d+ +0 +\d+\.\d % +\d+\.\d % +0 /);
    expect(leftBehind(directory)).toEqual([]);
  });

  it("counts and prints failed turns, goes on, and exits with 1", async () => {
    const [session] = loners(1, 2);
    // More than a worker takes.
    const large = { ...session.turns[0], in: 17_000 * 64, h: [[1, 17_000]] };
    const line = JSON.stringify({ ...session, turns: [large, session.turns[1]] });
    const directory = directoryOf({ "large.jsonl": line });
    const file = join(directory, "large.jsonl");
    const options = ["--scale=1", "--workers=1", "--speed=2000", "--policies=sticky"];
    const { output, exit } = demo([file, ...options], directory);
    expect(await exit).toEqual([1, null]);
    expect(output.stdout).toMatch(/^sticky +1 +1 /m);
    expect(output.stdout).toMatch(/^Failed under sticky:\n {2}s0, turn 1: status 400: .*1048575/m);
  });

  it.each([
    ["a broken trace", ["broken.jsonl"], 'broken.jsonl, line 1: a JSON object is needed, found "{".'],
    ["an empty trace", ["empty.jsonl"], "empty.jsonl has no session."],
    [
      "an unknown policy",
      ["--sessions=1", "--workers=1", "--policies=none-such"],
      'There is no policy of the type "none-such"; there are affinity-break-margin, ',
    ],
    ["a wrong option", ["--workers=0"], "It must be an integer from 1."],
  ])("exits with 1 for %s", async (_, options, message) => {
    const directory = directoryOf({ "broken.jsonl": "{\n", "empty.jsonl": "" });
    const named = options.map((option) => (option.endsWith(".jsonl") ? join(directory, option) : option));
    const { output, exit } = demo(named, directory);
    expect(await exit).toEqual([1, null]);
    expect(output.stderr).toContain(message);
    expect(leftBehind(directory)).toEqual([]);
  });

  it.runIf(process.platform === "linux").each(["SIGINT", "SIGTERM"] as const)(
    "takes its children along on %s",
    async (signal) => {
      const directory = directoryOf({});
      // So slow that only the signal ends it.
      const { child, exit } = demo(["--workers=2", "--speed=0.01"], directory);
      const running = () => childrenOf(child.pid!).filter(isHawser);
      await expect.poll(() => running().length, POLL).toBe(3);
      const pids = running();
      child.kill(signal);
      expect(await exit).toEqual([signal === "SIGINT" ? 130 : 143, null]);
      await expect.poll(() => pids.filter(isHawser), POLL).toEqual([]);
      expect(leftBehind(directory)).toEqual([]);
    },
  );
});

function childrenOf(parent: number): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => readProcess(pid, "status").includes(`\nPPid:\t${parent}\n`));
}

function isHawser(pid: number): boolean {
  return readProcess(pid, "cmdline").includes("build/host/cli/main.js");
}

/** A file of /proc; empty for a process that is gone. */
function readProcess(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}

const traces = process.env.HAWSER_TRACES;

describe.skipIf(!traces)("a real trace (needs HAWSER_TRACES)", { timeout: TIMEOUT }, () => {
  it("replays the first sessions of claude-code-sessions.jsonl from HAWSER_TRACES", async () => {
    const sessions: TraceSession[] = [];
    for await (const session of readTrace(join(traces!, "claude-code-sessions.jsonl"))) {
      if (sessions.push(session) === 6) break;
    }
    const options = { scale: 64, maxTurns: 4, speed: 1000 };
    const { plan, outcome } = await run(sessions, "sticky", options);
    expect(outcome.failures).toEqual([]);
    expect(outcome).toMatchObject({ turns: plan.turns, promptTokens: plan.promptTokens, moved: 0 });
    expect(outcome.cachedTokens).toBeGreaterThan(0);
    expect(`${formatHead(plan, "x")}${formatOutcomes(plan, [outcome])}`).toMatch(/^sticky +22 +0 /m);
  });

  it("reads all of claude-code-sessions.jsonl from HAWSER_TRACES", async () => {
    let count = 0;
    for await (const { turns } of readTrace(join(traces!, "claude-code-sessions.jsonl"))) {
      expect(turns.length).toBeGreaterThan(0);
      count++;
    }
    expect(count).toBeGreaterThan(300);
  });
});
