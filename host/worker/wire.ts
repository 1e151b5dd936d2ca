// What the endpoints share: the request once read, the answer to be rendered, errors, and SSE frames.
import type { Finish } from "./engine.js";

/** A parsed JSON object. */
export type Json = Record<string, unknown>;

/** A request the worker refuses; each endpoint family puts it in its own error shape. */
export class ApiError extends Error {
  readonly status: number;
  readonly param: string | null;
  readonly code: string | null;

  constructor(status: number, message: string, param: string | null = null, code: string | null = null) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
  }
}

/** One prompt and what became of it. */
export interface Turn {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly text: string;
  readonly finish: Finish;
}

/** What every rendered answer is told about itself. */
export interface Identity {
  /** Unique part of the answer's ids; each endpoint adds its prefix. */
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  /** The model name the client asked for. */
  readonly model: string;
}

/** A streamed answer as SSE text. Methods are called in this order; `index` is the prompt's. */
export interface StreamRenderer {
  /** Goes out with the head, before the engine is asked. */
  opening(): string;
  /** Goes out right before a prompt's first token. */
  first(index: number, promptTokens: number, cachedTokens: number): string;
  token(index: number, text: string): string;
  last(index: number, turn: Turn): string;
  /** Goes out when every prompt is done. */
  closing(turns: readonly Turn[]): string;
}

/** One request, understood. */
export interface Call {
  readonly prompts: readonly number[][];
  /** Output tokens asked for; 0 for prefill only. */
  readonly outputTokens: number;
  /** Generated text goes right behind the prompt's, so it starts with a blank. */
  readonly continues: boolean;
  /** Called when every prompt is done, before the end of the answer goes out. */
  answered?(turns: readonly Turn[]): void;
  /** The answer as one JSON value. */
  whole(turns: readonly Turn[]): unknown;
  /** Present where the client asked for a stream. */
  readonly stream?: StreamRenderer;
}

/** Output tokens where the request names no limit. */
export const DEFAULT_OUTPUT_TOKENS = 16;

/** True for a JSON object. */
export function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reads `stream`. Throws a 400 if it is neither a boolean nor absent. */
export function wantsStream(body: Json): boolean {
  return flag(body, "stream", false);
}

/** Reads the boolean `name`, `absent` where it is not there. Throws a 400 if it is anything else. */
export function flag(body: Json, name: string, absent: boolean): boolean {
  const value = body[name] ?? absent;
  if (typeof value !== "boolean") throw new ApiError(400, `${name} must be true or false.`, name);
  return value;
}

/** Reads the first of `names` that is present. Throws a 400 if it is not a positive integer. */
export function outputTokens(body: Json, ...names: string[]): number {
  const name = names.find((key) => body[key] !== undefined && body[key] !== null);
  if (name === undefined) return DEFAULT_OUTPUT_TOKENS;
  const value = body[name];
  if (!Number.isSafeInteger(value) || (value as number) < 1) {
    throw new ApiError(400, `${name} must be a positive integer.`, name);
  }
  return value as number;
}

/** Usage in the shape of chat completions, completions and embeddings, summed over all prompts. */
export function openaiUsage(turns: readonly Turn[]): Json {
  const sum = (pick: (turn: Turn) => number) => turns.reduce((total, turn) => total + pick(turn), 0);
  const prompt = sum((turn) => turn.promptTokens);
  const completion = sum((turn) => turn.completionTokens);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum((turn) => turn.cachedTokens) },
  };
}

/** One SSE frame, named where the API names its events. */
export function sse(data: unknown, event?: string): string {
  const head = event === undefined ? "" : `event: ${event}\n`;
  return `${head}data: ${JSON.stringify(data)}\n\n`;
}

/** The frame that ends an OpenAI stream. */
export const SSE_DONE = "data: [DONE]\n\n";
