// Which policies decide, and in which order one takes over from another: chosen anew at every change of the config.

import { PolicyHealth } from "../policy/health.js";
import type { Program } from "../policy/live.js";

/** A policy under a name: which module, with which parameters. */
export interface PolicyInstance {
  /** The instance's name, as it is shown in headers and status. */
  readonly name: string;
  readonly policy: Program;
  /** Parameter values in manifest order. */
  readonly parameters: Float64Array;
}

/** A policy instance of a router, and how it does over all pools. */
export class Contender {
  readonly health = new PolicyHealth();
  /** Why it does not start over as many rows as some pool has; null where it does everywhere. It is passed over there. */
  refusal: string | null = null;

  constructor(readonly instance: PolicyInstance) {}
}

/** The policies of a router. */
export interface Contenders {
  readonly selected: Contender;
  /** What the selected instance's name stood for before, where that did well: it takes over first. */
  readonly previous: Contender | undefined;
  readonly fallback: Contender | undefined;
}

/** What decides from now on. */
export interface PolicyChange {
  readonly instance: PolicyInstance;
  /** Takes over when the instance is quarantined; left out, the built-in least-loaded rule does. */
  readonly fallback?: PolicyInstance | undefined;
  /** Whether policies that are quarantined get another chance; default false. */
  readonly revive?: boolean | undefined;
}

/**
 * The policies after a change. Those that are what they were go on: with their memory, and their record. Where the module or the
 * parameters of the selected instance change under its name, what was there before stands by.
 */
export function chooseContenders(change: PolicyChange, before?: Contenders): Contenders {
  const { instance, fallback, revive = false } = change;
  const known = before ? inOrder(before) : [];
  const choose = (wanted: PolicyInstance): Contender => {
    const same = known.find((contender) => isSame(contender.instance, wanted));
    return same && !(revive && same.health.quarantine !== null) ? same : new Contender(wanted);
  };
  const selected = choose(instance);
  return {
    selected,
    previous: before && previousOf(selected, before),
    fallback: fallback && choose(fallback),
  };
}

/** Those of the policies that there are, in the order in which they take over. */
export function inOrder({ selected, previous, fallback }: Contenders): readonly Contender[] {
  const all = [selected, previous, fallback].filter((contender) => contender !== undefined);
  return [...new Set(all)];
}

function previousOf(selected: Contender, before: Contenders): Contender | undefined {
  const { selected: last, previous } = before;
  // Another try of the same is no change of it.
  if (isSame(selected.instance, last.instance)) return previous;
  return [last, previous].find((contender) => {
    const isOfName = contender?.instance.name === selected.instance.name;
    return isOfName && contender !== selected && contender.health.quarantine === null;
  });
}

function isSame(one: PolicyInstance, other: PolicyInstance): boolean {
  return (
    one.name === other.name &&
    isSameProgram(one.policy, other.policy) &&
    one.parameters.length === other.parameters.length &&
    one.parameters.every((value, i) => Object.is(value, other.parameters[i]))
  );
}

/** The same module, which is shown the same and understood in the same way. */
function isSameProgram(one: Program, other: Program): boolean {
  if (one === other) return true;
  const { sha256, module } = one.admitted;
  const isSameModule =
    sha256 === undefined ? module === other.admitted.module : sha256 === other.admitted.sha256;
  return isSameModule && textOf(one) === textOf(other);
}

function textOf({ manifest: { type, reads, reasons } }: Program): string {
  return JSON.stringify([type, reads, [...reasons]]);
}
