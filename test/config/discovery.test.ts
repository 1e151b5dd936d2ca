import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { formatMistake } from "../../host/yaml/mistake.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";

function good(text: string) {
  const { config, mistakes, warnings } = parseConfig(text, "/etc/hawser/hawser.yaml", {});
  expect(mistakes.map(formatMistake)).toEqual([]);
  return { config: config!, warnings: warnings.map(formatMistake) };
}

function mistakesIn(text: string): string[] {
  const { config, mistakes } = parseConfig(text, "hawser.yaml", {});
  expect(config === undefined).toBe(mistakes.length > 0);
  return mistakes.map((mistake) => formatMistake(mistake).replace("hawser.yaml:", ""));
}

describe("discovery", () => {
  test("is empty where the file does not name it", () => {
    expect(good(W).config.discovery).toEqual([]);
  });

  test.each([
    ["no workers", ""],
    ["an empty list of workers", "workers: []\n"],
  ])("stands with %s", (_, workers) => {
    const { config, warnings } = good(`${workers}discovery: [{ file: workers.json }]\n`);
    expect(config.workers).toEqual([]);
    expect(config.discovery).toEqual([{ kind: "file", file: "/etc/hawser/workers.json" }]);
    expect(warnings).toEqual([]);
  });

  test("stands beside workers, its files relative to the config's directory", () => {
    const { config } = good(`${W}discovery: [{ file: ../more/w.yaml }, { file: /w.yaml }]\n`);
    expect(config.workers).toHaveLength(1);
    expect(config.discovery).toEqual([
      { kind: "file", file: "/etc/more/w.yaml" },
      { kind: "file", file: "/w.yaml" },
    ]);
    const { config: relative } = parseConfig("discovery: [{ file: w.yaml }]\n", "conf/hawser.yaml", {});
    expect(relative?.discovery).toEqual([{ kind: "file", file: join(process.cwd(), "conf/w.yaml") }]);
  });

  const NOTHING = { models: undefined, weight: undefined, slots: undefined, maxInFlight: undefined };

  test("names have defaults for all but the port", () => {
    const { config } = good("discovery: [{ dns: vllm.svc, port: 8000 }]\n");
    expect(config.discovery).toEqual([
      {
        kind: "dns",
        name: "vllm.svc",
        type: "a",
        port: 8000,
        scheme: "http",
        path: "",
        servers: [],
        ...NOTHING,
      },
    ]);
  });

  test("names are read in full", () => {
    const { config } = good(`discovery:
  - dns: vllm.default.svc.cluster.local.
    type: aaaa
    port: 443
    scheme: https
    path: /llama
    models: [m, n]
    weight: 50
    max_num_seqs: 256
    max_in_flight: 300
    servers: [127.0.0.1:8600, "[::1]:53", 10.0.0.53, "::1"]
  - { dns: _http._tcp.vllm.svc, type: srv }
`);
    expect(config.discovery).toEqual([
      {
        ...{ kind: "dns", name: "vllm.default.svc.cluster.local.", type: "aaaa", port: 443, scheme: "https" },
        ...{ path: "/llama", models: ["m", "n"], weight: 50, slots: 256, maxInFlight: 300 },
        servers: ["127.0.0.1:8600", "[::1]:53", "10.0.0.53", "::1"],
      },
      {
        ...{ kind: "dns", name: "_http._tcp.vllm.svc", type: "srv", port: 0, scheme: "http", path: "" },
        ...{ servers: [], ...NOTHING },
      },
    ]);
  });

  test("a source of either kind has a key for its workers", () => {
    const text = `discovery:
  - { file: w.yaml, api_key: { env: K } }
  - { dns: v.svc, port: 80, api_key: { env: K } }
  - { dns: w.svc, port: 80 }
`;
    const { config, mistakes } = parseConfig(text, "hawser.yaml", { K: "sk-fleet" });
    expect(mistakes).toEqual([]);
    expect(config!.discovery.map(({ apiKey }) => apiKey)).toEqual(["sk-fleet", "sk-fleet", undefined]);
    expect(parseConfig(text, "hawser.yaml", {}).mistakes.map(({ line, message }) => [line, message])).toEqual(
      [
        [2, "discovery[0].api_key.env names the environment variable K, which is not set"],
        [3, "discovery[1].api_key.env names the environment variable K, which is not set"],
      ],
    );
    const literal = "discovery: [{ file: w.yaml, api_key: sk-fleet }]\n";
    const [mistake] = parseConfig(literal, "hawser.yaml", {}).mistakes;
    expect(mistake!.message).toContain("discovery[0].api_key must be { env: NAME } or { file: PATH }");
    expect(mistake!.message).not.toContain("sk-fleet");
  });

  test("one name may be asked for records of several types and ports", () => {
    const { config } = good(`discovery:
  - { dns: v.svc, port: 8000 }
  - { dns: v.svc, port: 8001 }
  - { dns: v.svc, port: 8000, type: aaaa }
`);
    expect(config.discovery).toHaveLength(3);
  });

  test("a path that ends in /v1 is warned of", () => {
    const { warnings } = good("discovery: [{ dns: v.svc, port: 80, path: /v1 }]\n");
    expect(warnings).toEqual([
      "/etc/hawser/hawser.yaml:1:43: discovery[0].path ends in /v1, below which the gateway would ask for /v1/models and the like: leave it out",
    ]);
  });
});

