// Durations as people write them: `500ms`, `30s`, `30m`, `2h`, and `off` where there may be none.

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
const OFF = "off";

/** What `parseDuration` understands: above zero, and small enough to be counted in milliseconds exactly. */
export const DURATION_PATTERN = "^[1-9][0-9]{0,8}(ms|s|m|h)$";

/** What `durationOrOff` understands. */
export const DURATION_OR_OFF_PATTERN = `${DURATION_PATTERN}|^${OFF}$`;

/** Milliseconds of a duration that matches DURATION_PATTERN; NaN for any other text. */
export function parseDuration(text: string): number {
  const unit = new RegExp(DURATION_PATTERN).exec(text)?.[1];
  return unit === undefined ? Number.NaN : Number(text.slice(0, -unit.length)) * UNITS[unit];
}

/** The same, and Infinity for `off`. */
export function durationOrOff(text: string): number {
  return text === OFF ? Number.POSITIVE_INFINITY : parseDuration(text);
}
