// The decision table of a manifest: every example is run on an instance of its own and compared with what it expects.
import { CaseError, CaseRunner, type Decision } from "./case.js";
import type { PolicyFile } from "./catalog.js";
import type { Program } from "./live.js";
import type { Example, ExampleStep, Expectation } from "./manifest.js";
import { resolveParameters } from "./parameters.js";

/** What became of one example. */
export interface ExampleResult {
  readonly example: Example;
  /** The example's name, or its case in words. */
  readonly title: string;
  /** One sentence for each step that did not go as expected; none: the example holds. */
  readonly failures: readonly string[];
}

/**
 * Runs every example of the policy's manifest, in its order. Throws a PolicyFileError where the module cannot be
 * used and a PolicyStartError where it does not start.
 */
export function runExamples(policy: Program & Pick<PolicyFile, "manifest">): ExampleResult[] {
  return policy.manifest.examples.map((example) => runExample(policy, example));
}

/** Runs one example on a fresh instance. Throws as `runExamples` does. */
export function runExample(policy: Program & Pick<PolicyFile, "manifest">, example: Example): ExampleResult {
  // The manifest was refused if an example's parameters are not allowed: there is nothing left to be said of them.
  const { values } = resolveParameters(policy.manifest.parameters, example.parameters);
  const runner = new CaseRunner(policy, values);
  const failures = example.steps.flatMap((step, index) => {
    const failure = runStep(runner, step);
    if (failure === undefined) return [];
    return [example.steps.length > 1 ? `step ${index + 1}: ${failure}` : failure];
  });
  return { example, title: titleOf(example), failures };
}

/** An example's name, or its case in words: `loads [8,6], bound 0, max_active_requests 7`. */
export function titleOf({ name, parameters = {}, steps }: Example): string {
  if (name !== undefined) return name;
  const said = steps.map(({ case: given }) => wordsOf(given)).join("; then ");
  return [said, wordsOf(parameters)].filter((part) => part !== "").join(", ");
}

function wordsOf(values: Readonly<Record<string, unknown>>): string {
  return Object.entries(values)
    .map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function runStep(runner: CaseRunner, { case: given, expect }: ExampleStep): string | undefined {
  let found: Decision;
  try {
    found = runner.run(given);
  } catch (error) {
    if (error instanceof CaseError) return error.message;
    throw error;
  }
  if (isAsExpected(found, expect)) return undefined;
  return `expected ${decisionText(expect)}; found ${decisionText(found)}`;
}

function isAsExpected(found: Decision, { row, reason, failure }: Expectation): boolean {
  const rowFits = Array.isArray(row) ? found.row !== null && row.includes(found.row) : found.row === row;
  return rowFits && found.reason === reason && found.failure === failure;
}

function decisionText({ row, reason, failure }: Expectation): string {
  const rowText = row === null ? "no row" : Array.isArray(row) ? `row ${row.join(" or ")}` : `row ${row}`;
  return `${rowText}, reason ${reason}${failure === undefined ? "" : `, failure ${failure}`}`;
}
