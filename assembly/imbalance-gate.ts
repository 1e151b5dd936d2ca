// Keep sessions where they are while the fleet as a whole is balanced; once it is not, place every turn anew.

import {
  answer,
  highestLoad,
  isEligible,
  KEEP,
  leastLoaded,
  lowestLoad,
  param,
  placedReason,
  rowWithLoad,
} from "./sdk";

export { init } from "./sdk";

const BALANCE_ABS_THRESHOLD = 0;
const BALANCE_REL_THRESHOLD = 1;
const TIES = 2;

function imbalanced(low: f64, high: f64): bool {
  const absolute = param(BALANCE_ABS_THRESHOLD);
  return absolute > 0 && high - low > absolute && high > param(BALANCE_REL_THRESHOLD) * low;
}

export function select(n: i32, bound: i32): i32 {
  const randomTies = param(TIES) !== 0;
  const eligible = isEligible(bound);
  if (!eligible) {
    const row = leastLoaded(n, randomTies);
    return answer(row, placedReason(row, bound, false));
  }
  const low = lowestLoad(n);
  if (!imbalanced(<f64>low, <f64>highestLoad(n))) return answer(bound, KEEP);
  const row = rowWithLoad(n, low, randomTies);
  return answer(row, placedReason(row, bound, true));
}
