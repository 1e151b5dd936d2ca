// What each shipped policy promises, in plain TypeScript: written from the rules, not from the modules.

/** What a rule decides about. */
export interface Situation {
  readonly loads: readonly number[];
  readonly eligible: readonly boolean[];
  /** -1 for none. */
  readonly bound: number;
  readonly hashes: readonly number[];
}

/** A decision that a rule allows. Where a rule draws lots there are several. */
export interface Outcome {
  readonly row: number;
  readonly reason: string;
}

export type Ties = "first" | "random";
export type Placement = "least-loaded" | "round-robin" | "random" | "power-of-two";

/** A rule with its parameters; one that remembers something is made anew for each instance. */
export type Rule = (situation: Situation) => Outcome[];

export function softAffinityLoadGuard(parameters: {
  max_active_requests: number;
  move_margin: number;
  ties: Ties;
}): Rule {
  return (situation) => {
    const { loads, bound } = situation;
    if (!isBoundEligible(situation)) return placed(situation, leastLoaded(situation, parameters.ties));
    if (loads[bound] <= parameters.max_active_requests) return stay(bound, "keep");
    const others = leastLoaded(without(situation, bound), parameters.ties);
    if (others.length === 0) return stay(bound, "keep_margin");
    if (loads[bound] - loads[others[0]] < parameters.move_margin) return stay(bound, "keep_margin");
    return move(others);
  };
}

export function softPinRepin(parameters: { max_active_requests: number; ties: Ties }): Rule {
  return (situation) => {
    const { loads, bound } = situation;
    if (!isBoundEligible(situation)) return placed(situation, leastLoaded(situation, parameters.ties));
    if (loads[bound] <= parameters.max_active_requests) return stay(bound, "keep");
    const others = leastLoaded(without(situation, bound), parameters.ties);
    return others.length === 0 ? stay(bound, "keep_margin") : move(others);
  };
}

export function affinityBreakMargin(parameters: { affinity_break_margin: number | null; ties: Ties }): Rule {
  return (situation) => {
    const { loads, bound } = situation;
    const best = leastLoaded(situation, parameters.ties);
    if (!isBoundEligible(situation)) return placed(situation, best);
    if (parameters.affinity_break_margin === null) return stay(bound, "keep");
    const gap = loads[bound] - loads[best[0]];
    return gap <= parameters.affinity_break_margin ? stay(bound, "keep") : move(best);
  };
}

export function imbalanceGate(parameters: {
  balance_abs_threshold: number;
  balance_rel_threshold: number;
  ties: Ties;
}): Rule {
  return (situation) => {
    const { loads, eligible, bound } = situation;
    const best = leastLoaded(situation, parameters.ties);
    if (!isBoundEligible(situation)) return placed(situation, best);
    const seen = loads.filter((_, row) => eligible[row]);
    const [low, high] = [Math.min(...seen), Math.max(...seen)];
    const isOn = parameters.balance_abs_threshold > 0;
    const isApart = high - low > parameters.balance_abs_threshold;
    const isManifold = high > parameters.balance_rel_threshold * low;
    return isOn && isApart && isManifold ? placed(situation, best) : stay(bound, "keep");
  };
}

export function leastLoadedRule(parameters: { ties: Ties }): Rule {
  return (situation) => placed(situation, leastLoaded(situation, parameters.ties));
}

export function randomRule(): Rule {
  return (situation) => placed(situation, eligibleRows(situation));
}

export function powerOfTwoRule(): Rule {
  return (situation) => placed(situation, winnersOfTwo(situation));
}

export function roundRobinRule(): Rule {
  const next = roundRobin();
  return (situation) => placed(situation, next(situation));
}

export function sticky(parameters: { placement: Placement; ties: Ties }): Rule {
  const next = roundRobin();
  const placements: Record<Placement, (situation: Situation) => number[]> = {
    "least-loaded": (situation) => leastLoaded(situation, parameters.ties),
    "round-robin": next,
    random: eligibleRows,
    "power-of-two": winnersOfTwo,
  };
  return (situation) => {
    if (isBoundEligible(situation)) return stay(situation.bound, "keep");
    return placed(situation, placements[parameters.placement](situation));
  };
}

function isBoundEligible({ bound, eligible }: Situation): boolean {
  return bound >= 0 && eligible[bound];
}

function stay(row: number, reason: string): Outcome[] {
  return [{ row, reason }];
}

function move(rows: readonly number[]): Outcome[] {
  return rows.map((row) => ({ row, reason: "move_load" }));
}

/** Rows chosen without regard to the binding. */
function placed(situation: Situation, rows: readonly number[]): Outcome[] {
  const { bound } = situation;
  return rows.map((row) => {
    if (bound < 0) return { row, reason: "place" };
    if (!isBoundEligible(situation)) return { row, reason: "move_gone" };
    return { row, reason: row === bound ? "keep" : "move_load" };
  });
}

function eligibleRows({ eligible }: Situation): number[] {
  return [...eligible.keys()].filter((row) => eligible[row]);
}

function without(situation: Situation, excluded: number): Situation {
  return { ...situation, eligible: situation.eligible.map((flag, row) => flag && row !== excluded) };
}

/** All eligible rows with the fewest requests, or the lowest of them. */
function leastLoaded(situation: Situation, ties: Ties): number[] {
  const { loads } = situation;
  const rows = eligibleRows(situation);
  const best = rows.filter((row) => rows.every((other) => loads[row] <= loads[other]));
  return ties === "random" ? best : best.slice(0, 1);
}

/** The rows that can win against some other row. */
function winnersOfTwo(situation: Situation): number[] {
  const { loads } = situation;
  const rows = eligibleRows(situation);
  if (rows.length === 1) return rows;
  return rows.filter((row) => rows.some((other) => other !== row && loads[row] <= loads[other]));
}

/** In turn from the worker served last; where that one is gone, from the row where it stood. */
function roundRobin(): (situation: Situation) => number[] {
  let last: { hash: number; row: number } | undefined;
  return ({ eligible, hashes }) => {
    const rows = [...hashes.keys()];
    let first = 0;
    if (last !== undefined) {
      const at = hashes.indexOf(last.hash);
      first = at >= 0 ? at + 1 : last.row;
      if (first >= rows.length) first = 0;
    }
    const inTurn = [...rows.slice(first), ...rows.slice(0, first)];
    const row = inTurn.find((row) => eligible[row]);
    if (row === undefined) return [];
    last = { hash: hashes[row], row };
    return [row];
  };
}
