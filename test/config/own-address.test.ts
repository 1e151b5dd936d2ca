// No worker is the gateway itself.
import { describe, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { formatMistake } from "../../host/yaml/mistake.js";
import { hawser } from "../cli/hawser.js";
import { directoryOf } from "../fixtures/directory.js";

/** What is found in a config with a worker at `url`, on line 2. */
function read(url: string, more = ""): string[] {
  const environment = { HAWSER_ADMIN_TOKEN: "sixteen-characters" };
  const text = `workers:\n  - { id: a, url: "${url}" }\n${more}\n`;
  return parseConfig(text, "hawser.yaml", environment).mistakes.map(formatMistake);
}

describe("a worker's url", () => {
  test.each<[string, string, string]>([
    ["http://127.0.0.1:8080", "", "listen"],
    ["http://127.0.0.1:8081/", "", "admin"],
    ["https://127.0.0.1:8080/base", "", "listen"],
    ["http://localhost:8080", "", "listen"],
    ["http://LOCALHOST:8080", "listen: { host: localhost }", "listen"],
    ["http://127.1:8080", "", "listen"],
    ["http://0.0.0.0:8080", "", "listen"],
    ["http://[::1]:8080", "listen: { host: localhost }", "listen"],
    ["http://[::1]:8080", "listen: { host: '0:0::1' }", "listen"],
    ["http://[::]:8080", "listen: { host: '::1' }", "listen"],
    ["http://127.0.0.1:9000", "listen: { host: 0.0.0.0, port: 9000 }", "listen"],
    ["http://127.0.0.9:9000", "listen: { host: '::', port: 9000 }", "listen"],
    ["http://[::1]:9000", "listen: { host: '::', port: 9000 }", "listen"],
    ["http://0.0.0.0:9000", "admin: { host: 0.0.0.0, port: 9000 }", "admin"],
    ["http://10.0.0.1:9000", "listen: { host: 10.0.0.1, port: 9000 }", "listen"],
    ["http://Gate.example", "listen: { host: gate.EXAMPLE, port: 80 }", "listen"],
    ["https://gate.example", "listen: { host: gate.example, port: 443 }", "listen"],
  ])("%s is the gateway's own with %j", (url, more, name) => {
    expect(read(url, more)).toEqual([
      expect.stringMatching(
        `^hawser\\.yaml:2:19: workers\\[0\\]\\.url must not be the address of the gateway itself, which ${name} has on host `,
      ),
    ]);
  });

  test.each([
    ["http://127.0.0.1:8082", ""],
    ["http://10.0.0.1:8080", ""],
    ["http://127.0.0.2:8080", ""],
    ["http://[::1]:8080", ""],
    ["http://10.0.0.1:8080", "listen: { host: 0.0.0.0 }"],
    ["http://[::1]:8080", "listen: { host: 0.0.0.0 }"],
    ["http://127.0.0.1:8080", "listen: { host: 10.0.0.1 }"],
    ["http://127.0.0.1:8080", "listen: { port: 0 }"],
    ["http://127.0.0.1:8081", "admin: { port: 0 }"],
    ["http://127.0.0.1", "listen: { port: 0 }\nadmin: { port: 443 }"],
    ["http://other.example:8080", "listen: { host: gate.example }"],
  ])("%s is another's with %j", (url, more) => {
    expect(read(url, more)).toEqual([]);
  });

  test("is told with its own form and that of the listener", () => {
    expect(read("http://localhost:8080/")).toEqual([
      'hawser.yaml:2:19: workers[0].url must not be the address of the gateway itself, which listen has on host "127.0.0.1", port 8080, found "http://localhost:8080/"',
    ]);
  });

  test("is refused by serve and check alike", () => {
    const directory = directoryOf({ "hawser.yaml": "workers: [{ id: a, url: http://127.0.0.1:8081 }]\n" });
    for (const args of [["check"], ["serve"]]) {
      const { status, stderr } = hawser(directory, args);
      expect(status).toBe(1);
      expect(stderr).toMatch(
        /^hawser\.yaml:1:25: workers\[0\]\.url must not be .* which admin has on host .*\n$/,
      );
    }
  });
});
