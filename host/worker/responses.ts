// POST /v1/responses
import { Conversation, messageList } from "./conversation.js";
import {
  ApiError,
  type Call,
  type Identity,
  type Json,
  outputTokens,
  type StreamRenderer,
  sse,
  type Turn,
  wantsStream,
} from "./wire.js";

/**
 * Reads a responses request. The worker stores no answers, so `previous_response_id` is a 404 rather than a
 * prompt with a hole in it. Throws a 400 for what it cannot use.
 */
export function responsesCall(body: Json, identity: Identity): Call {
  if (body.previous_response_id !== undefined && body.previous_response_id !== null) {
    const message = "previous_response_id was not found: the simulated worker stores no responses.";
    throw new ApiError(404, message, "previous_response_id", "previous_response_not_found");
  }
  const limit = outputTokens(body, "max_output_tokens");
  const response = new ResponseShape(identity, body.max_output_tokens ?? null);
  return {
    prompts: [prompt(body)],
    outputTokens: limit,
    continues: false,
    whole: ([turn]) => response.finished(turn),
    ...(wantsStream(body) && { stream: responsesStream(response) }),
  };
}

function prompt(body: Json): number[] {
  const conversation = new Conversation();
  const { instructions, input } = body;
  if (instructions !== undefined && instructions !== null) {
    conversation.add("system", instructions, "instructions");
  }
  if (typeof input === "string") conversation.add("user", input, "input");
  else addItems(conversation, messageList(input, "input"));
  return conversation.finish();
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
  readonly itemId: string;
  readonly #head: Json;

  constructor({ id, created, model }: Identity, maxOutputTokens: unknown) {
    this.itemId = `msg_${id}`;
    this.#head = {
      id: `resp_${id}`,
      object: "response",
      created_at: created,
      model,
      error: null,
      instructions: null,
      max_output_tokens: maxOutputTokens,
      metadata: {},
      parallel_tool_calls: true,
      previous_response_id: null,
      store: false,
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
