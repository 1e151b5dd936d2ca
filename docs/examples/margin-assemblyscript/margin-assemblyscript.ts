// Keep a session on its worker while that worker is within a margin of the least-loaded one; without a margin, always.

import {
  activeRequests,
  answer,
  hasParam,
  isEligible,
  KEEP,
  leastLoaded,
  MOVE_GONE,
  MOVE_LOAD,
  PLACE,
  param,
} from "hawser/assembly";

export { init } from "hawser/assembly";

const MARGIN = 0;

export function select(n: i32, bound: i32): i32 {
  const best = leastLoaded(n, false);
  if (!isEligible(bound)) return answer(best, bound < 0 ? PLACE : MOVE_GONE);
  if (!hasParam(MARGIN)) return answer(bound, KEEP);
  const over = <f64>activeRequests(bound) - <f64>activeRequests(best);
  return over <= param(MARGIN) ? answer(bound, KEEP) : answer(best, MOVE_LOAD);
}
