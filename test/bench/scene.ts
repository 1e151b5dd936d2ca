// A pool, its sessions and their turns, measured: every step changes one load and decides for one session.

import { type Decider, Turn } from "../../host/policy/decider.js";
import { SeedGenerator } from "../../host/policy/random.js";
import type { PolicyInstance } from "../../host/routing/contenders.js";
import { type Bound, Deck } from "./deck.js";
import { PlainPolicy } from "./plain.js";
import { RULES } from "./plain-rules.js";
import { AND, NESTED, type Search } from "./plain-search.js";

/** What decides: the module with its meter, its original, its rule in either plain form, nothing at all. */
export const ARMS = ["metered", "unmetered", "and", "nested", "nothing"] as const;
export type Arm = (typeof ARMS)[number];

type Seat = { readonly decider: Pick<Decider, "row" | "readsSeed" | "decide"> };

/** One pool of the measurement. */
export class Scene {
  readonly turn = new Turn();
  readonly deck: Deck;
  readonly #seat: Seat;
  #random = new SeedGenerator(1);

  /** `instance` is of the metered module or of the original, as the arm wants it. */
  constructor(size: number, instance: PolicyInstance, arm: Arm) {
    this.deck = new Deck(size, instance);
    this.#seat = this.#seatOf(instance, arm);
  }

  /** What decides, asked for as the router does before every decision. */
  get decider(): Seat["decider"] {
    return this.#seat.decider;
  }

  /**
   * Back to the beginning: after it the same steps give the same decisions, but for a policy's own state. The workers
   * that `bounds` names have been looked up, so that no round pays for another having used the processor's caches.
   */
  reset(bounds: Int32Array): void {
    this.deck.reset();
    for (let i = 0; i < bounds.length; i++) this.prepare(i, bounds);
    this.#random = new SeedGenerator(1);
  }

  /** What the router does between the known session and the question to the policy; answers the bound row. */
  prepare(i: number, bounds: Int32Array): number {
    const { deck, turn, decider } = this;
    turn.now = i;
    turn.sessionLow = i;
    turn.sessionHigh = ~i;
    if (decider.readsSeed) {
      this.#random.next();
      turn.seedLow = this.#random.low;
      turn.seedHigh = this.#random.high;
    }
    const bound = bounds[i & deck.mask]!;
    return bound < 0 ? -1 : deck.pool.workers[bound]!.rowIn(deck.pool);
  }

  #seatOf(instance: PolicyInstance, arm: Arm): Seat {
    const { pool } = this.deck;
    if (arm === "metered" || arm === "unmetered") return pool;
    const { readsSeed } = pool.decider;
    if (arm === "nothing") return { decider: new Nothing(readsSeed) };
    const search: Search = arm === "and" ? AND : NESTED;
    const rule = RULES[instance.policy.manifest.type]!(instance.parameters, search);
    return { decider: new PlainPolicy(pool.candidates, rule, readsSeed) };
  }
}

/** Leaves every session where it is: tells how much of a figure is the measurement's own. */
class Nothing {
  row = -1;
  constructor(readonly readsSeed: boolean) {}

  decide(_: Turn, bound: number): void {
    this.row = bound;
  }
}

/** Decides `count` times, over the scenes in turn, and folds the chosen rows into one number. */
export function run(scenes: readonly Scene[], bound: Bound, count: number): number {
  let sum = 0;
  for (let i = 0, at = 0; i < count; i++) {
    const scene = scenes[at]!;
    at = at + 1 < scenes.length ? at + 1 : 0;
    const { decider } = scene;
    decider.decide(scene.turn, scene.prepare(i, scene.deck.bounds[bound]));
    sum = (Math.imul(sum, 31) + decider.row) | 0;
    scene.deck.step(i);
  }
  return sum;
}
