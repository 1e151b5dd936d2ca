// The proxied endpoints: what a worker says on each when nothing goes wrong, and how each is told of an error.
import { expect } from "vitest";

/** An answer of a worker. */
export interface Answer {
  readonly type: string;
  readonly body: Buffer;
}

/** What a client was told by the gateway; `code` where the API has one. */
export interface Told {
  readonly code?: string;
  readonly message: string;
}

export interface Api {
  readonly path: string;
  /** A stream's events, each with its name where the API names them. */
  readonly events: readonly (readonly [string | undefined, object | string])[];
  readonly json: object;
  /** Reads an error that is a whole answer. */
  readonly refusal: (body: string) => Told;
  /** The name of the event that ends a broken stream, and what its data say. */
  readonly errorEvent: string | undefined;
  readonly eventData: (data: string) => Told;
}

function openaiError(body: string): Told {
  const { error } = JSON.parse(body);
  expect(error).toEqual({
    message: expect.any(String),
    type: "server_error",
    param: null,
    code: expect.any(String),
  });
  return error;
}

function anthropicError(body: string): Told {
  const { type, error } = JSON.parse(body);
  expect([type, error]).toEqual(["error", { type: expect.any(String), message: expect.any(String) }]);
  return { message: error.message };
}

function responseFailed(data: string): Told {
  const { type, response } = JSON.parse(data);
  expect([type, response]).toMatchObject(["response.failed", { object: "response", status: "failed" }]);
  return { message: response.error.message };
}

const openai = { refusal: openaiError, errorEvent: undefined, eventData: openaiError };
const delta = (content: string) => [undefined, { choices: [{ index: 0, delta: { content } }] }] as const;
const word = (text: string) => [undefined, { choices: [{ index: 0, text }] }] as const;
const vector = [{ object: "embedding", index: 0, embedding: [0.5, -1e-7] }];

// Each has a character of three bytes in the middle.
export const APIS: readonly Api[] = [
  {
    ...openai,
    path: "/v1/chat/completions",
    events: [delta("one"), delta("two €"), delta("three"), [undefined, "[DONE]"]],
    json: { object: "chat.completion", choices: [{ message: { role: "assistant", content: "one € two" } }] },
  },
  {
    ...openai,
    path: "/v1/completions",
    events: [word("one"), word("two €"), word("three"), [undefined, "[DONE]"]],
    json: { object: "text_completion", choices: [{ text: "one € two" }] },
  },
  {
    refusal: openaiError,
    errorEvent: "response.failed",
    eventData: responseFailed,
    path: "/v1/responses",
    events: [
      ["response.created", { type: "response.created", response: { id: "resp_1", object: "response" } }],
      ["response.output_text.delta", { type: "response.output_text.delta", delta: "two €" }],
      ["response.completed", { type: "response.completed", response: { id: "resp_1", status: "completed" } }],
    ],
    json: { id: "resp_1", object: "response", output: [{ type: "message", text: "one € two" }] },
  },
  {
    ...openai,
    path: "/v1/embeddings",
    // No such stream is known; what goes by the type of an answer must do so here, too.
    events: [
      [undefined, { data: vector, model: "€" }],
      [undefined, "[DONE]"],
    ],
    json: { object: "list", data: vector, model: "€", usage: { prompt_tokens: 1 } },
  },
  {
    refusal: anthropicError,
    errorEvent: "error",
    eventData: anthropicError,
    path: "/v1/messages",
    events: [
      ["message_start", { type: "message_start", message: { id: "msg_1", role: "assistant" } }],
      ["content_block_delta", { type: "content_block_delta", delta: { type: "text_delta", text: "two €" } }],
      ["message_stop", { type: "message_stop" }],
    ],
    json: { id: "msg_1", type: "message", content: [{ type: "text", text: "one € two" }] },
  },
];

/** What a worker that is well answers. */
export function goodAnswer({ events, json }: Api, isStream: boolean): Answer {
  if (!isStream) return { type: "application/json", body: Buffer.from(JSON.stringify(json)) };
  const lines = events.map(([name, data]) => {
    const text = typeof data === "string" ? data : JSON.stringify(data);
    return `${name ? `event: ${name}\n` : ""}data: ${text}\n\n`;
  });
  return { type: "text/event-stream; charset=utf-8", body: Buffer.from(lines.join("")) };
}
