// POST /v1/responses
import { Conversation, messageList } from "./conversation.js";
import type { ResponseStore } from "./response-store.js";
import { tokenize } from "./tokenizer.js";
import {
  ApiError,
  type Call,
  flag,
  type Identity,
  type Json,
  outputTokens,
  type StreamRenderer,
  sse,
  type Turn,
  wantsStream,
} from "./wire.js";

/**
 * Reads a responses request, which may continue an answer in `store`. Throws a 404 for a
 * `previous_response_id` that is not there, and a 400 for what it cannot use.
 */
export function responsesCall(body: Json, identity: Identity, store: ResponseStore): Call {
  const previous = previousConversation(body, store);
  const limit = outputTokens(body, "max_output_tokens");
  const response = new ResponseShape(identity, body);
  const { prompt, instructions } = readPrompt(body, previous);
  return {
    prompts: [prompt],
    outputTokens: limit,
    continues: false,
    whole: ([turn]) => response.finished(turn),
    ...(wantsStream(body) && { stream: responsesStream(response) }),
    // As at OpenAI, instructions hold for one answer only: what continues it brings its own.
    ...(flag(body, "store", true) && {
      answered: ([turn]) => store.add(response.id, tokenize(turn.text, prompt.slice(instructions))),
    }),
  };
}

function previousConversation(body: Json, store: ResponseStore): Iterable<number> {
  const name = "previous_response_id";
  const id = body[name] ?? undefined;
  if (id === undefined) return [];
  if (typeof id !== "string") throw new ApiError(400, `${name} must be a string.`, name);
  const conversation = store.get(id);
  if (conversation) return conversation;
  const message = `${name} was not found: this worker has no response ${JSON.stringify(id.slice(0, 256))}.`;
  throw new ApiError(404, message, name, "previous_response_not_found");
}

/** The prompt, and how many of its first tokens are the instructions. */
function readPrompt(body: Json, previous: Iterable<number>): { prompt: number[]; instructions: number } {
  const conversation = new Conversation();
  const { instructions, input } = body;
  if (instructions !== undefined && instructions !== null) {
    conversation.add("system", instructions, "instructions");
  }
  const { length } = conversation;
  conversation.addTokens(previous);
  if (typeof input === "string") conversation.add("user", input, "input");
  else addItems(conversation, messageList(input, "input"));
  return { prompt: conversation.finish(), instructions: length };
}

function addItems(conversation: Conversation, items: readonly Json[]): void {
  for (const [index, item] of items.entries()) addItem(conversation, item, `input[${index}]`);
}

function addItem(conversation: Conversation, item: Json, where: string): void {
  if (item.type === undefined || item.type === "message") conversation.add(item.role, item.content, where);
  else if (item.type === "function_call_output") conversation.add("tool", item.output, where);
  else conversation.addOpaque(item);
}

/** The response object in each of its states. */
class ResponseShape {
  readonly id: string;
  readonly itemId: string;
  readonly #head: Json;

  constructor({ id, created, model }: Identity, body: Json) {
    this.id = `resp_${id}`;
    this.itemId = `msg_${id}`;
    this.#head = {
      id: this.id,
      object: "response",
      created_at: created,
      model,
      error: null,
      instructions: null,
      max_output_tokens: body.max_output_tokens ?? null,
      metadata: {},
      parallel_tool_calls: true,
      previous_response_id: body.previous_response_id ?? null,
      store: body.store ?? true,
      temperature: 1,
      text: { format: { type: "text" } },
      tool_choice: "auto",
      tools: [],
      top_p: 1,
      truncation: "disabled",
    };
  }

  running(): Json {
    return { ...this.#head, status: "in_progress", incomplete_details: null, output: [], usage: null };
  }

  finished(turn: Turn): Json {
    const status = endStatus(turn);
    return {
      ...this.#head,
      status,
      incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
      output: [this.item(status, [textPart(turn.text)])],
      usage: {
        input_tokens: turn.promptTokens,
        input_tokens_details: { cached_tokens: turn.cachedTokens, cache_write_tokens: 0 },
        output_tokens: turn.completionTokens,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: turn.promptTokens + turn.completionTokens,
      },
    };
  }

  item(status: string, content: Json[]): Json {
    return { id: this.itemId, type: "message", status, role: "assistant", content };
  }
}

function responsesStream(response: ResponseShape): StreamRenderer {
  let sequence = 0;
  const event = (type: string, fields: Json) => sse({ type, sequence_number: sequence++, ...fields }, type);
  const place = { item_id: response.itemId, output_index: 0, content_index: 0 };
  return {
    // As at OpenAI, these come before the engine has done anything: they are no sign of a first token.
    opening: () =>
      event("response.created", { response: response.running() }) +
      event("response.in_progress", { response: response.running() }),
    first: () =>
      event("response.output_item.added", { output_index: 0, item: response.item("in_progress", []) }) +
      event("response.content_part.added", { ...place, part: textPart("") }),
    token: (_, text) => event("response.output_text.delta", { ...place, delta: text, logprobs: [] }),
    last: (_, turn) =>
      event("response.output_text.done", { ...place, text: turn.text, logprobs: [] }) +
      event("response.content_part.done", { ...place, part: textPart(turn.text) }) +
      event("response.output_item.done", {
        output_index: 0,
        item: response.item(endStatus(turn), [textPart(turn.text)]),
      }),
    closing: ([turn]) => event(`response.${endStatus(turn)}`, { response: response.finished(turn) }),
  };
}

function endStatus(turn: Turn): "completed" | "incomplete" {
  return turn.finish === "length" ? "incomplete" : "completed";
}

function textPart(text: string): Json {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}
