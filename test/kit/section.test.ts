import { expect, it } from "vitest";
import { packManifest } from "../../host/kit/section.js";
import { admit } from "../../host/sandbox/admit.js";
import { encodeModule } from "../fixtures/wasm.js";

it("a packed module carries its manifest, whatever its size", () => {
  for (const size of [0, 100, 127, 128, 20_000]) {
    const manifest = { summary: "ü".repeat(size / 2), reasons: { 256: "own" } };
    const packed = packManifest(encodeModule(), manifest);
    expect(JSON.parse(admit(packed).manifestJson!)).toEqual(manifest);
  }
});
