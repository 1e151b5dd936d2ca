import { expect, test } from "vitest";
import { readTargets } from "../../host/fleet/targets.js";
import { formatMistake } from "../../host/yaml/mistake.js";

function workersIn(text: string) {
  const targets = readTargets(text, "t.yaml");
  if ("mistakes" in targets) throw new Error(targets.mistakes.map(formatMistake).join("\n"));
  return targets.workers;
}

function mistakesIn(text: string): string[] {
  const targets = readTargets(text, "t.yaml");
  return "mistakes" in targets ? targets.mistakes.map(formatMistake) : [];
}

const GROUPS = [
  { targets: ["10.0.0.1:8000", "[::1]:8000"], labels: { job: "vllm", __meta_x: 1, hawser_weight: "50" } },
  { targets: ["vllm-3.example.com:80"], labels: null },
];

const WORKERS = [
  { id: "10.0.0.1:8000", url: "http://10.0.0.1:8000", weight: 50 },
  { id: "[::1]:8000", url: "http://[::1]:8000", weight: 50 },
  { id: "vllm-3.example.com:80", url: "http://vllm-3.example.com" },
];

test.each([
  ["JSON", JSON.stringify(GROUPS)],
  ["JSON over lines", JSON.stringify(GROUPS, null, 2)],
  [
    "YAML",
    `# by hand
- targets: ["10.0.0.1:8000", '[::1]:8000']
  labels: { job: vllm, __meta_x: 1, hawser_weight: 50 }
- targets:
    - vllm-3.example.com:80
`,
  ],
])("targets are workers, in %s", (_, text) => {
  expect(workersIn(text)).toEqual(WORKERS);
});

test("labels say all that a worker can be", () => {
  const text = `
- targets: [10.0.0.1:443]
  labels:
    hawser_id: gpu-1
    hawser_scheme: https
    hawser_path: /llama/
    hawser_models: meta/llama-3, qwen
    hawser_weight: "200"
    hawser_max_num_seqs: "256"
    hawser_max_in_flight: "300"
`;
  expect(workersIn(text)).toEqual([
    {
      ...{ id: "gpu-1", url: "https://10.0.0.1/llama", models: ["meta/llama-3", "qwen"] },
      ...{ weight: 200, slots: 256, maxInFlight: 300 },
    },
  ]);
});

test.each([
  ["no groups", "[]"],
  ["groups without targets", "- targets: []\n  labels: { hawser_id: x }\n- targets: []\n"],
])("%s are no workers", (_, text) => {
  expect(workersIn(text)).toEqual([]);
});

const LABELS =
  "(allowed: hawser_id, hawser_scheme, hawser_path, hawser_models, hawser_weight, hawser_max_num_seqs, hawser_max_in_flight)";
const ADDRESS = "a host and a port such as 10.0.0.1:8000 or [::1]:8000";
const ID = "1 to 128 printable ASCII characters without spaces, since it becomes a header";
const label = (text: string) => `- targets: [a:1]\n  labels: { ${text} }\n`;

