// What became of the lines of the decision log, over all logs that a gateway has had.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { DecisionLog } from "../../host/decisions/log.js";
import { DecisionWatch } from "../../host/gateway/decision-watch.js";
import { directoryOf } from "../fixtures/directory.js";
import { metered } from "./metered.js";

it("is counted through every change of the log, and what a broken one gives up as lost", async () => {
  const directory = directoryOf({ file: "" });
  const logAt = (name: string) =>
    new DecisionLog(
      { file: join(directory, name), sample: 1, columns: "read", maxBytes: 1_000_000, maxFiles: 2 },
      { onError: () => {} },
    );
  const watch = new DecisionWatch(metered([]).metrics);
  const write = () => watch.log!.ended(1, { outcome: "complete", accepted: true });
  await watch.replaceLog(logAt("first"));
  for (let i = 0; i < 3; i++) write();
  await watch.replaceLog(logAt("second"));
  expect(watch.lines).toEqual({ written: 3, dropped: 0 });
  write();
  // No directory can be made where a file stands.
  await watch.replaceLog(logAt("file/below"));
  write();
  write();
  await watch.replaceLog(null);
  expect(watch.lines).toEqual({ written: 4, dropped: 2 });
  expect(readFileSync(join(directory, "first"), "utf8").split("\n")).toHaveLength(4);
});
