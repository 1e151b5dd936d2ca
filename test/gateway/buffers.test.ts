// What waits for readers stays within one limit, and who holds most gives way first: against a model that counts everything.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Buffering, Buffers } from "../../host/gateway/buffers.js";

const LIMIT = 64_000;
/** Of the limit: what answers that go on may hold once some were cut, and what all may where some that are over were. */
const LIVE = (LIMIT * 7) / 8;
const ALL = (LIMIT * 63) / 64;
const CHUNK = 8_000;
/** What it takes to tell a client that it was cut. */
const WORDS = 100;

class Answer implements Buffering {
  noted = 0;
  isOver = false;
  isDestroyed = false;
  held = 0;

  get buffered(): number {
    return this.isDestroyed ? 0 : this.held;
  }

  cutSlow(): void {
    expect(this.isOver).toBe(false);
    this.isOver = true;
    this.held += WORDS;
  }

  destroy(): void {
    expect([this.isOver, this.isDestroyed]).toEqual([true, false]);
    this.isDestroyed = true;
  }
}

function sum(answers: Iterable<Answer>): number {
  return [...answers].reduce((total, { buffered }) => total + buffered, 0);
}

/** Sizes of those that must give way, largest first, if anyone has to now. */
function expected(answers: readonly Answer[]): { readonly cut: number[]; readonly destroyed: number[] } {
  const cut: number[] = [];
  const destroyed: number[] = [];
  const byHeld = answers
    .map(({ buffered, isOver }) => ({ buffered, isOver }))
    .sort((a, b) => b.buffered - a.buffered);
  let live = sum(answers.filter(({ isOver }) => !isOver));
  let total = sum(answers);
  for (const one of byHeld) {
    if (one.isOver || live <= LIVE) continue;
    live -= one.buffered;
    one.isOver = true;
    cut.push(one.buffered);
  }
  for (const one of byHeld) {
    if (!one.isOver || total <= ALL) continue;
    total -= one.buffered;
    destroyed.push(one.buffered);
  }
  return { cut, destroyed };
}

/** Buffers over answers, and every check that holds after each step. */
class Bench {
  readonly answers = new Set<Answer>();
  readonly buffers = new Buffers(LIMIT, this.answers);

  pick(index: number): Answer | undefined {
    return [...this.answers][index % Math.max(1, this.answers.size)];
  }

  add(): Answer {
    const one = new Answer();
    this.answers.add(one);
    return one;
  }

  /** A worker sends more of an answer. */
  grow(one: Answer | undefined, bytes: number): void {
    if (!one || one.isOver) return;
    one.held += bytes;
    const before = [...this.answers].map((answer) => ({ answer, ...answer, buffered: answer.buffered }));
    const due = expected([...this.answers]);
    this.buffers.note(one);
    const gone = before.filter(({ answer, isDestroyed }) => answer.isDestroyed && !isDestroyed);
    const cut = before.filter(({ answer, isOver }) => answer.isOver && !isOver);
    const sizes = (of: typeof before) => of.map(({ buffered }) => buffered).sort((a, b) => b - a);
    if (cut.length + gone.length > 0) {
      expect({ cut: sizes(cut), destroyed: sizes(gone).filter((size) => size > 0) }).toEqual(due);
    }
  }

  /** A reader takes a part of what waits, all of it at 1. */
  read(one: Answer | undefined, part: number): void {
    if (one && !one.isDestroyed) one.held -= Math.floor(one.held * part);
  }

  /** A worker has sent all of an answer. */
  end(one: Answer | undefined): void {
    if (one) one.isOver = true;
  }

  /** All of them grow a little while time passes. */
  trickle(more: number): void {
    for (const one of this.answers) {
      this.grow(one, more);
      this.check();
      this.buffers.recount();
    }
  }

  leave(one: Answer | undefined): void {
    if (!one) return;
    this.answers.delete(one);
    this.buffers.forget(one);
  }

  check(): void {
    const total = sum(this.answers);
    expect(total).toBeLessThanOrEqual(LIMIT);
    expect(this.buffers.bytes).toBeGreaterThanOrEqual(total);
  }
}

