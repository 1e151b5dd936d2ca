// POST /v1/completions
import { inputPrompts } from "./inputs.js";
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
  wantsStream,
} from "./wire.js";

/** Reads a completions request; a batch of prompts gives one choice each. Throws a 400 for what it cannot use. */
export function completionsCall(body: Json, identity: Identity): Call {
  const withUsage = isJson(body.stream_options) && body.stream_options.include_usage === true;
  return {
    prompts: inputPrompts(body.prompt, "prompt"),
    outputTokens: outputTokens(body, "max_tokens"),
    continues: true,
    whole: (turns) => ({
      ...head(identity),
      choices: turns.map((turn, index) => choice(index, turn.text, turn.finish)),
      usage: openaiUsage(turns),
    }),
    ...(wantsStream(body) && { stream: completionsStream(identity, withUsage) }),
  };
}

function completionsStream(identity: Identity, withUsage: boolean): StreamRenderer {
  const common = head(identity);
  const chunk = (index: number, text: string, finish: string | null) =>
    sse({ ...common, choices: [choice(index, text, finish)], ...(withUsage && { usage: null }) });
  return {
    opening: () => "",
    first: () => "",
    token: (index, text) => chunk(index, text, null),
    last: (index, turn) => chunk(index, "", turn.finish),
    closing: (turns) =>
      (withUsage ? sse({ ...common, choices: [], usage: openaiUsage(turns) }) : "") + SSE_DONE,
  };
}

function choice(index: number, text: string, finish: string | null): Json {
  return { index, text, logprobs: null, finish_reason: finish };
}

function head({ id, created, model }: Identity): Json {
  return { id: `cmpl-${id}`, object: "text_completion", created, model };
}
