// When a worker is left alone, for how long, and how it comes back: in virtual time, and against a model that keeps everything.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Breaker, type BreakerState, type BreakerView } from "../../host/fleet/breaker.js";
import type { BreakerOptions } from "../../host/fleet/options.js";

const OPTIONS: BreakerOptions = {
  windowMs: 30_000,
  minRequests: 10,
  failureRatio: 0.5,
  consecutive: 5,
  openMs: 10_000,
  openMaxMs: 120_000,
  halfOpen: 3,
};
const BUCKETS = 10;
const HOUR = 3_600_000;
/** No number of failures in a row opens. */
const BY_RATIO = { consecutive: 1_000_000 };

/** A breaker, and the time it lives in. */
class Bench {
  now = 1_000;
  /** What the breaker is told when it asks whether it may open, and how often it asked. */
  mayOpen = true;
  asked = 0;
  readonly breaker: Breaker;

  constructor(options: Partial<BreakerOptions> = {}) {
    const mayOpen = (now: number): boolean => {
      this.asked++;
      expect(now).toBe(this.now);
      expect(["closed", "half_open"]).toContain(this.state);
      return this.mayOpen;
    };
    this.breaker = new Breaker({ ...OPTIONS, ...options }, mayOpen, this.now);
  }

  get state(): BreakerState {
    return this.breaker.state(this.now);
  }

  get limit(): number {
    return this.breaker.limit(this.now);
  }

  get view(): BreakerView {
    return this.breaker.view(this.now);
  }

  /** Results of requests that began `age` milliseconds ago. */
  good(count: number, age = 0): void {
    for (let i = 0; i < count; i++) this.breaker.succeeded(this.now - age, this.now);
  }

  bad(count: number, age = 0, why = "reset"): void {
    for (let i = 0; i < count; i++) this.breaker.failed(this.now - age, this.now, why);
  }

  /** Answers that begin well, one after the other, each of which breaks off before the next one. */
  broken(count: number, age = 0, why = "the stream ended early"): void {
    for (let i = 0; i < count; i++) {
      this.good(1, age);
      this.breaker.brokeOff(this.now - age, this.now, why);
    }
  }

  /** Good answers, each to its end. */
  whole(count: number): void {
    for (let i = 0; i < count; i++) {
      this.good(1);
      this.breaker.completed();
    }
  }

  /** Opens a closed one; returns for how many milliseconds. */
  trip(): number {
    this.bad(OPTIONS.consecutive);
    expect(this.state).toBe("open");
    return this.view.opensUntil! - this.now;
  }

  /** Waits until an open one is half-open. */
  wait(): void {
    this.now = this.view.opensUntil!;
    expect(this.state).toBe("half_open");
  }

  /** Closes an open one. */
  mend(): void {
    this.wait();
    this.good(OPTIONS.halfOpen);
    expect(this.state).toBe("closed");
  }
}

