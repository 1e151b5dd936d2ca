// Modules of the field, far beyond the limits of a policy: they are read and rewritten, and V8 takes the result.
import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { LIMITS, type Limits } from "../../host/sandbox/limits.js";
import { meter } from "../../host/sandbox/meter.js";
import { parseModule } from "../../host/sandbox/parse.js";

const UNLIMITED = Object.fromEntries(
  Object.keys(LIMITS).map((name) => [name, Number.POSITIVE_INFINITY]),
) as unknown as Limits;
const PACKAGES = new URL("../../node_modules/", import.meta.url);

function rewrite(bytes: Uint8Array) {
  const parsed = parseModule(bytes, UNLIMITED);
  const metered = meter(parsed, {});
  expect(WebAssembly.validate(bytes as Uint8Array<ArrayBuffer>)).toBe(true);
  expect(WebAssembly.validate(metered.bytes as Uint8Array<ArrayBuffer>)).toBe(true);
  expect(metered.chargePoints).toBeGreaterThanOrEqual(parsed.code.bodies.length + parsed.code.loops);
  return parsed.code;
}

/** Modules that a script holds as base64. */
function modulesIn(file: string): Uint8Array[] {
  const text = readFileSync(new URL(file, PACKAGES), "utf8");
  return [...text.matchAll(/AGFzbQ[A-Za-z0-9+/]{100,}={0,2}/g)].map(([base64]) =>
    Buffer.from(base64, "base64"),
  );
}

test.each([
  ["undici/lib/llhttp/llhttp-wasm.js", 100],
  ["undici/lib/llhttp/llhttp_simd-wasm.js", 100],
  ["assemblyscript/dist/assemblyscript.js", 0],
])("%s", (file, loops) => {
  const modules = modulesIn(file);
  expect(modules.length).toBeGreaterThan(0);
  for (const bytes of modules) expect(rewrite(bytes).loops).toBeGreaterThanOrEqual(loops);
});

test("Binaryen, of nine megabytes", async () => {
  const instantiate = vi.spyOn(WebAssembly, "instantiate");
  await import("assemblyscript/asc");
  const sources = instantiate.mock.calls.map(([source]) => source as unknown as Uint8Array);
  const largest = sources.reduce((a, b) => (a.byteLength > b.byteLength ? a : b));
  const { instructions, loops } = rewrite(new Uint8Array(largest));
  expect(instructions).toBeGreaterThan(1_000_000);
  expect(loops).toBeGreaterThan(10_000);
});
