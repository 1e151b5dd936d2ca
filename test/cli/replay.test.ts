// A recorded run, decided anew by the command: what must be identical is, and what differs is what must differ.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CommanderError } from "commander";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { replayCommand } from "../../host/cli/replay.js";
import { type CreateRouterOptions, loadPolicy, policyInstance } from "../../host/index.js";
import { entriesOf, filesOf, type History, record, type Seen } from "../decisions/history.js";
import { compileAssembly } from "../fixtures/assembly.js";
import { directoryOf } from "../fixtures/directory.js";
import { shipped } from "../routing/fixture.js";
import { type Ended, hawser } from "./hawser.js";

type Shipped = readonly [type: string, parameters?: Record<string, number>];

const SHIPPED: readonly Shipped[] = [
  ["affinity-break-margin"],
  ["imbalance-gate"],
  ["least-loaded"],
  ["power-of-two"],
  ["random"],
  ["round-robin"],
  ["soft-affinity-load-guard", { max_active_requests: 1, move_margin: 1 }],
  ["soft-pin-repin", { max_active_requests: 2 }],
  ["sticky"],
];

/** Fails in every way, but never before the three workers of a dry run. */
const MOODY = `
import * as sdk from "../../../assembly/sdk";
export { init } from "../../../assembly/sdk";
export function select(n: i32, bound: i32): i32 {
  const mood = n > 3 ? <i32>(sdk.seed() % 60) : 59;
  if (mood === 0) unreachable();
  if (mood === 1) return sdk.answer(n, 5);
  if (mood === 2) { let i = 0; while (sdk.seed() !== 0) i++; return i; }
  if (mood === 3) return -1;
  if (mood === 4) return sdk.answer(sdk.nthEligible(n, 0), 999);
  if (mood === 5) { for (let row = 0; row < n; row++) if (!sdk.isEligible(row)) return sdk.answer(row, 5); }
  return sdk.answer(sdk.nthEligible(n, 0), sdk.isEligible(bound) ? 3 : 5);
}`;

/** Remembers how often it was asked, and now and then forgets it by a trap. */
const FORGETFUL = `
import * as sdk from "../../../assembly/sdk";
export { init } from "../../../assembly/sdk";
let calls = 0;
export function select(n: i32, bound: i32): i32 {
  calls++;
  if (n > 3 && sdk.seed() % 80 === 0) unreachable();
  let eligible = 0;
  for (let row = 0; row < n; row++) if (sdk.isEligible(row)) eligible++;
  return sdk.answer(sdk.nthEligible(n, calls % eligible), 5);
}`;

/** The first eligible row, whatever the session's. */
const FIRST = `
import * as sdk from "../../../assembly/sdk";
export { init } from "../../../assembly/sdk";
export function select(n: i32, bound: i32): i32 {
  const row = sdk.nthEligible(n, 0);
  return sdk.answer(row, bound < 0 ? 5 : row === bound ? 1 : sdk.isEligible(bound) ? 3 : 4);
}`;

/** Tells by row and reason what all fields and columns are that the host fills. */
const READER = `
import * as sdk from "../../../assembly/sdk";
export { init } from "../../../assembly/sdk";
let sum: u64 = 0;
function take(value: u64): void {
  sum = (sum ^ value) * 0x9e3779b97f4a7c15;
  sum ^= sum >> 29;
}
export function select(n: i32, bound: i32): i32 {
  sum = bound;
  take(reinterpret<u64>(sdk.now()));
  take(sdk.seed());
  take(sdk.session());
  take(sdk.sessionRequests());
  take(sdk.blockTokens());
  let eligible = 0;
  for (let row = 0; row < n; row++) {
    if (sdk.isEligible(row)) eligible++;
    take(sdk.isEligible(row) ? 1 : 0);
    take(sdk.activeRequests(row));
    take(sdk.boundSessions(row));
    take(sdk.weight(row));
    take(sdk.workerHash(row));
    take(sdk.slots(row));
    take(sdk.kvUsed(row));
    take(sdk.queueDepth(row));
    take(sdk.kvBlocks(row));
  }
  return sdk.answer(sdk.nthEligible(n, <i32>((sum >> 33) % eligible)), 256 + <i32>(sum & 255));
}`;
const READ_FIELDS = ["now", "seed", "session", "session_requests", "block_tokens"];
const READ_COLUMNS = [
  ...["bound_sessions", "weight", "worker_hash", "slots", "kv_used", "queue_depth", "kv_blocks"],
];

