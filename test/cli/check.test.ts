import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";
import { hawser } from "./hawser.js";

const WORKERS = `workers:
  - { id: a, url: http://127.0.0.1:9001 }
  - { id: b, url: http://127.0.0.1:9002 }
`;
const GUARD = "  instances: [{ name: guard, type: soft-affinity-load-guard }]\n";

test("a good config is one line on stdout", () => {
  const directory = directoryOf({
    "hawser.yaml": `${WORKERS}worker_selection:\n  aggregated: guard\n${GUARD}`,
  });
  expect(hawser(directory, ["check", "hawser.yaml"])).toEqual({
    status: 0,
    stdout: "hawser.yaml: ok (2 workers, policy guard = soft-affinity-load-guard)\n",
    stderr: "",
  });
});

test("without a file it checks ./hawser.yaml", () => {
  const directory = directoryOf({ "hawser.yaml": "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n" });
  expect(hawser(directory, ["check"])).toEqual({
    status: 0,
    stdout: "hawser.yaml: ok (1 worker, policy default = soft-affinity-load-guard)\n",
    stderr: "",
  });
});

test("a warning is told and leaves the exit code 0", () => {
  const directory = directoryOf({
    "hawser.yaml": `${WORKERS}worker_selection:\n  aggregated: default\n  decode: guard\n${GUARD}`,
  });
  expect(hawser(directory, ["check", "hawser.yaml"])).toEqual({
    status: 0,
    stdout: "hawser.yaml: ok (2 workers, policy default = soft-affinity-load-guard)\n",
    stderr:
      "hawser.yaml:6:3: worker_selection.decode is not used: all requests are routed by worker_selection.aggregated (warning)\n",
  });
});

test("mistakes are one line each on stderr, and the exit code is 1", () => {
  const directory = directoryOf({
    "hawser.yaml": `${WORKERS}policies: { path: [mine] }\nsession: { ttl: 30 }\nhttp: 1\n`,
    "mine/own.yaml": "abi: 2\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\n",
    "mine/own.wasm": encodeModule(),
  });
  const { status, stdout, stderr } = hawser(directory, ["check", "hawser.yaml"]);
  expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
  expect(stderr.replaceAll(`${directory}/`, "").split("\n")).toEqual([
    "hawser.yaml:5:17: session.ttl must be a duration above zero with its unit, such as 500ms, 30s, 30m or 2h, found 30",
    'hawser.yaml:6:1: unknown key "http" (allowed: listen, admin, shutdown, policies, workers, discovery, session, worker_selection, limits, timeouts, retries, streams, log, decision_log, forward_credentials, access, health, breaker, signals, admission)',
    "mine/own.yaml:1:6: abi must be 1, the only ABI that this host speaks, found 2",
    "",
  ]);
});

test("a file that does not exist is a mistake at its first character", () => {
  expect(hawser(directoryOf({}), ["check", "none.yaml"])).toEqual({
    status: 1,
    stdout: "",
    stderr: "none.yaml:1:1: cannot read the file: it does not exist\n",
  });
});

test("a pipe or a directory among the policies is passed over", () => {
  const directory = directoryOf({
    "hawser.yaml": "policies: { path: [mine] }\nworkers: [{ id: a, url: http://127.0.0.1:9001 }]\n",
    "mine/folder.yaml/x": "",
  });
  execFileSync("mkfifo", [join(directory, "mine/pipe.yaml"), join(directory, "mine/pipe.wasm")]);
  expect(hawser(directory, ["check"]).status).toBe(0);
});

test("what is allowed but hardly meant is a warning, in the order of the file", () => {
  const directory = directoryOf({
    "hawser.yaml": `workers:
  - { id: a, url: http://127.0.0.1:9001/v1 }
  - { id: b, url: http://127.0.0.1:9001/v1/ }
worker_selection:
  instances: [{ name: mine, type: sticky }]
`,
  });
  const { status, stderr } = hawser(directory, ["check"]);
  expect(status).toBe(0);
  expect(stderr.trimEnd().split("\n")).toEqual([
    expect.stringMatching(/^hawser\.yaml:2:19: workers\[0\]\.url ends in \/v1, .* \(warning\)$/),
    expect.stringMatching(/^hawser\.yaml:3:19: workers\[1\]\.url ends in \/v1, .* \(warning\)$/),
    expect.stringMatching(
      /^hawser\.yaml:3:19: workers\[1\]\.url is the address of workers\[0\]\.url, too.* \(warning\)$/,
    ),
    expect.stringMatching(/^hawser\.yaml:5:3: worker_selection\.aggregated is left out.* \(warning\)$/),
  ]);
});

