// Every turn goes to the next eligible worker in turn, wherever its session was.

import { answer, isEligible, placedReason, roundRobin } from "./sdk";

export { init } from "./sdk";

export function select(n: i32, bound: i32): i32 {
  const row = roundRobin(n);
  return answer(row, placedReason(row, bound, isEligible(bound)));
}