describe("a closed breaker", () => {
  it("limits nothing", () => {
    const bench = new Bench();
    expect(bench.limit).toBe(Number.POSITIVE_INFINITY);
    expect(bench.view).toEqual({
      ...{ state: "closed", since: 1_000, why: null, opensUntil: null },
      ...{ successes: 0, failures: 0, inARow: 0 },
    });
  });

  it("opens at so many failures in a row, however far apart", () => {
    const bench = new Bench();
    bench.bad(4);
    bench.good(1);
    bench.bad(4);
    expect(bench.view).toMatchObject({ state: "closed", successes: 1, failures: 8, inARow: 4 });
    bench.now += 5 * HOUR;
    expect(bench.view).toMatchObject({ state: "closed", successes: 0, failures: 0, inARow: 4 });
    bench.bad(1, 0, "connect ECONNREFUSED");
    expect(bench.limit).toBe(0);
    expect(bench.view).toEqual({
      ...{ state: "open", since: bench.now, why: "connect ECONNREFUSED", opensUntil: bench.now + 10_000 },
      ...{ successes: 0, failures: 1, inARow: 5 },
    });
  });

  it.each([
    { good: 5, bad: 5, ratio: 0.5, least: 10, state: "open" },
    { good: 4, bad: 5, ratio: 0.5, least: 10, state: "closed" },
    { good: 6, bad: 5, ratio: 0.5, least: 10, state: "closed" },
    { good: 0, bad: 9, ratio: 0.5, least: 10, state: "closed" },
    { good: 0, bad: 10, ratio: 1, least: 10, state: "open" },
    { good: 1, bad: 99, ratio: 1, least: 10, state: "closed" },
    { good: 0, bad: 1, ratio: 0.01, least: 1, state: "open" },
    // 0.55 * 100 is more than 55 in floating point.
    { good: 45, bad: 55, ratio: 0.55, least: 100, state: "open" },
    { good: 46, bad: 54, ratio: 0.55, least: 100, state: "closed" },
  ])("with $good good and $bad bad, ratio $ratio from $least on, is $state", (row) => {
    const bench = new Bench({ ...BY_RATIO, failureRatio: row.ratio, minRequests: row.least });
    bench.good(row.good);
    bench.bad(row.bad - 1);
    expect(bench.state).toBe("closed");
    bench.bad(1);
    expect(bench.state).toBe(row.state);
  });

  it("opens at a failure, never at a good answer that makes the results enough to judge by", () => {
    const bench = new Bench(BY_RATIO);
    bench.bad(9);
    bench.good(1);
    expect([bench.state, bench.asked]).toEqual(["closed", 0]);
    bench.bad(1);
    expect(bench.state).toBe("open");
  });

  it("forgets a result within a whole window, and not before nine tenths of it", () => {
    const bench = new Bench(BY_RATIO);
    bench.bad(7);
    bench.now += 27_000;
    bench.good(1);
    expect(bench.view).toMatchObject({ successes: 1, failures: 7 });
    bench.now += 3_000;
    expect(bench.view).toMatchObject({ successes: 1, failures: 0 });
    bench.bad(4);
    expect(bench.state).toBe("closed");
  });

  it("forgets all of it where time jumps by whole rounds of its buckets", () => {
    for (const jump of [30_000, 60_000, 300_000, 24 * HOUR, 1_000 * 24 * HOUR]) {
      const bench = new Bench(BY_RATIO);
      for (let i = 0; i < BUCKETS; i++, bench.now += 3_000) bench.good(i);
      bench.now += jump;
      expect(bench.view).toMatchObject({ successes: 0, failures: 0 });
      bench.bad(9);
      expect(bench.view).toMatchObject({ state: "closed", failures: 9 });
      bench.bad(1);
      expect(bench.state).toBe("open");
    }
  });

  it("stays closed where it may not open, and asks anew at each failure, at nothing else", () => {
    const bench = new Bench();
    bench.mayOpen = false;
    bench.bad(4);
    expect(bench.asked).toBe(0);
    bench.bad(3);
    expect([bench.asked, bench.state, bench.limit]).toEqual([3, "closed", Number.POSITIVE_INFINITY]);
    bench.mayOpen = true;
    bench.now += 1_000;
    expect([bench.asked, bench.state]).toEqual([3, "closed"]);
    bench.bad(1);
    expect([bench.asked, bench.state]).toEqual([4, "open"]);
  });

  it("that was refused does not open later for failures that are over", () => {
    const bench = new Bench();
    bench.mayOpen = false;
    bench.bad(5);
    bench.mayOpen = true;
    bench.good(1);
    bench.bad(1);
    expect([bench.asked, bench.state]).toEqual([1, "closed"]);
  });

  it("keeps the last failure's text, cut", () => {
    const bench = new Bench();
    bench.bad(1, 0, "status 500");
    bench.bad(1, 0, "x".repeat(100_000));
    expect(bench.view.why).toBe("x".repeat(200));
    bench.bad(1, 0, "status 502");
    bench.good(1);
    expect(bench.view.why).toBe("status 502");
  });
});

describe("an open breaker", () => {
  it("lets nothing through until its time is over, and is then half-open since that moment, whenever it is looked at", () => {
    for (const late of [0, 1, 30 * HOUR]) {
      const bench = new Bench();
      const opened = bench.now;
      bench.trip();
      bench.now = opened + 9_999;
      expect([bench.state, bench.limit]).toEqual(["open", 0]);
      bench.now = opened + 10_000 + late;
      expect(bench.limit).toBe(3);
      expect(bench.view).toMatchObject({ state: "half_open", since: opened + 10_000, opensUntil: null });
    }
  });

  it("is not moved by what still comes", () => {
    const bench = new Bench();
    bench.trip();
    bench.now += 5_000;
    const before = bench.view;
    bench.good(20, 7_000);
    bench.bad(20, 7_000, "late");
    bench.bad(20, 1_000, "forced");
    expect(bench.view).toEqual(before);
    expect(bench.asked).toBe(1);
  });
});

