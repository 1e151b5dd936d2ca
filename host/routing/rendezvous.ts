// The choice under full determinism: rendezvous hashing, so that a lost worker moves only its own sessions.
// weight = mix(key ^ mix(worker ^ mix(rank ^ seed))) with rank and seed 0 and mix the SplitMix64 finaliser, as in
// Dynamo's router. 64-bit arithmetic on pairs of 32-bit words: BigInt would allocate on every step.

/** A 64-bit value as two words; `mix` replaces it in place. */
export class Mixer {
  low = 0;
  high = 0;

  /** The SplitMix64 finaliser. */
  mix(): void {
    this.#xorShift(30);
    this.#multiply(0x1ce4e5b9, 0xbf58476d);
    this.#xorShift(27);
    this.#multiply(0x133111eb, 0x94d049bb);
    this.#xorShift(31);
    this.low |= 0;
    this.high |= 0;
  }

  #xorShift(bits: number): void {
    this.low ^= (this.low >>> bits) | (this.high << (32 - bits));
    this.high ^= this.high >>> bits;
  }

  #multiply(low: number, high: number): void {
    const a0 = this.low & 0xffff;
    const a1 = this.low >>> 16;
    const b0 = low & 0xffff;
    const b1 = low >>> 16;
    const middle = a1 * b0 + ((a0 * b0) >>> 16);
    const carry = a0 * b1 + (middle & 0xffff);
    const upper = a1 * b1 + Math.floor(middle / 0x10000) + Math.floor(carry / 0x10000);
    this.high = (upper + Math.imul(this.high, low) + Math.imul(this.low, high)) | 0;
    this.low = Math.imul(this.low, low);
  }
}

/** What the choice needs of a row's worker: the mixed hash of its id. */
export interface Ranked {
  readonly mixedLow: number;
  readonly mixedHigh: number;
}

const mixer = new Mixer();

/** `mix` of a worker's hash, zero-extended to 64 bits. */
export function mixWorker(workerHash: number): { mixedLow: number; mixedHigh: number } {
  mixer.low = workerHash;
  mixer.high = 0;
  mixer.mix();
  return { mixedLow: mixer.low, mixedHigh: mixer.high };
}

/** The eligible row with the highest weight for a session hash, the lowest row on a tie; -1 where none is eligible. */
export function rendezvous(rows: readonly Ranked[], eligible: Uint8Array, low: number, high: number): number {
  let best = -1;
  let bestLow = 0;
  let bestHigh = 0;
  for (let row = 0; row < rows.length; row++) {
    if (eligible[row] === 0) continue;
    mixer.low = low ^ rows[row]!.mixedLow;
    mixer.high = high ^ rows[row]!.mixedHigh;
    mixer.mix();
    const weightHigh = mixer.high >>> 0;
    const weightLow = mixer.low >>> 0;
    if (best >= 0 && (weightHigh < bestHigh || (weightHigh === bestHigh && weightLow <= bestLow))) continue;
    best = row;
    bestHigh = weightHigh;
    bestLow = weightLow;
  }
  return best;
}
