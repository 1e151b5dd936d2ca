// Sizes as people write them: `64KB`, `64MiB`, `1GiB`.

const UNITS: Readonly<Record<string, number>> = {
  ...{ KB: 1e3, MB: 1e6, GB: 1e9 },
  ...{ KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 },
};

/** What `parseSize` understands: above zero, and small enough to be counted in bytes exactly. */
export const SIZE_PATTERN = "^[1-9][0-9]{0,5}([KMG]i?B)$";

/** Bytes of a size that matches SIZE_PATTERN; NaN for any other text. */
export function parseSize(text: string): number {
  const unit = new RegExp(SIZE_PATTERN).exec(text)?.[1];
  return unit === undefined ? Number.NaN : Number(text.slice(0, -unit.length)) * UNITS[unit];
}
