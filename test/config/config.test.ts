import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadConfig, parseConfig } from "../../host/config/config.js";
import { DEFAULT_SOURCES } from "../../host/session/sources.js";
import { formatMistake, type Mistake } from "../../host/yaml/mistake.js";
import { compileAssembly } from "../fixtures/assembly.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";

const SMALLEST = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";

const FULL = `listen: { host: 0.0.0.0, port: 0 }
policies: { path: [./mine] }
workers:
  - { id: a, url: http://127.0.0.1:9001/, models: [sim, sim-2], weight: 50, max_num_seqs: 256 }
  - { id: b, url: https://b.example/base }
session: { mode: off, full_determinism: true, ttl: 500ms, max_bindings: 1 }
worker_selection:
  aggregated: guard
  prefill: guard
  decode: default
  instances:
    - { name: guard, type: dynamo-soft-affinity-load-guard, parameters: { move_margin: 3, ties: random } }
    - { name: spare, type: own }
`;

const OWN = "abi: 1\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\n";

function good(text: string, files: Record<string, string | Uint8Array> = {}) {
  const { config, mistakes, warnings } = parseConfig(text, join(directoryOf(files), "hawser.yaml"), {});
  expect(mistakes).toEqual([]);
  return { config: config!, warnings };
}

describe("a config", () => {
  test("has defaults for all but the workers (B10)", () => {
    const { config, warnings } = good(SMALLEST);
    expect(warnings).toEqual([]);
    expect(config).toMatchObject({
      listen: { host: "127.0.0.1", port: 8080 },
      shutdownMs: 25_000,
      admin: { host: "127.0.0.1", port: 8081, token: undefined },
      workers: [
        {
          id: "a",
          url: "http://127.0.0.1:9001",
          models: undefined,
          weight: 100,
          slots: 0,
          apiKey: undefined,
        },
      ],
      session: {
        ...{ mode: "soft", fullDeterminism: false, ttlMs: 1_800_000, maxBindings: 65_536 },
        ...{ whenFull: "evict-idle", binding: "session", firstPlacement: "policy" },
        ...{ sources: DEFAULT_SOURCES, tenant: undefined, modelSuffixes: [] },
        ...{ allowPin: false, allowAffinityHeader: false },
      },
      instances: [],
    });
  });

  test("selects the shipped guard by default", () => {
    const { policy } = good(SMALLEST).config;
    expect(policy.name).toBe("default");
    expect(policy.policy.manifest.type).toBe("soft-affinity-load-guard");
    expect([...policy.parameters]).toEqual([32, 2, 0]);
    expect(good(`${SMALLEST}worker_selection: { aggregated: default }\n`).config.policy).toMatchObject({
      name: "default",
    });
  });

  test("is read in full", () => {
    const { config, warnings } = good(FULL, { "mine/own.yaml": OWN, "mine/own.wasm": encodeModule() });
    expect(config).toMatchObject({
      listen: { host: "0.0.0.0", port: 0 },
      workers: [
        { id: "a", url: "http://127.0.0.1:9001", models: ["sim", "sim-2"], weight: 50, slots: 256 },
        { id: "b", url: "https://b.example/base", models: undefined, weight: 100, slots: 0 },
      ],
      session: { mode: "off", fullDeterminism: true, ttlMs: 500, maxBindings: 1 },
    });
    expect(config.policy).toBe(config.instances[0]);
    expect([...config.policy.parameters]).toEqual([32, 3, 1]);
    expect(config.instances.map(({ name, policy }) => [name, policy.manifest.type])).toEqual([
      ["guard", "soft-affinity-load-guard"],
      ["spare", "own"],
    ]);
    const cause = "has no effect: session.full_determinism is true, and nothing is bound";
    expect(warnings.map(formatMistake).map((line) => line.replace(/^.*hawser.yaml/, ""))).toEqual([
      `:6:47: session.ttl ${cause}`,
      `:6:59: session.max_bindings ${cause}`,
      ":9:3: worker_selection.prefill is not used: all requests are routed by worker_selection.aggregated",
      ":10:3: worker_selection.decode is not used: all requests are routed by worker_selection.aggregated",
    ]);
  });

  test("finds its own policies before the shipped ones, but selects the shipped guard by default", () => {
    const own = OWN.replace("type: own", "type: soft-affinity-load-guard");
    const selection = "worker_selection: { instances: [{ name: g, type: soft-affinity-load-guard }] }\n";
    const { config } = good(`${SMALLEST}policies: { path: [.] }\n${selection}`, {
      "own.yaml": own,
      "own.wasm": encodeModule(),
    });
    expect(config.instances[0].policy.modulePath).toMatch(/own\.wasm$/);
    expect(config.policy.policy.manifest.parameters).toHaveLength(3);
  });

  test.each([
    ["500ms", 500],
    ["30s", 30_000],
    ["30m", 1_800_000],
    ["2h", 7_200_000],
  ])("takes %s as %d milliseconds", (ttl, ms) => {
    expect(good(`${SMALLEST}session: { ttl: ${ttl} }\n`).config.session.ttlMs).toBe(ms);
  });
});

