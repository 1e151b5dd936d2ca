// Why a policy chose a row. `host/abi/reasons.ts` is the twin of this file.

export const UNSPECIFIED: i32 = 0;
/** The bound worker, as the rule wants it. */
export const KEEP: i32 = 1;
/** The bound worker is over the threshold, but nobody is better by the margin. */
export const KEEP_MARGIN: i32 = 2;
/** Another worker, because of load. */
export const MOVE_LOAD: i32 = 3;
/** Another worker, because the bound one is not eligible. */
export const MOVE_GONE: i32 = 4;
/** A first placement: the session is not bound. */
export const PLACE: i32 = 5;
/** The worker that holds the prompt's prefix. */
export const CACHE: i32 = 6;
/** Reasons from here on are the policy's own and are named in its manifest. */
export const FIRST_OWN: i32 = 256;

/** The answer "no row": the host then applies its built-in rule. */
export const NO_CHOICE: i32 = -1;

/** The answer of `select`. */
export function answer(row: i32, reason: i32): i32 {
  return row | (reason << 16);
}

/** The reason for a choice made without regard to the binding, given the bound row or -1. */
export function placedReason(row: i32, bound: i32, boundEligible: bool): i32 {
  if (bound < 0) return PLACE;
  if (!boundEligible) return MOVE_GONE;
  return row === bound ? KEEP : MOVE_LOAD;
}
