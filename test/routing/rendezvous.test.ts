import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Mixer, mixWorker, rendezvous } from "../../host/routing/rendezvous.js";
import { Worker } from "../../host/routing/worker.js";

const MASK = (1n << 64n) - 1n;

/** The rule in plain BigInt. */
function mix(value: bigint): bigint {
  let x = value;
  x ^= x >> 30n;
  x = (x * 0xbf58476d1ce4e5b9n) & MASK;
  x ^= x >> 27n;
  x = (x * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}

function mixed(value: bigint): bigint {
  const mixer = new Mixer();
  mixer.low = Number(BigInt.asIntN(32, value));
  mixer.high = Number(BigInt.asIntN(32, value >> 32n));
  mixer.mix();
  return (BigInt(mixer.high >>> 0) << 32n) | BigInt(mixer.low >>> 0);
}

/** Rows 0..n-1 with the row as worker hash, all in descending order of weight. */
function order(key: number, n: number): number[] {
  const rows = Array.from({ length: n }, (_, row) => mixWorker(row));
  const eligible = new Uint8Array(n).fill(1);
  return rows.map(() => {
    const best = rendezvous(rows, eligible, key, 0);
    eligible[best] = 0;
    return best;
  });
}

describe("rendezvous", () => {
  it("mixes as SplitMix64 does", () => {
    expect(mixed(0n)).toBe(0n);
    expect(mixed(1n)).toBe(0x5692161d100b05e5n);
    expect(mixed(2n)).toBe(0xdbd238973a2b148an);
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: MASK }), (value) => mixed(value) === mix(value)),
      { seed: 1 },
    );
  });

  it("weighs worker 0 for key 5 as Dynamo does", () => {
    expect(mixed(5n ^ mix(0n))).toBe(0xb6bf613dbebb45dcn);
  });

  it.each([
    [1, [3, 1, 0, 2]],
    [5, [2, 1, 0, 3]],
    [7, [2, 1, 3, 0]],
    [1000, [0, 3, 1, 2]],
  ])("orders four workers for key %i", (key, expected) => {
    expect(order(key, 4)).toEqual(expected);
  });

  it("moves only the sessions of a lost worker, and spreads them (C18)", () => {
    const rows = Array.from({ length: 8 }, (_, row) => mixWorker(row * 7919));
    const all = new Uint8Array(8).fill(1);
    const less = Uint8Array.from(all, (flag, row) => (row === 3 ? 0 : flag));
    const heirs = new Set<number>();
    for (let key = 0; key < 500; key++) {
      const before = rendezvous(rows, all, key, key * 31);
      const after = rendezvous(rows, less, key, key * 31);
      if (before !== 3) expect(after).toBe(before);
      else heirs.add(after);
    }
    expect([...heirs].sort()).toEqual([0, 1, 2, 4, 5, 6, 7]);
  });

  it("asks each of 256 workers only for what was mixed when it came (B36)", () => {
    const asked = new Map<PropertyKey, number>();
    const rows = Array.from({ length: 256 }, (_, row) => {
      const worker = new Worker({ id: `w${row}` }, row);
      return new Proxy(worker, {
        get(target, name) {
          asked.set(name, (asked.get(name) ?? 0) + 1);
          return target[name as keyof Worker];
        },
      });
    });
    rendezvous(rows, new Uint8Array(256).fill(1), 1, 2);
    expect(Object.fromEntries(asked)).toEqual({ mixedLow: 256, mixedHigh: 256 });
  });

  it("answers -1 where no row is eligible", () => {
    expect(rendezvous([mixWorker(1)], new Uint8Array(1), 1, 2)).toBe(-1);
  });
});
