// One streaming request to the gateway, read to its end.
import type { Pool } from "undici";

/** Hears of an answer while it arrives. */
export interface AnswerListener {
  /** The head is there: the gateway chose `worker`. */
  onHead(worker: string): void;
  onFirstToken(): void;
}

export interface Answer {
  readonly worker: string;
  readonly ttftMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

export interface Ask {
  readonly session: string;
  readonly prompt: string;
  readonly maxTokens: number;
}

/**
 * Sends a prompt under a session's key and reads the stream. The endpoint is the one whose prompt is raw text: a chat
 * would add tokens for its roles. Throws an Error for anything but a complete answer with its usage.
 */
export async function ask(gateway: Pool, request: Ask, listener: AnswerListener): Promise<Answer> {
  const sent = performance.now();
  const { statusCode, headers, body } = await gateway.request({
    method: "POST",
    path: "/v1/completions",
    headers: { "content-type": "application/json", "x-session-id": request.session },
    body: JSON.stringify({
      ...{ model: "sim", prompt: request.prompt, max_tokens: request.maxTokens },
      ...{ stream: true, stream_options: { include_usage: true } },
    }),
  });
  if (statusCode !== 200) throw new Error(`status ${statusCode}: ${(await body.text()).slice(0, 300)}`);
  const worker = String(headers["x-hawser-worker"]);
  listener.onHead(worker);
  let ttftMs = Number.NaN;
  let text = "";
  for await (const chunk of body.setEncoding("utf8")) {
    if (text === "") {
      ttftMs = performance.now() - sent;
      listener.onFirstToken();
    }
    text += chunk;
  }
  return { worker, ttftMs, ...usageOf(text) };
}

function usageOf(stream: string): Pick<Answer, "promptTokens" | "cachedTokens"> {
  const frames = stream.split("\n\n");
  if (frames.at(-2) !== "data: [DONE]") throw new Error("the stream ended before it was complete");
  const { usage } = JSON.parse(frames.at(-3)!.slice("data: ".length)) as {
    usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
  };
  return { promptTokens: usage.prompt_tokens, cachedTokens: usage.prompt_tokens_details.cached_tokens };
}
