// The program of docs/embed.md, from the packed package in an empty folder.
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { stringify } from "yaml";
import { worker } from "../e2e/fleet.js";
import { pack, STRANGER } from "../fixtures/packed.js";
import { blocksOf, ROOT } from "./blocks.js";
import { endlessStream, service } from "./service.js";

const run = promisify(execFile);
const [program, changes, retry, swap] = blocksOf("docs/embed.md")
  .filter(({ language }) => language === "js")
  .map(({ text }) => text) as [string, string, string, string];
const MINUTES = 60_000;

let folder: string;

const env = STRANGER;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "hawser-embed-"));
  const tarball = pack(folder);
  const { dependencies, devDependencies } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
  const tools = ["assemblyscript", "typescript", "@types/node"].map(
    (name) => `${name}@${{ ...dependencies, ...devDependencies }[name]}`,
  );
  execFileSync("npm", ["init", "-y"], { cwd: folder, env });
  execFileSync("npm", ["install", "--engine-strict", "--no-audit", "--no-fund", tarball, ...tools], {
    cwd: folder,
    env,
  });
}, 5 * MINUTES);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the packed package in an empty folder", () => {
  it("runs the program of docs/embed.md, of 25 lines at most", async () => {
    expect(program.trimEnd().split("\n").length).toBeLessThanOrEqual(25);
    writeFileSync(join(folder, "program.mjs"), program);
    const urls = [(await worker()).url, (await worker()).url];
    const { stdout } = await run("node", ["program.mjs", ...urls], { cwd: folder, env });
    const lines = stdout.trimEnd().split("\n");
    expect(lines[0]).toMatch(/^w[01] \(place\): \S/);
    expect(lines[1]).toMatch(new RegExp(`^${lines[0]!.slice(0, 2)} \\(keep\\): \\S`));
  });

  it("has another policy decide while it runs", async () => {
    const source = `import { createRouter, loadPolicy, loadPolicyAside, policyInstance } from "hawser";
const router = createRouter({ policy: loadPolicy("least-loaded"), workers: [{ id: "a" }, { id: "b" }] });
const lease = router.acquire({ key: "s" });
lease.commit();
${swap}
const { worker, policy: name, reason } = router.acquire({ key: "s" });
console.log(worker === lease.worker, name, reason);
`;
    writeFileSync(join(folder, "swap.mjs"), source);
    const { stdout } = await run("node", ["swap.mjs"], { cwd: folder, env });
    expect(stdout).toBe("true calm keep\n");
  });

  it("has the command, the shipped policies and their modules", async () => {
    const { stdout } = await run("npx", ["hawser", "policy", "test", "soft-affinity-load-guard"], {
      cwd: folder,
    });
    expect(stdout).toMatch(/^22 passed, 0 failed$/m);
  });

  it("has a command that gets the signals itself, as a service's has to", async () => {
    const { url } = await worker();
    const started = async (deadline: string) => {
      const config = { shutdown: { deadline }, workers: [{ id: "a", url }] };
      const ports = { listen: { port: 0 }, admin: { port: 0 } };
      writeFileSync(join(folder, "service.yaml"), stringify({ ...ports, ...config }));
      return service("node_modules/.bin/hawser", ["serve", "-c", "service.yaml"], folder);
    };
    const idle = await started("25s");
    idle.child.kill("SIGTERM");
    expect(await idle.exit).toEqual([0, null]);
    const busy = await started("1ms");
    await endlessStream(busy.url);
    busy.child.kill("SIGTERM");
    expect(await busy.exit).toEqual([3, null]);
  });

  it("is typed", async () => {
    const calls = blocksOf("docs/embed.md").find(({ language }) => language === "ts")!.text;
    const source = `import { createRouter, loadPolicy, type BindingView, type Explanation, type Lease, type Router } from "hawser";
const router: Router = createRouter({ policy: loadPolicy("sticky"), workers: [{ id: "a" }] });
const key = "k", model = "", tenant = "";
${calls}
const held: Lease = lease;
{
${changes}
}
{
${retry}
const explained: Explanation = router.explain({ key: "s" });
const bound: BindingView | undefined = router.session(second.session!);
console.log(first.worker === second.worker, explained.decision, bound?.why, router.query({ key: "s" })?.id);
}
// @ts-expect-error: a key is a string
router.acquire({ key: 7 });
console.log(held.worker.id, router.status().affinity_kept);
`;
    writeFileSync(join(folder, "typed.mts"), source);
    const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"];
    await run("npx", ["tsc", ...options, "typed.mts"], { cwd: folder, env });
  });

  it("has the SDK as hawser/assembly: a policy of one's own compiles, is found and runs", async () => {
    writeFileSync(
      join(folder, "mine.ts"),
      `import { answer, isEligible, KEEP, leastLoaded, PLACE } from "hawser/assembly";
export { init } from "hawser/assembly";
export function select(n: i32, bound: i32): i32 {
  return isEligible(bound) ? answer(bound, KEEP) : answer(leastLoaded(n, false), PLACE);
}
`,
    );
    writeFileSync(
      join(folder, "mine.yaml"),
      `abi: 1
type: mine
version: 1.0.0
summary: Stay.
module: mine.wasm
examples:
  - { loads: [3, 1], expect: { row: 1, reason: place } }
  - { loads: [3, 1], bound: 0, expect: { row: 0, reason: keep } }
`,
    );
    const flags = ["--runtime", "stub", "--enable", "simd", "--initialMemory", "16", "--use", "abort="];
    await run("npx", ["asc", "mine.ts", "--outFile", "mine.wasm", "-O3", "--noAssert", ...flags], {
      cwd: folder,
    });
    expect(
      (await run("npx", ["hawser", "policy", "test", "mine.yaml"], { cwd: folder, env })).stdout,
    ).toContain("2 passed, 0 failed");
  });
});
