// Where the strings of a JSON text end, sixteen bytes at a step. No policy: it is part of the host, and runs without a meter.
//
// The bytes of a step are looked at as bits, the first one's the lowest. There is no branch for an escape of two characters:
// where these stand cannot be foreseen, and a processor that guesses wrong loses more than the whole step takes.

const STEP: i32 = 16;
/** Most bytes of a text that are looked at together. */
export const SIZE: i32 = 65536;
/** Where the host puts them. Behind them are zeros. */
export const WINDOW: i32 = i32(memory.data(SIZE + STEP, STEP));

const ALL: i32 = (1 << STEP) - 1;
const LAST: i32 = 1 << (STEP - 1);
const ODD: i32 = 0xaaaaaaaa;
const BACKSLASH: u8 = 0x5c;
const LOWER_U: u8 = 0x75;
/** How many follow the `u` of an escape. */
const DIGITS: i32 = 4;

/**
 * The address of the first byte from `at` on that no string goes on with: its closing quote, a control character, or a
 * backslash that begins no escape, or none that is whole.
 */
export function stop(at: i32): i32 {
  while (true) {
    const bytes = v128.load(at);
    const specials = special(bytes);
    const backslashes = i8x16.bitmask(i8x16.eq(bytes, i8x16.splat(BACKSLASH)));
    if (backslashes === 0) {
      if (specials !== 0) return at + ctz(specials);
      at += STEP;
      continue;
    }
    // Every other one of backslashes in a row begins an escape. Subtracting them from the bits at odd places borrows through
    // the row, and so what it leaves alternates from where the row began.
    const pairs = (((backslashes << 1) | ODD) - backslashes) ^ ODD;
    const escaped = pairs ^ backslashes;
    const cut = pairs & backslashes & LAST;
    const stops = (specials & ~escaped) | (escaped & ~letters(bytes) & ALL) | cut;
    if (stops === 0) {
      at += STEP;
      continue;
    }
    at += ctz(stops);
    // An escape whose letter is in the next step begins that.
    if (stops === cut) continue;
    if ((escaped & stops & -stops) === 0) return at;
    if (!isLong(at)) return at - 1;
    at += 1 + DIGITS;
  }
}

/** The quotes and the control characters. */
function special(bytes: v128): i32 {
  // With 0x02 flipped, the quote (0x22) stands next to the control characters, below 0x21.
  const above = i8x16.sub_sat_u(v128.xor(bytes, i8x16.splat(0x02)), i8x16.splat(0x20));
  return i8x16.bitmask(i8x16.eq(above, i8x16.splat(0)));
}

/** What makes an escape of two characters: a byte whose halves have a bit in common, for `"/` 1, for `\` 2, for `bfn` 4, for `rt` 8. */
function letters(bytes: v128): i32 {
  const uppers = i8x16.swizzle(i8x16(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0), i8x16.shr_u(bytes, 4));
  const lowers = i8x16.swizzle(
    i8x16(0, 0, 1 | 4 | 8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 1),
    v128.and(bytes, i8x16.splat(0x0f)),
  );
  return i8x16.bitmask(i8x16.ne(v128.and(uppers, lowers), i8x16.splat(0)));
}

/** Whether the rest of `\u0041` stands at `at`. */
function isLong(at: i32): bool {
  if (load<u8>(at) !== LOWER_U) return false;
  for (let digit = at + 1; digit <= at + DIGITS; digit++) if (!isHex(load<u8>(digit))) return false;
  return true;
}

function isHex(digit: u8): bool {
  return digit - 0x30 < 10 || (digit | 0x20) - 0x61 < 6;
}
