// From the built library: the thread is a file of its own.
import { beforeAll, expect, test } from "vitest";
import { readTargets } from "../../host/fleet/targets.js";

let aside: typeof import("../../host/fleet/targets-aside.js");
beforeAll(async () => {
  const built = new URL("../../build/host/fleet/targets-aside.js", import.meta.url);
  aside = (await import(built.href)) as typeof aside;
});

const lines = (count: number, port = 1) =>
  Array.from({ length: count }, (_, i) => `- targets: [worker-${i}:${port}]\n`).join("");

test("a large text comes to what a small one would, and the caller's thread goes on meanwhile", async () => {
  const order: string[] = [];
  const reading = aside.readTargetsAside(lines(4_000), "t.yaml").finally(() => order.push("read"));
  setImmediate(() => order.push("went on"));
  expect(await reading).toEqual(readTargets(lines(4_000), "t.yaml"));
  expect(order).toEqual(["went on", "read"]);
});

test("its mistakes have their places", async () => {
  const targets = await aside.readTargetsAside(lines(1_000) + lines(1, 0), "t.yaml");
  expect(targets).toMatchObject({ mistakes: [{ file: "t.yaml", line: 1_001, column: 13 }] });
});

test.each([
  ["memory", { timeoutMs: 600_000, memoryMib: 8 }, "8 MiB of memory"],
  ["time", { timeoutMs: 1, memoryMib: 512 }, "1 ms"],
])("one that takes too much %s to read is a mistake", async (_, bounds, much) => {
  const targets = await aside.readTargetsAside(lines(16_000), "t.yaml", bounds);
  const message = `cannot read the file: that takes more than ${much}`;
  expect(targets).toEqual({ mistakes: [{ file: "t.yaml", line: 1, column: 1, message }] });
});
