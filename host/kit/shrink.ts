// Cases that show something -> fewer and smaller ones that still show it.
import type { FrameCase } from "./frames.js";

/** Cases are run no more often than this while they are made smaller. */
const ATTEMPTS = 3_000;
const SIMPLE_BITS = ["0x0", "0xffffffffffffffff"];

/**
 * The smallest end of `history` to be found that still `shows` what its whole shows, each of its cases made as small as
 * can be. `shows` runs cases on fresh instances and must give the same answer for the same cases.
 */
export function shrink(
  history: readonly FrameCase[],
  shows: (cases: readonly FrameCase[]) => boolean,
): readonly FrameCase[] {
  let attempts = 0;
  const holds = (cases: readonly FrameCase[]) => ++attempts <= ATTEMPTS && shows(cases);
  let cases = shortestEnd(history, holds);
  cases = withoutSpare(cases, holds);
  for (let index = cases.length - 1; index >= 0; index--) {
    cases = cases.with(
      index,
      smallest(cases[index]!, (one) => holds(cases.with(index, one))),
    );
  }
  return cases;
}

function shortestEnd(
  history: readonly FrameCase[],
  holds: (cases: readonly FrameCase[]) => boolean,
): readonly FrameCase[] {
  for (let length = 1; length < history.length; length *= 2) {
    if (holds(history.slice(-length))) return history.slice(-length);
  }
  return history;
}

function withoutSpare(
  all: readonly FrameCase[],
  holds: (cases: readonly FrameCase[]) => boolean,
): readonly FrameCase[] {
  let cases = all;
  for (let index = cases.length - 2; index >= 0; index--) {
    const fewer = cases.toSpliced(index, 1);
    if (holds(fewer)) cases = fewer;
  }
  return cases;
}

function smallest(start: FrameCase, holds: (one: FrameCase) => boolean): FrameCase {
  let best = start;
  for (let improved = true; improved; ) {
    improved = false;
    for (const smaller of smallerThan(best)) {
      if (!holds(smaller)) continue;
      best = smaller;
      improved = true;
      break;
    }
  }
  return best;
}

/** Cases a step smaller, the largest steps first. */
function* smallerThan(given: FrameCase): Generator<FrameCase> {
  yield* fewerRows(given);
  for (const key of ["bound", "eligible", "columns"] as const) {
    if (given[key] !== undefined) yield without(given, key);
  }
  yield* smallerColumns(given);
  yield* smallerRequest(given);
  for (const loads of smallerValues(given.loads)) yield { ...given, loads };
  for (const [row, flag] of (given.eligible ?? []).entries()) {
    if (flag === 0) yield { ...given, eligible: given.eligible!.with(row, 1) };
  }
}

function* fewerRows(given: FrameCase): Generator<FrameCase> {
  const rows = given.loads.length;
  for (let chunk = Math.ceil(rows / 2); chunk >= 1; chunk = chunk === 1 ? 0 : Math.ceil(chunk / 2)) {
    for (let from = 0; from < rows; from += chunk) {
      if (chunk < rows) yield withoutRows(given, from, Math.min(from + chunk, rows));
    }
  }
}

function withoutRows(given: FrameCase, from: number, to: number): FrameCase {
  const cut = <T>(values: readonly T[]) => values.toSpliced(from, to - from);
  const { loads, eligible, bound, columns, request } = given;
  const kept = bound === undefined || (bound >= from && bound < to) ? undefined : bound;
  return {
    loads: cut(loads),
    ...(eligible && { eligible: cut(eligible) }),
    ...(kept !== undefined && { bound: kept >= to ? kept - (to - from) : kept }),
    ...(request && { request }),
    ...(columns && {
      columns: Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, cut(values)])),
    }),
  };
}

function without<K extends keyof FrameCase>(given: FrameCase, key: K): FrameCase {
  const { [key]: _, ...rest } = given;
  return rest as unknown as FrameCase;
}

function* smallerColumns(given: FrameCase): Generator<FrameCase> {
  for (const [name, values] of Object.entries(given.columns ?? {})) {
    const { [name]: _, ...rest } = given.columns!;
    yield Object.keys(rest).length === 0 ? without(given, "columns") : { ...given, columns: rest };
    for (const smaller of smallerValues(values))
      yield { ...given, columns: { ...given.columns, [name]: smaller } };
  }
}

function* smallerRequest(given: FrameCase): Generator<FrameCase> {
  for (const [name, value] of Object.entries(given.request ?? {})) {
    const { [name]: _, ...rest } = given.request!;
    // Without a seed the runner draws one: a case that names it stands for itself.
    if (name !== "seed")
      yield Object.keys(rest).length === 0 ? without(given, "request") : { ...given, request: rest };
    const put = (smaller: number | string) => ({ ...given, request: { ...given.request, [name]: smaller } });
    if (typeof value === "string") for (const simpler of simplerBits(value)) yield put(simpler);
    if (typeof value === "number") for (const smaller of smallerNumbers(value)) yield put(smaller);
  }
}

function* smallerValues(values: readonly number[]): Generator<readonly number[]> {
  for (const [row, value] of values.entries()) {
    for (const smaller of smallerNumbers(value)) yield values.with(row, smaller);
  }
}

/** All bits zero, else all bits one: with either, a draw's outcome is plain to see. */
function simplerBits(value: string): readonly string[] {
  const known = SIMPLE_BITS.indexOf(value);
  return known < 0 ? SIMPLE_BITS : SIMPLE_BITS.slice(0, known);
}

/** Integers nearer to 0, by halving steps: the smallest one that shows something is a few of them away. */
function* smallerNumbers(value: number): Generator<number> {
  const size = Math.abs(value);
  const sign = Math.sign(value);
  if (size >= 1) yield 0;
  for (let step = 2 ** Math.floor(Math.log2(size)); step >= 1; step /= 2) {
    if (size > step) yield (size - step) * sign;
  }
}
