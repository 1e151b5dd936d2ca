// Keep a session on its worker up to a threshold; above it take the least-loaded other worker, even a busier one.

import {
  activeRequests,
  answer,
  isEligible,
  KEEP,
  KEEP_MARGIN,
  leastLoaded,
  leastLoadedExcept,
  MOVE_GONE,
  MOVE_LOAD,
  PLACE,
  param,
} from "./sdk";

export { init } from "./sdk";

const MAX_ACTIVE_REQUESTS = 0;
const TIES = 1;

export function select(n: i32, bound: i32): i32 {
  const randomTies = param(TIES) !== 0;
  if (!isEligible(bound)) {
    return answer(leastLoaded(n, randomTies), bound < 0 ? PLACE : MOVE_GONE);
  }
  if (<f64>activeRequests(bound) <= param(MAX_ACTIVE_REQUESTS)) return answer(bound, KEEP);
  const other = leastLoadedExcept(n, bound, randomTies);
  return other < 0 ? answer(bound, KEEP_MARGIN) : answer(other, MOVE_LOAD);
}