/** Mistakes as printed, the directory left out. */
function lines(mistakes: readonly Mistake[], directory: string): string[] {
  return mistakes.map((mistake) => formatMistake(mistake).replaceAll(`${directory}/`, ""));
}

const W = SMALLEST.trim();
const instances = (...rows: string[]) =>
  `${W}\nworker_selection:\n  instances:\n${rows.map((row) => `    - ${row}`).join("\n")}\n`;
const KEYS =
  "(allowed: listen, admin, shutdown, policies, workers, discovery, session, worker_selection, limits, timeouts, retries, streams, log, decision_log, forward_credentials, access, health, breaker, signals, admission)";
const FILLED =
  "active_requests, block_tokens, bound_sessions, eligible, kv_blocks, kv_used, now, queue_depth, seed, session, session_requests, slots, weight, worker_hash";

describe("one mistake, one line", () => {
  test.each<[string, string, string]>([
    [
      "broken YAML",
      "workers: [\n",
      'hawser.yaml:2:1: broken YAML: a list opened with "[" is not closed with "]" before this place',
    ],
    [
      "a variable as shells write it, between braces",
      `workers: [{ id: a, url: http://127.0.0.1:9001, api_key: \${KEY} }]`,
      `hawser.yaml:1:58: broken YAML: \${KEY} is not replaced by the value of a variable; a secret is written { env: KEY }`,
    ],
    ["empty", "", "hawser.yaml:1:1: the config must be a mapping, found nothing"],
    ["a list", "- a", "hawser.yaml:1:1: the config must be a mapping, found a list"],
    [
      "repeated key",
      `${W}\nlisten: {}\nlisten: {}`,
      'hawser.yaml:3:1: the key "listen" is repeated, first at line 2',
    ],
    ["no workers", "listen: {}", 'hawser.yaml:1:1: the config needs the key "workers", or "discovery"'],
    [
      "empty workers",
      "workers: []",
      "hawser.yaml:1:10: workers must name at least one worker where there is no discovery, found an empty list",
    ],
    [
      "unknown key",
      `${W}\nlissten: {}`,
      `hawser.yaml:2:1: unknown key "lissten", did you mean "listen"? ${KEYS}`,
    ],
    ["a later release's key", `${W}\nreplicas: {}`, `hawser.yaml:2:1: unknown key "replicas" ${KEYS}`],
    [
      "a later release's nested key",
      `${W}\nsession: { store: x }`,
      'hawser.yaml:2:12: unknown key "store" in session (allowed: mode, full_determinism, ttl, max_bindings, when_full, binding, first_placement, sources, tenant, model_suffixes, allow_pin, allow_affinity_header)',
    ],
    [
      "a later release's selection key",
      `${W}\nworker_selection: { shadow: [] }`,
      'hawser.yaml:2:21: unknown key "shadow" in worker_selection (allowed: aggregated, fallback, prefill, decode, encode, instances)',
    ],
    [
      "port",
      `${W}\nlisten: { port: 65536 }`,
      "hawser.yaml:2:17: listen.port must be a port from 1 to 65535, or 0 for any that is free, found 65536",
    ],
    [
      "port as text",
      `${W}\nlisten: { port: "80" }`,
      'hawser.yaml:2:17: listen.port must be a port from 1 to 65535, or 0 for any that is free, found "80"',
    ],
    [
      "host",
      `${W}\nlisten: { host: "a b" }`,
      'hawser.yaml:2:17: listen.host must be a host name or an IP address, found "a b"',
    ],
    ["no id", "workers: [{ url: http://a }]", 'hawser.yaml:1:11: workers[0] needs the key "id"'],
    ["no url", "workers: [{ id: a }]", 'hawser.yaml:1:11: workers[0] needs the key "url"'],
    [
      "worker key",
      "workers:\n  - id: a\n    url: http://a\n    wieght: 5",
      'hawser.yaml:4:5: unknown key "wieght" in workers[0], did you mean "weight"? (allowed: id, url, models, weight, max_num_seqs, max_in_flight, api_key)',
    ],
    [
      "id with a space",
      "workers: [{ id: a b, url: http://a }]",
      'hawser.yaml:1:17: workers[0].id must be 1 to 128 printable ASCII characters without spaces, since it becomes a header, found "a b"',
    ],
    [
      "id that is a number",
      "workers: [{ id: 7, url: http://a }]",
      'hawser.yaml:1:17: workers[0].id must be 1 to 128 printable ASCII characters without spaces, since it becomes a header, found 7 (in quotes it is text: "7")',
    ],
    [
      "id repeated",
      "workers:\n  - { id: a, url: http://a }\n  - { id: a, url: http://b }",
      'hawser.yaml:3:11: workers[1].id repeats "a", first at line 2',
    ],
    [
      "url without a scheme",
      "workers: [{ id: a, url: localhost:9001 }]",
      'hawser.yaml:1:25: workers[0].url must be an http or https URL such as http://127.0.0.1:9001, found "localhost:9001"',
    ],
    [
      "url of another scheme",
      "workers: [{ id: a, url: ftp://a }]",
      'hawser.yaml:1:25: workers[0].url must be an http or https URL such as http://127.0.0.1:9001, found "ftp://a"',
    ],
    [
      "url with a bad port",
      "workers: [{ id: a, url: http://a:99999 }]",
      'hawser.yaml:1:25: workers[0].url must be an http or https URL such as http://127.0.0.1:9001, found "http://a:99999"',
    ],
    [
      "url with a password, which is not repeated",
      "workers: [{ id: a, url: http://me:secret@a }]",
      'hawser.yaml:1:25: workers[0].url must not carry a user name or password, found "http://***@a"',
    ],
    [
      "url with a query",
      "workers: [{ id: a, url: http://a/?x=1 }]",
      'hawser.yaml:1:25: workers[0].url must not have a query, found "http://a/?x=1"',
    ],
    [
      "url with a fragment",
      "workers: [{ id: a, url: http://a/#x }]",
      'hawser.yaml:1:25: workers[0].url must not have a fragment, found "http://a/#x"',
    ],
    [
      "no models",
      "workers: [{ id: a, url: http://a, models: [] }]",
      "hawser.yaml:1:43: workers[0].models must be a list of 1 to 256 model names, found an empty list",
    ],
    [
      "empty model",
      "workers: [{ id: a, url: http://a, models: [''] }]",
      'hawser.yaml:1:44: workers[0].models[0] must be a model name of 1 to 256 characters without control characters, found ""',
    ],
    [
      "model repeated",
      "workers: [{ id: a, url: http://a, models: [m, m] }]",
      'hawser.yaml:1:47: workers[0].models[1] repeats "m", first at line 1',
    ],
    [
      "weight",
      "workers: [{ id: a, url: http://a, weight: 0 }]",
      "hawser.yaml:1:43: workers[0].weight must be an integer from 1 to 10000, found 0",
    ],
    [
      "max_num_seqs",
      "workers: [{ id: a, url: http://a, max_num_seqs: 1.5 }]",
      "hawser.yaml:1:49: workers[0].max_num_seqs must be an integer from 1 to 2147483647, found 1.5",
    ],
    [
      "mode",
      `${W}\nsession: { mode: sotf }`,
      'hawser.yaml:2:18: session.mode must be one of soft, hard, off, found "sotf", did you mean "soft"?',
    ],
    [
      "mode that YAML reads as something else",
      `${W}\nsession: { mode: false }`,
      "hawser.yaml:2:18: session.mode must be one of soft, hard, off, found false",
    ],
    [
      "a bare duration",
      `${W}\nsession: { ttl: 30 }`,
      "hawser.yaml:2:17: session.ttl must be a duration above zero with its unit, such as 500ms, 30s, 30m or 2h, found 30",
    ],
    [
      "a duration in days",
      `${W}\nsession: { ttl: 1d }`,
      'hawser.yaml:2:17: session.ttl must be a duration above zero with its unit, such as 500ms, 30s, 30m or 2h, found "1d"',
    ],
    [
      "no bindings",
      `${W}\nsession: { max_bindings: 0 }`,
      "hawser.yaml:2:26: session.max_bindings must be an integer from 1 to 16777216, found 0",
    ],
    [
      "determinism",
      `${W}\nsession: { full_determinism: yes }`,
      'hawser.yaml:2:30: session.full_determinism must be true or false, found "yes", which is text in YAML 1.2',
    ],
    ["nothing after a key", `${W}\nsession:\n`, "hawser.yaml:2:1: session must be a mapping, found nothing"],
    [
      "no such directory",
      `${W}\npolicies: { path: [none] }`,
      'hawser.yaml:2:20: policies.path[0]: cannot search "none": it does not exist',
    ],
    [
      "unknown instance, none defined",
      `${W}\nworker_selection: { aggregated: guard }`,
      'hawser.yaml:2:33: worker_selection.aggregated names the unknown instance "guard" (instances: <none>)',
    ],
    [
      "unknown instance",
      `${instances("{ name: guard, type: random }", "{ name: spread, type: random }")}  aggregated: gaurd`,
      'hawser.yaml:6:15: worker_selection.aggregated names the unknown instance "gaurd", did you mean "guard"? (instances: guard, spread)',
    ],
    [
      "a policy type for an instance",
      `${W}\nworker_selection: { aggregated: sticky }`,
      'hawser.yaml:2:33: worker_selection.aggregated names the unknown instance "sticky", which is a policy type: add the instance - { name: sticky, type: sticky } to worker_selection.instances',
    ],
    [
      "a policy type for its instance",
      `${instances("{ name: mine, type: sticky }")}  aggregated: sticky`,
      'hawser.yaml:5:15: worker_selection.aggregated names the unknown instance "sticky", which is a policy type: its instance is "mine"',
    ],
    [
      "a policy type for the other instance",
      `${SMALLEST}worker_selection: { fallback: random, instances: [{ name: spread, type: random }] }\n`,
      'hawser.yaml:2:31: worker_selection.fallback names the unknown instance "random", which is a policy type: its instance is "spread"',
    ],
    [
      "unknown instance of an unused role",
      `${W}\nworker_selection: { encode: x }`,
      'hawser.yaml:2:29: worker_selection.encode names the unknown instance "x" (instances: <none>)',
    ],
    [
      "no instance name",
      instances("{ type: random }"),
      'hawser.yaml:4:7: worker_selection.instances[0] needs the key "name"',
    ],
    [
      "no instance type",
      instances("{ name: a }"),
      'hawser.yaml:4:7: worker_selection.instances[0] needs the key "type"',
    ],
    [
      "instance called default",
      instances("{ name: default, type: random }"),
      'hawser.yaml:4:15: worker_selection.instances[0].name must not be "default", which means the built-in choice',
    ],
    [
      "instance name",
      instances("{ name: a b, type: random }"),
      'hawser.yaml:4:15: worker_selection.instances[0].name must be 1 to 64 letters, digits, dots, dashes or underscores, since it becomes a header, found "a b"',
    ],
    [
      "instance name repeated",
      instances("{ name: a, type: random }", "{ name: a, type: random }"),
      'hawser.yaml:5:15: worker_selection.instances[1].name repeats "a", first at line 4',
    ],
    [
      "instance key of a later release",
      instances("{ name: a, type: random, share: x }"),
      'hawser.yaml:4:32: unknown key "share" in worker_selection.instances[0] (allowed: name, type, sha256, parameters)',
    ],
    [
      "a digest that is none",
      instances("{ name: a, type: random, sha256: x }"),
      'hawser.yaml:4:40: worker_selection.instances[0].sha256 must be the SHA-256 of the module file, 64 lower-case hex digits, found "x"',
    ],
    [
      "a fallback that is not there",
      `${SMALLEST}worker_selection: { fallback: spred, instances: [{ name: spread, type: random }] }\n`,
      'hawser.yaml:2:31: worker_selection.fallback names the unknown instance "spred", did you mean "spread"? (instances: spread)',
    ],
    [
      "a fallback that is the selected instance",
      `${SMALLEST}worker_selection: { aggregated: a, fallback: a, instances: [{ name: a, type: random }] }\n`,
      'hawser.yaml:2:46: worker_selection.fallback must be another instance than aggregated, found "a" for both',
    ],
    [
      "parameters that are a list",
      instances("{ name: a, type: random, parameters: [] }"),
      "hawser.yaml:4:44: worker_selection.instances[0].parameters must be a mapping of parameters, found an empty list",
    ],
    [
      "parameter out of range",
      instances("{ name: a, type: soft-affinity-load-guard, parameters: { move_margin: 0 } }"),
      'hawser.yaml:4:77: instance "a" of policy soft-affinity-load-guard: move_margin must be an integer of at least 1, found 0',
    ],
    [
      "unknown parameter",
      instances("{ name: a, type: dynamo-soft-affinity-load-guard, parameters: { margin: 1 } }"),
      'hawser.yaml:4:71: instance "a" of policy soft-affinity-load-guard: unknown parameter "margin" (allowed: max_active_requests, move_margin, ties)',
    ],
  ])("%s", (_, text, expected) => {
    const directory = directoryOf({});
    const { config, mistakes } = parseConfig(text, join(directory, "hawser.yaml"));
    expect(config).toBeUndefined();
    expect(lines(mistakes, directory)).toEqual([expected]);
  });

  const at = (type: string, more = "") =>
    instances(`{ name: a, type: ${type}${more} }`, `{ name: b, type: ${type}${more} }`);
  const own = (more: string, wasm: Uint8Array | undefined = encodeModule()) => {
    return { "own.yaml": `${OWN}${more}`, ...(wasm && { "own.wasm": wasm }) };
  };
  test.each<[string, Record<string, string | Uint8Array>, string, string[]]>([
    [
      "a broken manifest, used or not",
      own("reads: [x]\n"),
      W,
      ['own.yaml:6:9: reads[0] names "x", which no frame has'],
    ],
    ["a broken manifest that two instances use", own("reads: [x]\n"), at("own"), ["own.yaml:6:9: "]],
    [
      "a malformed module that two instances use",
      own("", Uint8Array.of(0)),
      at("own"),
      ["own.yaml:5:9: cannot use the module own.wasm: the module is not valid WebAssembly"],
    ],
    ["a malformed module that nobody uses", own("", Uint8Array.of(0)), W, []],
    [
      "a missing module",
      { "own.yaml": OWN },
      at("own"),
      ["own.yaml:5:9: cannot use the module own.wasm: it does not exist"],
    ],
    [
      "a policy that reads what the host cannot fill",
      own("reads: [seed, cached_blocks, service_ms]\n"),
      at("own"),
      [
        `hawser.yaml:4:24: the policy own reads cached_blocks, service_ms, which this host cannot fill (it fills: ${FILLED})`,
      ],
    ],
    [
      "a policy that fails, at each instance",
      own("", encodeModule({ answer: 1 })),
      at("own"),
      ["a", "b"].map(
        (name, index) =>
          `hawser.yaml:${4 + index}:24: instance "${name}" of policy own fails its dry run: over 1 worker with 0 requests, not bound, it answers row 1, but there is only row 0`,
      ),
    ],
    ["a policy that fails and that nobody uses", own("", encodeModule({ answer: 1 })), W, []],
    [
      "a policy that fails, beside parameters that it does not take",
      own("", encodeModule({ answer: -1 })),
      instances("{ name: a, type: own, parameters: { x: 1 } }", "{ name: b, type: own }"),
      [
        'hawser.yaml:4:43: instance "a" of policy own: unknown parameter "x", the policy takes none',
        'hawser.yaml:5:24: instance "b" of policy own fails its dry run: over 1 worker with 0 requests, not bound, it answers -1, which chooses no worker',
      ],
    ],
    [
      "a required parameter",
      own("parameters: { limit: { type: integer, maximum: 9 } }\n"),
      instances(
        "{ name: a, type: own }",
        "{ name: b, type: own, parameters: {} }",
        "{ name: c, type: own, parameters: { limit: 1 } }",
      ),
      [
        'hawser.yaml:4:7: instance "a" of policy own: the parameter "limit" is required, it must be an integer from 0 to 9',
        'hawser.yaml:5:29: instance "b" of policy own: the parameter "limit" is required, it must be an integer from 0 to 9',
      ],
    ],
    [
      "a nested parameter",
      own("parameters: { fast: { type: boolean }, fast.scale: { type: number, minimum: 1, default: 2 } }\n"),
      instances("{ name: a, type: own, parameters: { fast: { scale: 0 } } }"),
      [
        'hawser.yaml:4:58: instance "a" of policy own: fast.scale must be a finite number of at least 1, found 0',
      ],
    ],
  ])("%s", (_, files, text, expected) => {
    const directory = directoryOf(files);
    const { mistakes } = parseConfig(
      `${text.trimEnd()}\npolicies: { path: [.] }\n`,
      join(directory, "hawser.yaml"),
    );
    expect(lines(mistakes, directory).map((line, i) => line.slice(0, expected[i]?.length))).toEqual(expected);
  });

  test("a policy that does not start is told once", async () => {
    const refusing = await compileAssembly({
      text: `export function init(capacity: i32): i32 { return -7; }
        export function select(n: i32, bound: i32): i32 { return 0; }`,
    });
    const directory = directoryOf(own("", refusing));
    const text = `policies: { path: [.] }\n${at("own")}    - { name: c, type: own, parameters: [] }\n`;
    const { mistakes } = parseConfig(text, join(directory, "hawser.yaml"));
    expect(lines(mistakes, directory)).toEqual([
      "hawser.yaml:5:24: the policy own cannot be started: init refuses a capacity of 64: it answers -7",
      "hawser.yaml:7:41: worker_selection.instances[2].parameters must be a mapping of parameters, found an empty list",
    ]);
  });

  test("a policy that fails with the parameters of one instance is told there", async () => {
    const choosy = await compileAssembly({
      text: `import { answer, param, PLACE } from "../../../assembly/sdk";
        export { init } from "../../../assembly/sdk";
        export function select(n: i32, bound: i32): i32 {
          if (bound == <i32>param(0)) unreachable();
          return answer(0, PLACE);
        }`,
    });
    const directory = directoryOf(own("parameters: { row: { type: integer, default: 9 } }\n", choosy));
    const rows = ["{ name: a, type: own }", "{ name: b, type: own, parameters: { row: 1 } }"];
    const text = `policies: { path: [.] }\n${instances(...rows)}`;
    const { mistakes } = parseConfig(text, join(directory, "hawser.yaml"));
    expect(lines(mistakes, directory)).toEqual([
      'hawser.yaml:6:24: instance "b" of policy own fails its dry run: over 3 workers with 5, 0 and 2 requests, bound to the second, it ends in a trap',
    ]);
  });

  test("an unknown type, with those that exist", () => {
    const directory = directoryOf({ "own.yaml": OWN });
    const text = `policies: { path: [.] }\n${instances("{ name: a, type: round-robbin }")}`;
    const { mistakes } = parseConfig(text, join(directory, "hawser.yaml"));
    expect(lines(mistakes, directory)).toEqual([
      expect.stringMatching(
        /^hawser\.yaml:5:24: worker_selection\.instances\[0\]\.type is the unknown policy type "round-robbin", did you mean "round-robin"\? \(known types: .*own, .*round-robin, soft-affinity-load-guard.*\)$/,
      ),
    ]);
  });
});