/** Does not start over 128 rows, which no dry run has. */
const PICKY = `
import * as sdk from "../../../assembly/sdk";
export function init(capacity: i32): i32 { return capacity === 128 ? -1 : sdk.init(capacity); }
export function select(n: i32, bound: i32): i32 { return sdk.answer(sdk.nthEligible(n, 0), 5); }`;

const modules: Record<string, Uint8Array> = {};

beforeAll(async () => {
  for (const [name, text] of Object.entries({
    moody: MOODY,
    forgetful: FORGETFUL,
    first: FIRST,
    reader: READER,
    picky: PICKY,
  }))
    modules[name] = await compileAssembly({ text });
});

const OWN: Readonly<Record<string, object>> = {
  moody: {},
  forgetful: { stateful: true },
  first: {},
  picky: { reads: [] },
  reader: {
    reads: [...READ_FIELDS, ...READ_COLUMNS],
    reasons: Object.fromEntries(Array.from({ length: 256 }, (_, i) => [256 + i, `sum_${i}`])),
  },
};

function manifestOf(type: string): string {
  const common = { abi: 1, type, version: "1.0.0", summary: "For tests.", module: `${type}.wasm` };
  return JSON.stringify({ ...common, reads: ["seed"], ...OWN[type] });
}

const CONFIG = `
workers: [{ id: a, url: http://127.0.0.1:9001 }]
policies: { path: [.] }
worker_selection:
  aggregated: sticky
  instances:
${SHIPPED.map(([type, parameters = {}]) => `    - { name: ${type}, type: ${type}, parameters: ${JSON.stringify(parameters)} }`).join("\n")}
    - { name: guard-8, type: soft-affinity-load-guard, parameters: { max_active_requests: 8 } }
${Object.keys(OWN)
  .map((type) => `    - { name: ${type}, type: ${type} }`)
  .join("\n")}
`;

/** A directory with a config and the modules that are no shipped ones. */
function place(): string {
  const own = Object.keys(OWN);
  return directoryOf({
    "hawser.yaml": CONFIG,
    ...Object.fromEntries(own.map((type) => [`${type}.wasm`, modules[type]!])),
    ...Object.fromEntries(own.map((type) => [`${type}.yaml`, manifestOf(type)])),
  });
}

function instanceOf(directory: string, type: string) {
  const known = SHIPPED.find(([shipped]) => shipped === type);
  const policy = known ? shipped(type) : loadPolicy(join(directory, `${type}.yaml`));
  const parameters = known?.[1];
  return policyInstance({
    policy,
    name: type,
    ...(parameters && { parameters }),
  } satisfies CreateRouterOptions);
}

/** A hex number whose highest bit is another. */
function flipped(hex: string): string {
  return `0x${(BigInt(hex) ^ (1n << 63n)).toString(16)}`;
}

interface Recorded {
  readonly directory: string;
  readonly file: string;
  readonly seen: readonly Seen[];
  readonly asked: readonly Seen[];
}

async function recorded(type: string, more: Partial<History> = {}): Promise<Recorded> {
  const directory = place();
  const file = join(directory, "log", "d.jsonl");
  const history = { file, instance: instanceOf(directory, type), seed: 11, steps: 1_200, ...more };
  const seen = await record(history);
  return { directory, file, seen, asked: seen.filter(({ asked }) => asked) };
}

interface Summary extends Record<string, unknown> {
  readonly asked: number;
  readonly identical: number;
  readonly different: number;
  readonly whole: number;
  readonly wholeDifferent: number;
}

