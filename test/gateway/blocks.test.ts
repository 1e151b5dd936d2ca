// Bytes that wait: they come out as they went in, and cost little more memory than they are, whatever the pieces they came in.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Backlog, Gathered, tight } from "../../host/gateway/blocks.js";

const READ = 65_536;

/** Pieces as a transport hands them out: each a part of a read buffer of its own. */
const pieces = fc.array(
  fc
    .tuple(fc.uint8Array({ maxLength: 40 }), fc.constantFrom(1, 1, 1, 200, 3_000), fc.boolean())
    .map(([bytes, times, isTight]) => {
      const piece = Buffer.concat(Array(times).fill(bytes));
      if (isTight) return piece;
      const read = Buffer.alloc(READ * 2);
      piece.copy(read, 5);
      return read.subarray(5, 5 + piece.length);
    }),
  { maxLength: 60 },
);

/** Takes all that waits. */
function taken(backlog: Backlog): Buffer[] {
  const blocks: Buffer[] = [];
  for (let block = backlog.shift(); block; block = backlog.shift()) blocks.push(block);
  return blocks;
}

const memory = (blocks: readonly Buffer[]) => blocks.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);

describe("a piece that is held", () => {
  it("is itself where its buffer is not much larger, a copy where it is", () => {
    const whole = Buffer.alloc(READ, "x");
    expect(tight(whole)).toBe(whole);
    const most = whole.subarray(100);
    expect(tight(most)).toBe(most);
    const little = tight(whole.subarray(7, 9));
    expect([little.toString(), little.buffer.byteLength]).toEqual(["xx", 2]);
  });
});

describe("bytes that are gathered", () => {
  it("are the same, in one, and hold at most about twice their number", () => {
    fc.assert(
      fc.property(pieces, fc.boolean(), (all, isDeclared) => {
        const whole = Buffer.concat(all);
        const gathered = new Gathered();
        for (const piece of all) {
          gathered.push(piece, isDeclared ? whole.length : undefined);
          expect(gathered.bytes.buffer.byteLength).toBeLessThanOrEqual(gathered.size * 4 + 8_192);
        }
        expect(gathered.bytes.equals(whole)).toBe(true);
        expect(gathered.size).toBe(whole.length);
      }),
    );
  });

  it("are not copied where they came in one piece, and have no room to spare where their number was known", () => {
    const whole = Buffer.alloc(READ, "x");
    const one = new Gathered();
    one.push(whole, READ);
    expect(one.bytes.buffer).toBe(whole.buffer);
    const two = new Gathered();
    for (let at = 0; at < READ; at += 1_024) two.push(whole.subarray(at, at + 1_024), READ);
    expect([two.size, two.bytes.buffer.byteLength]).toEqual([READ, READ]);
    // What came is nobody's to write to.
    expect(one.bytes.equals(whole)).toBe(true);
  });

  it.each([10_000, 100_000])("cost no more in single bytes of large reads than in one: %i", (count) => {
    const read = Buffer.alloc(READ, "x");
    const gathered = new Gathered();
    for (let i = 0; i < count; i++) gathered.push(read.subarray(i % READ, (i % READ) + 1));
    expect(gathered.size).toBe(count);
    expect(gathered.bytes.buffer.byteLength).toBeLessThanOrEqual(2 * count + 4_096);
  });
});

describe("a backlog", () => {
  it("gives back the same bytes, in blocks that hold little more than they are", () => {
    fc.assert(
      fc.property(pieces, fc.nat(5), (all, takes) => {
        const backlog = new Backlog();
        const out: Buffer[] = [];
        const half = all.length >> 1;
        for (const piece of all.slice(0, half)) backlog.push(piece);
        for (let i = 0; i < takes; i++) out.push(...[backlog.shift()].filter((block) => block !== undefined));
        for (const piece of all.slice(half)) backlog.push(piece);
        const before = out.reduce((sum, { length }) => sum + length, 0);
        const whole = Buffer.concat(all);
        expect(before + backlog.size).toBe(whole.length);
        out.push(...taken(backlog));
        expect(backlog.size).toBe(0);
        expect(Buffer.concat(out).equals(whole)).toBe(true);
        expect(memory(out)).toBeLessThanOrEqual(whole.length * 4 + 2 * 8_192);
      }),
    );
  });

  it.each([10_000, 1_000_000])("holds single bytes of large reads in few blocks: %i", (count) => {
    const read = Buffer.alloc(READ, "x");
    const backlog = new Backlog();
    for (let i = 0; i < count; i++) backlog.push(read.subarray(i % READ, (i % READ) + 1));
    expect(backlog.size).toBe(count);
    const blocks = taken(backlog);
    expect(memory(blocks)).toBeLessThanOrEqual(count * 1.125 + 4_096);
    expect(blocks.length).toBeLessThanOrEqual(10 + count / 20_000 + 20);
  });

  it("holds nothing once it is cleared", () => {
    const backlog = new Backlog();
    backlog.push(Buffer.alloc(READ));
    backlog.clear();
    expect([backlog.size, backlog.shift()]).toEqual([0, undefined]);
    backlog.push(Buffer.from("a"));
    expect(Buffer.concat(taken(backlog)).toString()).toBe("a");
  });
});
