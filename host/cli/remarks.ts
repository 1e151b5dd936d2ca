// What is to be said of a config file, a line each.

import type { LoadedConfig } from "../config/config.js";
import { formatMistake, sortMistakes } from "../yaml/mistake.js";

/** Its mistakes and warnings in the order of the file; warnings say that they are. */
export function remarksOf({ mistakes, warnings }: LoadedConfig, file: string): string[] {
  const warned = new Set(warnings);
  return sortMistakes([...mistakes, ...warnings], file).map((remark) => {
    return `${formatMistake(remark)}${warned.has(remark) ? " (warning)" : ""}`;
  });
}