describe("a half-open breaker", () => {
  it("closes after so many good answers, with nothing left of what was before", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    bench.good(2);
    expect([bench.state, bench.limit]).toEqual(["half_open", 3]);
    bench.now += 40;
    bench.good(1);
    expect(bench.limit).toBe(Number.POSITIVE_INFINITY);
    expect(bench.view).toEqual({
      ...{ state: "closed", since: bench.now, why: null, opensUntil: null },
      ...{ successes: 0, failures: 0, inARow: 0 },
    });
    bench.bad(4);
    expect(bench.state).toBe("closed");
  });

  it("opens again at one failure, where it may, and forgets the good answers before it", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    bench.good(2);
    bench.bad(1, 0, "status 502");
    expect(bench.view).toMatchObject({ state: "open", since: bench.now, why: "status 502" });
    expect(bench.asked).toBe(2);
    bench.wait();
    bench.good(2);
    expect(bench.state).toBe("half_open");
    bench.good(1);
    expect(bench.state).toBe("closed");
  });

  it("stays half-open where it may not open again, and its good answers count from 0", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    const { since } = bench.view;
    bench.mayOpen = false;
    for (let round = 1; round <= 3; round++) {
      bench.now += 1_000;
      bench.good(2);
      bench.bad(1, 0, `status ${round}`);
      expect(bench.view).toMatchObject({
        state: "half_open",
        since,
        why: `status ${round}`,
        opensUntil: null,
      });
      expect([bench.asked, bench.limit]).toEqual([1 + round, 3]);
    }
    bench.good(2);
    expect(bench.state).toBe("half_open");
    bench.good(1);
    expect(bench.view).toMatchObject({ state: "closed", why: null });
  });

  it("that was refused opens at the next failure that it may open at, for twice as long", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    bench.mayOpen = false;
    bench.bad(7);
    expect(bench.state).toBe("half_open");
    bench.mayOpen = true;
    bench.bad(1);
    expect(bench.view).toMatchObject({ state: "open", opensUntil: bench.now + 20_000 });
  });

  it("is judged by its own requests alone", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    const before = bench.view;
    bench.now += 500;
    bench.good(10, 501);
    bench.bad(10, 501);
    expect(bench.view).toEqual(before);
    bench.bad(1, 500);
    expect(bench.state).toBe("open");
    // Two probes of that time end in the next one.
    bench.wait();
    bench.good(3, bench.now - before.since);
    bench.bad(1, bench.now - before.since);
    expect(bench.state).toBe("half_open");
  });

  it("closes once, and what its last probes come to does not count any more", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    bench.now += 100;
    bench.good(3, 100);
    bench.bad(10, 100);
    expect(bench.view).toMatchObject({ state: "closed", failures: 0, inARow: 0 });
  });

  it("is not held up by probes that end without a result, however many, whenever they end", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    /** Whoever dispatches counts what is under way; of a probe that says nothing the breaker never hears. */
    let underWay = 0;
    for (let round = 0; round < 100; round++) {
      let begun = 0;
      for (; underWay < bench.limit; underWay++) begun++;
      expect(begun).toBe(3);
      bench.now += 600_000;
      underWay -= begun;
      if (round === 50) bench.good(1);
    }
    expect([bench.state, bench.limit]).toEqual(["half_open", 3]);
    bench.good(2);
    expect(bench.state).toBe("closed");
  });
});

