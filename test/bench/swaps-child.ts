// Decides in a loop while a fresh instance of another policy takes over every few hundred decisions, as in a gateway
// whose policies are replaced under load, and prints the figures as JSON. Argument: a task as JSON.

import { setFlagsFromString } from "node:v8";
import { LivePolicy } from "../../host/policy/live.js";
import { metered } from "./instance.js";
import { Scene } from "./scene.js";
import { quantile } from "./stats.js";
import type { Loaded } from "./subjects.js";
import { Waiting } from "./waiting.js";

// As the gateway does, before anything is compiled.
setFlagsFromString("--no-wasm-lazy-compilation");

export interface SwapTask {
  /** The policies, each after the other and again from the first. */
  readonly subjects: readonly Loaded[];
  readonly swaps: number;
  readonly decisionsPerSwap: number;
}

/** Milliseconds. */
export interface SwapFigures {
  readonly decisions: number;
  readonly failures: number;
  readonly p999: number;
  readonly longest: number;
  /** Decisions that took over 1 ms. */
  readonly overOne: number;
  /** The longest decision, where the time is left out in which the thread waited for a processor. */
  readonly longestRun: number;
  /** Reading, checking, metering and compiling the module; starting its instance. Per swap. */
  readonly compile: readonly number[];
  readonly start: readonly number[];
}

const SIZE = 64;

function measure({ subjects, swaps, decisionsPerSwap }: SwapTask): SwapFigures {
  const scene = new Scene(SIZE, metered(subjects[0]!), "metered");
  const { turn, deck } = scene;
  const { candidates } = deck.pool;
  const times = new Float64Array(swaps * decisionsPerSwap);
  const [compile, start] = [[] as number[], [] as number[]];
  const waiting = new Waiting();
  let [failures, longestRun] = [0, 0];
  for (let swap = 0, at = 0; swap < swaps; swap++) {
    const subject = subjects[swap % subjects.length]!;
    const { bound } = subject.paths[0]!;
    const begin = performance.now();
    const { policy, parameters } = metered(subject);
    const compiled = performance.now();
    const live = new LivePolicy(policy, parameters, candidates);
    start.push(performance.now() - compiled);
    compile.push(compiled - begin);
    for (let i = 0; i < decisionsPerSwap; i++, at++) {
      const row = scene.prepare(at, deck.bounds[bound]);
      waiting.begin();
      const before = performance.now();
      live.decide(turn, row);
      times[at] = performance.now() - before;
      if (times[at]! > longestRun) longestRun = Math.max(longestRun, times[at]! - waiting.end());
      if (live.failure) failures++;
      deck.step(at);
    }
  }
  return {
    ...{ decisions: times.length, failures, compile, start, longestRun },
    overOne: times.filter((time) => time > 1).length,
    p999: quantile(times, 0.999),
    longest: quantile(times, 1),
  };
}

const task = JSON.parse(process.argv[2]!) as SwapTask;
process.stdout.write(JSON.stringify(measure(task)));
