// Where a session key means one session: a model, and within it a tenant.

import { sipHash } from "./siphash.js";

/** Keys of tenants that are kept, in as many places; more are made anew. A power of two. */
const PLACES = 256;

/** The sessions of one model. */
export class Scope {
  readonly #secret: Int32Array;
  readonly #own: Int32Array;
  readonly #kept: Int32Array[] = [];
  readonly #made = new Int32Array(4);

  /** `model` is the name under which sessions are told apart; `secret` are the four words of the table's secret. */
  constructor(
    readonly model: string,
    secret: Int32Array,
  ) {
    this.#secret = secret;
    this.#make("");
    this.#own = this.#made.slice();
  }

  /** The key under which the session keys of a tenant are hashed, "" for none. Nothing of the tenant's name is kept. */
  keyOf(tenant: string): Int32Array {
    if (tenant === "") return this.#own;
    this.#make(tenant);
    const made = this.#made;
    const place = made[0]! & (PLACES - 1);
    const kept = this.#kept[place];
    if (kept && isSame(kept, made)) return kept;
    // Whoever has the key that stood here still has it.
    const fresh = made.slice();
    this.#kept[place] = fresh;
    return fresh;
  }

  #make(tenant: string): void {
    sipHash(this.#secret, 0, `${this.model}\0${tenant}`, this.#made);
  }
}

/** The model without the first of `suffixes` that it ends in; a name that is nothing but a suffix stays. */
export function withoutSuffix(model: string, suffixes: readonly string[]): string {
  const suffix = suffixes.find((ending) => model.endsWith(ending) && model.length > ending.length);
  return suffix === undefined ? model : model.slice(0, -suffix.length);
}

function isSame(one: Int32Array, other: Int32Array): boolean {
  return one[0] === other[0] && one[1] === other[1] && one[2] === other[2] && one[3] === other[3];
}