test("ten mistakes in one file are all told, in the order of their lines", () => {
  const text = `listen: { port: 99999 }
sesion: { mode: soft }
workers:
  - { id: a, url: http://127.0.0.1:9001, weight: 0 }
  - { id: a, url: tcp://127.0.0.1:9002 }
  - { id: "", url: http://127.0.0.1:9003, modles: [m] }
worker_selection:
  aggregated: margin
  instances:
    - { name: guard, type: soft-affinity-load-guard, parameters: { move_margin: 0, tise: random } }
    - { name: spread, type: least-loded }
`;
  const { mistakes } = parseConfig(text, "hawser.yaml");
  expect(mistakes.map((mistake) => formatMistake(mistake).slice(0, 70))).toEqual([
    "hawser.yaml:1:17: listen.port must be a port from 1 to 65535, or 0 for",
    'hawser.yaml:2:1: unknown key "sesion", did you mean "session"? (allowe',
    "hawser.yaml:4:50: workers[0].weight must be an integer from 1 to 10000",
    'hawser.yaml:5:11: workers[1].id repeats "a", first at line 4',
    "hawser.yaml:5:19: workers[1].url must be an http or https URL such as ",
    "hawser.yaml:6:11: workers[2].id must be 1 to 128 printable ASCII chara",
    'hawser.yaml:6:43: unknown key "modles" in workers[2], did you mean "mo',
    "hawser.yaml:8:15: worker_selection.aggregated names the unknown instan",
    'hawser.yaml:10:81: instance "guard" of policy soft-affinity-load-guard',
    'hawser.yaml:10:84: instance "guard" of policy soft-affinity-load-guard',
    "hawser.yaml:11:29: worker_selection.instances[1].type is the unknown p",
  ]);
});

