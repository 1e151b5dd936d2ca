import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { loadConfig } from "../../host/config/config.js";
import { directoryOf } from "../fixtures/directory.js";
import { encodeModule } from "../fixtures/wasm.js";

const module = encodeModule();
const sha256 = createHash("sha256").update(module).digest("hex");

/** A config that pins the module of a policy of its own (G16). */
function pinned(digest: string, bytes: Uint8Array = module) {
  const directory = directoryOf({
    "hawser.yaml": `policies: { path: [mine] }
workers: [{ id: a, url: http://127.0.0.1:9001 }]
worker_selection:
  aggregated: own
  instances:
    - { name: own, type: own, sha256: ${digest} }
`,
    "mine/own.yaml": "abi: 1\ntype: own\nversion: 1.0.0\nsummary: S.\nmodule: own.wasm\n",
    "mine/own.wasm": bytes,
  });
  return { ...loadConfig(`${directory}/hawser.yaml`), directory };
}

test("a module with the pinned digest is loaded", () => {
  expect(pinned(sha256).config?.policy.policy.admitted.sha256).toBe(sha256);
});

test("a module that was replaced is refused, with the digest that it has (G16)", () => {
  const { config, mistakes, directory } = pinned(sha256, encodeModule({ answer: 4 << 16 }));
  const found = createHash("sha256")
    .update(encodeModule({ answer: 4 << 16 }))
    .digest("hex");
  expect(config).toBeUndefined();
  expect(mistakes).toEqual([
    {
      file: `${directory}/hawser.yaml`,
      line: 6,
      column: 39,
      message: `the module ${directory}/mine/own.wasm is not the one that is pinned: its sha256 is ${found}`,
    },
  ]);
});
