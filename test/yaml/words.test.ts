import { expect, test } from "vitest";
import { describe as described, didYouMean, pathText, suggest } from "../../host/yaml/words.js";

test.each([
  ["wieght", "weight"],
  ["gaurd", "guard"],
  ["MaxActive", "max_active"],
  ["max-active", "max_active"],
  ["ur", "url"],
  ["sha256", undefined],
  ["x", undefined],
  ["", undefined],
])("%j means %j", (word, meant) => {
  expect(suggest(word, ["weight", "guard", "max_active", "url"])).toBe(meant);
});

test("a long word is not compared letter by letter with short ones", () => {
  expect(suggest("x".repeat(10_000_000), ["weight"])).toBeUndefined();
});

test("nothing is suggested where nothing is close", () => {
  expect(didYouMean("zzz", ["weight"])).toBe("");
});

test.each([
  [null, "nothing"],
  ["a\nb", '"a\\nb"'],
  ["x".repeat(100), `"${"x".repeat(80)}"... (100 characters)`],
  [Number.NaN, "NaN"],
  [[], "an empty list"],
  [{}, "a mapping"],
])("%j is quoted as %s", (value, text) => {
  expect(described(value)).toBe(text);
});

test("a path is named as people write it", () => {
  expect(pathText(["workers", 1, "a b"])).toBe('workers[1]."a b"');
});