describe("a file", () => {
  test("is read, its directory the base of policies.path", () => {
    const directory = directoryOf({
      "conf/hawser.yaml": `${SMALLEST}policies: { path: [../mine] }\nworker_selection: { aggregated: a, instances: [{ name: a, type: own }] }\n`,
      "mine/own.yaml": OWN,
      "mine/own.wasm": encodeModule(),
    });
    const { config, mistakes } = loadConfig(join(directory, "conf/hawser.yaml"));
    expect(mistakes).toEqual([]);
    expect(config?.policy).toMatchObject({
      name: "a",
      policy: { modulePath: join(directory, "mine/own.wasm") },
    });
  });

  test.each<[string, Record<string, string | Uint8Array>, string]>([
    ["missing", {}, "hawser.yaml:1:1: cannot read the file: it does not exist"],
    ["a directory", { "hawser.yaml/x": "" }, "hawser.yaml:1:1: cannot read the file: it is a directory"],
    [
      "not UTF-8",
      { "hawser.yaml": Uint8Array.of(0xff, 0xfe) },
      "hawser.yaml:1:1: cannot read the file: it is not UTF-8 text",
    ],
  ])("%s is a mistake", (_, files, expected) => {
    const directory = directoryOf(files);
    expect(lines(loadConfig(join(directory, "hawser.yaml")).mistakes, directory)).toEqual([expected]);
  });
});
