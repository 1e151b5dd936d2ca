import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // A guard against hangs only: no test is to depend on speed.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Most of what the tests wait for are processes of their own.
    maxWorkers: "100%",
    reporters: ["default", "./test/summary-reporter.ts"],
  },
});
