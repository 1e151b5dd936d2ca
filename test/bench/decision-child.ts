// Measures one pool size in a process of its own, so that V8 has seen nothing else, and prints the figures as JSON.
// Arguments: workers, pools, `first` or `random` ties, rounds.

import type { Ties } from "./deck.js";
import { ARMS, type Arm, type Path, Scene } from "./scene.js";
import { cpuNanoseconds } from "./stats.js";

/** One loop over one kind of session: nanoseconds per decision in every round, and the rows of a round, folded. */
export interface Series {
  readonly arm: Arm;
  readonly path: Path;
  readonly ns: number[];
  sum: number;
}

const WARM_UP_ROUNDS = 4;

/** Decisions per round: some milliseconds for the fastest arm, a few tens for the slowest. */
function decisionsPerRound(size: number, path: Path, quick: boolean): number {
  if (quick) return 256;
  return path === "calm" ? 40_000 : Math.round(Math.min(50_000, Math.max(3_000, 5_000_000 / size)));
}

function measure(size: number, pools: number, ties: Ties, rounds: number): Series[] {
  const scenes = Array.from({ length: pools }, () => new Scene(size, ties));
  const series = (["busy", "calm"] as const).flatMap((path) =>
    (Object.keys(ARMS) as Arm[]).map((arm): Series => ({ arm, path, ns: [], sum: 0 })),
  );
  // Within a round the arms take turns, so that a noisy moment of the machine meets all of them.
  for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
    for (const one of series) {
      const count = decisionsPerRound(size, one.path, rounds === 1);
      for (const scene of scenes) scene.reset();
      const start = process.cpuUsage();
      one.sum = ARMS[one.arm](scenes, one.path, count);
      if (round >= 0) one.ns.push(cpuNanoseconds(start) / count);
    }
  }
  return series;
}

const [size, pools, ties, rounds] = process.argv.slice(2);
process.stdout.write(JSON.stringify(measure(Number(size), Number(pools), ties as Ties, Number(rounds))));
