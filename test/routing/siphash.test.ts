import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { sipHash } from "../../host/routing/siphash.js";

/** HalfSipHash of 64 bits after its paper, on BigInt, with `c` rounds a word and `d` to finish. */
function reference(key: Buffer, bytes: Buffer, c: number, d: number): Buffer {
  const k0 = BigInt(key.readUInt32LE(0));
  const k1 = BigInt(key.readUInt32LE(4));
  const v = [k0, k1 ^ 0xeen, k0 ^ 0x6c796765n, k1 ^ 0x74656462n] as [bigint, bigint, bigint, bigint];
  const low = (x: bigint) => BigInt.asUintN(32, x);
  const rotate = (x: bigint, by: bigint) => low((x << by) | (x >> (32n - by)));
  const rounds = (count: number) => {
    for (let i = 0; i < count; i++) {
      v[0] = low(v[0] + v[1]);
      v[1] = rotate(v[1], 5n) ^ v[0];
      v[0] = rotate(v[0], 16n);
      v[2] = low(v[2] + v[3]);
      v[3] = rotate(v[3], 8n) ^ v[2];
      v[0] = low(v[0] + v[3]);
      v[3] = rotate(v[3], 7n) ^ v[0];
      v[2] = low(v[2] + v[1]);
      v[1] = rotate(v[1], 13n) ^ v[2];
      v[2] = rotate(v[2], 16n);
    }
  };
  const padded = Buffer.alloc((Math.floor(bytes.length / 4) + 1) * 4);
  bytes.copy(padded);
  padded[padded.length - 1] = bytes.length & 255;
  for (let at = 0; at < padded.length; at += 4) {
    const word = BigInt(padded.readUInt32LE(at));
    v[3] ^= word;
    rounds(c);
    v[0] ^= word;
  }
  const out = Buffer.alloc(8);
  v[2] ^= 0xeen;
  rounds(d);
  out.writeUInt32LE(Number(v[1] ^ v[3]), 0);
  v[1] ^= 0xddn;
  rounds(d);
  out.writeUInt32LE(Number(v[1] ^ v[3]), 4);
  return out;
}

const KEY = Buffer.from("000102030405060708090a0b0c0d0e0f", "hex");

function words(bytes: Buffer): Int32Array {
  return Int32Array.from({ length: 4 }, (_, i) => bytes.readInt32LE(i * 4));
}

function hashed(key: Buffer, kind: number, text: string): string {
  const out = new Int32Array(4);
  sipHash(words(key), kind, text, out);
  return Buffer.from(out.buffer).toString("hex");
}

describe("the hash of the binding table", () => {
  it("is compared with an implementation that has the published answer of HalfSipHash-2-4 to no bytes", () => {
    expect(reference(KEY.subarray(0, 8), Buffer.alloc(0), 2, 4).toString("hex")).toBe("218d1f59b9b83cc8");
  });

  it("agrees with it for every text and key", () => {
    const key = fc.uint8Array({ minLength: 16, maxLength: 16 });
    const narrow = fc.string({
      unit: fc.integer({ max: 255 }).map((code) => String.fromCharCode(code)),
      maxLength: 40,
    });
    const text = fc.oneof(
      fc.string({ unit: "binary", maxLength: 300 }),
      fc.string({ maxLength: 300 }),
      narrow,
    );
    fc.assert(
      fc.property(key, text, (bytes, given) => {
        const isNarrow = [...given].every((character) => character <= "\xff");
        const encoded = Buffer.from(given, isNarrow ? "latin1" : "utf16le");
        const halves = [0, 8].map((at) => {
          const key = Buffer.from(bytes.slice(at, at + 8));
          if (!isNarrow) key.writeInt32LE(key.readInt32LE(0) ^ 0x10000);
          return reference(key, encoded, 1, 3).toString("hex");
        });
        expect(hashed(Buffer.from(bytes), 0, given)).toBe(halves.join(""));
      }),
      { seed: 3, numRuns: 500 },
    );
  });

  it("keeps kinds apart", () => {
    expect(new Set([0, 1, 2].map((kind) => hashed(KEY, kind, "key"))).size).toBe(3);
  });
});
