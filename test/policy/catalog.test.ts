import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Catalog, loadPolicyFile, PolicyFileError, SHIPPED_POLICIES } from "../../host/policy/catalog.js";
import { formatMistake, type Mistake } from "../../host/yaml/mistake.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";

const content = (type: string) => ({ abi: 1, type, version: "1.0.0", summary: "S." });
const manifest = (type: string, more = "") =>
  `abi: 1\ntype: ${type}\nversion: 1.0.0\nsummary: S.\nmodule: ${type}.wasm\n${more}`;

/** Mistakes as printed, the directory left out. */
function lines(mistakes: readonly Mistake[], directory: string): string[] {
  return mistakes.map((mistake) => formatMistake(mistake).replaceAll(`${directory}/`, ""));
}

describe("the shipped policies", () => {
  test("are found by type and by alias, and compile", () => {
    const catalog = Catalog.open([]);
    const guard = catalog.find("soft-affinity-load-guard");
    expect(catalog.mistakes).toEqual([]);
    expect(guard?.manifest.parameters.map(({ name }) => name)).toEqual([
      "max_active_requests",
      "move_margin",
      "ties",
    ]);
    expect(catalog.find("dynamo-soft-affinity-load-guard")).toBe(guard);
    expect(guard?.check()).toEqual([]);
    expect(guard?.admitted.module).toBeInstanceOf(WebAssembly.Module);
  });

  test("are listed by type", () => {
    const types = Catalog.open([])
      .list()
      .map(({ manifest: { type } }) => type);
    expect(types).toEqual([...types].sort());
    expect(types).toContain("soft-affinity-load-guard");
  });

  test("can be loaded by their file", () => {
    const { policy, mistakes } = loadPolicyFile(join(SHIPPED_POLICIES, "soft-affinity-load-guard.yaml"));
    expect(mistakes).toEqual([]);
    expect(loadPolicyFile(policy!.modulePath).policy?.manifest).toEqual(policy?.manifest);
  });
});

describe("a directory", () => {
  test("offers manifests with their modules, and modules with a manifest inside", () => {
    const directory = directoryOf({
      "a.yaml": manifest("a", "aliases: [first]\n"),
      "a.wasm": encodeModule(),
      "lone.wasm": encodeModule({ manifest: content("b") }),
    });
    const catalog = Catalog.open([directory]);
    expect(catalog.mistakes).toEqual([]);
    expect(catalog.find("first")).toMatchObject({
      file: join(directory, "a.yaml"),
      modulePath: join(directory, "a.wasm"),
    });
    expect(catalog.find("b")).toMatchObject({
      file: join(directory, "lone.wasm"),
      modulePath: join(directory, "lone.wasm"),
    });
    expect(catalog.find("b")?.check()).toEqual([]);
    expect(catalog.find("c")).toBeUndefined();
  });

  test("wins over later ones, by type and by alias", () => {
    const [first, second] = [
      directoryOf({ "x.yaml": manifest("x", "aliases: [round-robin]\n") }),
      directoryOf({ "x.yaml": manifest("x", "aliases: [y]\n") }),
    ];
    const catalog = Catalog.open([first, second]);
    expect(catalog.mistakes).toEqual([]);
    expect(catalog.find("x")?.file).toBe(join(first, "x.yaml"));
    expect(catalog.find("round-robin")?.file).toBe(join(first, "x.yaml"));
    expect(catalog.find("y")?.file).toBe(join(second, "x.yaml"));
    expect(catalog.list().filter(({ manifest: { type } }) => type === "x")).toHaveLength(1);
  });

  test("may hold other YAML and modules that are no policies", () => {
    const directory = directoryOf({
      "hawser.yaml": "workers: []\n",
      "x.wasm": encodeModule(),
      "readme.md": "# x",
    });
    expect(Catalog.open([directory]).mistakes).toEqual([]);
  });

  test("does not compile a module before it is asked for", () => {
    const directory = directoryOf({ "a.yaml": manifest("a"), "a.wasm": "not wasm" });
    const catalog = Catalog.open([directory]);
    expect(catalog.mistakes).toEqual([]);
    expect(catalog.find("a")?.check()).toHaveLength(1);
  });
});