/** Runs the command in this process: most of what a process of its own takes is its start. */
async function inProcess(directory: string, args: readonly string[]): Promise<Ended> {
  let [stdout, stderr] = ["", ""];
  const writes = [
    vi.spyOn(process.stdout, "write").mockImplementation((text) => {
      stdout += text;
      return true;
    }),
    vi.spyOn(process.stderr, "write").mockImplementation((text) => {
      stderr += text;
      return true;
    }),
  ];
  const before = process.cwd();
  process.chdir(directory);
  try {
    await replayCommand().exitOverride().parseAsync(args, { from: "user" });
    return { status: Number(process.exitCode ?? 0), stdout, stderr };
  } catch (error) {
    return { status: (error as CommanderError).exitCode, stdout, stderr };
  } finally {
    process.exitCode = undefined;
    process.chdir(before);
    for (const write of writes) write.mockRestore();
  }
}

function argsOf({ file }: Recorded, policy: string, more: readonly string[]): string[] {
  const files = more.some((arg) => arg.includes("d.jsonl")) ? [] : filesOf(file);
  return [...files, "-c", "hawser.yaml", "--policy", policy, "--json", ...more];
}

function readOut({ status, stdout, stderr }: Ended) {
  const lines = stdout.trimEnd().split("\n");
  const differences = lines.slice(0, -1).map((line) => JSON.parse(line));
  return { status, stderr, differences, summary: JSON.parse(lines.at(-1)!) as Summary };
}

/** The differences and the summary that are printed as JSON. */
async function replay(run: Recorded, policy: string, ...more: string[]) {
  return readOut(await inProcess(run.directory, argsOf(run, policy, more)));
}

/** The same by the built command. */
function replayBuilt(run: Recorded, policy: string, ...more: string[]) {
  return readOut(hawser(run.directory, ["replay", ...argsOf(run, policy, more)]));
}

/** The same for people. */
function shown({ directory, file }: Recorded, policy: string, ...more: string[]): Promise<Ended> {
  return inProcess(directory, [file, "-c", "hawser.yaml", "--policy", policy, ...more]);
}

