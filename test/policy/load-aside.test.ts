// From the built library: the thread is a file of its own.
import { beforeAll, expect, test } from "vitest";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";

type Library = typeof import("../../host/index.js");

let library: Library;
beforeAll(async () => {
  library = (await import(new URL("../../build/host/index.js", import.meta.url).href)) as Library;
});

test("a policy loaded in a thread decides as one loaded here", async () => {
  const policy = await library.loadPolicyAside("dynamo-soft-affinity-load-guard");
  const router = library.createRouter({ policy, workers: [{ id: "a" }, { id: "b" }] });
  expect(router.acquire({ key: "s" })).toMatchObject({ worker: { id: "a" }, reason: "place" });
  expect(router.acquire({ key: "s" })).toMatchObject({ worker: { id: "a" }, reason: "keep" });
  expect(policy.admitted.sha256).toBe(library.loadPolicy("soft-affinity-load-guard").admitted.sha256);
});

test("the caller's thread goes on meanwhile", async () => {
  const order: string[] = [];
  const loading = library.loadPolicyAside("sticky").then(() => order.push("loaded"));
  setImmediate(() => order.push("went on"));
  await loading;
  expect(order).toEqual(["went on", "loaded"]);
});

test("a policy that cannot be used is refused as loadPolicy refuses it", async () => {
  await expect(library.loadPolicyAside("stiky")).rejects.toThrow(
    /there is no policy type "stiky", did you mean "sticky"/,
  );
  const directory = directoryOf({
    "own.yaml": "abi: 1\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\n",
    "own.wasm": encodeModule({ without: ["select"] }),
  });
  const refused = library.loadPolicyAside(`${directory}/own.yaml`);
  await expect(refused).rejects.toBeInstanceOf(library.PolicyError);
  await expect(library.loadPolicyAside("own", [directory])).rejects.toThrow(/own\.yaml:5:9: .*"select"/);
});
