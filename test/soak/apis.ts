// The endpoints that stream: how each is asked, and what of an answer is its text, its end, or an error.
import type { ErrorStyle } from "../../host/gateway/errors.js";
import { chatCall } from "../../host/worker/chat.js";
import { completionsCall } from "../../host/worker/completions.js";
import { messagesCall } from "../../host/worker/messages.js";
import type { ResponseStore } from "../../host/worker/response-store.js";
import { responsesCall } from "../../host/worker/responses.js";
import type { Call, Identity, Json } from "../../host/worker/wire.js";

/** An event's data; `[DONE]` is the only one that is no object. */
export type Data = Json | "[DONE]";

export interface Api {
  readonly path: string;
  readonly style: ErrorStyle;
  /** The members of a request that ask about `text` for an answer of `tokens` tokens. */
  readonly ask: (text: string, tokens: number) => Json;
  /** How a simulated worker reads such a request. */
  readonly call: (body: Json, identity: Identity, store: ResponseStore) => Call;
  /** The text that an event adds. */
  readonly textOf: (data: Json) => unknown;
  /** The text of an answer that is no stream. */
  readonly wholeText: (answer: Json) => unknown;
  /** Whether an event says that the answer is complete. */
  readonly isEnd: (data: Data) => boolean;
  /** The message of an event that is an error. */
  readonly errorOf: (data: Json) => unknown;
}

// biome-ignore lint/suspicious/noExplicitAny: answers are of many shapes, and a wrong one is found by the text it lacks
const deep = (value: unknown): any => value;

const openai = {
  style: "openai",
  isEnd: (data: Data) => data === "[DONE]",
  errorOf: (data: Json) => deep(data).error?.message,
} as const;
const messages = (content: string) => [
  { role: "system", content: "You are a dock worker." },
  { role: "user", content },
];

export const APIS: readonly Api[] = [
  {
    ...openai,
    path: "/v1/chat/completions",
    ask: (text, tokens) => ({ messages: messages(text), max_tokens: tokens }),
    call: chatCall,
    textOf: (data) => deep(data).choices?.[0]?.delta?.content,
    wholeText: (answer) => deep(answer).choices?.[0]?.message?.content,
  },
  {
    ...openai,
    path: "/v1/completions",
    ask: (text, tokens) => ({ prompt: text, max_tokens: tokens }),
    call: completionsCall,
    textOf: (data) => deep(data).choices?.[0]?.text,
    wholeText: (answer) => deep(answer).choices?.[0]?.text,
  },
  {
    style: "responses",
    path: "/v1/responses",
    ask: (text, tokens) => ({ input: text, max_output_tokens: tokens }),
    call: responsesCall,
    textOf: (data) => (deep(data).type === "response.output_text.delta" ? deep(data).delta : undefined),
    wholeText: (answer) => deep(answer).output?.[0]?.content?.[0]?.text,
    isEnd: (data) => deep(data).type === "response.completed",
    errorOf: (data) =>
      deep(data).type === "response.failed" ? deep(data).response.error.message : undefined,
  },
  {
    style: "anthropic",
    path: "/v1/messages",
    ask: (text, tokens) => ({ messages: messages(text).slice(1), max_tokens: tokens }),
    call: messagesCall,
    textOf: (data) => (deep(data).type === "content_block_delta" ? deep(data).delta.text : undefined),
    wholeText: (answer) => deep(answer).content?.[0]?.text,
    isEnd: (data) => deep(data).type === "message_stop",
    errorOf: (data) => (deep(data).type === "error" ? deep(data).error.message : undefined),
  },
];

/** The text of an error that is a whole answer, and its code where the API has one; undefined for another shape. */
export function refusalOf({ style }: Api, answer: Json): { message: string; code: string } | undefined {
  const { type, error } = deep(answer);
  if (typeof error?.message !== "string" || typeof error.type !== "string") return undefined;
  if (style === "anthropic" && type !== "error") return undefined;
  return { message: error.message, code: String(error.code ?? error.type) };
}
