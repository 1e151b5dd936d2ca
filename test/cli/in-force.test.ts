// What of a file takes effect: the admin listener, which stays where it is, never opens.
import { expect, it } from "vitest";
import { inForceOf, restartNeededBy } from "../../host/cli/in-force.js";
import { parseConfig } from "../../host/config/config.js";

const WORKERS = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";
const environment = { ONE: "sixteen-characters-1", OTHER: "sixteen-characters-2" };

function read(text: string) {
  const { config, mistakes } = parseConfig(WORKERS + text, "hawser.yaml", environment);
  expect(mistakes).toEqual([]);
  return config!;
}

const OPEN = read("admin: { host: 0.0.0.0, token: { env: ONE } }");

it("keeps its token where the file would have it on this machine alone, without one", () => {
  const file = read("admin: { host: 127.0.0.1 }");
  const config = inForceOf(OPEN, file);
  expect(config.admin).toEqual(OPEN.admin);
  expect(config.view.admin).toEqual(OPEN.view.admin);
  expect(restartNeededBy(config, file)).toEqual([
    { key: "admin.host", in_force: "0.0.0.0", in_file: "127.0.0.1" },
  ]);
});

it("has another token at once, and none on this machine where the file says so", () => {
  const file = read("admin: { host: 0.0.0.0, token: { env: OTHER } }");
  expect(inForceOf(OPEN, file).admin.token).toBe("sixteen-characters-2");
  expect(inForceOf(OPEN, file).view.admin).toMatchObject({ token: { env: "OTHER" } });
  const local = read("admin: { token: { env: ONE } }");
  expect(inForceOf(local, read("")).admin.token).toBeUndefined();
  expect(inForceOf(local, read("")).view.admin).not.toHaveProperty("token");
});
