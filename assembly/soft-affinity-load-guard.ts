// Keep a session on its worker until that worker is over a threshold and another is lower by a margin.

import {
  activeRequests,
  answer,
  isEligible,
  KEEP,
  KEEP_MARGIN,
  leastLoaded,
  lowestLoad,
  MOVE_GONE,
  MOVE_LOAD,
  PLACE,
  param,
  rowWithLoad,
} from "./sdk";

export { init } from "./sdk";

const MAX_ACTIVE_REQUESTS = 0;
const MOVE_MARGIN = 1;
const TIES = 2;

export function select(n: i32, bound: i32): i32 {
  const randomTies = param(TIES) !== 0;
  if (!isEligible(bound)) {
    return answer(leastLoaded(n, randomTies), bound < 0 ? PLACE : MOVE_GONE);
  }
  const load = activeRequests(bound);
  if (<f64>load <= param(MAX_ACTIVE_REQUESTS)) return answer(bound, KEEP);
  const low = lowestLoad(n);
  // The margin is at least 1, so the bound row is never among the rows it could move to.
  if (<f64>load - <f64>low < param(MOVE_MARGIN)) return answer(bound, KEEP_MARGIN);
  return answer(rowWithLoad(n, low, randomTies), MOVE_LOAD);
}