describe("the same policy over its own log", () => {
  it.each(SHIPPED.map(([type]) => type))(
    "%s decides the same to the byte, over files in any order",
    async (type) => {
      const run = await recorded(type, { options: { maxBytes: 60_000, maxFiles: 1_000 } });
      expect(filesOf(run.file).length).toBeGreaterThan(5);
      const { status, stderr, differences, summary } = await replay(run, type, "--same");
      expect({ status, stderr, differences }).toEqual({ status: 0, stderr: "", differences: [] });
      const { asked, seen } = run;
      expect(asked.length).toBeGreaterThan(500);
      expect(summary).toMatchObject({ decisions: seen.length, asked: asked.length, whole: asked.length });
      expect(summary).toMatchObject({ identical: asked.length, different: 0, missing: [], damaged: 0 });
      expect(new Set(asked.map(({ reason }) => reason)).size).toBeGreaterThan(1);
    },
  );

  it("decides the same in pools that outgrow their capacity, with all columns", async () => {
    const run = await recorded("round-robin", { workers: 64, steps: 300, options: { columns: "all" } });
    const capacities = new Set(entriesOf(run.file).map(({ capacity }) => capacity));
    expect([...capacities].filter(Boolean)).toEqual([64, 128]);
    expect(replayBuilt(run, "round-robin", "--same").status).toBe(0);
  });

  it("is shown every field and column as it was, and would tell if one were another", async () => {
    const run = await recorded("reader");
    expect(new Set(run.asked.map(({ turn }) => turn.sessionRequests)).size).toBeGreaterThan(3);
    const { status, summary } = await replay(run, "reader", "--same");
    expect([status, summary.identical]).toEqual([0, run.asked.length]);
    const lines = readFileSync(run.file, "utf8").trimEnd().split("\n");
    const places = lines.flatMap((line, at) => (line.includes('"asked":true') ? [at] : []));
    const changed = [...READ_FIELDS, ...READ_COLUMNS, "active_requests"].map((name, index) => {
      const at = places[index * 7]!;
      const entry = JSON.parse(lines[at]!);
      const { fields, columns } = entry;
      // The smallest change that there is.
      if (name === "now") fields.now += 2 ** -42;
      else if (typeof fields[name] === "string") fields[name] = flipped(fields[name]);
      else if (name in fields) fields[name]++;
      else columns[name][columns[name].length - 1] ^= 1;
      lines[at] = JSON.stringify(entry);
      return at + 1;
    });
    writeFileSync(run.file, lines.join("\n"));
    expect((await replay(run, "reader")).differences.map(({ line }) => line)).toEqual(changed);
  });

  it("fails the same in every way, up to its quarantine", async () => {
    const run = await recorded("moody", { steps: 3_000 });
    const failures = new Set(run.asked.map(({ failure }) => failure));
    expect(failures).toEqual(
      new Set([undefined, "trap", "fuel", "bad_row", "not_eligible", "bad_reason", "no_choice"]),
    );
    const byRule = run.seen.filter(({ asked, reason }) => !asked && reason === "fallback");
    expect(byRule.length).toBeGreaterThan(10);
    const { status, summary } = await replay(run, "moody", "--same");
    expect(status).toBe(0);
    expect(summary).toMatchObject({ asked: run.asked.length, identical: run.asked.length });
  });

  it("remembers the same, and forgets it at the same traps", async () => {
    const run = await recorded("forgetful", { steps: 1_500 });
    expect(run.asked.filter(({ failure }) => failure === "trap").length).toBeGreaterThan(3);
    const { status, summary } = await replay(run, "forgetful", "--same");
    expect(status).toBe(0);
    expect(summary).toMatchObject({ stateful: true, whole: run.asked.length, different: 0 });
  });

  it("of two instances finds its own", async () => {
    const directory = place();
    const file = join(directory, "d.jsonl");
    const [instance, fallback] = [instanceOf(directory, "moody"), instanceOf(directory, "round-robin")];
    const seen = await record({ file, instance, fallback, seed: 12, steps: 4_000 });
    const run = { directory, file, seen, asked: seen };
    const policies = new Map(entriesOf(file).map(({ n, kind, policy }) => [`${kind} ${n}`, policy]));
    const before = await replay(run, "moody");
    const after = await replay(run, "round-robin");
    const policyOf = ({ n }: { n: number }) => policies.get(`decision ${n}`);
    expect(new Set(before.differences.map(policyOf))).toEqual(new Set(["round-robin"]));
    expect(new Set(after.differences.map(policyOf))).toEqual(new Set(["moody"]));
    expect((before.summary.comparisons as string[]).length).toBe(2);
  });
});

describe("a log that has not all", () => {
  it("says so of a policy that remembers, and counts what is whole apart", async () => {
    const run = await recorded("forgetful", { options: { sample: 0.5 } });
    const logged = run.asked.filter(({ trace }) => trace > 0).length;
    expect(logged).toBeLessThan(run.asked.length - 100);
    const { status, summary } = await replay(run, "forgetful", "--same");
    expect(status).toBe(1);
    expect(summary).toMatchObject({ asked: logged, wholeDifferent: 0 });
    expect(summary.different).toBeGreaterThan(0);
    expect(summary.whole).toBeLessThan(logged);
    const { stdout } = await shown(run, "forgetful", "--limit", "1");
    expect(stdout).toContain("  what the policy could remember is not all in the log\n");
    expect(stdout).toMatch(
      /^what the policy could remember is all in the log for \d+ decisions \(0 different\), not for \d+: .*only the former can be expected to be identical$/m,
    );
  });

  it("is enough for one that remembers nothing", async () => {
    const run = await recorded("power-of-two", { options: { sample: 0.5 } });
    const { status, summary } = await replay(run, "power-of-two", "--same");
    expect(status).toBe(0);
    expect(summary.whole).toBe(summary.asked);
    expect(summary.asked).toBeLessThan(run.asked.length - 100);
  });

  it("begins in the middle where the first files are gone", async () => {
    const run = await recorded("round-robin", { options: { maxBytes: 60_000, maxFiles: 3 } });
    const { summary } = await replay(run, "round-robin");
    expect(summary.asked).toBeGreaterThan(10);
    expect(summary.whole).toBe(0);
  });

  it("names what the policy reads and is not there", async () => {
    const run = await recorded("round-robin");
    const { stderr, summary } = await replay(run, "random");
    expect(summary.missing).toEqual(["seed"]);
    expect(stderr.trimEnd().split("\n").length).toBe(1);
    expect(stderr).toContain("random reads seed, which the log does not hold");
    expect(stderr).toContain("decision_log.columns: all");
    // Random bits are drawn: the same ones each time.
    expect((await replay(run, "random")).summary).toEqual(summary);
    expect(summary.identical).toBeLessThan(run.asked.length);
  });
});

