// Policies given random cases: for what must never happen, and for where two of them differ.
import { CaseRunner, type Decision } from "../policy/case.js";
import type { PolicyFile } from "../policy/catalog.js";
import { budgetOf } from "../sandbox/admit.js";
import { type FrameCase, FrameSource } from "./frames.js";
import type { TrialParameters } from "./parameters.js";
import { shrink } from "./shrink.js";

/** Capacities that are tried; what a decision may use grows with it. */
const CAPACITIES = [64, 1_024];
/** One frame in so many is for the larger one. */
const LARGE_EVERY = 16;
/** An honest policy stays under this part of its budget. */
const HONEST_PART = 0.75;

export interface Subject {
  readonly policy: Pick<PolicyFile, "manifest" | "admitted">;
  readonly parameters: TrialParameters;
}

/** The smallest cases that show something; the last of them does, those before it lead there. */
export interface Finding {
  readonly what: string;
  /** Of how many frames it was, from 1. */
  readonly frame: number;
  readonly capacity: number;
  readonly cases: readonly FrameCase[];
  /** Each subject's decision for the last case. */
  readonly decisions: readonly Decision[];
}

export interface Fuzzed {
  readonly finding: Finding | undefined;
  /** Most units that a decision used, for the capacity at which that was the largest part. */
  readonly mostFuel: number;
  readonly budget: number;
}

/**
 * Gives a policy `count` random cases and stops at the first that fails, uses more than three quarters of its budget
 * or, where the policy is stateless, is answered otherwise when it is asked again. Throws a PolicyStartError where the
 * policy does not start.
 */
export function fuzz(subject: Subject, count: number, seed: number): Fuzzed {
  const most = { mostFuel: 0, budget: budgetOf(CAPACITIES[0]!) };
  const finding = search([subject], count, seed, (runners, given, capacity) => {
    const found = whatIsWrong(runners[0]!, given, capacity, subject.policy.manifest.stateful);
    const [used, budget] = [runners[0]!.fuelUsed, budgetOf(capacity)];
    if (used / budget > most.mostFuel / most.budget) Object.assign(most, { mostFuel: used, budget });
    return found;
  });
  return { ...most, finding };
}

/** Gives two policies the same `count` random cases and stops at the first that they decide otherwise. Throws as `fuzz`. */
export function compare(first: Subject, second: Subject, count: number, seed: number): Finding | undefined {
  return search([first, second], count, seed, ([left, right], given) => {
    return isSame(left!.run(given), right!.run(given)) ? undefined : "they differ";
  });
}

type Check = (runners: readonly CaseRunner[], given: FrameCase, capacity: number) => string | undefined;

function search(
  subjects: readonly Subject[],
  count: number,
  seed: number,
  check: Check,
): Finding | undefined {
  const source = new FrameSource(
    subjects.flatMap(({ policy }) => policy.manifest.reads),
    seed,
  );
  const histories = CAPACITIES.map(() => [] as FrameCase[]);
  const runners = CAPACITIES.map((capacity) => start(subjects, capacity));
  for (let frame = 1; frame <= count; frame++) {
    const size = frame % LARGE_EVERY === 0 ? 1 : 0;
    const capacity = CAPACITIES[size]!;
    const given = source.next(capacity);
    histories[size]!.push(given);
    const what = check(runners[size]!, given, capacity);
    if (what !== undefined) return { ...explain(subjects, histories[size]!, capacity, check), frame };
  }
  return undefined;
}

function start(subjects: readonly Subject[], capacity: number): CaseRunner[] {
  return subjects.map(({ policy, parameters }) => new CaseRunner(policy, parameters.values, capacity));
}

function explain(
  subjects: readonly Subject[],
  history: readonly FrameCase[],
  capacity: number,
  check: Check,
): Omit<Finding, "frame"> {
  const replay = (cases: readonly FrameCase[]) => {
    const runners = start(subjects, capacity);
    for (const earlier of cases.slice(0, -1)) {
      for (const runner of runners) runner.run(earlier);
    }
    return { runners, last: cases.at(-1)! };
  };
  const shown = (cases: readonly FrameCase[]) => {
    const { runners, last } = replay(cases);
    return check(runners, last, capacity);
  };
  const kind = (what: string | undefined) => what?.split(":")[0];
  const wanted = kind(shown(history));
  const cases = shrink(history, (some) => kind(shown(some)) === wanted);
  const { runners, last } = replay(cases);
  return { what: shown(cases)!, capacity, cases, decisions: runners.map((runner) => runner.run(last)) };
}

/** A kind, which stays the same while a case is made smaller, and after a colon what may change. */
function whatIsWrong(
  runner: CaseRunner,
  given: FrameCase,
  capacity: number,
  isStateful: boolean,
): string | undefined {
  const first = runner.run(given);
  if (first.failure !== undefined) return first.failure;
  const [used, budget] = [runner.fuelUsed, budgetOf(capacity)];
  if (used > budget * HONEST_PART) {
    return `too much fuel: ${used} of ${budget} units, an honest policy stays under three quarters`;
  }
  if (isStateful || isSame(first, runner.run(given))) return undefined;
  return "two answers to the same case, though the manifest does not say stateful";
}

function isSame(a: Decision, b: Decision): boolean {
  return a.row === b.row && a.reason === b.reason && a.failure === b.failure;
}