const KEYS =
  "(allowed: file, dns, type, port, scheme, path, models, weight, max_num_seqs, max_in_flight, servers, api_key)";
const SERVER = "an IP address, with a port or without, such as 127.0.0.1:8600 or [::1]:53";
const NAME = "a full DNS name, such as vllm.default.svc.cluster.local";
const d = (...sources: string[]) => `discovery:\n${sources.map((source) => `  - { ${source} }\n`).join("")}`;

describe("one mistake, one line", () => {
  test.each([
    [
      "neither workers nor discovery",
      "listen: {}",
      '1:1: the config needs the key "workers", or "discovery"',
    ],
    [
      "no workers and no discovery",
      "workers: []",
      "1:10: workers must name at least one worker where there is no discovery, found an empty list",
    ],
    [
      "an empty list",
      "discovery: []",
      "1:12: discovery must be a list of 1 to 64 sources of workers, found an empty list",
    ],
    [
      "one source that is no list",
      "discovery: { file: w.json }",
      "1:12: discovery must be a list of 1 to 64 sources of workers, found a mapping",
    ],
    [
      "a source that is text",
      "discovery: [w.json]",
      '1:13: discovery[0] must be { file: PATH } or { dns: NAME, ... }, found "w.json"',
    ],
    [
      "an empty source",
      d(""),
      '2:5: discovery[0] must be { file: PATH } or { dns: NAME, ... }, found neither "file" nor "dns"',
    ],
    [
      "a source of no kind",
      d("port: 8000"),
      '2:5: discovery[0] must be { file: PATH } or { dns: NAME, ... }, found neither "file" nor "dns"',
    ],
    [
      "a source of both kinds",
      d("file: w.json, dns: v.svc, port: 1"),
      "2:5: discovery[0] must be either { file: PATH } or { dns: NAME, ... }, found both",
    ],
    [
      "a misspelt kind",
      d("fle: w.json"),
      `2:7: unknown key "fle" in discovery[0], did you mean "file"? ${KEYS}`,
    ],
    [
      "an unknown key",
      d("dns: v.svc, port: 1, wieght: 5"),
      `2:28: unknown key "wieght" in discovery[0], did you mean "weight"? ${KEYS}`,
    ],
    [
      "an empty path",
      d('file: ""'),
      '2:13: discovery[0].file must be the path of a file of targets, found ""',
    ],
    [
      "what a file's labels say",
      d("file: w.json, weight: 5"),
      "2:21: discovery[0].weight is for { dns: NAME, ... } alone: in a file of targets labels say it",
    ],
    [
      "a file twice",
      d("file: w.json", "file: ./w.json"),
      `3:13: discovery[1].file repeats "${join(process.cwd(), "w.json")}", first at line 2`,
    ],
    [
      "a name with a port",
      d('dns: "v.svc:80", port: 80'),
      `2:12: discovery[0].dns must be ${NAME}, found "v.svc:80"`,
    ],
    [
      "a name with an empty label",
      d("dns: v..svc, port: 80"),
      `2:12: discovery[0].dns must be ${NAME}, found "v..svc"`,
    ],
    [
      "an address",
      d("dns: 10.0.0.1, port: 80"),
      '2:12: discovery[0].dns must be a name, found the address "10.0.0.1"',
    ],
    [
      "a type",
      d("dns: v.svc, type: A, port: 80"),
      '2:25: discovery[0].type must be one of a, aaaa, srv, found "A", did you mean "a"?',
    ],
    ["no port", d("dns: v.svc"), '2:5: discovery[0] needs the key "port": A records name none'],
    [
      "no port, by type",
      d("dns: v.svc, type: aaaa"),
      '2:5: discovery[0] needs the key "port": AAAA records name none',
    ],
    [
      "a misspelt port",
      d("dns: v.svc, prt: 80"),
      `2:19: unknown key "prt" in discovery[0], did you mean "port"? ${KEYS}`,
    ],
    ["port 0", d("dns: v.svc, port: 0"), "2:25: discovery[0].port must be a port from 1 to 65535, found 0"],
    [
      "a port beside SRV records",
      d("dns: v.svc, type: srv, port: 80"),
      "2:36: discovery[0].port must be left out, since SRV records name the port, found 80",
    ],
    [
      "a scheme",
      d("dns: v.svc, port: 1, scheme: tcp"),
      '2:36: discovery[0].scheme must be one of http, https, found "tcp"',
    ],
    [
      "a path",
      d('dns: v.svc, port: 1, path: "a"'),
      '2:34: discovery[0].path must be a path that begins with a slash and has no query and no fragment, such as /llama, found "a"',
    ],
    [
      "a model twice",
      d("dns: v.svc, port: 1, models: [m, m]"),
      '2:40: discovery[0].models[1] repeats "m", first at line 2',
    ],
    [
      "weight",
      d("dns: v.svc, port: 1, weight: 0"),
      "2:36: discovery[0].weight must be an integer from 1 to 10000, found 0",
    ],
    [
      "max_in_flight",
      d("dns: v.svc, port: 1, max_in_flight: 0"),
      "2:43: discovery[0].max_in_flight must be an integer from 1 to 2147483647, found 0",
    ],
    [
      "a server's name",
      d("dns: v.svc, port: 1, servers: [consul]"),
      `2:38: discovery[0].servers[0] must be ${SERVER}, found "consul"`,
    ],
    [
      "a server's port",
      d('dns: v.svc, port: 1, servers: ["1.1.1.1:0"]'),
      `2:38: discovery[0].servers[0] must be ${SERVER}, found "1.1.1.1:0"`,
    ],
    [
      "a server twice",
      d("dns: v.svc, port: 1, servers: [1.1.1.1, 1.1.1.1]"),
      '2:47: discovery[0].servers[1] repeats "1.1.1.1", first at line 2',
    ],
    [
      "no servers",
      d("dns: v.svc, port: 1, servers: []"),
      "2:37: discovery[0].servers must be a list of 1 to 8 DNS servers, found an empty list",
    ],
    [
      "a name twice",
      d("dns: v.svc, port: 1", "dns: V.svc., port: 1"),
      '3:12: discovery[1].dns repeats "V.svc." with the same type and port, first at line 2',
    ],
  ])("%s", (_, text, expected) => {
    expect(mistakesIn(text)).toEqual([expected]);
  });

  test.each(["wokers: []", "discovry: []", "workers:[]", "Discovery: []"])(
    "%s is told as it stands alone",
    (text) => {
      expect(mistakesIn(text)).toEqual([expect.stringMatching(/^1:1: (unknown key|the config must)/)]);
    },
  );

  test("no other key is taken for a misspelt one", () => {
    const { mistakes } = parseConfig("nothing: 1\n", "hawser.yaml", {});
    const unknown = mistakes.map(({ message }) => message).find((message) => message.startsWith("unknown"))!;
    const keys = /\(allowed: (.*)\)/.exec(unknown)![1]!.split(", ");
    expect(keys).toContain("discovery");
    for (const key of keys.filter((name) => name !== "workers" && name !== "discovery")) {
      expect(mistakesIn(`${key}: {}`)).toContain('1:1: the config needs the key "workers", or "discovery"');
    }
  });
});

