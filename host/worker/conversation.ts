// Conversations to prompts.
//
// Every message is a role marker and then its text; the prompt ends with the assistant's marker. So the next
// turn (this history, the answer, a new message) starts with exactly this turn's prompt and generated tokens.
import { marker, tokenize, tokenizeOpaque } from "./tokenizer.js";
import { ApiError, isJson, type Json } from "./wire.js";

/** A prompt in the making. */
export class Conversation {
  readonly #tokens: number[] = [];

  /** Tokens so far. */
  get length(): number {
    return this.#tokens.length;
  }

  /** Adds one message. `where` names it in errors. Throws a 400 if the content has no known shape. */
  add(role: unknown, content: unknown, where: string): void {
    if (typeof role !== "string" || role === "") {
      throw new ApiError(400, `${where}.role must be a non-empty string.`, where);
    }
    this.#tokens.push(marker(role));
    this.#addContent(content, `${where}.content`);
  }

  /** Adds an item that is no message (a tool call, reasoning) as a few tokens. */
  addOpaque(item: unknown): void {
    tokenizeOpaque(item, this.#tokens);
  }

  /** Adds messages that are tokens already. */
  addTokens(tokens: Iterable<number>): void {
    for (const token of tokens) this.#tokens.push(token);
  }

  /** The prompt: all messages and the marker that asks the assistant to go on. */
  finish(): number[] {
    this.#tokens.push(marker("assistant"));
    return this.#tokens;
  }

  #addContent(content: unknown, where: string): void {
    if (content === undefined || content === null) return;
    if (typeof content === "string") tokenize(content, this.#tokens);
    else if (Array.isArray(content)) for (const part of content) this.#addPart(part);
    else throw new ApiError(400, `${where} must be a string or an array of parts.`, where);
  }

  #addPart(part: unknown): void {
    const result = isJson(part) && part.type === "tool_result" ? part.content : undefined;
    const pieces = Array.isArray(result) ? result : [result ?? part];
    for (const piece of pieces) {
      const text = partText(piece);
      if (text === undefined) tokenizeOpaque(piece, this.#tokens);
      else tokenize(text, this.#tokens);
    }
  }
}

/** Checks a list of messages. Throws a 400 unless it is a non-empty array of objects. */
export function messageList(value: unknown, name: string): Json[] {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isJson)) {
    throw new ApiError(400, `${name} must be a non-empty array of objects.`, name);
  }
  return value;
}

function partText(part: unknown): string | undefined {
  if (typeof part === "string") return part;
  return isJson(part) && typeof part.text === "string" ? part.text : undefined;
}
