import { expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { Candidates } from "../../host/policy/candidates.js";
import { Catalog } from "../../host/policy/catalog.js";
import { Turn } from "../../host/policy/decider.js";
import { dryRun } from "../../host/policy/dry-run.js";
import { LivePolicy } from "../../host/policy/live.js";
import { resolveParameters } from "../../host/policy/parameters.js";
import { policyFromText, type UnfiledPolicy } from "../fixtures/puppet.js";
import { policyOf } from "../fixtures/stage.js";
import { encodeModule } from "../fixtures/wasm.js";

const CAPACITY = 64;
/** Over one worker, and over three of two kinds of loads unbound and bound to each; all of them twice. */
const DECISIONS = 18;

const none = new Float64Array(0);

/** A policy with two parameters, whose `select` and state are the given texts, and which reads what it names. */
async function policy(select: string, reads: readonly string[] = [], state = ""): Promise<UnfiledPolicy> {
  const { manifest, admitted } = await policyFromText(`
    import { activeRequests, answer, blockTokens, boundSessions, isEligible, kvBlocks, kvUsed, now, param, PLACE, queueDepth,
      seed, session, sessionRequests, slots, weight, workerHash } from "../../../assembly/sdk";
    export { init } from "../../../assembly/sdk";
    let calls = 0;
    ${state}
    export function select(n: i32, bound: i32): i32 {
      calls++;
      ${select}
    }`);
  const all = [...manifest.reads, ...reads] as UnfiledPolicy["manifest"]["reads"];
  return { manifest: { ...manifest, reads: all }, admitted };
}

const OK = "return answer(0, PLACE);";

test("every shipped policy passes with its defaults, in the smallest and the largest pool", () => {
  const policies = Catalog.open([]).list();
  expect(policies.length).toBeGreaterThan(5);
  for (const shipped of policies) {
    const { values } = resolveParameters(shipped.manifest.parameters, undefined);
    for (const capacity of [64, 16_384]) expect(dryRun(shipped, values, capacity)).toBeUndefined();
  }
});

test.each([
  ["a row that there is not", 1, "it answers row 1, but there is only row 0"],
  [
    "a reason that nobody names",
    9 << 16,
    "it answers reason 9, but reasons are 0 to 6 and those that its manifest names",
  ],
  ["no choice", -5, "it answers -5, which chooses no worker"],
])("an answer of %s is told with the situation", (_, answer, outcome) => {
  expect(dryRun(policyOf(encodeModule({ answer })), none, CAPACITY)).toEqual({
    decision: `over 1 worker with 0 requests, not bound, ${outcome}`,
  });
});

test("a row beyond those of three workers", async () => {
  const beyond = await policy("return answer(n < 3 ? 0 : 3, PLACE);");
  expect(dryRun(beyond, new Float64Array(2), CAPACITY)).toEqual({
    decision: "over 3 workers with 5, 0 and 2 requests, not bound, it answers row 3, but rows are 0 to 2",
  });
});

test("a trap is told with the first situation in which the policy ends in one", async () => {
  const trapping = await policy(
    `if (bound == <i32>param(0) && activeRequests(0) >= <i32>param(1)) unreachable(); ${OK}`,
  );
  const found = (bound: number, load: number) => dryRun(trapping, Float64Array.of(bound, load), CAPACITY);
  const trap = (situation: string) => ({ decision: `${situation}, it ends in a trap` });
  expect(found(-1, 0)).toEqual(trap("over 1 worker with 0 requests, not bound"));
  const few = "over 3 workers with 5, 0 and 2 requests";
  expect(found(-1, 1)).toEqual(trap(`${few}, not bound`));
  expect(found(0, 0)).toEqual(trap(`${few}, bound to the first`));
  expect(found(1, 0)).toEqual(trap(`${few}, bound to the second`));
  expect(found(2, 0)).toEqual(trap(`${few}, bound to the third`));
  const many = "over 3 workers with 900, 700 and 800 requests";
  expect(found(-1, 900)).toEqual(trap(`${many}, not bound`));
  expect(found(2, 900)).toEqual(trap(`${many}, bound to the third`));
  expect(found(-1, 1_000)).toBeUndefined();
});

test("a loop without end is ended by its fuel", async () => {
  const looping = await policy("while (bound == 1) calls++; return answer(calls < 0 ? 1 : 0, PLACE);");
  expect(dryRun(looping, new Float64Array(2), CAPACITY)).toEqual({
    decision: expect.stringMatching(
      /^over 3 workers .*, bound to the second, it uses more than the \d+ units of fuel that it may$/,
    ),
  });
});

test("it decides with the parameters that it is given, and without any it is started alone", async () => {
  const choosy = await policy(`if (param(1) == 7) unreachable(); ${OK}`);
  expect(dryRun(choosy, Float64Array.of(7, 0), CAPACITY)).toBeUndefined();
  expect(dryRun(choosy, Float64Array.of(0, 7), CAPACITY)).toEqual({
    decision: expect.stringMatching(/trap$/),
  });
  expect(dryRun(policyOf(encodeModule({ answer: -1 })), undefined, CAPACITY)).toBeUndefined();
});

test("all decisions are of one instance, and one that works is the only one that is made", async () => {
  const counting = await policy(`if (calls > param(0)) unreachable(); ${OK}`);
  expect(dryRun(counting, Float64Array.of(DECISIONS - 1, 0), CAPACITY)).toEqual({
    decision: "over 3 workers with 900, 700 and 800 requests, bound to the third, it ends in a trap",
  });
  const before = instanceNumber();
  expect(dryRun(counting, Float64Array.of(DECISIONS, 0), CAPACITY)).toBeUndefined();
  expect(instanceNumber()).toBe(before + 2);
});

/** The number of an instance that is started here. */
function instanceNumber(): number {
  const candidates = new Candidates(CAPACITY);
  candidates.n = 1;
  candidates.setEligible(0, true);
  const live = new LivePolicy(policyOf(encodeModule()), none, candidates);
  live.decide(new Turn(), -1);
  return live.instance;
}

test("time goes on, and every request has bits and a session of its own", async () => {
  const text = `if (now() <= lastNow || seed() == lastSeed || session() == lastSession) unreachable();
    lastNow = now(); lastSeed = seed(); lastSession = session(); ${OK}`;
  const state = "let lastNow: f64 = 0; let lastSeed: u64 = 0; let lastSession: u64 = 0;";
  expect(dryRun(await policy(text, ["now", "seed"], state), new Float64Array(2), CAPACITY)).toBeUndefined();
});

test("the columns are those of a router: first nothing is known of the engines, then all", async () => {
  const reads = [
    ...["bound_sessions", "worker_hash", "weight", "slots", "kv_used", "queue_depth", "kv_blocks"],
    ...["block_tokens", "session_requests"],
  ];
  const ordinary = (more: string) =>
    policy(
      `for (let row = 0; row < n; row++) {
        if (!isEligible(row) || weight(row) != 100 || boundSessions(row) < activeRequests(row)) unreachable();
        if (row > 0 && workerHash(row) == workerHash(row - 1)) unreachable();
      }
      if (bound < 0 ? sessionRequests() != 0 : <i32>sessionRequests() > activeRequests(bound)) unreachable();
      ${more} ${OK}`,
      reads,
    );
  const unknown =
    "slots(0) == 0 && kvUsed(0) == -1 && queueDepth(0) == -1 && kvBlocks(0) == 0 && blockTokens() == 0";
  const known = "slots(0) > 0 && kvUsed(0) > 0 && queueDepth(0) > 0 && kvBlocks(0) > 0 && blockTokens() > 0";
  const halfway = DECISIONS / 2;
  const both = await ordinary(`if (calls <= ${halfway} ? !(${unknown}) : !(${known})) unreachable();`);
  expect(dryRun(both, new Float64Array(2), CAPACITY)).toBeUndefined();
});

test("a policy that cannot be started is told so", async () => {
  const refusing = await policyFromText(
    "export function init(capacity: i32): i32 { return -7; } export function select(n: i32, bound: i32): i32 { return 0; }",
  );
  const start = "init refuses a capacity of 64: it answers -7";
  expect(dryRun(refusing, new Float64Array(2), CAPACITY)).toEqual({ start });
  expect(dryRun(refusing, undefined, CAPACITY)).toEqual({ start });
});

test("a config's instances are tried once for each policy, parameters and capacity", () => {
  const parse = (workers: number, row: string) => {
    const before = instanceNumber();
    const { mistakes } = parseConfig(
      `workers: [${Array.from({ length: workers }, (_, i) => `{ id: w${i}, url: "http://w${i}:1" }`)}]
worker_selection:
  aggregated: a
  instances:
    - { name: a, type: sticky, parameters: { ${row} } }
    - { name: b, type: sticky, parameters: { ${row} } }
`,
      "hawser.yaml",
    );
    expect(mistakes).toEqual([]);
    return instanceNumber() - before - 1;
  };
  expect(parse(1, "placement: round-robin")).toBe(1);
  expect(parse(64, "placement: round-robin")).toBe(0);
  expect(parse(65, "placement: round-robin")).toBe(1);
  expect(parse(1, "placement: random")).toBe(1);
});
