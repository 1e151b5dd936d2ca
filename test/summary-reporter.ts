// Ends a run with its counts on one line, and makes a skipped test a failure where everything must run.
import type { Reporter, TestModule } from "vitest/node";

/** Tests that need real traces say so in their name; they alone may be skipped under `CI_ALL`. */
const MAY_SKIP = "HAWSER_TRACES";

export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const count = (state: string) => tests.filter((test) => test.result().state === state).length;
    const forbidden = tests.filter(
      (test) => test.result().state === "skipped" && !test.fullName.includes(MAY_SKIP),
    );
    if (process.env.CI_ALL && forbidden.length > 0) {
      process.exitCode = 1;
      for (const test of forbidden)
        process.stdout.write(`skipped although CI_ALL is set: ${test.fullName}\n`);
    }
    process.stdout.write(
      `${count("passed")} passed, ${count("failed")} failed, ${count("skipped")} skipped\n`,
    );
  }
}
