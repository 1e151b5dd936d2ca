// What came of a request, in a word; and whether that was honest.
import type { Json } from "../../host/worker/wire.js";
import { type Api, type Data, refusalOf } from "./apis.js";
import type { Got } from "./client.js";
import { WORKERS_ERROR } from "./faulty-worker.js";
import { type Asked, expectedText } from "./request.js";

/** No answer is as long, save one that is to be too much for its reader. */
const FLOOD_BYTES = 131_072;

/** An event of a stream; `torn` stands for one that is not whole. */
type Event = Data | "torn";

/**
 * How a request ended: `complete`, `left in ...`, `refused ...`, `told ...`, `broken ...`. Throws an Error for an end that is not
 * honest: an answer that seems whole and is not, text that is not that of this answer, an error of an unknown shape, or a
 * broken connection without a reason.
 */
export function verdictOf(asked: Asked, got: Got): string {
  if (got.left !== undefined) return `left in ${got.left}`;
  if (got.status === 0) {
    // Half an upload: the answer to it may be lost with the connection that was cut.
    if (!got.hasStalled) throw new Error("the connection broke before a head");
    return "broken before a head";
  }
  if (got.status !== 200) return refusal(asked.api, got);
  return asked.isStream ? streamed(asked, got) : atOnce(asked, got);
}

function refusal(api: Api, { status, headers, body, isWhole }: Got): string {
  const told = isWhole ? refusalOf(api, JSON.parse(body.toString())) : undefined;
  if (!told) throw new Error(`status ${status} with an error that is not of the API, or not whole`);
  if (told.code === "internal_error") throw new Error(`the gateway failed: ${told.message}`);
  if (status === 503 && headers["retry-after"] === undefined)
    throw new Error("status 503 without Retry-After");
  return `refused ${status} ${told.code}`;
}

function atOnce(asked: Asked, { body, isWhole }: Got): string {
  if (!isWhole) return "broken answer";
  checkText(asked, asked.api.wholeText(JSON.parse(body.toString())), true);
  return "complete";
}

function streamed(asked: Asked, { body, isWhole, hasStalled }: Got): string {
  const { api } = asked;
  const events = eventsOf(body.toString());
  const error = errorOf(api, events);
  const text = events.map((event) => (typeof event === "string" ? "" : (api.textOf(event) ?? ""))).join("");
  const isEnded = events.some((event) => event !== "torn" && api.isEnd(event));
  if (error === WORKERS_ERROR) return "told of an error by the worker";
  checkText(asked, text, isWhole);
  if (!isWhole) {
    if (error !== undefined) return "told of an error";
    // What a reader that pauses, or falls behind a flood, has not taken yet is lost to it when the connection breaks.
    if (!hasStalled && body.length < FLOOD_BYTES) throw new Error("a stream broke without a word");
    return "broken stream";
  }
  if (error !== undefined) throw new Error(`a stream ended well behind an error: ${error}`);
  if (events.includes("torn")) throw new Error("a stream that ended well has half an event");
  const last = events.at(-1);
  if (!isEnded || last === undefined || last === "torn" || !api.isEnd(last))
    throw new Error("a stream ended well without its end marker");
  return "complete";
}

/** The message of the error that an answer's stream ends with. */
export function errorTold({ api }: Asked, { body }: Got): string | undefined {
  return errorOf(api, eventsOf(body.toString()));
}

function errorOf(api: Api, events: readonly Event[]): string | undefined {
  const last = events.filter((event) => event !== "[DONE]").at(-1);
  return last === undefined || typeof last === "string"
    ? undefined
    : (api.errorOf(last) as string | undefined);
}

function checkText(asked: Asked, text: unknown, isWhole: boolean): void {
  const expected = expectedText(asked);
  if (typeof text !== "string") throw new Error("an answer has no text");
  if (expected === undefined) {
    const words = text.split(" ").length;
    if (isWhole && words !== asked.tokens) throw new Error(`${words} tokens instead of ${asked.tokens}`);
  } else if (isWhole ? text !== expected : !expected.startsWith(text)) {
    throw new Error(
      `the text of an answer is wrong: ${text.slice(0, 200)} ... instead of ${expected.slice(0, 200)}`,
    );
  }
}

/** The events of a stream; comments are none. */
function eventsOf(stream: string): Event[] {
  const blocks = stream.split("\n\n");
  const rest = blocks.pop()!;
  const events = blocks.filter((block) => block !== "" && !block.startsWith(":")).map(eventOf);
  return rest === "" ? events : [...events, "torn"];
}

function eventOf(block: string): Event {
  const data = /^data: (.*)$/m.exec(block)?.[1];
  if (data === undefined) return "torn";
  if (data === "[DONE]") return data;
  try {
    return JSON.parse(data) as Json;
  } catch {
    return "torn";
  }
}
