// How the results of a decision table are printed.
import type { ExampleResult } from "../policy/examples.js";

/** One line for each example, what failed beneath it, and the sum; returns how many failed. */
export function printExamples(results: readonly ExampleResult[]): number {
  for (const { title, failures } of results) {
    process.stdout.write(`${failures.length === 0 ? "ok  " : "FAIL"}  ${title}\n`);
    for (const failure of failures) process.stdout.write(`      ${failure}\n`);
  }
  const failed = results.filter(({ failures }) => failures.length > 0).length;
  process.stdout.write(`${results.length - failed} passed, ${failed} failed\n`);
  return failed;
}