describe("a mistake in a directory", () => {
  test.each<[string, Record<string, string | Uint8Array>, string[]]>([
    [
      "a broken manifest, told once though its module lies beside it",
      { "a.yaml": manifest("a", "reads: [seeds]\n"), "a.wasm": encodeModule({ manifest: content("a") }) },
      ['a.yaml:6:9: reads[0] names "seeds", which no frame has, did you mean "seed"?'],
    ],
    ["broken YAML", { "a.yaml": "abi: [1\n" }, ['a.yaml:2:1: broken YAML: a list opened with "["']],
    [
      "one type in two manifests",
      { "a.yaml": manifest("a", "aliases: [b]\n"), "z.yaml": manifest("a", "aliases: [b]\n") },
      ['z.yaml:2:7: the policy type "a" is defined twice, in z.yaml and in a.yaml'],
    ],
    [
      "an alias that is another's type",
      { "a.yaml": manifest("a"), "z.yaml": manifest("z", "aliases: [a]\n") },
      ['z.yaml:6:11: the policy type "a" is defined twice, in z.yaml and in a.yaml'],
    ],
    [
      "one type in a manifest and inside a module",
      { "a.yaml": manifest("a"), "b.wasm": encodeModule({ manifest: content("a") }) },
      ['b.wasm:1:1: the policy type "a" is defined twice, in b.wasm and in a.yaml'],
    ],
    [
      "a truncated module",
      { "b.wasm": encodeModule().slice(0, 30) },
      ["b.wasm:1:1: cannot use the module: "],
    ],
    [
      "a bad embedded manifest",
      { "b.wasm": encodeModule({ manifest: "{}" }) },
      Array(4).fill("b.wasm:1:1: in the embedded manifest: the manifest needs the key "),
    ],
  ])("%s", (_, files, expected) => {
    const directory = directoryOf(files);
    const found = lines(Catalog.open([directory]).mistakes, directory);
    expect(found.map((line, i) => line.slice(0, expected[i]?.length))).toEqual(expected);
  });

  test("a directory that does not exist", () => {
    const { mistakes } = Catalog.open(["/nonexistent/policies"]);
    expect(mistakes.map(formatMistake)).toEqual([
      "/nonexistent/policies:1:1: cannot read the directory: it does not exist",
    ]);
  });

  test("keeps the name of a broken manifest from being found elsewhere", () => {
    const catalog = Catalog.open([directoryOf({ "x.yaml": "abi: 9\ntype: round-robin\n" })]);
    expect(catalog.isBroken("round-robin")).toBe(true);
    expect(catalog.find("round-robin")).toBeUndefined();
  });
});

describe("a module", () => {
  test.each<[string, Uint8Array | undefined, string]>([
    ["missing", undefined, "a.yaml:5:9: cannot use the module a.wasm: it does not exist"],
    [
      "not WebAssembly",
      Uint8Array.of(1, 2, 3),
      "a.yaml:5:9: cannot use the module a.wasm: the module is not valid WebAssembly: ",
    ],
    [
      "importing",
      encodeModule({ importing: { module: "env", name: "abort" } }),
      "a.yaml:5:9: cannot use the module a.wasm: ",
    ],
    ["without select", encodeModule({ without: ["select"] }), "a.yaml:5:9: cannot use the module a.wasm: "],
    [
      "of another version than the manifest",
      encodeModule({ manifest: { ...content("a"), version: "1.0.1" } }),
      'a.yaml:5:9: this manifest and the manifest inside a.wasm disagree about "version", they must say the same',
    ],
    [
      "with a bad manifest inside",
      encodeModule({ manifest: { ...content("a"), abi: 2 } }),
      "a.wasm:1:1: in the embedded manifest: abi must be 1",
    ],
  ])("%s", (_, bytes, expected) => {
    const directory = directoryOf({ "a.yaml": manifest("a"), ...(bytes && { "a.wasm": bytes }) });
    const policy = Catalog.open([directory]).find("a")!;
    const found = lines(policy.check(), directory);
    expect(found).toHaveLength(1);
    expect(found[0].slice(0, expected.length)).toBe(expected);
    expect(() => policy.admitted).toThrow(PolicyFileError);
  });

  test("that agrees with its manifest is good, examples and all", () => {
    const examples = [{ loads: [1], expect: { row: 0, reason: "place" } }];
    const more = "reasons: { 256: own }\nexamples:\n  - { loads: [1], expect: { row: 0, reason: place } }\n";
    const inside = { ...content("a"), reasons: { "256": "own" }, examples };
    const directory = directoryOf({
      "a.yaml": manifest("a", more),
      "a.wasm": encodeModule({ manifest: inside }),
    });
    expect(Catalog.open([directory]).find("a")?.check()).toEqual([]);
  });
});

describe("loading one file", () => {
  test("takes a manifest, a module beside its manifest, or a module with its manifest inside", () => {
    const directory = directoryOf({
      "a.yaml": manifest("a"),
      "a.wasm": encodeModule(),
      "b.wasm": encodeModule({ manifest: content("b") }),
    });
    for (const [name, type] of [
      ["a.yaml", "a"],
      ["a.wasm", "a"],
      ["b.wasm", "b"],
    ]) {
      expect(loadPolicyFile(join(directory, name)).policy?.manifest.type).toBe(type);
    }
  });

  test.each<[string, Record<string, string | Uint8Array>, string, string]>([
    ["no file", {}, "a.yaml", "a.yaml:1:1: cannot read the file: it does not exist"],
    ["no module", {}, "a.wasm", "a.wasm:1:1: cannot use the module: it does not exist"],
    [
      "no manifest",
      { "a.wasm": encodeModule() },
      "a.wasm",
      "a.wasm:1:1: the module has no manifest: neither inside it nor in a.yaml beside it",
    ],
    [
      "a manifest without its module",
      { "a.yaml": manifest("a") },
      "a.yaml",
      "a.yaml:5:9: cannot use the module a.wasm: it does not exist",
    ],
    [
      "a manifest of another module",
      { "a.yaml": manifest("z"), "a.wasm": encodeModule() },
      "a.wasm",
      'a.yaml:5:9: module must be "a.wasm", the file beside',
    ],
  ])("%s", (_, files, name, expected) => {
    const directory = directoryOf(files);
    const { policy, mistakes } = loadPolicyFile(join(directory, name));
    expect(policy).toBeUndefined();
    expect(lines(mistakes, directory)).toEqual([expected]);
  });
});
