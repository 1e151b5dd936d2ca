// POST /v1/messages (Anthropic)
import { Conversation, messageList } from "./conversation.js";
import type { Finish } from "./engine.js";
import {
  type Call,
  type Identity,
  type Json,
  outputTokens,
  type StreamRenderer,
  sse,
  type Turn,
  wantsStream,
} from "./wire.js";

/** Reads a messages request. Throws a 400 for what it cannot use; tools and thinking are ignored. */
export function messagesCall(body: Json, identity: Identity): Call {
  const conversation = new Conversation();
  if (body.system !== undefined && body.system !== null) conversation.add("system", body.system, "system");
  for (const [index, message] of messageList(body.messages, "messages").entries()) {
    conversation.add(message.role, message.content, `messages[${index}]`);
  }
  return {
    prompts: [conversation.finish()],
    outputTokens: outputTokens(body, "max_tokens"),
    continues: false,
    whole: ([turn]) => ({
      ...head(identity),
      content: [{ type: "text", text: turn.text, citations: null }],
      stop_reason: stopReason(turn.finish),
      stop_sequence: null,
      usage: usage(turn),
    }),
    ...(wantsStream(body) && { stream: messagesStream(identity) }),
  };
}

function messagesStream(identity: Identity): StreamRenderer {
  const event = (type: string, fields: Json) => sse({ type, ...fields }, type);
  return {
    opening: () => "",
    first: (_, promptTokens, cachedTokens) => {
      const counts = usage({ promptTokens, cachedTokens, completionTokens: 0 });
      const message = {
        ...head(identity),
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: counts,
      };
      const block = { type: "text", text: "", citations: null };
      return (
        event("message_start", { message }) +
        event("content_block_start", { index: 0, content_block: block }) +
        event("ping", {})
      );
    },
    token: (_, text) => event("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
    last: (_, turn) =>
      event("content_block_stop", { index: 0 }) +
      event("message_delta", {
        delta: { stop_reason: stopReason(turn.finish), stop_sequence: null },
        usage: usage(turn),
      }),
    closing: () => event("message_stop", {}),
  };
}

/** Anthropic's counts exclude each other: the prompt is the sum of the three input fields. */
function usage(turn: Pick<Turn, "promptTokens" | "cachedTokens" | "completionTokens">): Json {
  return {
    input_tokens: turn.promptTokens - turn.cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: turn.cachedTokens,
    output_tokens: turn.completionTokens,
  };
}

function stopReason(finish: Finish): string {
  return finish === "length" ? "max_tokens" : "end_turn";
}

function head({ id, model }: Identity): Json {
  return { id: `msg_${id}`, type: "message", role: "assistant", model };
}