describe("answers that break off", () => {
  it("are failures, and no successes any more", () => {
    const bench = new Bench();
    bench.whole(3);
    bench.good(1);
    expect(bench.view).toMatchObject({ successes: 4, failures: 0 });
    bench.breaker.brokeOff(bench.now, bench.now, "reset".repeat(100));
    expect(bench.view).toEqual({
      ...{ state: "closed", since: 1_000, why: "reset".repeat(40), opensUntil: null },
      ...{ successes: 3, failures: 1, inARow: 1 },
    });
  });

  it("take back the latest success, as old as it is, and none that there is not", () => {
    const bench = new Bench(BY_RATIO);
    bench.good(1);
    bench.now += 24_000;
    bench.good(1);
    bench.now += 3_000;
    bench.breaker.brokeOff(bench.now, bench.now, "reset");
    expect(bench.view).toMatchObject({ successes: 1, failures: 1 });
    // The one that is left is the older one.
    bench.now += 3_000;
    expect(bench.view).toMatchObject({ successes: 0, failures: 1 });
    bench.breaker.brokeOff(bench.now, bench.now, "reset");
    expect(bench.view).toMatchObject({ successes: 0, failures: 2 });
  });

  it("open at so many in a row, though each began well, whatever other answers begin", () => {
    const bench = new Bench();
    bench.broken(4);
    bench.good(20);
    expect(bench.view).toMatchObject({ state: "closed", inARow: 4 });
    bench.broken(1, 0, "the last one");
    expect(bench.view).toMatchObject({ state: "open", why: "the last one", inARow: 5 });
  });

  it("do not where one between them comes to its end", () => {
    const bench = new Bench({ failureRatio: 1 });
    for (let round = 0; round < 5; round++) {
      bench.broken(4);
      bench.whole(1);
      expect(bench.view).toMatchObject({ state: "closed", inARow: 0 });
    }
    expect(bench.asked).toBe(0);
  });

  it("are counted apart from what fails at once: the longer row is shown, neither adds to the other", () => {
    const bench = new Bench();
    bench.broken(4);
    bench.bad(3);
    expect(bench.view).toMatchObject({ state: "closed", failures: 7, inARow: 4 });
    bench.breaker.completed();
    expect(bench.view).toMatchObject({ state: "closed", failures: 7, inARow: 3 });
    bench.bad(2);
    expect(bench.state).toBe("open");
  });

  it("open at their part of the results within the window", () => {
    const bench = new Bench();
    for (let i = 0; i < 4; i++) {
      bench.broken(1);
      bench.whole(1);
    }
    bench.whole(1);
    expect(bench.view).toMatchObject({ state: "closed", successes: 5, failures: 4 });
    bench.broken(1);
    expect(bench.state).toBe("open");
  });

  it("say nothing where they began before the present state, or while it is open", () => {
    const bench = new Bench();
    bench.trip();
    const before = bench.view;
    bench.breaker.brokeOff(bench.now - 1, bench.now, "late");
    bench.breaker.brokeOff(bench.now, bench.now, "forced");
    expect(bench.view).toEqual(before);
    bench.wait();
    const halfOpen = bench.view;
    bench.breaker.brokeOff(bench.now - 1, bench.now, "late");
    expect(bench.view).toEqual(halfOpen);
  });

  it("of a half-open one are probes that failed", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    bench.good(2);
    bench.breaker.brokeOff(bench.now, bench.now, "cut");
    expect(bench.view).toMatchObject({ state: "open", why: "cut", opensUntil: bench.now + 20_000 });
  });

  it("of probes by which it has closed open it again, for twice as long each time", () => {
    const bench = new Bench();
    bench.trip();
    for (const next of [20_000, 40_000, 80_000, 120_000]) {
      bench.wait();
      const begunAt = bench.now;
      bench.now += 500;
      bench.good(3, 500);
      expect(bench.state).toBe("closed");
      bench.now += OPTIONS.windowMs - 1;
      bench.breaker.brokeOff(begunAt, bench.now, "the stream ended early");
      expect(bench.view).toEqual({
        ...{ state: "open", since: bench.now, why: "the stream ended early", opensUntil: bench.now + next },
        ...{ successes: 0, failures: 1, inARow: 1 },
      });
    }
  });

  it("of such probes say nothing after a whole window, nor what began before it was half-open", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    const begunAt = bench.now;
    bench.now += 500;
    bench.good(3, 500);
    const closed = bench.view;
    bench.breaker.brokeOff(begunAt - 1, bench.now, "late");
    expect(bench.view).toEqual(closed);
    bench.now += OPTIONS.windowMs;
    bench.breaker.brokeOff(begunAt, bench.now, "late");
    expect(bench.view).toEqual(closed);
  });

  it("of such probes count where it may not open, and take no other success back", () => {
    const bench = new Bench();
    bench.trip();
    bench.wait();
    const begunAt = bench.now;
    bench.now += 500;
    bench.good(3, 500);
    bench.good(2);
    bench.mayOpen = false;
    bench.breaker.brokeOff(begunAt, bench.now, "cut");
    expect(bench.view).toMatchObject({ state: "closed", why: "cut", successes: 2, failures: 1, inARow: 1 });
    bench.mayOpen = true;
    bench.breaker.brokeOff(begunAt, bench.now, "cut again");
    expect(bench.view).toMatchObject({ state: "open", why: "cut again" });
  });

  it("are forgotten when it closes", () => {
    const bench = new Bench();
    bench.broken(5);
    bench.mend();
    expect(bench.view).toMatchObject({ why: null, inARow: 0 });
    bench.broken(4);
    expect(bench.state).toBe("closed");
  });
});

