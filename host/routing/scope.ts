// Where a session key means one session: a model, and within it a tenant.

import { sipHash } from "./siphash.js";

/** Tenants whose scopes are kept made. */
const MOST_TENANTS = 4_096;

/** The sessions of one model. */
export class Scope {
  readonly #secret: Int32Array;
  readonly #own: Int32Array;
  readonly #tenants = new Map<string, Int32Array>();

  /** `model` is the name under which sessions are told apart; `secret` are the four words of the table's secret. */
  constructor(
    readonly model: string,
    secret: Int32Array,
  ) {
    this.#secret = secret;
    this.#own = this.#make("");
  }

  /** The key under which the session keys of a tenant are hashed, "" for none. */
  keyOf(tenant: string): Int32Array {
    if (tenant === "") return this.#own;
    const known = this.#tenants.get(tenant);
    if (known) return known;
    if (this.#tenants.size >= MOST_TENANTS) this.#tenants.clear();
    const made = this.#make(tenant);
    this.#tenants.set(tenant, made);
    return made;
  }

  #make(tenant: string): Int32Array {
    const key = new Int32Array(4);
    sipHash(this.#secret, 0, `${this.model}\0${tenant}`, key);
    return key;
  }
}

/** The model without the first of `suffixes` that it ends in; a name that is nothing but a suffix stays. */
export function withoutSuffix(model: string, suffixes: readonly string[]): string {
  const suffix = suffixes.find((ending) => model.endsWith(ending) && model.length > ending.length);
  return suffix === undefined ? model : model.slice(0, -suffix.length);
}
