// A turn of a trace -> a prompt for a simulated worker, scaled down: each block becomes a few words that stand for it.
import { finish, mix } from "../../host/worker/hash.js";
import type { TraceSession } from "./trace-file.js";

/**
 * The words of a turn's prompt, as 32-bit numbers. A block gives `block / scale` words that depend on its id and its
 * group; the rest of the prompt, which fills no block, gives words of this turn alone. Never empty.
 * `scale` must divide the session's block size.
 */
export function promptWords(session: TraceSession, turn: number, scale: number): number[] {
  const { in: tokens, h } = session.turns[turn];
  const perBlock = session.block / scale;
  const group = textHash(session.group);
  const words: number[] = [];
  for (const [start, count] of h) {
    for (let id = start; id < start + count; id++) {
      const block = mix(group, id);
      for (let word = 0; word < perBlock; word++) words.push(finish(mix(block, word)));
    }
  }
  const rest = Math.floor((tokens % session.block) / scale) || (words.length === 0 ? 1 : 0);
  const own = mix(mix(group, textHash(session.session_id)), turn);
  for (let word = 0; word < rest; word++) words.push(finish(mix(own, word)));
  return words;
}

/** The words as text. None has more than 7 characters, so each is one token of the simulated worker. */
export function promptText(words: readonly number[]): string {
  return words.map((word) => word.toString(36)).join(" ");
}

function textHash(text: string): number {
  let hash = text.length;
  for (let at = 0; at < text.length; at++) hash = mix(hash, text.charCodeAt(at));
  return finish(hash);
}