describe("another policy", () => {
  it("differs where it must, and for the reason that it must", async () => {
    const run = await recorded("sticky");
    const isEligible = ({ eligible }: Seen, row: number) => eligible[row] === 1;
    const expected = run.asked.flatMap((seen) => {
      const row = seen.eligible.indexOf(1);
      const { bound } = seen;
      const reason =
        bound < 0 ? "place" : row === bound ? "keep" : isEligible(seen, bound) ? "move_load" : "move_gone";
      if (row === seen.row && reason === seen.reason) return [];
      const at = (place: number) => ({
        worker: seen.workers[place],
        eligible: isEligible(seen, place),
        active_requests: seen.loads[place],
      });
      return {
        n: seen.trace,
        workers: seen.workers.length,
        logged: { ...at(seen.row), row: seen.row, reason: seen.reason, answer: seen.answer },
        now: {
          ...at(row),
          row,
          reason,
          answer: row | (["", "keep", "", "move_load", "move_gone", "place"].indexOf(reason) << 16),
        },
        bound: bound < 0 ? null : at(bound),
      };
    });
    const { status, differences, summary } = await replay(run, "first");
    expect(status).toBe(0);
    expect(expected.length).toBeGreaterThan(100);
    expect(
      differences.map(({ n, workers, logged, now, bound }) => ({ n, workers, logged, now, bound })),
    ).toEqual(expected);
    const changes = new Map<string, number>();
    for (const { logged, now } of expected) {
      const key = `${logged.reason} -> ${now.reason}`;
      changes.set(key, (changes.get(key) ?? 0) + 1);
    }
    const found = (summary.changes as { from: string; to: string; count: number }[]).map(
      ({ from, to, count }) => [`${from} -> ${to}`, count] as const,
    );
    expect(new Map(found)).toEqual(changes);
    expect(found.map(([, count]) => count)).toEqual(found.map(([, count]) => count).sort((a, b) => b - a));
    const stays = (rowOf: (seen: Seen) => number) => ({
      kept: run.asked.filter((seen) => seen.bound >= 0 && rowOf(seen) === seen.bound).length,
      moved: run.asked.filter((seen) => seen.bound >= 0 && rowOf(seen) !== seen.bound).length,
      placed: run.asked.filter((seen) => seen.bound < 0).length,
    });
    expect(summary.logged).toEqual(stays(({ row }) => row));
    expect(summary.now).toEqual(stays(({ eligible }) => eligible.indexOf(1)));
    expect(summary.elsewhere).toBe(expected.filter(({ logged, now }) => logged.row !== now.row).length);
  });

  it("shows how the requests ended on which both agree, and on which they do not", async () => {
    const run = await recorded("sticky");
    const { differences, summary } = await replay(run, "first");
    const differing = new Set(differences.map(({ n }) => n));
    const ended = entriesOf(run.file).filter(({ kind }) => kind === "outcome");
    const asked = new Set(run.asked.map(({ trace }) => trace));
    for (const [name, isHere] of [
      ["agreed", false],
      ["differed", true],
    ] as const) {
      const traces = ended
        .map(({ n }) => n as number)
        .filter((n) => asked.has(n) && differing.has(n) === isHere);
      const sorted = [...traces].sort((a, b) => a - b);
      const median = sorted[Math.ceil(sorted.length / 2) - 1]!;
      const cached = traces.reduce((sum, n) => sum + (n % 2 === 0 ? 80 : 20), 0) / (100 * traces.length);
      const figures = summary[name] as Record<string, number>;
      expect(figures).toMatchObject({ requests: traces.length, accepted: traces.length });
      expect(figures.cachedShare).toBeCloseTo(cached, 9);
      expect(Math.abs(figures.firstByteMedian! / median - 1)).toBeLessThan(0.006);
    }
  });

  it("is shown for people, the first differences alone, and what they come to", async () => {
    const run = await recorded("sticky");
    const { status, stdout, stderr } = await shown(run, "first");
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(
      /^first over decisions of sticky: another module \(sha256 [0-9a-f]{12}, logged [0-9a-f]{12}\), stateless\n/,
    );
    expect(stdout.match(/^ {2}logged {2}/gm)!.length).toBe(20);
    expect(stdout).toMatch(
      /^\S+d\.jsonl:\d+: \d{4}-\d\d-\d\dT[\d:.]+Z, model m-(one|two), (no session|session [0-9a-f]{16})\n {2}logged {2}\S+: \S+, answer \d+\n {2}now {5}\S+: \S+, answer \d+\n {2}loads {3}\S+ \d+( \(not eligible\))?, .*of \d+ workers; (not bound|bound to \S+)\n\n/m,
    );
    expect(stdout).toMatch(
      /^\d+ decisions, \d+ of them a policy's: \d+ identical, \d+ different \(\d+ on another worker\)$/m,
    );
    expect(stdout).toMatch(/^ {2}keep -> move_load +\d+$/m);
    expect(stdout).toMatch(/^ {2}kept +\d+ +\d+$/m);
    expect(stdout).toMatch(/^ {2}tokens from the cache +[\d.]+ % +[\d.]+ %$/m);
    expect((await shown(run, "first", "--limit", "3")).stdout.match(/^ {2}logged {2}/gm)!.length).toBe(3);
    expect((await shown(run, "first", "--same")).status).toBe(1);
  });

  it("is told from the same with other parameters", async () => {
    const run = await recorded("soft-affinity-load-guard");
    const { stdout } = await shown(run, "guard-8", "--limit", "0");
    expect(stdout).toMatch(
      /^guard-8 over decisions of soft-affinity-load-guard: the same module \(sha256 [0-9a-f]{12}\), other parameters \(\[8,2,0\], logged \[1,1,0\]\), stateless\n/,
    );
    expect((await shown(run, "soft-affinity-load-guard")).stdout).toContain(
      ", the same parameters, stateless\n",
    );
    expect((await replay(run, "guard-8")).summary.different).toBeGreaterThan(0);
  });

  it("may be the default one", async () => {
    const run = await recorded("sticky");
    const { stdout } = await shown(run, "default", "--limit", "0");
    expect(stdout).toMatch(/^default over decisions of sticky: another module /);
  });
});

