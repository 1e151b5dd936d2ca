// The text the simulated model writes: plain words that depend on the prompt alone.
import { finish, hashTokens, mix } from "./hash.js";

// Every word is one token: short enough not to be cut (see tokenizer.ts).
const WORDS = (
  "anchor ballast beacon berth bollard boom bow bridge buoy cable canvas capstan cargo chain chart cleat " +
  "compass course crane crew current deck depth dock draft drift ebb fathom fender ferry fleet galley " +
  "gangway gauge harbour hatch hawser helm hold hull jetty keel knot ladder lantern ledger lighthouse lock " +
  "mast mooring oar pier pilot port quay rigging rope rudder sail signal sounding stern tide tiller"
).split(" ");

/**
 * Writes `count` tokens for a prompt, each as its text. The same prompt always gets the same answer. With
 * `continues` the first token starts with a blank, for text that is put right behind the prompt.
 */
export function writeWords(prompt: readonly number[], count: number, continues: boolean): string[] {
  const seed = hashTokens(prompt);
  return Array.from({ length: count }, (_, index) => {
    const word = WORDS[finish(mix(seed, index)) % WORDS.length];
    return index > 0 || continues ? ` ${word}` : word;
  });
}
