// Stay on the session's worker up to a number of requests in flight, then take the least-loaded worker.

import {
  activeRequests,
  answer,
  isEligible,
  KEEP,
  KEEP_MARGIN,
  leastLoaded,
  MOVE_GONE,
  MOVE_LOAD,
  PLACE,
  param,
} from "hawser/assembly";

export { init } from "hawser/assembly";

// Parameters by their place in the manifest.
const MAX_ACTIVE_REQUESTS = 0;

/** Chooses among `n` workers; `bound` is the row of the session's worker, -1 for none. */
export function select(n: i32, bound: i32): i32 {
  const best = leastLoaded(n, false);
  if (!isEligible(bound)) return answer(best, bound < 0 ? PLACE : MOVE_GONE);
  const load = activeRequests(bound);
  // Parameters are compared as f64: a cast to i32 is wrong above 2^31 - 1.
  if (<f64>load <= param(MAX_ACTIVE_REQUESTS)) return answer(bound, KEEP);
  if (activeRequests(best) === load) return answer(bound, KEEP_MARGIN);
  return answer(best, MOVE_LOAD);
}