type Step = (bench: Bench) => void;

/** A step that shows itself in a counterexample. */
function step(name: string, take: Step): Step {
  return Object.assign(take, { [fc.toStringMethod]: () => name });
}

const index = fc.nat(31);
const bytes = fc.integer({ min: 1, max: CHUNK });
const part = fc.double({ min: 0, max: 1, noNaN: true });

const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.constant(step("add", (bench) => void bench.add())) },
  {
    weight: 12,
    arbitrary: fc
      .tuple(index, bytes)
      .map(([i, more]) => step(`grow ${i} by ${more}`, (bench) => bench.grow(bench.pick(i), more))),
  },
  {
    weight: 3,
    arbitrary: fc
      .tuple(index, part)
      .map(([i, of]) => step(`read ${of} of ${i}`, (bench) => bench.read(bench.pick(i), of))),
  },
  { weight: 1, arbitrary: index.map((i) => step(`end ${i}`, (bench) => bench.end(bench.pick(i)))) },
  { weight: 1, arbitrary: index.map((i) => step(`leave ${i}`, (bench) => bench.leave(bench.pick(i)))) },
  { weight: 1, arbitrary: fc.constant(step("count", (bench) => bench.buffers.recount())) },
  {
    weight: 1,
    arbitrary: fc
      .integer({ min: 1, max: 2_000 })
      .map((more) => step(`trickle ${more}`, (bench) => bench.trickle(more))),
  },
);

describe("buffers", () => {
  it("hold no more than the limit, and those that hold most give way, no more of them than must", () => {
    fc.assert(
      fc.property(fc.array(anyStep, { minLength: 20, maxLength: 150 }), (steps) => {
        const bench = new Bench();
        for (const take of steps) {
          take(bench);
          bench.check();
        }
        bench.buffers.recount();
        expect(bench.buffers.bytes).toBe(sum(bench.answers));
        for (const one of [...bench.answers]) bench.leave(one);
        expect(bench.buffers.bytes).toBe(0);
      }),
      { numRuns: 500 },
    );
  });

  it("hold no more than the limit where they grow little by little, however often all are counted", () => {
    const bench = new Bench();
    const answers = Array.from({ length: 20 }, () => bench.add());
    for (let i = 0; i < 20; i++) bench.trickle(500);
    expect(answers.some(({ isOver }) => isOver)).toBe(true);
  });

  it("cut nobody whose readers read, however much comes through", () => {
    const bench = new Bench();
    const answers = Array.from({ length: 7 }, () => bench.add());
    for (let i = 0; i < 7_000; i++) {
      const one = answers[i % 7];
      bench.grow(one, CHUNK);
      bench.check();
      bench.read(one, 1);
    }
    expect(answers.some(({ isOver }) => isOver)).toBe(false);
  });

  it("cut the largest, not the one that grows", () => {
    const bench = new Bench();
    const [large, small, growing] = [bench.add(), bench.add(), bench.add()];
    for (let i = 0; i < 4; i++) bench.grow(large, CHUNK);
    bench.grow(small, CHUNK);
    for (let i = 0; i < 2; i++) bench.grow(growing, CHUNK);
    bench.grow(growing, CHUNK / 2);
    expect([large, small, growing].map(({ isOver }) => isOver)).toEqual([true, false, false]);
    // What was cut may be read still: there is room for it.
    expect(large.isDestroyed).toBe(false);
  });

  it("take back the room of those that were cut and do not read: their connections are broken", () => {
    const bench = new Bench();
    const [large, other] = [bench.add(), bench.add()];
    for (let i = 0; i < 5; i++) bench.grow(large, CHUNK);
    for (let i = 0; i < 2; i++) bench.grow(other, CHUNK);
    bench.grow(other, 1_000);
    expect([large.isOver, large.isDestroyed]).toEqual([true, false]);
    bench.grow(other, CHUNK);
    expect([large.isDestroyed, other.isOver]).toEqual([true, false]);
    bench.check();
  });
});
