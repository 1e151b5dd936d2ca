// The shipped policies, metered: they decide as they do without the meter, within their budget, over many swaps.
// `HAWSER_CASES=N` compares N cases a policy, `HAWSER_SWAPS=N` swaps N times.
import { readFileSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, onTestFinished, test } from "vitest";
import { capacityFor } from "../../host/abi/frame.js";
import { Candidates } from "../../host/policy/candidates.js";
import { CaseRunner } from "../../host/policy/case.js";
import { Catalog, type PolicyFile } from "../../host/policy/catalog.js";
import { Turn } from "../../host/policy/decider.js";
import { LivePolicy } from "../../host/policy/live.js";
import { budgetOf } from "../../host/sandbox/admit.js";
import { ASM, assemble, PLACE, TYPE } from "../fixtures/assembler.js";
import { Dice, parametersOf } from "../fixtures/dice.js";
import { BUILT_IN_ROW, Stage } from "../fixtures/stage.js";

const CASES = Number(process.env.HAWSER_CASES ?? 3_000);
const SWAPS = Number(process.env.HAWSER_SWAPS ?? 2_000);
const CASES_PER_INSTANCE = 500;
const MOST_ROWS = 64;
const SHARE = 0.75;

const policies = Catalog.open([]).list();
const named = policies.map((policy): [string, PolicyFile] => [policy.manifest.type, policy]);

function randomCase(dice: Dice) {
  const rows = 1 + dice.upTo(dice.upTo(3) === 0 ? MOST_ROWS - 1 : 7);
  return {
    loads: dice.list(rows, 1 + dice.upTo(30)),
    eligible: dice.upTo(2) === 0 ? dice.list(rows, 1) : new Array<number>(rows).fill(1),
    bound: dice.upTo(rows) - 1,
    request: { session: `0x${(1 + dice.upTo(5)).toString(16)}` },
    columns: { worker_hash: Array.from({ length: rows }, (_, row) => row * 7_919 + dice.upTo(1)) },
  };
}

test.each(named)(
  "%s decides as it does without the meter",
  (_, policy) => {
    const dice = new Dice(2_024);
    const module = new WebAssembly.Module(readFileSync(policy.modulePath));
    const unmetered = { manifest: policy.manifest, admitted: { ...policy.admitted, module } };
    const reasons = new Set<string>();
    for (let done = 0; done < CASES; done += CASES_PER_INSTANCE) {
      const parameters = parametersOf(policy, dice);
      const pair = [policy, unmetered].map((one) => new CaseRunner(one, parameters, MOST_ROWS, done));
      for (let index = 0; index < CASES_PER_INSTANCE; index++) {
        const given = randomCase(dice);
        const [metered, plain] = pair.map((runner) => runner.run(given));
        if (JSON.stringify(metered) !== JSON.stringify(plain)) {
          expect({ given, ...metered }).toEqual({ given, ...plain });
        }
        expect(metered!.failure).toBeUndefined();
        reasons.add(metered!.reason);
      }
    }
    expect(reasons.size).toBeGreaterThan(1);
  },
  600_000,
);

describe("at every size", () => {
  test.each(named)("%s uses less than three quarters of its budget", (_, policy) => {
    const dice = new Dice(5);
    const shares = [1, 2, 63, 64, 256, 1_024, 4_096, 16_384].map((rows) => shareUsed(policy, rows, dice));
    for (const share of shares) {
      expect(share).toBeGreaterThan(0);
      expect(share).toBeLessThan(SHARE);
    }
  });

  function shareUsed(policy: PolicyFile, rows: number, dice: Dice): number {
    const capacity = capacityFor(rows);
    const candidates = new Candidates(capacity);
    candidates.n = rows;
    let most = 0;
    for (let run = 0; run < 4; run++) {
      for (let row = 0; row < rows; row++) {
        candidates.setEligible(row, run % 2 === 0 || row === rows - 1 || dice.upTo(1) === 1);
        candidates.setActiveRequests(row, 50 + dice.upTo(run < 2 ? 0 : 100));
        candidates.set("worker_hash", row, row * 7_919);
      }
      const live = new LivePolicy(policy, parametersOf(policy, dice), candidates);
      for (const bound of [-1, 0, rows - 1]) {
        const turn = Object.assign(new Turn(), {
          seedLow: dice.upTo(1e9),
          sessionLow: 1,
          sessionHigh: bound,
        });
        live.decide(turn, bound);
        expect(live.failure).toBeUndefined();
        most = Math.max(most, live.fuelUsed);
      }
    }
    return most / budgetOf(capacity);
  }
});

describe("instances that trapped", () => {
  test("are collected: swaps leave none behind", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const instances = watchInstances();
    const endless = ASM.loop(TYPE.none, ASM.br(0));
    const stage = new Stage(
      assemble({ select: { code: [[...ASM.i32(0), 0x28, 2, 80], ASM.if(TYPE.none, endless), PLACE] } }),
    );
    for (let swap = 1; swap <= SWAPS; swap++) {
      expect(stage.decide(1)).toEqual({ row: BUILT_IN_ROW, reason: "fallback", failure: "fuel" });
      expect(stage.decide()).toEqual({ row: 0, reason: "place", failure: undefined });
      if (swap % 500 === 0) await setImmediate();
    }
    expect(instances).toHaveLength(SWAPS + 1);
    await setImmediate();
    collect();
    const alive = instances.filter((instance) => instance.deref() !== undefined);
    expect(alive.length).toBeLessThan(10);
    expect(stage.health.failures()).toEqual({ fuel: SWAPS });
  }, 600_000);

  /** Weak references to all instances made from now on in this test. */
  function watchInstances(): WeakRef<WebAssembly.Instance>[] {
    const original = WebAssembly.Instance;
    const instances: WeakRef<WebAssembly.Instance>[] = [];
    WebAssembly.Instance = class extends original {
      constructor(module: WebAssembly.Module, imports?: WebAssembly.Imports) {
        super(module, imports);
        instances.push(new WeakRef(this));
      }
    };
    onTestFinished(() => {
      WebAssembly.Instance = original;
    });
    return instances;
  }
});
