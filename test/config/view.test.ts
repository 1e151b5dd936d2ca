import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Config, parseConfig } from "../../host/config/config.js";
import { ConfigSchema } from "../../host/config/schema.js";
import { changedKeys, changesBetween } from "../../host/config/view.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";
/** As little as there can be of every key that has defaults below it. */
const MINIMAL = `${W}discovery: [{ dns: w.example, port: 8000 }]\ndecision_log: { file: decisions.jsonl }\n`;
const SECRET = "sk-0123456789abcdef";
const HASH = "0123456789abcdef".repeat(4);
const OWN = "abi: 1\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\n";

type Files = Readonly<Record<string, string | Uint8Array>>;

function configOf(text: string, files: Files = {}, environment = {}): Config {
  const { config, mistakes } = parseConfig(text, join(directoryOf(files), "hawser.yaml"), environment);
  expect(mistakes).toEqual([]);
  return config!;
}

const viewOf = (...given: Parameters<typeof configOf>) => configOf(...given).view;

interface Shape {
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly items?: Shape;
}

/** Every default of a schema by its path; a list's are those of its first item. */
function defaultsOf(
  { properties = {}, items, ...shape }: Shape,
  path: readonly string[] = [],
): [string[], unknown][] {
  const own: [string[], unknown][] = shape.default === undefined ? [] : [[[...path], shape.default]];
  const below = Object.entries(properties).flatMap(([key, child]) => defaultsOf(child, [...path, key]));
  return [...own, ...below, ...(items ? defaultsOf(items, [...path, "0"]) : [])];
}

const DEFAULTS = defaultsOf(ConfigSchema as unknown as Shape);

describe("a view", () => {
  test("shows the default of every key that has one", () => {
    expect(DEFAULTS.length).toBeGreaterThan(40);
    const view = viewOf(MINIMAL);
    for (const [path, value] of DEFAULTS) expect(view, path.join(".")).toHaveProperty(path, value);
  });

  test("shows no default in place of what the file says", () => {
    const text = `${W}listen: { port: 1 }\nsession: { mode: hard, sources: [prefix] }\nretries: { on: [500] }
policies: { path: [.] }\nbreaker: off\nstreams: { peek: true }\nforward_credentials: [cookie]\n`;
    const view = viewOf(text);
    expect(view).toMatchObject({
      listen: { host: "127.0.0.1", port: 1 },
      policies: { path: ["."] },
      session: { mode: "hard", ttl: "30m", sources: ["prefix"], model_suffixes: [] },
      retries: { attempts: 3, on: [500] },
      breaker: "off",
      streams: { peek: true, keep_alive: "off" },
      forward_credentials: ["cookie"],
    });
  });

  test("says what lists are where they are left out, and leaves out what has no default", () => {
    const view = viewOf("discovery: [{ file: targets.yaml }]\n");
    expect(view).toMatchObject({
      policies: { path: [] },
      workers: [],
      session: { sources: ["default"], model_suffixes: [] },
      worker_selection: { aggregated: "default" },
    });
    expect(view).not.toHaveProperty("access");
    expect(view).not.toHaveProperty("decision_log");
    expect(view.session).not.toHaveProperty("tenant");
    expect(view.admin).not.toHaveProperty("token");
  });

  test("says of a file of targets nothing that its labels say", () => {
    const text = "discovery: [{ file: targets.yaml }, { dns: w.example, port: 1 }]\n";
    expect(viewOf(text).discovery).toEqual([
      { file: "targets.yaml" },
      { dns: "w.example", type: "a", port: 1, scheme: "http" },
    ]);
  });

  test("has its keys in the order of the schema, whatever the file's", () => {
    const text = `admission: { queue: 1 }\n${MINIMAL}access: { keys: [{ name: x, sha256: ${HASH} }] }\n`;
    const view = viewOf(text);
    expect(Object.keys(view)).toEqual(Object.keys(ConfigSchema.properties));
    expect(Object.keys(view.session as object).slice(0, 3)).toEqual(["mode", "full_determinism", "ttl"]);
  });

  test("is plain JSON", () => {
    const view = viewOf(MINIMAL);
    expect(JSON.parse(JSON.stringify(view))).toEqual(view);
  });

  test("shows of a secret where it is, of an access key its name, and of neither more", () => {
    const text = `admin: { token: { env: TOKEN } }
workers: [{ id: a, url: http://127.0.0.1:9001, api_key: { file: key.txt } }]
discovery: [{ dns: w.example, port: 1, api_key: { env: TOKEN } }]
access: { keys: [{ name: x, sha256: ${HASH}, max_in_flight: 3 }] }
`;
    const view = viewOf(text, { "key.txt": SECRET }, { TOKEN: SECRET });
    expect(view).toMatchObject({
      admin: { token: { env: "TOKEN" } },
      workers: [{ api_key: { file: "key.txt" } }],
      discovery: [{ api_key: { env: "TOKEN" } }],
      access: { keys: [{ name: "x", sha256: "***", max_in_flight: 3 }] },
    });
    const shown = JSON.stringify(view);
    expect(shown).not.toContain(SECRET);
    expect(shown).not.toContain(HASH);
  });

  test("shows a worker by the address in use, with its weight", () => {
    expect(viewOf("workers: [{ id: a, url: HTTP://LOCALHOST:80/x/, models: [m] }]\n").workers).toEqual([
      { id: "a", url: "http://localhost/x", models: ["m"], weight: 100 },
    ]);
  });

  test("shows every instance with its module and all its parameters, as a config writes them", () => {
    const manifest = `${OWN}parameters:
  limit: { type: integer, default: 4 }
  share: { type: number, nullable: true, default: null }
  gate: { type: boolean, default: false }
  gate.scale: { type: number, default: 1.5 }
  ties: { type: enum, values: [first, random], default: first }
`;
    const text = `${W}policies: { path: [.] }
worker_selection:
  aggregated: b
  fallback: c
  instances:
    - { name: a, type: own }
    - { name: b, type: own, parameters: { limit: 9, share: 0.5, gate: { scale: 2 }, ties: random } }
    - { name: c, type: dynamo-soft-affinity-load-guard, parameters: { move_margin: 3 } }
`;
    const config = configOf(text, { "own.yaml": manifest, "own.wasm": encodeModule() });
    const [own, , guard] = config.instances.map(({ policy }) => policy.admitted.sha256);
    const ofOwn = { type: "own", sha256: own };
    expect(config.view.worker_selection).toEqual({
      aggregated: "b",
      fallback: "c",
      instances: [
        {
          ...{ name: "a", ...ofOwn },
          parameters: { limit: 4, share: null, gate: false, "gate.scale": 1.5, ties: "first" },
        },
        {
          ...{ name: "b", ...ofOwn },
          parameters: { limit: 9, share: 0.5, gate: true, "gate.scale": 2, ties: "random" },
        },
        {
          ...{ name: "c", type: "soft-affinity-load-guard", sha256: guard },
          parameters: { max_active_requests: 32, move_margin: 3, ties: "first" },
        },
      ],
    });
    expect(own).toMatch(/^[0-9a-f]{64}$/);
  });

  test("shows the shipped guard where it decides, and where it is the fallback", () => {
    const guard = { name: "default", type: "soft-affinity-load-guard", parameters: { move_margin: 2 } };
    expect(viewOf(W).worker_selection).toMatchObject({ aggregated: "default", instances: [guard] });
    const text = `${W}worker_selection: { aggregated: a, fallback: default, instances: [{ name: a, type: sticky }] }\n`;
    expect(viewOf(text).worker_selection).toMatchObject({
      ...{ aggregated: "a", fallback: "default" },
      instances: [guard, { name: "a", type: "sticky" }],
    });
  });
});

