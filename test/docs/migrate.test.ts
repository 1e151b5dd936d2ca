// docs/migrate.md: every key, policy, parameter, default, header and call that its tables name is there, and what it says of
// Dynamo's and verl's rules is so.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parse, stringify } from "yaml";
import { parseConfig } from "../../host/config/config.js";
import { ConfigSchema } from "../../host/config/schema.js";
import { createRouter } from "../../host/index.js";
import { CaseRunner } from "../../host/policy/case.js";
import { Catalog, type PolicyFile } from "../../host/policy/catalog.js";
import { resolveParameters } from "../../host/policy/parameters.js";
import { blocksOf, ROOT } from "./blocks.js";

const DOC = "docs/migrate.md";
const WORKERS = "workers: [{ id: a, url: http://127.0.0.1:9001 }, { id: b, url: http://127.0.0.1:9002 }]\n";
const catalog = Catalog.open([]);
const text = readFileSync(`${ROOT}${DOC}`, "utf8");
/** Where headers and calls are described. */
const others = ["sessions", "gateway", "fleet"]
  .map((name) => readFileSync(`${ROOT}docs/${name}.md`, "utf8"))
  .join();

interface Row {
  readonly line: string;
  /** What the row says of Hawser. */
  readonly here: string;
  /** The default behind it; empty where the row tells none. */
  readonly byDefault: string;
}

/** Rows of the tables with a column `here`; the last column `default` is its. */
function rowsOf(markdown: string): Row[] {
  return markdown.split(/\n{2,}/).flatMap((paragraph) => {
    const [head = "", , ...lines] = paragraph.split("\n");
    const names = cellsOf(head);
    const at = names.indexOf("here");
    if (!head.startsWith("|") || at < 0) return [];
    return lines.map((line) => {
      const cells = cellsOf(line);
      return { line, here: cells[at]!, byDefault: names[at + 1] === "default" ? cells[at + 1]! : "" };
    });
  });
}

function cellsOf(line: string): string[] {
  return line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());
}

function codeOf(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, code]) => code!);
}

/** The part of the schema that a dotted path names, through lists to their items; undefined where there is none. */
function schemaAt(path: string): { readonly default?: unknown } | undefined {
  // biome-ignore lint/suspicious/noExplicitAny: any part of a JSON Schema.
  let part: any = ConfigSchema;
  for (const name of path.split(".")) part = (part?.items ?? part)?.properties?.[name];
  return part;
}

/** A parameter of one of the policies that a cell names. */
function parameterIn(cell: string, name: string) {
  const policies = codeOf(cell).flatMap((code) => catalog.find(code) ?? []);
  return policies.flatMap(({ manifest }) => manifest.parameters.filter((spec) => spec.name === name))[0];
}

