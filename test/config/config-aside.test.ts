// From the built library: the thread is a file of its own.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { afterEach, beforeAll, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";

type Library = typeof import("../../host/index.js");

let aside: typeof import("../../host/config/config-aside.js");
let library: Library;
beforeAll(async () => {
  const built = new URL("../../build/host/", import.meta.url);
  aside = (await import(new URL("config/config-aside.js", built).href)) as typeof aside;
  library = (await import(new URL("index.js", built).href)) as Library;
});

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";
const OWN = "abi: 1\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\nreasons: { 256: mine }\n";
const KEY = "HAWSER_TEST_KEY";

afterEach(() => {
  delete process.env[KEY];
});

/** A config with a policy of its own and with all that a config can have which is no text. */
const FULL = `policies: { path: [.] }
workers:
  - { id: a, url: http://127.0.0.1:9001, models: [m], api_key: { env: ${KEY} } }
  - { id: b, url: http://127.0.0.1:9002, max_in_flight: 3 }
discovery: [{ dns: w.example, port: 1 }]
access: { keys: [{ name: x, sha256: ${"0a".repeat(32)} }] }
session: { full_determinism: true, ttl: 1m }
timeouts: { idle: off }
worker_selection:
  aggregated: first
  fallback: third
  instances:
    - { name: first, type: own }
    - { name: second, type: sticky }
    - { name: third, type: own }
`;

const files = (module = encodeModule({ answer: 256 << 16 })) => ({ "own.yaml": OWN, "own.wasm": module });

test("a config that is read aside is what it would be here", async () => {
  const file = join(directoryOf(files()), "hawser.yaml");
  process.env[KEY] = "0123456789abcdef";
  const { config, ...remarks } = await aside.loadConfigAside(FULL, file);
  const { config: here, ...remarksHere } = parseConfig(FULL, file);
  expect(remarks).toEqual(remarksHere);
  expect(remarks.warnings).toHaveLength(1);
  const plain = ({ policy: _, fallback: _f, instances: _i, ...rest }: NonNullable<typeof here>) => rest;
  expect(plain(config!)).toEqual(plain(here!));
  expect(config!.workers[0]!.apiKey).toBe("0123456789abcdef");
  const told = ({ name, policy, parameters }: (typeof config & object)["policy"]) => {
    const { manifest, file, modulePath, admitted } = policy;
    return { name, parameters, manifest, file, modulePath, sha256: admitted.sha256, check: policy.check() };
  };
  expect(config!.instances.map(told)).toEqual(here!.instances.map(told));
});

test("what is one instance, or one policy, is one afterwards", async () => {
  const file = join(directoryOf(files()), "hawser.yaml");
  process.env[KEY] = "0123456789abcdef";
  const { config } = await aside.loadConfigAside(FULL, file);
  const [first, second, third] = config!.instances;
  expect(config!.policy).toBe(first);
  expect(config!.fallback).toBe(third);
  expect(third!.policy).toBe(first!.policy);
  expect(second!.policy).not.toBe(first!.policy);
});

test("the shipped guard, which no instance is, decides by default; its fallback is none", async () => {
  const { config } = await aside.loadConfigAside(W, "hawser.yaml");
  expect(config).toMatchObject({ policy: { name: "default" }, fallback: undefined, instances: [] });
});

test("its policies decide", async () => {
  const file = join(directoryOf(files()), "hawser.yaml");
  process.env[KEY] = "0123456789abcdef";
  const { config } = await aside.loadConfigAside(FULL, file);
  const [own, sticky] = config!.instances.map(({ policy }) => {
    const router = library.createRouter({ policy, workers: [{ id: "a" }, { id: "b" }] });
    router.acquire({ key: "s" });
    return router.acquire({ key: "s" });
  });
  expect(own).toMatchObject({ worker: { id: "a" }, reason: "mine" });
  expect(sticky).toMatchObject({ worker: { id: "a" }, reason: "keep" });
});

test("the caller's thread goes on meanwhile", async () => {
  const many = Array.from({ length: 2_000 }, (_, i) => `  - { id: w${i}, url: http://10.0.0.1:${i + 1} }\n`);
  let isLoaded = false;
  const loading = aside.loadConfigAside(`workers:\n${many.join("")}`, "hawser.yaml").then(() => {
    isLoaded = true;
  });
  let turns = 0;
  for (; !isLoaded; turns++) await new Promise(setImmediate);
  await loading;
  expect(turns).toBeGreaterThan(10);
});

test.each<[string, string, Readonly<Record<string, string | Uint8Array>>]>([
  ["broken YAML", "workers: [\n", {}],
  ["mistakes and a warning", `${W}lisen: {}\nworker_selection: { decode: default }\n`, {}],
  ["a secret that is not there", `${W}admin: { token: { env: ${KEY} } }\n`, {}],
  [
    "a module that is none",
    `${W}policies: { path: [.] }\nworker_selection: { instances: [{ name: a, type: own }] }\n`,
    files(Uint8Array.of(0)),
  ],
  [
    "a policy that fails its dry run",
    `${W}policies: { path: [.] }\nworker_selection: { instances: [{ name: a, type: own }] }\n`,
    files(encodeModule({ answer: -1 })),
  ],
])("%s is told as it would be here", async (_, text, given) => {
  const file = join(directoryOf(given), "hawser.yaml");
  const here = parseConfig(text, file);
  expect(here.mistakes.length).toBeGreaterThan(0);
  expect(await aside.loadConfigAside(text, file)).toEqual(here);
});

test.each([
  ["memory", { timeoutMs: 600_000, memoryMib: 16 }, "16 MiB of memory"],
  ["time", { timeoutMs: 1, memoryMib: 512 }, "1 ms"],
])("what takes too much %s is a mistake, and the next is read", async (_, bounds, much) => {
  const workers = Array.from({ length: 16_000 }, (_, i) => `  - { id: w${i}, url: "http://w${i}:1" }\n`);
  const large = `workers:\n${workers.join("")}`;
  const message = `cannot read the config: that takes more than ${much}`;
  expect(await aside.loadConfigAside(large, "hawser.yaml", bounds)).toEqual({
    mistakes: [{ file: "hawser.yaml", line: 1, column: 1, message }],
    warnings: [],
  });
  expect(await aside.loadConfigAside(W, "hawser.yaml")).toMatchObject({ mistakes: [], config: {} });
});

test("it is read whatever the process was started with", () => {
  const code = `const { loadConfigAside } = await import(process.argv[1]);
    const hold = setTimeout(() => {}, 60_000);
    const { config, mistakes } = await loadConfigAside(${JSON.stringify(W)}, "hawser.yaml");
    clearTimeout(hold);
    console.log(JSON.stringify({ policy: config?.policy.name, mistakes }));`;
  const built = new URL("../../build/host/config/config-aside.js", import.meta.url);
  const options = ["--input-type=module", "--import", "data:text/javascript,"];
  const output = execFileSync(process.execPath, [...options, "-e", code, built.href], { encoding: "utf8" });
  expect(JSON.parse(output)).toEqual({ policy: "default", mistakes: [] });
});
