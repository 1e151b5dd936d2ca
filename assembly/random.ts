// Every turn goes to any eligible worker, each as likely as the other.

import { answer, anyEligible, isEligible, placedReason } from "./sdk";

export { init } from "./sdk";

export function select(n: i32, bound: i32): i32 {
  const row = anyEligible(n);
  return answer(row, placedReason(row, bound, isEligible(bound)));
}
