// Raw inputs of completions and embeddings: a string, token ids, or an array of either.
import { tokenize } from "./tokenizer.js";
import { ApiError } from "./wire.js";

/** Prompts one request may carry. */
const MAX_INPUTS = 2048;

/** Reads a prompt or a batch of prompts. Throws a 400 if it is neither, or if one is empty. */
export function inputPrompts(value: unknown, name: string): number[][] {
  const inputs = Array.isArray(value) && !isTokenIds(value) ? value : [value];
  if (inputs.length > MAX_INPUTS) {
    throw new ApiError(400, `${name} has ${inputs.length} entries; at most ${MAX_INPUTS} are allowed.`, name);
  }
  return inputs.map((input) => onePrompt(input, name));
}

function onePrompt(input: unknown, name: string): number[] {
  if (typeof input !== "string" && !isTokenIds(input)) {
    const allowed = "a string, an array of token ids, or an array of these";
    throw new ApiError(400, `${name} must be ${allowed}.`, name);
  }
  const tokens = typeof input === "string" ? tokenize(input) : input.map((id) => id | 0);
  if (tokens.length === 0) throw new ApiError(400, `${name} must not be empty.`, name);
  return tokens;
}

function isTokenIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}