/** A config whose workers come from `targets.yaml` beside it, too. */
const DISCOVERY = "conf/hawser.yaml";
const SOURCES = `${WORKERS}discovery:
  - { file: targets.yaml }
  - { dns: vllm.example.com, port: 8000 }
`;
const OK = `${DISCOVERY}: ok (2 workers, policy default = soft-affinity-load-guard)\n`;

/** Checks the config beside files of targets; files are told from their directory on. */
function checked(files: Readonly<Record<string, string>>, config = SOURCES) {
  const directory = directoryOf({ [DISCOVERY]: config, ...files });
  const { status, stdout, stderr } = hawser(directory, ["check", DISCOVERY]);
  return { status, stdout, stderr: stderr.replaceAll(`${directory}/`, "").split("\n").slice(0, -1) };
}

test("a file of targets is read, too: without mistakes nothing is said of it", () => {
  const targets = '[{ "targets": ["10.0.0.1:8000"], "labels": { "hawser_id": "c" } }]';
  expect(checked({ "conf/targets.yaml": targets })).toEqual({ status: 0, stdout: OK, stderr: [] });
  expect(checked({ "conf/targets.yaml": "[]" })).toEqual({ status: 0, stdout: OK, stderr: [] });
});

test("mistakes in files of targets are all told with their places, and the exit code is 1", () => {
  const config = `${SOURCES}  - { file: ../more.json }\n`;
  const files = {
    "conf/targets.yaml": "- targets: [a:1]\n- targets: [b]\n  labels: { hawser_weight: 0 }\n",
    "more.json": '[{ "target": [] }]',
  };
  const { status, stdout, stderr } = checked(files, config);
  expect([status, stdout]).toEqual([1, ""]);
  expect(stderr).toEqual([
    'conf/targets.yaml:2:13: [1].targets[0] must be a host and a port such as 10.0.0.1:8000 or [::1]:8000, found "b"',
    "conf/targets.yaml:3:28: [1].labels.hawser_weight must be an integer from 1 to 10000, found 0",
    'more.json:1:4: unknown key "target" in [0], did you mean "targets"? (allowed: targets, labels)',
  ]);
});

test("an empty file of targets is a mistake", () => {
  const empty = "the file of targets must be a list of groups of targets ([] for none), found nothing";
  expect(checked({ "conf/targets.yaml": "" })).toEqual({
    ...{ status: 1, stdout: "", stderr: [`conf/targets.yaml:1:1: ${empty}`] },
  });
});

test("a file of targets that is not there yet is a warning", () => {
  expect(checked({})).toEqual({
    ...{ status: 0, stdout: OK },
    stderr: ["conf/targets.yaml:1:1: cannot read the file: it does not exist (warning)"],
  });
});

test("a target that the config names as well is a warning, beside mistakes elsewhere", () => {
  const warning =
    'conf/targets.yaml: worker "b" is the config\'s, what the file says of it does not count (warning)';
  const targets = "- targets: [10.0.0.1:8000]\n- { targets: [10.0.0.2:8000], labels: { hawser_id: b } }\n";
  expect(checked({ "conf/targets.yaml": targets })).toEqual({ status: 0, stdout: OK, stderr: [warning] });
  const both = checked(
    { "conf/targets.yaml": targets, "conf/more.yaml": "7" },
    `${SOURCES}  - { file: more.yaml }\n`,
  );
  expect([both.status, both.stdout]).toEqual([1, ""]);
  expect(both.stderr).toEqual([expect.stringMatching(/^conf\/more\.yaml:1:1: .*, found 7$/), warning]);
});

test("where the config itself has mistakes its files of targets are not read", () => {
  const { status, stderr } = checked({ "conf/targets.yaml": "7" }, `${SOURCES}session: { ttl: 30 }\n`);
  expect(status).toBe(1);
  expect(stderr).toEqual([expect.stringMatching(/^conf\/hawser\.yaml:7:17: session\.ttl /)]);
});
