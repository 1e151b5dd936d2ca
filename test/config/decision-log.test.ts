// The decision log's key: what is taken, what stands for what is left out, and what is refused.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { formatMistake } from "../../host/yaml/mistake.js";
import { directoryOf } from "../fixtures/directory.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]";

/** What a config with this line below its workers comes to, and what was found in it. */
function read(line: string, file = "/etc/hawser/hawser.yaml") {
  const { config, mistakes, warnings } = parseConfig(`${W}\n${line}\n`, file, {});
  return { log: config?.decisionLog, lines: [...mistakes, ...warnings].map(formatMistake) };
}

describe("decision_log", () => {
  test("is off where the file says nothing of it", () => {
    expect(read("")).toEqual({ log: undefined, lines: [] });
  });

  test("needs nothing but a file, whose path is relative to the config's", () => {
    expect(read("decision_log: { file: log/decisions.jsonl }")).toEqual({
      log: {
        file: "/etc/hawser/log/decisions.jsonl",
        ...{ sample: 1, columns: "read", maxBytes: 64 * 2 ** 20, maxFiles: 8 },
      },
      lines: [],
    });
  });

  test("is read in full", () => {
    const line =
      "decision_log: { file: /var/log/d.jsonl, sample: 0.25, columns: all, max_size: 1KB, max_files: 1000 }";
    expect(read(line)).toEqual({
      log: { file: "/var/log/d.jsonl", sample: 0.25, columns: "all", maxBytes: 1_000, maxFiles: 1_000 },
      lines: [],
    });
  });

  test.each([
    ["{}", '15: decision_log needs the key "file"'],
    ["on", "15: decision_log must be a mapping with the key file, found "],
    ['{ file: "" }', '23: decision_log.file must be the path of the file to write, found ""'],
    ["{ file: d, sample: 0 }", "34: decision_log.sample must be a number above 0 and at most 1, found 0"],
    ["{ file: d, sample: 1.5 }", "34: decision_log.sample must be a number above 0 and at most 1, found 1.5"],
    ["{ file: d, columns: some }", "35: decision_log.columns must be "],
    ["{ file: d, max_size: 500 }", "36: decision_log.max_size must be a size above zero with its unit"],
    ["{ file: d, max_size: 0KB }", "36: decision_log.max_size must be a size above zero with its unit"],
    ["{ file: d, max_files: 0 }", "37: decision_log.max_files must be an integer from 1 to 1000, found 0"],
    [
      "{ file: d, max_files: 1001 }",
      "37: decision_log.max_files must be an integer from 1 to 1000, found 1001",
    ],
    ["{ file: d, path: e }", '26: unknown key "path" in decision_log'],
    ["{ file: ./hawser.yaml }", "23: decision_log.file must be a file of its own, found this config"],
    ["{ file: / }", '23: decision_log.file must be a file of its own, found the directory "/"'],
    [
      "{ file: /dev/null }",
      '23: decision_log.file must be a file of its own, found "/dev/null", which is no regular file',
    ],
    ["{ file: /dev/null/d }", undefined],
  ])("%s", (value, mistake) => {
    const { log, lines } = read(`decision_log: ${value}`);
    expect(lines.length).toBe(mistake === undefined ? 0 : 1);
    expect(log === undefined).toBe(mistake !== undefined);
    if (mistake !== undefined) expect(lines[0]).toContain(`/etc/hawser/hawser.yaml:2:${mistake}`);
  });

  test("is not a directory beside the config", () => {
    const directory = directoryOf({ "logs/x": "" });
    const { lines } = read("decision_log: { file: logs }", join(directory, "hawser.yaml"));
    expect(lines[0]).toContain(`found the directory "${join(directory, "logs")}"`);
  });

  test("may be there already, and is no pipe", () => {
    const directory = directoryOf({ "d.jsonl": "{}\n" });
    const config = join(directory, "hawser.yaml");
    expect(read("decision_log: { file: d.jsonl }", config).lines).toEqual([]);
    execFileSync("mkfifo", [join(directory, "pipe")]);
    const { log, lines } = read("decision_log: { file: pipe }", config);
    expect(log).toBeUndefined();
    expect(lines).toEqual([
      `${config}:2:23: decision_log.file must be a file of its own, found "${join(directory, "pipe")}", which is no regular file`,
    ]);
  });
});