describe("what has changed", () => {
  const keys = (before: string, after: string) => changedKeys(viewOf(before), viewOf(after));

  test("is nothing between two files that come to the same", () => {
    expect(keys(W, W)).toEqual([]);
    expect(keys(W, `session: { ttl: 30m }\n${W}listen: {}\n`)).toEqual([]);
  });

  test("is told by the keys of the whole file, sorted", () => {
    const text = `${W}timeouts: { idle: 1m }\nsession: { mode: hard }\naccess: { keys: [{ name: x, sha256: ${HASH} }] }\n`;
    expect(keys(W, text)).toEqual(["access", "session", "timeouts"]);
    expect(keys(text, W)).toEqual(["access", "session", "timeouts"]);
  });

  test("is told of workers by their ids: other ones, new ones, and those that are gone", () => {
    const worker = (id: string, more = "") => `  - { id: ${id}, url: "http://127.0.0.1:1/${id}"${more} }\n`;
    const before = `workers:\n${worker("b")}${worker("c")}${worker("a")}`;
    const after = `workers:\n${worker("a")}${worker("d")}${worker("c", ", weight: 50")}`;
    expect(keys(before, after)).toEqual(["workers.b", "workers.c", "workers.d"]);
    expect(keys(before, before.replace("workers:\n", "workers: # again\n"))).toEqual([]);
  });

  test("is told of another module of the same policy, and of another manifest", () => {
    const text = `${W}policies: { path: [.] }\nworker_selection: { aggregated: a, instances: [{ name: a, type: own }] }\n`;
    const before = configOf(text, { "own.yaml": OWN, "own.wasm": encodeModule() });
    const module = configOf(text, { "own.yaml": OWN, "own.wasm": encodeModule({ answer: 4 << 16 }) });
    const manifest = configOf(text, { "own.yaml": `${OWN}reads: [seed]\n`, "own.wasm": encodeModule() });
    expect(changedKeys(before.view, module.view)).toEqual(["worker_selection"]);
    expect(changesBetween(before, module)).toEqual(["worker_selection"]);
    expect(changesBetween(before, manifest)).toEqual(["worker_selection"]);
    expect(changesBetween(before, before)).toEqual([]);
  });

  test.each<[string, string, string]>([
    ["the admin token", "admin: { token: { env: SECRET } }", "admin"],
    [
      "a worker's key",
      "workers: [{ id: b, url: http://127.0.0.1:1, api_key: { env: SECRET } }]",
      "workers.b",
    ],
    ["the key of what is discovered", "discovery: [{ file: t, api_key: { env: SECRET } }]", "discovery"],
  ])("is told of %s, though the file says the same", (_, line, key) => {
    const text = line.startsWith("workers") ? line : `${W}${line}`;
    const at = (SECRET: string) => configOf(text, {}, { SECRET });
    expect(changedKeys(at(SECRET).view, at(`${SECRET}-2`).view)).toEqual([]);
    expect(changesBetween(at(SECRET), at(`${SECRET}-2`))).toEqual([key]);
    expect(changesBetween(at(SECRET), at(SECRET))).toEqual([]);
  });

  test("is told of an access key that is another one of the same name", () => {
    const at = (digest: string) => configOf(`${W}access: { keys: [{ name: x, sha256: ${digest} }] }\n`);
    expect(changesBetween(at(HASH), at([...HASH].reverse().join("")))).toEqual(["access"]);
    expect(changesBetween(at(HASH), at(HASH))).toEqual([]);
  });
});
