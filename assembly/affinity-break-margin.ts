// Keep a session on its worker while that worker is within a margin of the least-loaded one; without a margin, always.

import {
  activeRequests,
  answer,
  hasParam,
  isEligible,
  KEEP,
  leastLoaded,
  lowestLoad,
  MOVE_GONE,
  MOVE_LOAD,
  PLACE,
  param,
  rowWithLoad,
} from "./sdk";

export { init } from "./sdk";

const AFFINITY_BREAK_MARGIN = 0;
const TIES = 1;

export function select(n: i32, bound: i32): i32 {
  const randomTies = param(TIES) !== 0;
  if (!isEligible(bound)) {
    return answer(leastLoaded(n, randomTies), bound < 0 ? PLACE : MOVE_GONE);
  }
  if (!hasParam(AFFINITY_BREAK_MARGIN)) return answer(bound, KEEP);
  const low = lowestLoad(n);
  if (<f64>activeRequests(bound) - <f64>low <= param(AFFINITY_BREAK_MARGIN)) return answer(bound, KEEP);
  return answer(rowWithLoad(n, low, randomTies), MOVE_LOAD);
}
