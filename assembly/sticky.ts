// Keep a session on its worker as long as that worker is eligible; place it by one of four rules otherwise.

import { answer, isEligible, KEEP, MOVE_GONE, PLACE, param, place } from "./sdk";

export { init } from "./sdk";

const PLACEMENT = 0;
const TIES = 1;

export function select(n: i32, bound: i32): i32 {
  if (isEligible(bound)) return answer(bound, KEEP);
  const row = place(<i32>param(PLACEMENT), n, param(TIES) !== 0);
  return answer(row, bound < 0 ? PLACE : MOVE_GONE);
}