test("all mistakes of all sources are told at once", () => {
  const text = d(
    "dns: v.svc, port: 0, servers: [x]",
    "file: w.json, port: 1",
    "dns: w.svc, type: srv, port: 1, weight: 0",
  );
  expect(mistakesIn(text).map((line) => line.split(" ")[0])).toEqual([
    "2:25:",
    "2:38:",
    "3:21:",
    "4:36:",
    "4:47:",
  ]);
});

test("no odd shape under discovery makes it throw", () => {
  const word = fc.constantFrom<unknown>(
    ...[
      "",
      "a",
      "srv",
      "v.svc",
      "w.json",
      "\0",
      "::1",
      "[",
      "[::1]:5:5",
      "https",
      "/v1",
      "__proto__",
      "port:1",
    ],
    ...[null, true, 0, 1, 8000, 1.5, 1e300, [], {}, ["m", "m"], ["::1", 7]],
  );
  const keys = fc.constantFrom(
    ...["file", "dns", "type", "port", "scheme", "path", "models", "weight", "servers", "fle", "__proto__"],
  );
  const source = fc.oneof(word, fc.dictionary(keys, word, { maxKeys: 5 }));
  fc.assert(
    fc.property(fc.oneof(word, fc.array(source, { maxLength: 4 })), fc.option(word), (discovery, workers) => {
      const { config, mistakes } = parseConfig(JSON.stringify({ discovery, workers }), "hawser.yaml", {});
      expect(config === undefined).toBe(mistakes.length > 0);
      for (const { line, column, message } of mistakes)
        expect([line > 0, column > 0, message !== ""]).toEqual([true, true, true]);
    }),
    { numRuns: 500 },
  );
});
