// Measures one policy in a process of its own and prints the figures as JSON. Argument: a task as JSON.

import { register } from "tsx/esm/api";
import { type Fuel, fuelOf } from "./fuel.js";
import { metered, unmetered } from "./instance.js";
import { ARMS, type Arm, type Scene } from "./scene.js";
import { cpuNanoseconds } from "./stats.js";
import type { Kind, Loaded, Path } from "./subjects.js";

export interface Task {
  readonly subject: Loaded;
  readonly sizes: readonly number[];
  /** Pools that take turns in the same loop. */
  readonly pools: number;
  readonly rounds: number;
}

/** One loop over one kind of session: nanoseconds per decision in every round, and the rows of a round, folded. */
export interface Series {
  readonly size: number;
  readonly kind: Kind;
  readonly arm: Arm;
  readonly ns: number[];
  sum: number;
}

export interface Figures {
  readonly series: readonly Series[];
  readonly fuel: readonly Fuel[];
}

type Scenes = typeof import("./scene.js");
interface Stage {
  readonly arm: Arm;
  readonly scenes: readonly Scene[];
  readonly run: Scenes["run"];
}

const WARM_UP_ROUNDS = 4;
const opened = new Map<string, Promise<Scenes>>();

/**
 * The code of an arm, as a copy of its own: what V8 learns of one arm it would otherwise use on all. A module's function
 * is compiled into its caller only where the caller has never seen another, so these arms have a copy for every size.
 */
function codeOf(arm: Arm, size: number): Promise<Scenes> {
  const namespace = arm === "metered" || arm === "unmetered" ? `${arm}-${size}` : arm;
  const found = opened.get(namespace);
  if (found) return found;
  const loading = register({ namespace }).import("./scene.js", import.meta.url) as Promise<Scenes>;
  opened.set(namespace, loading);
  return loading;
}

/** Decisions per round: a millisecond for the fastest arm, some for the slowest. */
function decisionsPerRound(size: number, { kind }: Path, quick: boolean): number {
  if (quick) return 256;
  if (kind === "keep" || kind === "turn") return 20_000;
  return Math.round(Math.min(15_000, Math.max(500, 1_500_000 / size)));
}

async function stagesOf({ subject, pools }: Task, size: number): Promise<Stage[]> {
  const [checked, original] = [metered(subject), unmetered(subject)];
  return Promise.all(
    ARMS.map(async (arm): Promise<Stage> => {
      const { Scene, run } = await codeOf(arm, size);
      const instance = arm === "unmetered" ? original : checked;
      return { arm, run, scenes: Array.from({ length: pools }, () => new Scene(size, instance, arm)) };
    }),
  );
}

/** A series, and what it takes to measure a round of it. */
interface Loop extends Stage {
  readonly path: Path;
  readonly series: Series;
}

async function loopsOf(task: Task): Promise<Loop[]> {
  const loops: Loop[] = [];
  for (const size of task.sizes) {
    const stages = await stagesOf(task, size);
    for (const path of task.subject.paths) {
      for (const stage of stages) {
        const series: Series = { size, kind: path.kind, arm: stage.arm, ns: [], sum: 0 };
        loops.push({ ...stage, path, series });
      }
    }
  }
  return loops;
}

async function measure(task: Task): Promise<Series[]> {
  const loops = await loopsOf(task);
  // Within a round all take turns, so that a slow moment of the machine meets arms and sizes alike.
  for (let round = -WARM_UP_ROUNDS; round < task.rounds; round++) {
    for (const { scenes, run, path, series } of loops) {
      const count = decisionsPerRound(series.size, path, task.rounds === 1);
      for (const scene of scenes) scene.reset(scene.deck.bounds[path.bound]);
      const start = process.cpuUsage();
      series.sum = run(scenes, path.bound, count);
      if (round >= 0) series.ns.push(cpuNanoseconds(start) / count);
    }
  }
  return loops.map(({ series }) => series);
}

const task = JSON.parse(process.argv[2]!) as Task;
const series = await measure(task);
const fuel = task.sizes.flatMap((size) => fuelOf(task.subject, size));
process.stdout.write(JSON.stringify({ series, fuel } satisfies Figures));