test.each([
  [
    "an empty file",
    "",
    "1:1: the file of targets must be a list of groups of targets ([] for none), found nothing",
  ],
  [
    "a mapping",
    "targets: [a:1]",
    "1:1: the file of targets must be a list of groups of targets ([] for none), found a mapping",
  ],
  [
    "half of a JSON file",
    '[{"targets": ["a:1"',
    '1:20: broken YAML: a list opened with "[" is not closed with "]" before this place',
  ],
  [
    "targets alone",
    "[a:1]",
    '1:2: [0] must be a group of targets, { targets: [...], labels: {...} }, found "a:1"',
  ],
  ["no targets", "- labels: {}", '1:3: [0] needs the key "targets"'],
  [
    "a misspelt key",
    "- target: [a:1]",
    '1:3: unknown key "target" in [0], did you mean "targets"? (allowed: targets, labels)',
  ],
  [
    "one target that is no list",
    "- targets: a:1",
    '1:12: [0].targets must be a list of targets, found "a:1"',
  ],
  [
    "a target that is a number",
    "- targets: [8000]",
    `1:13: [0].targets[0] must be ${ADDRESS}, found 8000 (in quotes it is text: "8000")`,
  ],
  ["a port too high", "- targets: [a:65536]", `1:13: [0].targets[0] must be ${ADDRESS}, found "a:65536"`],
  ["no port", "- targets: [vllm-3]", `1:13: [0].targets[0] must be ${ADDRESS}, found "vllm-3"`],
  ["an empty port", "- targets: ['a:']", `1:13: [0].targets[0] must be ${ADDRESS}, found "a:"`],
  [
    "an IPv6 address without a port",
    "- targets: ['[::1]']",
    `1:13: [0].targets[0] must be ${ADDRESS}, found "[::1]"`,
  ],
  ["port 0", "- targets: [a:0]", `1:13: [0].targets[0] must be ${ADDRESS}, found "a:0"`],
  [
    "an IPv6 address without brackets",
    "- targets: ['::1']",
    `1:13: [0].targets[0] must be ${ADDRESS}, found "::1"`,
  ],
  [
    "an odd IPv6 address",
    "- targets: ['[1:2]:3']",
    `1:13: [0].targets[0] must be ${ADDRESS}, found "[1:2]:3"`,
  ],
  [
    "an odd IPv4 address",
    "- targets: ['1.2.3.400:3']",
    `1:13: [0].targets[0] must be ${ADDRESS}, found "1.2.3.400:3"`,
  ],
  [
    "a URL",
    "- targets: ['http://a:1']",
    `1:13: [0].targets[0] must be ${ADDRESS}, found "http://a:1", the scheme is a label: hawser_scheme`,
  ],
  [
    "a path",
    "- targets: ['a:1/llama']",
    `1:13: [0].targets[0] must be ${ADDRESS}, found "a:1/llama", the path is a label: hawser_path`,
  ],
  [
    "a target twice",
    "- targets: [a:1]\n- targets:\n    - b:1\n    - a:1\n",
    '4:7: [1].targets[1] repeats the worker "a:1", first at line 1',
  ],
  [
    "an id twice",
    "- { targets: [a:1], labels: { hawser_id: x } }\n- { targets: [b:1], labels: { hawser_id: x } }\n",
    '2:15: [1].targets[0] repeats the worker "x", first at line 1',
  ],
  [
    "a target too long for an id",
    `- targets: ['${"a.".repeat(64)}b:1']`,
    "1:13: [0].targets[0] is too long to be the id of a worker: the label hawser_id can name another",
  ],
  [
    "labels that are a list",
    "- { targets: [], labels: [a] }",
    "1:26: [0].labels must be a mapping of labels, found a list",
  ],
  [
    "an unknown label of ours",
    label("hawser_wieght: 5"),
    `2:13: unknown label "hawser_wieght" in [0].labels, did you mean "hawser_weight"? ${LABELS}`,
  ],
  [
    "an id for several targets",
    "- targets: [a:1, b:1]\n  labels: { hawser_id: x }",
    "2:13: [0].labels.hawser_id needs a group of one target, found 2",
  ],
  ["an id with a space", label("hawser_id: a b"), `2:24: [0].labels.hawser_id must be ${ID}, found "a b"`],
  ["an empty id", label("hawser_id: ''"), `2:24: [0].labels.hawser_id must be ${ID}, found ""`],
  ["a label without a value", label("hawser_id:"), `2:13: [0].labels.hawser_id must be ${ID}, found nothing`],
  [
    "a scheme",
    label("hawser_scheme: HTTP"),
    '2:28: [0].labels.hawser_scheme must be http or https, found "HTTP"',
  ],
  [
    "a path without a slash",
    label("hawser_path: llama"),
    '2:26: [0].labels.hawser_path must be a path that begins with a slash and has no query and no fragment, such as /llama, found "llama"',
  ],
  [
    "a path with a query",
    label("hawser_path: /a?b"),
    '2:26: [0].labels.hawser_path must be a path that begins with a slash and has no query and no fragment, such as /llama, found "/a?b"',
  ],
  [
    "an empty model",
    label('hawser_models: "a,"'),
    '2:28: [0].labels.hawser_models must be 1 to 256 distinct model names, separated by commas, found "a,"',
  ],
  [
    "a model twice",
    label('hawser_models: "a, a"'),
    '2:28: [0].labels.hawser_models must be 1 to 256 distinct model names, separated by commas, found "a, a"',
  ],
  [
    "weight 0",
    label('hawser_weight: "0"'),
    '2:28: [0].labels.hawser_weight must be an integer from 1 to 10000, found "0"',
  ],
  [
    "weight 1.5",
    label("hawser_weight: 1.5"),
    "2:28: [0].labels.hawser_weight must be an integer from 1 to 10000, found 1.5",
  ],
  [
    "weight true",
    label("hawser_weight: true"),
    "2:28: [0].labels.hawser_weight must be an integer from 1 to 10000, found true",
  ],
  [
    "max_num_seqs",
    label('hawser_max_num_seqs: "2147483648"'),
    '2:34: [0].labels.hawser_max_num_seqs must be an integer from 1 to 2147483647, found "2147483648"',
  ],
  [
    "max_in_flight",
    label('hawser_max_in_flight: "-1"'),
    '2:35: [0].labels.hawser_max_in_flight must be an integer from 1 to 2147483647, found "-1"',
  ],
])("%s is a mistake", (_, text, expected) => {
  expect(mistakesIn(text)).toEqual([`t.yaml:${expected}`]);
});

test("all mistakes are told, in the order of their lines, of JSON too", () => {
  const text = JSON.stringify(
    [
      { targets: ["a:1", "b:0"], labels: { hawser_weight: "x", hawser_nope: "1" } },
      { targets: 7, label: {} },
      { targets: ["a:1"] },
    ],
    null,
    1,
  );
  expect(mistakesIn(text).map((line) => line.split(" ").slice(0, 2).join(" "))).toEqual([
    "t.yaml:5:4: [0].targets[1]",
    "t.yaml:8:21: [0].labels.hawser_weight",
    "t.yaml:9:4: unknown",
    "t.yaml:13:14: [1].targets",
    "t.yaml:14:3: unknown",
    "t.yaml:18:4: [2].targets[0]",
  ]);
});

test("at most 16384 targets are taken", () => {
  const targets = Array.from({ length: 16_384 }, (_, i) => `a:${i + 1}`);
  const lines = (count: number) =>
    `- targets: [${targets.join(", ")}]\n- targets: [${"b:1, ".repeat(count)}]\n`;
  expect(workersIn(JSON.stringify([{ targets }]))).toHaveLength(16_384);
  expect(mistakesIn(lines(3))).toEqual([
    "t.yaml:2:13: [1].targets[0] is one target too many: at most 16384 are allowed in a file",
  ]);
});
