// The searches of the plain rules, each in two forms, since V8 compiles them differently: with one condition per row,
// `&&`, and with nested conditions.

/** Searches over the eligible rows below `n`; a row, or -1 where there is none. */
export interface Search {
  /** The lowest row with the smallest value. */
  lowest(n: number, eligible: Uint8Array, values: Int32Array): number;
  /** Any row with the smallest value, by the high word of a decision's seed. */
  anyLowest(n: number, eligible: Uint8Array, values: Int32Array, seedHigh: number): number;
  /** As `lowest`, and leaves the largest value in `highest`. */
  range(n: number, eligible: Uint8Array, values: Int32Array): number;
  /** The eligible row number `index`, from 0. */
  nth(n: number, eligible: Uint8Array, index: number): number;
  highest: number;
}

export const AND: Search = {
  highest: 0,

  lowest(n, eligible, values) {
    let best = 0x7fffffff;
    let at = -1;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0 && values[row]! < best) {
        best = values[row]!;
        at = row;
      }
    }
    return at;
  },

  anyLowest(n, eligible, values, seedHigh) {
    const best = values[this.lowest(n, eligible, values)]!;
    let count = 0;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0 && values[row]! === best) count++;
    }
    let index = draw(seedHigh, count);
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0 && values[row]! === best && index-- === 0) return row;
    }
    return -1;
  },

  range(n, eligible, values) {
    let best = 0x7fffffff;
    let most = -0x80000000;
    let at = -1;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0 && values[row]! < best) {
        best = values[row]!;
        at = row;
      }
      if (eligible[row] !== 0 && values[row]! > most) most = values[row]!;
    }
    this.highest = most;
    return at;
  },

  nth(n, eligible, index) {
    let left = index;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0 && left-- === 0) return row;
    }
    return -1;
  },
};

export const NESTED: Search = {
  highest: 0,

  lowest(n, eligible, values) {
    let best = 0x7fffffff;
    let at = -1;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0) {
        const value = values[row]!;
        if (value < best) {
          best = value;
          at = row;
        }
      }
    }
    return at;
  },

  anyLowest(n, eligible, values, seedHigh) {
    let best = 0x7fffffff;
    let count = 0;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0) {
        const value = values[row]!;
        if (value < best) {
          best = value;
          count = 1;
        } else if (value === best) count++;
      }
    }
    let index = draw(seedHigh, count);
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0) {
        if (values[row] === best) {
          if (index-- === 0) return row;
        }
      }
    }
    return -1;
  },

  range(n, eligible, values) {
    let best = 0x7fffffff;
    let most = -0x80000000;
    let at = -1;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0) {
        const value = values[row]!;
        if (value < best) {
          best = value;
          at = row;
        }
        if (value > most) most = value;
      }
    }
    this.highest = most;
    return at;
  },

  nth(n, eligible, index) {
    let left = index;
    for (let row = 0; row < n; row++) {
      if (eligible[row] !== 0) {
        if (left === 0) return row;
        left--;
      }
    }
    return -1;
  },
};

/** An index below `count`, uniform, from 32 random bits, as the modules draw it. */
export function draw(bits: number, count: number): number {
  return Math.floor(((bits >>> 0) * count) / 2 ** 32);
}