/** What is wrong with `code`, which stands in `cell`; undefined where nothing is. */
function breach(code: string, cell: string): string | undefined {
  const [, name, value] = /^([\w.]+)(?:: (.+))?$/.exec(code) ?? [];
  if (catalog.find(code)) return undefined;
  if (/^x-(hawser|dynamo)-/.test(code) || /^[A-Z]+ \//.test(code))
    return others.includes(`\`${code}`) ? undefined : `${code} is described nowhere`;
  if (/^(router|lease)\./.test(code)) return callBreach(code);
  if (name === undefined) return `${code} is no key, policy, parameter, header or call`;
  if (schemaAt(name)) return value === undefined ? undefined : valueBreach(name, value);
  if (!parameterIn(cell, name)) return `${name} is neither a key nor a parameter of a policy beside it`;
  if (value === undefined) return undefined;
  const policy = codeOf(cell).map((code) => catalog.find(code))[0]!;
  return resolveParameters(policy.manifest.parameters, { [name]: parse(value) }).mistakes[0]?.message;
}

function callBreach(code: string): string | undefined {
  const router = createRouter({ policy: catalog.find("sticky")!, workers: [{ id: "a" }] });
  const objects: Record<string, object> = { router, lease: router.acquire({}) };
  const [object, method] = code.split(".") as [string, string];
  return method in objects[object]! ? undefined : `there is no ${code}`;
}

function valueBreach(path: string, value: string): string | undefined {
  const config = path.split(".").reduceRight<unknown>((inner, name) => ({ [name]: inner }), parse(value));
  const { mistakes, warnings } = parseConfig(WORKERS + stringify(config), "hawser.yaml");
  return [...mistakes, ...warnings][0]?.message;
}

const rows = rowsOf(text);

describe("the tables", () => {
  it("are found", () => expect(rows.length).toBeGreaterThan(45));

  const named = rows.flatMap(({ here, line }) => codeOf(here).map((code) => [code, here, line] as const));

  it.each(named)("%s is there", (code, here) => expect(breach(code, here)).toBeUndefined());

  it.each([
    ["session.tttl", "`session.tttl`"],
    ["session.mode: sof", "`session.mode: sof`"],
    ["workers.max_conns", "`workers.max_conns`"],
    ["stick", "`stick`"],
    ["placement", "`least-loaded` with `placement`"],
    ["placement: best", "`sticky` with `placement: best`"],
    ["x-hawser-target", "`x-hawser-target`"],
    ["GET /workers", "`GET /workers`"],
    ["router.clear", "`router.clear`"],
  ])("would be found out: %s", (code, cell) => expect(breach(code, cell)).toBeDefined());

  it.each(rows.filter(({ byDefault }) => byDefault !== ""))(
    "$line: the defaults are these",
    ({ here, byDefault }) => {
      // Those with a value state no default.
      const keys = codeOf(here).filter((code) => !catalog.find(code) && !code.includes(":"));
      const defaults = keys.map((key) => (schemaAt(key) ?? parameterIn(here, key))?.default);
      expect(parse(`[${byDefault}]`)).toEqual(defaults.filter((value) => value !== undefined).flat());
    },
  );
});

describe("Dynamo's block", () => {
  const script = blocksOf(DOC).find(({ text }) => text.includes("worker-selection.yaml"))!.text;
  const block = /<<'END'\n([\s\S]*?)^END$/m.exec(script)![1]!;

  it("is taken as it is, but for roles that are not used", () => {
    const { config, mistakes, warnings } = parseConfig(WORKERS + block, "hawser.yaml");
    expect(mistakes).toEqual([]);
    expect(warnings.map(({ message }) => message)).toEqual(
      ["prefill", "decode"].map(
        (role) =>
          `worker_selection.${role} is not used: all requests are routed by worker_selection.aggregated`,
      ),
    );
    expect(config!.policy.name).toBe("dynamo-soft-affinity-load-guard");
    expect([...config!.policy.parameters]).toEqual([7, 2, 0]);
  });

  it("decides as there", () => {
    const { policy, parameters } = parseConfig(WORKERS + block, "hawser.yaml").config!.policy;
    const runner = new CaseRunner(policy, parameters);
    const rows = [
      [7, 0],
      [8, 7],
      [8, 6],
    ].map((loads) => runner.run({ loads, bound: 0 }).row);
    expect(rows).toEqual([0, 0, 1]);
  });

  const variant = (selection: string) =>
    parseConfig(`${WORKERS}worker_selection:\n${selection}`, "hawser.yaml");
  const guard = (parameters: string) =>
    variant(
      `  aggregated: g\n  instances:\n    - name: g\n      type: dynamo-soft-affinity-load-guard\n${parameters}`,
    );

  it.each([
    ["", [32, 2, 0]],
    ["      parameters: {}\n", [32, 2, 0]],
    ["      parameters:\n        max_active_requests: 0\n", [0, 2, 0]],
    ["      parameters:\n        move_margin: 9\n", [32, 9, 0]],
  ])("has the same defaults, %j", (parameters, expected) => {
    const { config, mistakes, warnings } = guard(parameters);
    expect([...mistakes, ...warnings]).toEqual([]);
    expect([...config!.policy.parameters]).toEqual(expected);
  });

  it.each(["group_idle_ttl_secs: 300", "move_margin: 0"])("is refused as there with %s", (parameter) => {
    const messages = guard(`      parameters: { ${parameter} }\n`).mistakes.map(({ message }) => message);
    expect(messages).toEqual([expect.stringContaining(parameter.split(":")[0]!)]);
  });

  it("has `default` for the shipped guard, whatever other roles name", () => {
    for (const selection of [
      "  aggregated: default\n",
      "  prefill: default\n  decode: default\n  encode: default\n",
    ]) {
      const { config, mistakes } = variant(selection);
      expect(mistakes).toEqual([]);
      expect(config!.policy.policy.manifest.type).toBe("soft-affinity-load-guard");
      expect([...config!.policy.parameters]).toEqual([32, 2, 0]);
    }
  });

  it("is refused for a type that is not here, also where no role names it, and for keys of queues", () => {
    const other = "  instances: [{ name: t, type: dynamo-two-tier-cost-fn }]\n";
    expect(variant(`  aggregated: default\n${other}`).mistakes.map(({ message }) => message)).toEqual([
      expect.stringContaining('the unknown policy type "dynamo-two-tier-cost-fn"'),
    ]);
    const queues = parseConfig(`${WORKERS}default_policy_family: root\n`, "hawser.yaml").mistakes;
    expect(queues.map(({ message }) => message)).toEqual([
      expect.stringContaining('unknown key "default_policy_family"'),
    ]);
  });
});

describe("verl's margin", () => {
  const policy = catalog.find("affinity-break-margin") as PolicyFile;

  function rowOf(affinity_break_margin: unknown, loads: number[]): number | null {
    const { values, mistakes } = resolveParameters(policy.manifest.parameters, { affinity_break_margin });
    expect(mistakes).toEqual([]);
    return new CaseRunner(policy, values).run({ loads, bound: 0 }).row;
  }

  it.each([
    [2, [11, 0, 0], 1],
    [2, [2, 0, 0], 0],
    [3, [3, 0, 0], 0],
    [3, [4, 0, 0], 1],
    [0, [1, 0, 0], 1],
    [0, [1, 1, 1], 0],
    [null, [1000, 0, 0], 0],
  ])("%j with loads %j takes row %i", (margin, loads, row) => expect(rowOf(margin, loads)).toBe(row));

  it.each([-1, Number.NEGATIVE_INFINITY, Number.NaN])(
    "is refused where it is %d",
    (affinity_break_margin) => {
      const { mistakes } = resolveParameters(policy.manifest.parameters, { affinity_break_margin });
      expect(mistakes.map(({ message }) => message)).toEqual([
        expect.stringContaining("affinity_break_margin"),
      ]);
    },
  );

  it("is ignored under full determinism", () => {
    const router = (fullDeterminism: boolean) =>
      createRouter({
        policy,
        parameters: { affinity_break_margin: 0 },
        workers: ["a", "b", "c"].map((id) => ({ id })),
        session: { fullDeterminism },
      });
    const workersOf = (given: ReturnType<typeof router>) =>
      Array.from({ length: 6 }, () => {
        const lease = given.acquire({ key: "s" });
        lease.commit();
        return lease.worker.id;
      });
    expect(new Set(workersOf(router(true))).size).toBe(1);
    expect(new Set(workersOf(router(false))).size).toBe(3);
  });
});

describe("what it says of sources", () => {
  const sources = (list: string) =>
    parseConfig(`${WORKERS}session: { sources: [${list}] }\n`, "hawser.yaml").mistakes;

  it.each(["cookie", "authorization", "x-request-id", "x-trace-id"])("%s is refused", (name) =>
    expect(sources(`{ header: ${name} }`)).toHaveLength(1),
  );

  it.each(["x-real-ip", "x-smg-routing-key", "x-tenant-id"])("%s is taken", (name) =>
    expect(sources(`{ header: ${name} }`)).toEqual([]),
  );
});

it("no shipped policy reads weights", () => {
  expect(catalog.list().filter(({ manifest }) => manifest.reads.includes("weight"))).toEqual([]);
});

it("without a key a turn goes to the least-loaded worker under full determinism", () => {
  const router = createRouter({
    policy: catalog.find("random")!,
    workers: [{ id: "a" }, { id: "b" }],
    session: { fullDeterminism: true },
  });
  expect([1, 2, 3, 4].map(() => router.acquire({}).worker.id)).toEqual(["a", "b", "a", "b"]);
});
