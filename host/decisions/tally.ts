// What a replay comes to: how many decisions are the same, how the others changed, and how the requests of both ended.

import type { AskedDecision, OutcomeEntry } from "./entry.js";
import { type Decided, reasonText, type Verdict } from "./replay.js";

/** Decisions that are remembered until it is read how they ended. */
const MAX_OPEN = 2 ** 18;
/** Changes of the reason that are told, and that are told from each other at all. */
const MAX_CHANGES = 50;
const MAX_KNOWN_CHANGES = 2 ** 14;
/** Steps of the measure of times: a median is right to half a percent. */
const STEP = Math.log(1.01);

/** Where decisions leave their sessions. */
export interface Stays {
  /** On the bound worker, on another one, and placed where none was bound. */
  kept: number;
  moved: number;
  placed: number;
}

/** From the logged reason to the present one. */
interface Change {
  readonly from: string;
  readonly to: string;
  count: number;
}

/** How requests ended. */
export interface Endings {
  readonly requests: number;
  readonly accepted: number;
  /** Milliseconds; undefined where no time is known. */
  readonly firstByteMedian: number | undefined;
  /** Of the prompts' tokens; undefined where engines said nothing of them. */
  readonly cachedShare: number | undefined;
}

export interface Summary {
  readonly decisions: number;
  /** Those that a policy was asked for, and was again. */
  readonly asked: number;
  /** Those that a policy was asked for and that could not be decided anew. */
  readonly notReplayed: number;
  readonly identical: number;
  readonly different: number;
  /** Of those the ones that go to another worker. */
  readonly elsewhere: number;
  /** Decisions before which nothing is missing that a policy could remember, and those of them that are different. */
  readonly whole: number;
  readonly wholeDifferent: number;
  /** The most frequent first, and how many decisions changed in other ways. */
  readonly changes: readonly Readonly<Change>[];
  readonly otherChanges: number;
  readonly logged: Readonly<Stays>;
  readonly now: Readonly<Stays>;
  /** Of the requests on which both agree, and of those on which they do not: under the logged decision. */
  readonly agreed: Endings;
  readonly differed: Endings;
}

export class Tally {
  #own = 0;
  #asked = 0;
  #notReplayed = 0;
  #identical = 0;
  #elsewhere = 0;
  #whole = 0;
  #wholeDifferent = 0;
  readonly #changes = new Map<string, Change>();
  readonly #logged: Stays = { kept: 0, moved: 0, placed: 0 };
  readonly #now: Stays = { kept: 0, moved: 0, placed: 0 };
  /** By the decision, whether it is the same. */
  readonly #open = new Map<string, boolean>();
  readonly #agreed = new EndingCounts();
  readonly #differed = new EndingCounts();

  /** A decision that no policy was asked for. */
  passOver(): void {
    this.#own++;
  }

  /** A decision that could not be decided anew. */
  giveUp(): void {
    this.#notReplayed++;
  }

  take(logged: AskedDecision, { now, isSame, isWhole }: Verdict): void {
    this.#asked++;
    if (isWhole) this.#whole++;
    countStay(this.#logged, logged.bound, logged.row);
    countStay(this.#now, logged.bound, now.row);
    this.#open.set(`${logged.run} ${logged.n}`, isSame);
    if (this.#open.size > MAX_OPEN) this.#open.delete(this.#open.keys().next().value!);
    if (isSame) this.#identical++;
    else this.#differ(logged, now, isWhole);
  }

  /** How a decision ended; passed over where that one is not known. */
  end(outcome: OutcomeEntry): void {
    const key = `${outcome.run} ${outcome.n}`;
    const isSame = this.#open.get(key);
    if (isSame === undefined) return;
    this.#open.delete(key);
    (isSame ? this.#agreed : this.#differed).add(outcome);
  }

  summary(): Summary {
    const different = this.#asked - this.#identical;
    const changes = [...this.#changes.values()].sort((a, b) => b.count - a.count).slice(0, MAX_CHANGES);
    return {
      decisions: this.#own + this.#asked + this.#notReplayed,
      asked: this.#asked,
      notReplayed: this.#notReplayed,
      identical: this.#identical,
      different,
      elsewhere: this.#elsewhere,
      whole: this.#whole,
      wholeDifferent: this.#wholeDifferent,
      changes,
      otherChanges: changes.reduce((left, { count }) => left - count, different),
      logged: this.#logged,
      now: this.#now,
      agreed: this.#agreed.figures(),
      differed: this.#differed.figures(),
    };
  }

  #differ(logged: AskedDecision, now: Decided, isWhole: boolean): void {
    if (isWhole) this.#wholeDifferent++;
    if (logged.row !== now.row) this.#elsewhere++;
    const [from, to] = [reasonText(logged), reasonText(now)];
    const key = JSON.stringify([from, to]);
    const change = this.#changes.get(key);
    if (change) change.count++;
    else if (this.#changes.size < MAX_KNOWN_CHANGES) this.#changes.set(key, { from, to, count: 1 });
  }
}

function countStay(stays: Stays, bound: number, row: number): void {
  if (bound < 0) stays.placed++;
  else if (row === bound) stays.kept++;
  else stays.moved++;
}

class EndingCounts {
  #requests = 0;
  #accepted = 0;
  /** Times by the step that they are in. */
  readonly #times = new Map<number, number>();
  #timed = 0;
  #prompt = 0;
  #cached = 0;

  add({ accepted, ms, tokens }: OutcomeEntry): void {
    this.#requests++;
    if (accepted) this.#accepted++;
    const time = ms?.first_byte;
    if (time !== undefined) {
      const step = Math.round(Math.log(Math.max(time, 0.1)) / STEP);
      this.#times.set(step, (this.#times.get(step) ?? 0) + 1);
      this.#timed++;
    }
    const { prompt, cached } = tokens ?? {};
    if (prompt === undefined || cached === undefined) return;
    this.#prompt += prompt;
    this.#cached += cached;
  }

  figures(): Endings {
    return {
      requests: this.#requests,
      accepted: this.#accepted,
      firstByteMedian: this.#median(),
      cachedShare: this.#prompt > 0 ? this.#cached / this.#prompt : undefined,
    };
  }

  #median(): number | undefined {
    let left = this.#timed / 2;
    for (const [step, count] of [...this.#times].sort(([a], [b]) => a - b)) {
      left -= count;
      if (left <= 0) return Math.exp(step * STEP);
    }
    return undefined;
  }
}