describe("an open breaker that relents", () => {
  it("is half-open at once, and judged as such", () => {
    const bench = new Bench();
    bench.trip();
    bench.now += 3_000;
    bench.breaker.relent(bench.now);
    expect(bench.view).toMatchObject({
      ...{ state: "half_open", since: bench.now, why: "reset", opensUntil: null },
    });
    expect(bench.limit).toBe(3);
    bench.good(2);
    bench.bad(1);
    expect(bench.view).toMatchObject({ state: "open", opensUntil: bench.now + 20_000 });
    bench.breaker.relent(bench.now);
    bench.good(3);
    expect(bench.state).toBe("closed");
  });

  it("is what no other one does", () => {
    const bench = new Bench();
    bench.bad(1);
    const closed = bench.view;
    bench.breaker.relent(bench.now);
    expect(bench.view).toEqual(closed);
    bench.bad(4);
    bench.wait();
    const halfOpen = bench.view;
    bench.good(2);
    bench.now += 400;
    bench.breaker.relent(bench.now);
    expect(bench.view).toMatchObject({ state: "half_open", since: halfOpen.since });
    bench.good(1);
    expect(bench.state).toBe("closed");
  });
});

describe("the time that it stays open", () => {
  it("doubles with each time that it opens again, up to its limit, and stays there", () => {
    const bench = new Bench();
    const times = [bench.trip()];
    for (let i = 1; i < 2_000; i++) {
      bench.wait();
      bench.bad(1);
      times.push(bench.view.opensUntil! - bench.now);
    }
    expect(times.slice(0, 6)).toEqual([10_000, 20_000, 40_000, 80_000, 120_000, 120_000]);
    expect(new Set(times.slice(5))).toEqual(new Set([120_000]));
  });

  it.each([
    // A window is 30 s: to be closed for less is never long.
    { openings: 1, closedMs: 29_999, next: 20_000 },
    { openings: 1, closedMs: 30_000, next: 10_000 },
    // Nor is less than the time that it had been open for.
    { openings: 3, closedMs: 39_999, next: 80_000 },
    { openings: 3, closedMs: 40_000, next: 10_000 },
    { openings: 9, closedMs: 119_999, next: 120_000 },
    { openings: 9, closedMs: 100 * HOUR, next: 10_000 },
  ])("is $next ms after $openings openings and $closedMs ms closed", ({ openings, closedMs, next }) => {
    const bench = new Bench();
    bench.trip();
    for (let i = 1; i < openings; i++) {
      bench.wait();
      bench.bad(1);
    }
    bench.mend();
    bench.now += closedMs;
    expect(bench.trip()).toBe(next);
  });

  it("is the first one again only after being closed, not after hours half-open", () => {
    const bench = new Bench();
    bench.trip();
    bench.mend();
    bench.now += HOUR;
    expect(bench.trip()).toBe(10_000);
    bench.wait();
    bench.now += 50 * HOUR;
    bench.bad(1);
    expect(bench.view.opensUntil).toBe(bench.now + 20_000);
  });
});

/** What a breaker is told. */
type Kind = "good" | "bad" | "broke" | "completed" | "relent";

