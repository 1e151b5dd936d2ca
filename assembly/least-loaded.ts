// Every turn goes to the eligible worker with the fewest requests in flight, wherever its session was.

import { answer, isEligible, leastLoaded, param, placedReason } from "./sdk";

export { init } from "./sdk";

const TIES = 0;

export function select(n: i32, bound: i32): i32 {
  const row = leastLoaded(n, param(TIES) !== 0);
  return answer(row, placedReason(row, bound, isEligible(bound)));
}
