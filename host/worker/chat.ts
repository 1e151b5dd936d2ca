// POST /v1/chat/completions
import { Conversation, messageList } from "./conversation.js";
import {
  type Call,
  type Identity,
  isJson,
  type Json,
  openaiUsage,
  outputTokens,
  SSE_DONE,
  type StreamRenderer,
  sse,
  type Turn,
  wantsStream,
} from "./wire.js";

/** Reads a chat request. Throws a 400 for what it cannot use; tools, `n` and logprobs are ignored. */
export function chatCall(body: Json, identity: Identity): Call {
  const conversation = new Conversation();
  for (const [index, message] of messageList(body.messages, "messages").entries()) {
    conversation.add(message.role, message.content, `messages[${index}]`);
  }
  const withUsage = isJson(body.stream_options) && body.stream_options.include_usage === true;
  return {
    prompts: [conversation.finish()],
    outputTokens: outputTokens(body, "max_completion_tokens", "max_tokens"),
    continues: false,
    whole: ([turn]) => chatCompletion(identity, turn),
    ...(wantsStream(body) && { stream: chatStream(identity, withUsage) }),
  };
}

function chatCompletion(identity: Identity, turn: Turn): Json {
  const message = { role: "assistant", content: turn.text, refusal: null };
  return {
    ...head(identity, "chat.completion"),
    choices: [{ index: 0, message, logprobs: null, finish_reason: turn.finish }],
    usage: openaiUsage([turn]),
  };
}

function chatStream(identity: Identity, withUsage: boolean): StreamRenderer {
  const common = head(identity, "chat.completion.chunk");
  const chunk = (delta: Json, finish: string | null) =>
    sse({
      ...common,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(withUsage && { usage: null }),
    });
  return {
    opening: () => "",
    first: () => chunk({ role: "assistant", content: "" }, null),
    token: (_, text) => chunk({ content: text }, null),
    last: (_, turn) => chunk({}, turn.finish),
    closing: (turns) =>
      (withUsage ? sse({ ...common, choices: [], usage: openaiUsage(turns) }) : "") + SSE_DONE,
  };
}

function head({ id, created, model }: Identity, object: string): Json {
  return { id: `chatcmpl-${id}`, object, created, model };
}
