// Random requests: any endpoint, streams and others, with a session or without, bodies of 1 to 60 KB.
import { ResponseStore } from "../../host/worker/response-store.js";
import type { Call, Json } from "../../host/worker/wire.js";
import { writeWords } from "../../host/worker/words.js";
import type { Dice } from "../fixtures/dice.js";
import { APIS, type Api } from "./apis.js";

/** The model of every worker. */
export const MODEL = "sim";
/** Sessions that requests belong to. */
const SESSIONS = 200;
const LONGEST_ANSWER = 120;
/** Largest body that is asked for as a rule, and one that the gateway refuses. */
const MAX_KILOBYTES = 60;
const TOO_MANY_KILOBYTES = 80;
/** What a request may be told apart by in a log. */
const IDENTITY = { id: "expected", created: 0, model: MODEL };

/** A request, ready to be sent. */
export interface Asked {
  readonly api: Api;
  readonly headers: Record<string, string>;
  readonly json: Json;
  readonly body: Buffer;
  readonly tokens: number;
  readonly isStream: boolean;
}

/**
 * Draws a request; `previous` is the id of an answer of the Responses API that it may continue, `longest` the most tokens of its
 * answer.
 */
export function drawRequest(dice: Dice, previous: string | undefined, longest = LONGEST_ANSWER): Asked {
  const api = APIS[dice.upTo(APIS.length - 1)]!;
  const isStream = dice.upTo(5) > 0;
  const tokens = 1 + dice.upTo(dice.upTo(3) === 0 ? 9 : longest - 1);
  const { headers, members } = drawSession(dice);
  const isContinued = api.style === "responses" && previous !== undefined && dice.upTo(2) === 0;
  const json: Json = {
    model: MODEL,
    ...(isStream && { stream: true }),
    ...api.ask(drawText(dice), tokens),
    ...members,
    ...(api.style === "responses" && [{}, { store: true }, { store: false }][dice.upTo(2)]),
    ...(isContinued && { previous_response_id: previous }),
  };
  return { api, headers, json, body: Buffer.from(JSON.stringify(json)), tokens, isStream };
}

/** Whose session a request belongs to, in one of the ways in which clients say so; a third of them in none. */
function drawSession(dice: Dice): { headers: Record<string, string>; members: Json } {
  const key = `session-${dice.upTo(SESSIONS - 1)}`;
  const parent = `session-${dice.upTo(9)}`;
  const affinity = ["off", "session", "parent-group"][dice.upTo(29)];
  const asks = affinity === undefined ? {} : { "x-hawser-affinity": affinity };
  switch (dice.upTo(5)) {
    case 0:
      return { headers: { ...asks, "x-session-id": key }, members: {} };
    case 1:
      return { headers: { ...asks, "x-session-id": key, "x-parent-session-id": parent }, members: {} };
    case 2:
      return { headers: asks, members: { prompt_cache_key: key } };
    case 3:
      return { headers: asks, members: { user: key } };
    default:
      return { headers: {}, members: {} };
  }
}

/** Words, different ones every time; small bodies are the more frequent. */
function drawText(dice: Dice): string {
  const share = dice.upTo(1_000) / 1_000;
  const usual = 1 + (MAX_KILOBYTES - 1) * share * share;
  const length = 1_024 * (dice.upTo(99) === 0 ? TOO_MANY_KILOBYTES : usual);
  const words = dice.list(8, 0x7fff_ffff).map((number) => number.toString(36));
  const line = `${words.join(" ")}\n`;
  return line.repeat(Math.ceil(length / line.length)).slice(0, length);
}

/** The text that any worker of the model answers with; undefined where only the worker that is continued knows it. */
export function expectedText({ api, json }: Asked): string | undefined {
  if (json.previous_response_id !== undefined) return undefined;
  return wordsOf(api.call(json, IDENTITY, new ResponseStore())).join("");
}

/** The tokens of an answer, each as its text. */
export function wordsOf({ prompts, outputTokens, continues }: Call): string[] {
  return writeWords(prompts[0]!, outputTokens, continues);
}
