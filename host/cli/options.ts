// Values of options that more than one command takes.
import { InvalidArgumentError } from "commander";

/** Reads a JSON object. */
export function jsonObject(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidArgumentError("It must be a JSON object.");
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new InvalidArgumentError("It must be a JSON object.");
}

/** Reads an integer within bounds. */
export function integer(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
  };
}
