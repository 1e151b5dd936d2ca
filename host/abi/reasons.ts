// What a policy's answer says: `row | reason << 16`, and the names of the reasons.

/** Reasons that every policy shares. 7..255 are reserved; from 256 on they are the policy's own. */
export const REASON = {
  unspecified: 0,
  keep: 1,
  keep_margin: 2,
  move_load: 3,
  move_gone: 4,
  place: 5,
  cache: 6,
} as const;

/** Decisions that are the host's own and that no policy returns. */
export type HostDecision = "fallback" | "hard" | "explicit" | "deterministic" | "none";

/** Largest row and reason an answer can carry. */
export const ROW_MASK = 0xffff;
export const MAX_REASON = 0x7fff;
/** The first reason that is a policy's own to name. */
export const FIRST_OWN_REASON = 256;
/** The last of the shared reasons. */
export const LAST_SHARED_REASON = REASON.cache;

/** Names of the shared reasons by number. */
export const REASON_NAMES: readonly string[] = Object.keys(REASON);

/** Why an answer was not used. The order is that of the failure counters. */
export const FAILURES = ["trap", "fuel", "bad_row", "not_eligible", "bad_reason", "no_choice"] as const;
export type Failure = (typeof FAILURES)[number];
