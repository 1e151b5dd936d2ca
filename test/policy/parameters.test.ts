import { describe, expect, test } from "vitest";
import { type RawParameterSpec, resolveParameters, specsOf } from "../../host/policy/parameters.js";

const GUARD: Record<string, RawParameterSpec> = {
  max_active_requests: { type: "integer", minimum: 0, default: 32 },
  move_margin: { type: "integer", minimum: 1, default: 2 },
  ties: { type: "enum", values: ["first", "random"], default: "first" },
};
const NESTED: Record<string, RawParameterSpec> = {
  threshold: { type: "number", minimum: 0, maximum: 1, default: 0.5 },
  adaptive: { type: "boolean" },
  "adaptive.interval_ms": { type: "integer", exclusiveMinimum: 0, default: 100 },
  "adaptive.load_scale": { type: "number", minimum: 1 },
  "weights.prefix": { type: "number", default: 2 },
};

function resolve(specs: Record<string, RawParameterSpec>, given?: Record<string, unknown>) {
  const { values, mistakes } = resolveParameters(specsOf(specs), given);
  return { values: [...values], mistakes };
}
const messages = (specs: Record<string, RawParameterSpec>, given?: Record<string, unknown>) =>
  resolve(specs, given).mistakes.map(({ message }) => message);

describe("values", () => {
  test("are the defaults where nothing is given", () => {
    expect(resolve(GUARD)).toEqual({ values: [32, 2, 0], mistakes: [] });
  });

  test("stand in the order of the manifest, whatever the order given", () => {
    expect(resolve(GUARD, { ties: "random", move_margin: 9, max_active_requests: 0 }).values).toEqual([
      0, 9, 1,
    ]);
  });

  test("of a boolean are 0 and 1", () => {
    const specs: Record<string, RawParameterSpec> = {
      on: { type: "boolean" },
      off: { type: "boolean", default: true },
    };
    expect(resolve(specs, { on: true, off: false }).values).toEqual([1, 0]);
  });

  test("of null are NaN where the parameter is nullable", () => {
    const specs: Record<string, RawParameterSpec> = {
      margin: { type: "integer", nullable: true, default: 3 },
    };
    expect(resolve(specs, { margin: null }).values).toEqual([Number.NaN]);
    expect(resolve(specs).values).toEqual([3]);
    expect(resolve({ margin: { type: "integer", nullable: true, default: null } }).values).toEqual([
      Number.NaN,
    ]);
  });

  test("reach the largest exact integer", () => {
    expect(resolve(GUARD, { max_active_requests: 2 ** 53 - 1 }).values[0]).toBe(2 ** 53 - 1);
  });

  test("below zero are allowed by a minimum that says so", () => {
    expect(resolve({ a: { type: "integer", minimum: -5, default: 0 } }, { a: -5 }).values).toEqual([-5]);
  });

  test("of a nested mapping say whether it is given", () => {
    expect(resolve(NESTED)).toEqual({ values: [0.5, 0, 100, Number.NaN, 2], mistakes: [] });
    expect(resolve(NESTED, { adaptive: { load_scale: 32 } }).values).toEqual([0.5, 1, 100, 32, 2]);
    expect(resolve(NESTED, { weights: { prefix: 7 } }).values[4]).toBe(7);
  });
});

describe("mistakes", () => {
  test.each([
    [{ move_margin: 0 }, "move_margin must be an integer of at least 1, found 0"],
    [{ move_margin: 1.5 }, "move_margin must be an integer of at least 1, found 1.5"],
    [{ move_margin: "2" }, 'move_margin must be an integer of at least 1, found "2"'],
    [{ move_margin: null }, "move_margin must be an integer of at least 1, found null"],
    [{ max_active_requests: -1 }, "max_active_requests must be an integer of at least 0, found -1"],
    [
      { max_active_requests: 2 ** 53 },
      "max_active_requests must be an integer from 0 to 9007199254740991, found 9007199254740992",
    ],
    [{ ties: "randon" }, 'ties must be one of first, random, found "randon", did you mean "random"?'],
    [{ ties: 1 }, "ties must be one of first, random, found 1"],
    [
      { move_magin: 3 },
      'unknown parameter "move_magin", did you mean "move_margin"? (allowed: max_active_requests, move_margin, ties)',
    ],
    [{ constructor: 3 }, 'unknown parameter "constructor" (allowed: max_active_requests, move_margin, ties)'],
  ])("%j", (given, message) => {
    expect(messages(GUARD, given)).toEqual([message]);
  });

  test.each([
    [{ threshold: 2 }, "threshold must be a finite number from 0 to 1, found 2"],
    [{ threshold: Number.NaN }, "threshold must be a finite number from 0 to 1, found NaN"],
    [
      { threshold: Number.POSITIVE_INFINITY },
      "threshold must be a finite number from 0 to 1, found Infinity",
    ],
    [{ adaptive: true }, "adaptive must be a mapping, found true"],
    [
      { adaptive: {} },
      'the parameter "adaptive.load_scale" is required, it must be a finite number of at least 1',
    ],
    [
      { adaptive: { load_scale: 1, interval_ms: 0 } },
      "adaptive.interval_ms must be an integer above 0, found 0",
    ],
    [
      { adaptive: { load_sclae: 32, load_scale: 1 } },
      'unknown parameter "load_sclae" in adaptive, did you mean "load_scale"? (allowed: interval_ms, load_scale)',
    ],
    [
      { "adaptive.load_scale": 3 },
      'unknown parameter "adaptive.load_scale", write it as a mapping under "adaptive"',
    ],
    [{ interval_ms: 3 }, 'unknown parameter "interval_ms", it belongs into "adaptive"'],
    [{ weights: { prefix: null } }, "weights.prefix must be a finite number, found null"],
  ])("nested: %j", (given, message) => {
    expect(messages(NESTED, given)).toEqual([message]);
  });

  test("name a required parameter", () => {
    const specs: Record<string, RawParameterSpec> = { mode: { type: "enum", values: ["hard", "bounded"] } };
    expect(messages(specs)).toEqual(['the parameter "mode" is required, it must be one of hard, bounded']);
  });

  test("say so where a policy takes no parameters", () => {
    expect(messages({}, { ties: "first" })).toEqual(['unknown parameter "ties", the policy takes none']);
  });

  test("offer null where it is allowed", () => {
    expect(messages({ margin: { type: "integer", nullable: true, default: null } }, { margin: -1 })).toEqual([
      "margin must be an integer of at least 0, or null, found -1",
    ]);
  });

  test("are told all at once, each at its own path", () => {
    const { mistakes } = resolve(NESTED, { threshold: 9, extra: 1, adaptive: { load_scale: 0 } });
    expect(mistakes.map(({ path, where }) => [path, where])).toEqual([
      [["extra"], "key"],
      [["threshold"], "value"],
      [["adaptive", "load_scale"], "value"],
    ]);
  });
});