describe("the names of a log that somebody else made", () => {
  /** Commands to a terminal, the end of a line, and a turn of the direction of writing. */
  const EVIL = "\u001b]0;x\u0007\u009b2J\r\n\u2028\u202e\u007f";
  const SHOWN = String.raw`\u001b]0;x\u0007\u009b2J\u000d\u000a\u2028\u202e\u007f`;

  it("do not reach the terminal as they are", async () => {
    const run = await recorded("sticky", { steps: 100 });
    const [first] = readFileSync(run.file, "utf8")
      .split("\n")
      .filter((line) => line.includes('"asked":true'));
    const entry = JSON.parse(first!);
    const evil = (name: string) => `${name}${EVIL}`;
    const workers = entry.workers.map(evil);
    const { length } = "0123456789ab";
    const names = { model: evil("m"), session: evil("s"), policy: evil("p"), reason: evil("r"), workers };
    const told = { ...entry, ...names, sha256: evil("").slice(0, length) };
    writeFileSync(run.file, [told, { ...told, bound: EVIL }].map((line) => JSON.stringify(line)).join("\n"));
    const { status, stdout, stderr } = await shown(run, "first");
    expect(status).toBe(0);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is not to be there.
    for (const text of [stdout, stderr]) expect(text).not.toMatch(/[\0-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]/);
    for (const name of [`model m${SHOWN}`, `session s${SHOWN}`, `of p${SHOWN}`, `: r${SHOWN}, answer`])
      expect(stdout).toContain(name);
    expect(stdout).toContain(`${entry.workers[0]}${SHOWN}`);
    expect(stdout).toContain(`  r${SHOWN} -> place`);
    expect(stdout.split("\n").length).toBeLessThan(20);
    writeFileSync(run.file, JSON.stringify({ kind: EVIL }));
    expect((await shown(run, "first")).stderr).not.toContain("\u001b");
  });

  it("are told by the reason as far as there are not too many", async () => {
    const run = await recorded("sticky", { steps: 100 });
    const line = readFileSync(run.file, "utf8")
      .split("\n")
      .find((line) => line.includes('"asked":true'))!;
    // Seventy reasons, the first once, the last seventy times.
    const reasons = Array.from({ length: 70 }, (_, i) => new Array(i + 1).fill(`reason_${i}`)).flat();
    const changed = reasons.map((reason) => JSON.stringify({ ...JSON.parse(line), reason }));
    writeFileSync(run.file, changed.join("\n"));
    const { summary } = await replay(run, "first", "--limit", "0");
    const changes = summary.changes as { from: string; count: number }[];
    expect(changes.map(({ from, count }) => [from, count])).toEqual(
      Array.from({ length: 50 }, (_, i) => [`reason_${69 - i}`, 70 - i]),
    );
    expect(summary.otherChanges).toBe((20 * 21) / 2);
    const { stdout } = await shown(run, "first", "--limit", "0");
    expect(stdout.match(/^ {2}reason_\d+ -> place +\d+$/gm)!.length).toBe(50);
    expect(stdout).toMatch(/^ {2}other changes +210$/m);
  });
});