/** A breaker in words: it keeps all that it is told since the last change that matters, and counts it each time. */
class Model {
  state: BreakerState = "closed";
  since: number;
  why: string | null = null;
  readonly #options: BreakerOptions;
  /** What counted since it was last closed. */
  #told: { readonly at: number; kind: Kind | "taken back" }[] = [];
  #openFor = 0;
  #lastClosed: number | undefined;
  /** When the probes began by which it was last closed. */
  #probedSince = Number.POSITIVE_INFINITY;

  constructor(options: BreakerOptions, now: number) {
    this.#options = options;
    this.since = now;
  }

  pass(now: number): void {
    if (this.state === "open" && now >= this.since + this.#openFor) this.#probe(this.since + this.#openFor);
  }

  tell(kind: Kind, begunAt: number, now: number, why: string, mayOpen: boolean): void {
    this.pass(now);
    if (kind === "relent") {
      if (this.state === "open") this.#probe(now);
    } else if (kind === "completed") this.#told.push({ at: now, kind });
    else if (kind === "broke" && this.#wasAProbe(begunAt, now)) this.#fail(kind, now, why, mayOpen, true);
    else if (this.state !== "open" && begunAt >= this.since) {
      if (kind === "broke") this.#takeBack(now);
      if (kind === "good") this.#succeed(now);
      else this.#fail(kind, now, why, mayOpen, this.state === "half_open");
    }
  }

  view(now: number): BreakerView {
    this.pass(now);
    const { state, since, why } = this;
    const opensUntil = state === "open" ? since + this.#openFor : null;
    return { state, since, why, opensUntil, ...this.#counts(now), inARow: this.#inARow };
  }

  #succeed(now: number): void {
    this.#told.push({ at: now, kind: "good" });
    const good = this.#told.slice(
      this.#told.findLastIndex(({ kind }) => kind === "bad" || kind === "broke") + 1,
    );
    const probes = good.filter(({ at, kind }) => kind === "good" && at >= this.since);
    if (this.state === "half_open" && probes.length === this.#options.halfOpen) this.#close(now);
  }

  #fail(kind: Kind, now: number, why: string, mayOpen: boolean, isEnough: boolean): void {
    this.#told.push({ at: now, kind });
    this.why = why;
    if ((isEnough || this.#isTooMuch(now)) && mayOpen) this.#open(now);
  }

  #wasAProbe(begunAt: number, now: number): boolean {
    if (this.state !== "closed" || this.#lastClosed === undefined) return false;
    if (now >= this.#lastClosed + this.#options.windowMs) return false;
    return begunAt >= this.#probedSince && begunAt < this.#lastClosed;
  }

  /** The latest good answer within the window was none; that it ended a row of failures stays. */
  #takeBack(now: number): void {
    const good = this.#recent(now).findLast(({ kind }) => kind === "good");
    if (good) good.kind = "taken back";
  }

  get #inARow(): number {
    const since = (...ends: string[]) =>
      this.#told.slice(this.#told.findLastIndex(({ kind }) => ends.includes(kind)) + 1);
    const bad = since("good", "taken back").filter(({ kind }) => kind === "bad");
    const broke = since("completed").filter(({ kind }) => kind === "broke");
    return Math.max(bad.length, broke.length);
  }

  #recent(now: number) {
    const bucket = (at: number): number => Math.floor(at / (this.#options.windowMs / BUCKETS));
    return this.#told.filter(({ at }) => bucket(at) > bucket(now) - BUCKETS);
  }

  #counts(now: number): { readonly successes: number; readonly failures: number } {
    const count = (...kinds: string[]) => this.#recent(now).filter(({ kind }) => kinds.includes(kind)).length;
    return { successes: count("good"), failures: count("bad", "broke") };
  }

  #isTooMuch(now: number): boolean {
    const { successes, failures } = this.#counts(now);
    const { minRequests, failureRatio, consecutive } = this.#options;
    const all = successes + failures;
    return this.#inARow >= consecutive || (all >= minRequests && failures / all >= failureRatio);
  }

  #open(now: number): void {
    const { openMs, openMaxMs, windowMs } = this.#options;
    const isAgain = this.state === "half_open";
    const isFirst = this.#lastClosed === undefined;
    const isShort =
      !isFirst && (now - this.#lastClosed! < windowMs || now - this.#lastClosed! < this.#openFor);
    this.#openFor = isAgain || isShort ? Math.min(this.#openFor * 2, openMaxMs) : openMs;
    this.state = "open";
    this.since = now;
  }

  #probe(since: number): void {
    this.state = "half_open";
    this.since = since;
  }

