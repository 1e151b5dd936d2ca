// The bindings that nobody uses, in the order of their last use. Packed apart from the bindings: one that goes to its end
// touches others that are nowhere near its own record.

import { NONE } from "./chains.js";

const STRIDE = 2;
const OLDER = 0;
const NEWER = 1;
/** How far from the end a binding's place is looked for. */
const NEAR = 64;

/** When a binding was last used: binding `b` has it in `times[b * stride + index]`, in monotonic milliseconds. */
export interface Uses {
  readonly times: Float64Array;
  readonly stride: number;
  readonly index: number;
}

/** A list of numbered bindings, at most `count`. */
export class IdleList {
  readonly #links: Int32Array;
  readonly #times: Float64Array;
  readonly #stride: number;
  readonly #index: number;
  #oldest = NONE;
  #newest = NONE;

  constructor(count: number, { times, stride, index }: Uses) {
    this.#links = new Int32Array((count + 1) * STRIDE);
    this.#times = times;
    this.#stride = stride;
    this.#index = index;
  }

  /** The longest unused, or NONE. */
  get oldest(): number {
    return this.#oldest;
  }

  /**
   * Adds a binding that is not in the list, by its last use: at the end, but for one whose last lease was not current and left an
   * older time. Where its place is not near either end it stands behind it, and is cleared away late.
   */
  add(binding: number): void {
    const links = this.#links;
    const used = this.#usedAt(binding);
    let older = this.#newest;
    if (this.#oldest !== NONE && used < this.#usedAt(this.#oldest)) older = NONE;
    for (let step = 0; step < NEAR && older !== NONE && this.#usedAt(older) > used; step++)
      older = links[older * STRIDE + OLDER]!;
    const newer = older === NONE ? this.#oldest : links[older * STRIDE + NEWER]!;
    links[binding * STRIDE + OLDER] = older;
    links[binding * STRIDE + NEWER] = newer;
    if (older === NONE) this.#oldest = binding;
    else links[older * STRIDE + NEWER] = binding;
    if (newer === NONE) this.#newest = binding;
    else links[newer * STRIDE + OLDER] = binding;
  }

  /** Takes out a binding that is in the list. */
  remove(binding: number): void {
    const links = this.#links;
    const older = links[binding * STRIDE + OLDER]!;
    const newer = links[binding * STRIDE + NEWER]!;
    if (older === NONE) this.#oldest = newer;
    else links[older * STRIDE + NEWER] = newer;
    if (newer === NONE) this.#newest = older;
    else links[newer * STRIDE + OLDER] = older;
  }

  #usedAt(binding: number): number {
    return this.#times[binding * this.#stride + this.#index]!;
  }
}
