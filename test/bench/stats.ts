// Medians, spreads and aligned text tables.

/** The value below which the share `at` (0..1) of the values lies, interpolated. Throws a RangeError for no values. */
export function quantile(values: ArrayLike<number>, at: number): number {
  if (values.length === 0) throw new RangeError("there is no quantile of no values");
  const sorted = Array.from(values).sort((a, b) => a - b);
  const place = (sorted.length - 1) * at;
  const below = Math.floor(place);
  const next = sorted[below + 1] ?? sorted[below]!;
  return sorted[below]! + (next - sorted[below]!) * (place - below);
}

/** The middle value. Throws a RangeError for no values. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The middle four fifths of the values as text, such as `0.31-0.36`. */
export function spread(values: readonly number[], digits: number): string {
  return `${quantile(values, 0.1).toFixed(digits)}-${quantile(values, 0.9).toFixed(digits)}`;
}

/** A table as lines: a heading, the columns' names, one line per row, every column aligned to the right. */
export function table(
  heading: string,
  columns: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const lines = [columns, ...rows];
  const widths = columns.map((_, column) => Math.max(...lines.map((cells) => cells[column]!.length)));
  const body = lines.map((cells) => cells.map((cell, column) => cell.padStart(widths[column]!)).join("  "));
  return `${[heading, ...body].join("\n")}\n`;
}

/** Nanoseconds of processor time since `start`: on a shared machine steadier than the clock on the wall. */
export function cpuNanoseconds(start: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(start);
  return (user + system) * 1000;
}