  #close(now: number): void {
    this.#probedSince = this.since;
    this.state = "closed";
    this.since = now;
    this.why = null;
    this.#lastClosed = now;
    this.#told = [];
  }
}

/** Tells a breaker the same. */
function tell(breaker: Breaker, kind: Kind, begunAt: number, now: number, why: string): void {
  if (kind === "good") breaker.succeeded(begunAt, now);
  else if (kind === "bad") breaker.failed(begunAt, now, why);
  else if (kind === "broke") breaker.brokeOff(begunAt, now, why);
  else if (kind === "completed") breaker.completed();
  else breaker.relent(now);
}

const options = fc
  .record({
    windowMs: fc.constantFrom(1, 10, 1_000, 1_007, 30_000),
    minRequests: fc.integer({ min: 1, max: 12 }),
    failureRatio: fc.constantFrom(0.01, 0.3, 0.5, 0.55, 1),
    consecutive: fc.integer({ min: 1, max: 6 }),
    openMs: fc.constantFrom(1, 100, 10_000),
    times: fc.constantFrom(1, 2, 3, 12),
    halfOpen: fc.integer({ min: 1, max: 4 }),
  })
  .map(({ times, ...rest }): BreakerOptions => ({ ...rest, openMaxMs: rest.openMs * times }));

const wait = fc.oneof(
  { weight: 4, arbitrary: fc.constant(0) },
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 300 }) },
  { weight: 2, arbitrary: fc.constantFrom(1_000, 3_000, 10_000, 20_000, 27_000, 30_000) },
  { weight: 1, arbitrary: fc.constantFrom(HOUR, 999 * HOUR, 7 * HOUR + 0.25) },
);

const steps = fc.array(
  fc.record({
    wait,
    age: fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 20_000 })),
    kind: fc.constantFrom<Kind>(
      ...(["good", "good", "good", "good", "good", "bad", "bad", "bad", "bad"] as const),
      ...(["broke", "broke", "broke", "completed", "relent"] as const),
    ),
    mayOpen: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
  }),
  { maxLength: 120, size: "max" },
);

describe("any history", () => {
  it("leads to what the model says, at every step of it", () => {
    const ways = new Map<string, number>();
    fc.assert(
      fc.property(options, fc.nat(50_000), steps, (chosen, start, history) => {
        let now = start;
        let mayOpen = true;
        let state: BreakerState = "closed";
        const breaker = new Breaker(chosen, () => mayOpen, now);
        const model = new Model(chosen, now);
        const check = (): void => {
          expect(breaker.view(now)).toEqual(model.view(now));
          const limits = { closed: Number.POSITIVE_INFINITY, open: 0, half_open: chosen.halfOpen };
          expect(breaker.limit(now)).toBe(limits[model.state]);
          const way = `${state} ${model.state}`;
          ways.set(way, (ways.get(way) ?? 0) + 1);
          state = model.state;
        };
        history.forEach((step, index) => {
          now += step.wait;
          mayOpen = step.mayOpen;
          if (index % 2 === 0) check();
          const begunAt = now - step.age;
          tell(breaker, step.kind, begunAt, now, `failure ${index}`);
          model.tell(step.kind, begunAt, now, `failure ${index}`, mayOpen);
          check();
        });
      }),
      { seed: 11, numRuns: 250 },
    );
    // The histories went every way there is, and often.
    for (const way of ["closed open", "open half_open", "half_open open", "half_open closed"])
      expect(ways.get(way) ?? 0, way).toBeGreaterThan(100);
  });

  it("comes back from everything: once its worker is well, it closes", () => {
    fc.assert(
      fc.property(options, steps, (chosen, history) => {
        let now = 0;
        const breaker = new Breaker(chosen, () => true, now);
        for (const { wait: ms, age, kind } of history) {
          now += ms;
          tell(breaker, kind, now - age, now, "reset");
        }
        now += chosen.openMaxMs;
        for (let i = 0; i < chosen.halfOpen; i++) breaker.succeeded(now, now);
        expect(breaker.state(now)).toBe("closed");
      }),
      { seed: 12, numRuns: 300 },
    );
  });
});