describe("what cannot be replayed", () => {
  it("passes over a damaged line with its place", async () => {
    const run = await recorded("sticky", { steps: 200 });
    const lines = readFileSync(run.file, "utf8").trimEnd().split("\n");
    const asked = lines.findIndex((line) => line.includes('"asked":true'));
    const broken = { ...JSON.parse(lines[asked]!), bound: 99 };
    const cut = lines[asked]!.slice(0, 40);
    writeFileSync(run.file, [...lines, cut, JSON.stringify(broken), "{}", "7", ""].join("\n"));
    const { status, stderr, summary } = await replay(run, "sticky");
    expect(status).toBe(0);
    const at = (more: number) => `${run.file}:${lines.length + more}: passed over: `;
    expect(stderr.trimEnd().split("\n")).toEqual([
      `${at(1)}it is no whole JSON text`,
      expect.stringContaining(
        `${run.file}:${lines.length + 2}: not replayed: "bound" must be an integer from -1 to `,
      ),
      `${at(3)}its "kind" is neither "decision" nor "outcome"`,
      `${at(4)}it is no JSON object`,
    ]);
    expect(summary).toMatchObject({ asked: run.asked.length, damaged: 3, notReplayed: 1 });
  });

  it("goes on behind decisions that the policy cannot make, and counts them", async () => {
    const run = await recorded("round-robin", { workers: 64, steps: 300 });
    const places = entriesOf(run.file).flatMap(({ capacity }, at) => (capacity === 128 ? [at + 1] : []));
    expect(places.length).toBeGreaterThan(20);
    const { status, stderr, summary } = await replay(run, "picky", "--limit", "0");
    expect(status).toBe(0);
    expect(stderr.trimEnd().split("\n")).toEqual(
      places
        .slice(0, 10)
        .map((line) => `${run.file}:${line}: not replayed: init refuses a capacity of 128: it answers -1`),
    );
    const asked = run.asked.length - places.length;
    expect(asked).toBeGreaterThan(20);
    const { decisions, identical, different, notReplayed, damaged } = summary;
    expect({ decisions, asked: summary.asked, sum: identical + different, notReplayed, damaged }).toEqual({
      ...{ decisions: run.seen.length, asked, sum: asked, notReplayed: places.length, damaged: 0 },
    });
    const shownFor = await shown(run, "picky", "--limit", "0");
    expect(shownFor.stdout).toMatch(
      new RegExp(
        `^${run.seen.length} decisions, ${run.asked.length} of them a policy's: ${identical} identical, ${different} different \\(\\d+ on another worker\\), ${notReplayed} not replayed$`,
        "m",
      ),
    );
  });

  it("is no success where it is all of them, and with --same where it is one", async () => {
    const run = await recorded("first", { workers: 20, steps: 200 });
    const lines = readFileSync(run.file, "utf8").trimEnd().split("\n");
    const asked = lines.filter((line) => line.includes('"asked":true'));
    const of = (capacity: number) =>
      asked.map((line) => line.replace('"capacity":64', `"capacity":${capacity}`));
    const outcome = async (policy: string, lines: string[], ...more: string[]) => {
      writeFileSync(run.file, lines.join("\n"));
      const { status, summary } = await replay(run, policy, ...more);
      return [status, summary.identical, summary.notReplayed];
    };
    const count = asked.length;
    expect(await outcome("first", asked, "--same")).toEqual([0, count, 0]);
    const broken = asked[0]!.replace(/"bound":-?\d+/, '"bound":99');
    expect(await outcome("first", [...asked, broken])).toEqual([0, count, 1]);
    expect(await outcome("first", [...asked, broken], "--same")).toEqual([1, count, 1]);
    expect(await outcome("picky", of(128))).toEqual([1, 0, count]);
    expect(await outcome("picky", of(128), "--same")).toEqual([1, 0, count]);
  });

  it("passes over lines that are nested beyond measure", async () => {
    const run = await recorded("sticky", { steps: 100 });
    const lines = readFileSync(run.file, "utf8");
    const deep = `{"kind":${"[".repeat(7 * 2 ** 20)}\n`;
    writeFileSync(run.file, `${lines}${deep}${deep}${deep}`);
    const { status, stderr, summary } = await replay(run, "sticky");
    expect([status, summary.asked, summary.damaged]).toEqual([0, run.asked.length, 3]);
    expect(stderr.match(/passed over: it is nested in more than 32 levels$/gm)!.length).toBe(3);
  });

  it("refuses what is no decision log, with one sentence", async () => {
    const directory = place();
    const refused = (content: string | Uint8Array) => {
      writeFileSync(join(directory, "x"), content);
      const { status, stdout, stderr } = hawser(directory, [
        "replay",
        "x",
        "-c",
        "hawser.yaml",
        "--policy",
        "sticky",
      ]);
      expect([status, stdout]).toEqual([1, ""]);
      return stderr;
    };
    expect(refused(CONFIG)).toBe(
      "error: x is no decision log (x:2: passed over: it is no whole JSON text)\n",
    );
    expect(refused('{"level":30}\n')).toContain(
      'error: x is no decision log (x:1: passed over: its "kind" is',
    );
    expect(refused(new Uint8Array(4 * 2 ** 20))).toContain("error: x is no decision log");
    expect(refused(new Uint8Array(9 * 2 ** 20))).toContain("it is too long");
  });

  it.each([
    [
      ["nowhere.jsonl", "-c", "hawser.yaml", "--policy", "sticky"],
      "error: cannot read nowhere.jsonl: ENOENT",
    ],
    [[".", "-c", "hawser.yaml", "--policy", "sticky"], "error: cannot read .: EISDIR"],
    [
      ["x", "-c", "hawser.yaml", "--policy", "stiky"],
      'error: hawser.yaml has no instance "stiky", did you mean "sticky"?',
    ],
    [["x", "-c", "none.yaml", "--policy", "sticky"], "none.yaml"],
    [["x", "--policy", "sticky"], "required option '-c, --config <file>'"],
    [["x", "-c", "hawser.yaml"], "required option '--policy <instance>'"],
  ])("%s", (args, message) => {
    const { status, stderr } = hawser(place(), ["replay", ...args]);
    expect(status).toBe(1);
    expect(stderr).toContain(message);
  });

  it("is not the same where there is nothing to compare", () => {
    const directory = place();
    writeFileSync(join(directory, "x"), "");
    const run = (...more: string[]) =>
      hawser(directory, ["replay", "x", "-c", "hawser.yaml", "--policy", "sticky", ...more]);
    expect(run().status).toBe(0);
    expect(run("--same").status).toBe(1);
    expect(run("--same").stderr).toBe(
      "error: the log has no decision of a policy: there is nothing to compare\n",
    );
  });
});
