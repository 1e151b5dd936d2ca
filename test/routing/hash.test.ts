import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { hashSession, hashWorker } from "../../host/routing/hash.js";

describe("hashes of the ABI", () => {
  it("takes the first eight bytes of SHA-256 over model, NUL, tenant, NUL, key", () => {
    const digest = createHash("sha256").update("m\0t\0k").digest();
    expect(hashSession("m", "t", "k")).toEqual({ low: digest.readInt32LE(0), high: digest.readInt32LE(4) });
  });

  it("tells model, tenant and key apart", () => {
    const seen = [
      hashSession("a", "", "b"),
      hashSession("", "a", "b"),
      hashSession("a", "b", ""),
      hashSession("b", "", "a"),
    ];
    expect(new Set(seen.map(({ low }) => low)).size).toBe(4);
  });

  it("takes the first four bytes of SHA-256 over a worker's id", () => {
    expect(hashWorker("w0", () => false)).toBe(createHash("sha256").update("w0").digest().readInt32LE(0));
  });

  it("rehashes with a suffix on a collision", () => {
    const first = hashWorker("w0", () => false);
    const second = hashWorker("w0", (hash) => hash === first);
    expect(second).toBe(createHash("sha256").update("w0#1").digest().readInt32LE(0));
  });
});
