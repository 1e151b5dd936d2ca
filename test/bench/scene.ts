// A pool, its sessions and their turns, measured: every step changes one load and decides for one bound session.

import { type Decider, Turn } from "../../host/policy/decider.js";
import { SeedGenerator } from "../../host/policy/random.js";
import { Deck, type Ties } from "./deck.js";
import { PlainGuard } from "./plain.js";

/** One pool of the measurement. */
export class Scene {
  readonly turn = new Turn();
  readonly plain: PlainGuard;
  readonly deck: Deck;
  #random = new SeedGenerator(1);

  constructor(size: number, ties: Ties) {
    this.deck = new Deck(size, ties);
    this.plain = new PlainGuard(this.deck.pool.candidates, ties);
  }

  /** What decides, asked for as the router does before every decision. */
  get decider(): Decider {
    return this.deck.pool.decider;
  }

  /** Back to the beginning: after it the same steps give the same decisions. */
  reset(): void {
    this.deck.reset();
    this.#random = new SeedGenerator(1);
  }

  /** What the router does between the known session and the question to the policy; answers the bound row. */
  prepare(i: number, bounds: Int32Array): number {
    const { deck, turn } = this;
    turn.now = i;
    turn.sessionLow = i;
    turn.sessionHigh = ~i;
    if (this.decider.readsSeed) {
      this.#random.next();
      turn.seedLow = this.#random.low;
      turn.seedHigh = this.#random.high;
    }
    return deck.pool.workers[bounds[i & deck.mask]!]!.rowIn(deck.pool);
  }
}

export type Path = "busy" | "calm";

/** Decides `count` times, over the scenes in turn, and folds the chosen rows into one number. */
export type Run = (scenes: readonly Scene[], path: Path, count: number) => number;

// The loops below are alike but for one call: one loop for all would show V8 three callees at one place, and none of
// them would be inlined.

const runWasm: Run = (scenes, path, count) => {
  let sum = 0;
  for (let i = 0, at = 0; i < count; i++) {
    const scene = scenes[at]!;
    at = at + 1 < scenes.length ? at + 1 : 0;
    const { decider } = scene;
    decider.decide(scene.turn, scene.prepare(i, scene.deck[path]));
    sum = (Math.imul(sum, 31) + decider.row) | 0;
    scene.deck.step(i);
  }
  return sum;
};

const runAnd: Run = (scenes, path, count) => {
  let sum = 0;
  for (let i = 0, at = 0; i < count; i++) {
    const scene = scenes[at]!;
    at = at + 1 < scenes.length ? at + 1 : 0;
    scene.plain.decideByAnd(scene.turn, scene.prepare(i, scene.deck[path]));
    sum = (Math.imul(sum, 31) + scene.plain.row) | 0;
    scene.deck.step(i);
  }
  return sum;
};

const runNested: Run = (scenes, path, count) => {
  let sum = 0;
  for (let i = 0, at = 0; i < count; i++) {
    const scene = scenes[at]!;
    at = at + 1 < scenes.length ? at + 1 : 0;
    scene.plain.decideByNesting(scene.turn, scene.prepare(i, scene.deck[path]));
    sum = (Math.imul(sum, 31) + scene.plain.row) | 0;
    scene.deck.step(i);
  }
  return sum;
};

/** The loop without a decision, to tell how much of a figure is the measurement's own. */
const runNothing: Run = (scenes, path, count) => {
  let sum = 0;
  for (let i = 0, at = 0; i < count; i++) {
    const scene = scenes[at]!;
    at = at + 1 < scenes.length ? at + 1 : 0;
    sum = (Math.imul(sum, 31) + scene.prepare(i, scene.deck[path])) | 0;
    scene.deck.step(i);
  }
  return sum;
};

export const ARMS = { wasm: runWasm, and: runAnd, nested: runNested, nothing: runNothing } as const;
export type Arm = keyof typeof ARMS;
