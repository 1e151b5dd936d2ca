// POST /v1/embeddings
import { finish, hashTokens, mix } from "./hash.js";
import { inputPrompts } from "./inputs.js";
import { ApiError, type Call, type Identity, type Json, openaiUsage } from "./wire.js";

const DEFAULT_DIMENSIONS = 64;
const MAX_DIMENSIONS = 4096;

/** Reads an embeddings request; its prompts are only prefilled. Throws a 400 for what it cannot use. */
export function embeddingsCall(body: Json, { model }: Identity): Call {
  const prompts = inputPrompts(body.input, "input");
  const base64 = wantsBase64(body);
  const size = dimensions(body);
  const embed = (prompt: number[], index: number) => {
    const vector = embedding(prompt, size);
    return { object: "embedding", index, embedding: base64 ? encode(vector) : Array.from(vector) };
  };
  return {
    prompts,
    outputTokens: 0,
    continues: false,
    whole: (turns) => {
      const { completion_tokens: _, ...usage } = openaiUsage(turns);
      return { object: "list", model, data: prompts.map(embed), usage };
    },
  };
}

/** A unit vector that depends on the tokens alone. */
function embedding(prompt: number[], size: number): Float32Array {
  const seed = hashTokens(prompt);
  const values = Float32Array.from({ length: size }, (_, i) => finish(mix(seed, i)) / 0x80000000 - 1);
  const norm = Math.hypot(...values);
  return values.map((value) => value / norm);
}

/** Little-endian 32-bit floats, which is what clients expect behind `base64`. */
function encode(vector: Float32Array): string {
  const bytes = Buffer.alloc(vector.length * 4);
  vector.forEach((value, index) => {
    bytes.writeFloatLE(value, index * 4);
  });
  return bytes.toString("base64");
}

function wantsBase64(body: Json): boolean {
  const format = body.encoding_format ?? "float";
  if (format === "base64" || format === "float") return format === "base64";
  throw new ApiError(400, 'encoding_format must be "float" or "base64".', "encoding_format");
}

function dimensions(body: Json): number {
  const value = body.dimensions ?? DEFAULT_DIMENSIONS;
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_DIMENSIONS) {
    return value as number;
  }
  throw new ApiError(400, `dimensions must be an integer from 1 to ${MAX_DIMENSIONS}.`, "dimensions");
}
