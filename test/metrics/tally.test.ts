import { expect, it } from "vitest";
import { Tally } from "../../host/metrics/tally.js";

it("a tally counts by word, and shows the words that it began with from the start", () => {
  const tally = new Tally(["kept", "broken"]);
  expect([...tally]).toEqual([
    ["kept", 0],
    ["broken", 0],
  ]);
  for (const word of ["kept", "constructor", "kept"]) tally.add(word);
  expect(Object.fromEntries(tally)).toEqual({ kept: 2, broken: 0, constructor: 1 });
});
