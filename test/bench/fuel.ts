// What a policy's decisions use of their fuel.

import type { LivePolicy } from "../../host/policy/live.js";
import { budgetOf } from "../../host/sandbox/admit.js";
import { metered } from "./instance.js";
import { Scene } from "./scene.js";
import type { Kind, Loaded } from "./subjects.js";

const DECISIONS = 500;

/** The most that a decision of one kind used. */
export interface Fuel {
  readonly size: number;
  readonly kind: Kind;
  readonly units: number;
  /** Of the budget, 0 to 1. */
  readonly share: number;
}

/** The fuel of every path of a policy in a pool of `size`. */
export function fuelOf(subject: Loaded, size: number): Fuel[] {
  const scene = new Scene(size, metered(subject), "metered");
  const policy = scene.decider as LivePolicy;
  return subject.paths.map(({ kind, bound }) => {
    let units = 0;
    for (let i = 0; i < DECISIONS; i++) {
      policy.decide(scene.turn, scene.prepare(i, scene.deck.bounds[bound]));
      units = Math.max(units, policy.fuelUsed);
      scene.deck.step(i);
    }
    return { size, kind, units, share: units / budgetOf(scene.deck.pool.candidates.capacity) };
  });
}
