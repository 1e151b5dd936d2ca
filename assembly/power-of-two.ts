// Every turn goes to the less loaded of two eligible workers drawn at random.

import { answer, isEligible, placedReason, powerOfTwo } from "./sdk";

export { init } from "./sdk";

export function select(n: i32, bound: i32): i32 {
  const row = powerOfTwo(n);
  return answer(row, placedReason(row, bound, isEligible(bound)));
}
