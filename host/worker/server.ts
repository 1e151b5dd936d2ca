// The simulated worker's HTTP server: routes, bodies, errors, and the way from a request to the engine.
import { randomUUID } from "node:crypto";
import { once, setMaxListeners } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { chatCall } from "./chat.js";
import { type Clock, systemClock } from "./clock.js";
import { completionsCall } from "./completions.js";
import { embeddingsCall } from "./embeddings.js";
import { Engine } from "./engine.js";
import { messagesCall } from "./messages.js";
import { renderMetrics } from "./metrics.js";
import { PrefixCache } from "./prefix-cache.js";
import { ResponseStore } from "./response-store.js";
import { responsesCall } from "./responses.js";
import { tokenize } from "./tokenizer.js";
import { ApiError, type Call, type Identity, isJson, type Json, type Turn } from "./wire.js";
import { writeWords } from "./words.js";

/** Largest request body, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Longest answer, in tokens; a request for more ends with `length`. */
export const MAX_OUTPUT_TOKENS = 4096;

/** Longest prompt and answer together, in tokens. */
export const MAX_MODEL_LEN = 1_048_576;

/** A worker's settings. */
export interface WorkerOptions {
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  /** Names under which the one simulated model is served; metrics carry the first. */
  readonly models: readonly string[];
  /** Requests that run at once. */
  readonly maxNumSeqs: number;
  /** Uncached prompt tokens per second. */
  readonly prefillRate: number;
  /** Milliseconds per output token. */
  readonly tpotMs: number;
  /** Blocks of the prefix cache, and tokens in each. */
  readonly kvBlocks: number;
  readonly blockSize: number;
  readonly clock: Clock;
}

/** Settings of a worker that is told nothing. */
export const WORKER_DEFAULTS: WorkerOptions = {
  host: "127.0.0.1",
  port: 0,
  models: ["sim"],
  maxNumSeqs: 256,
  prefillRate: 20_000,
  tpotMs: 5,
  kvBlocks: 4096,
  blockSize: 16,
  clock: systemClock,
};

/** A worker that listens. */
export interface RunningWorker {
  readonly url: string;
  /** Cuts every connection and resolves when the port is free. */
  close(): Promise<void>;
}

type Parse = (body: Json, identity: Identity, store: ResponseStore) => Call;

const POST_ROUTES: ReadonlyMap<string, Parse> = new Map([
  ["/v1/chat/completions", chatCall],
  ["/v1/completions", completionsCall],
  ["/v1/responses", responsesCall],
  ["/v1/messages", messagesCall],
  ["/v1/embeddings", embeddingsCall],
]);

/** Starts a worker. Rejects with the system's error if the address cannot be listened on. */
export async function startWorker(options: Partial<WorkerOptions> = {}): Promise<RunningWorker> {
  const settings = { ...WORKER_DEFAULTS, ...options };
  const worker = new Worker(settings);
  const server = createServer((request, response) => void worker.handle(request, response));
  server.listen(settings.port, settings.host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const host = settings.host.includes(":") ? `[${settings.host}]` : settings.host;
  return { url: `http://${host}:${port}`, close: () => closeServer(server) };
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

class Worker {
  readonly #models: readonly string[];
  readonly #cache: PrefixCache;
  readonly #engine: Engine;
  readonly #store = new ResponseStore();
  readonly #startSeconds = Date.now() / 1000;

  constructor({ models, maxNumSeqs, prefillRate, tpotMs, kvBlocks, blockSize, clock }: WorkerOptions) {
    this.#models = models;
    this.#cache = new PrefixCache(kvBlocks, blockSize);
    this.#engine = new Engine({ maxNumSeqs, prefillRate, tpotMs, clock, cache: this.#cache });
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? "").split("?", 1)[0];
    const signal = clientGone(request, response);
    try {
      const parse = POST_ROUTES.get(path);
      if (!parse) this.#get(path, request, response);
      else await this.#post(parse, request, response, signal);
    } catch (error) {
      if (!signal.aborted) sendError(response, path, error);
    }
  }

  #get(path: string, request: IncomingMessage, response: ServerResponse): void {
    const text = this.#page(path);
    if (text === undefined) throw new ApiError(404, "There is no such path on this worker.");
    requireMethod(request, response, "GET");
    const type = path === "/metrics" ? "text/plain; version=0.0.4; charset=utf-8" : "application/json";
    send(response, 200, type, text);
  }

  #page(path: string): string | undefined {
    switch (path) {
      case "/health":
        return JSON.stringify({ status: "ok" });
      case "/v1/models":
        return JSON.stringify({ object: "list", data: this.#models.map((id) => this.#modelEntry(id)) });
      case "/metrics":
        return renderMetrics({
          model: this.#models[0],
          stats: this.#engine.stats,
          cache: this.#cache,
          startSeconds: this.#startSeconds,
        });
      default:
        return undefined;
    }
  }

  #modelEntry(id: string): Json {
    const created = Math.floor(this.#startSeconds);
    return { id, object: "model", created, owned_by: "hawser-sim", max_model_len: MAX_MODEL_LEN };
  }

  async #post(parse: Parse, request: IncomingMessage, response: ServerResponse, signal: AbortSignal) {
    requireMethod(request, response, "POST");
    const body = parseBody(await readBody(request));
    const id = randomUUID().replaceAll("-", "");
    const identity = { id, created: Math.floor(Date.now() / 1000), model: this.#model(body) };
    const call = parse(body, identity, this.#store);
    for (const prompt of call.prompts) requireFits(prompt);
    if (call.stream) startStream(response, call.stream.opening());
    const turns = await Promise.all(
      call.prompts.map((prompt, index) => this.#generate(call, prompt, index, response, signal)),
    );
    call.answered?.(turns);
    if (call.stream) response.end(call.stream.closing(turns));
    else send(response, 200, "application/json", JSON.stringify(call.whole(turns)));
  }

  #model({ model }: Json): string {
    if (typeof model !== "string") throw new ApiError(400, "model must be a string.", "model");
    if (!this.#models.includes(model)) {
      const message = `The model ${JSON.stringify(model.slice(0, 256))} is not served here; served: ${this.#models.join(", ")}.`;
      throw new ApiError(404, message, "model", "model_not_found");
    }
    return model;
  }

  async #generate(
    { outputTokens, continues, stream }: Call,
    prompt: number[],
    index: number,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<Turn> {
    const count = Math.min(outputTokens, MAX_OUTPUT_TOKENS, MAX_MODEL_LEN - prompt.length);
    const words = writeWords(prompt, count, continues);
    const finish = count < outputTokens ? "length" : "stop";
    // Slow readers are not waited for: what piles up is bounded by the longest answer.
    const onToken = (position: number, cached: number) => {
      if (!stream) return;
      const opening = position === 0 ? stream.first(index, prompt.length, cached) : "";
      response.write(opening + stream.token(index, words[position]));
    };
    const output = words.flatMap((word) => tokenize(word));
    const cachedTokens = await this.#engine.run({ prompt, output, finish, signal, onToken });
    const text = words.join("");
    const turn = {
      promptTokens: prompt.length,
      cachedTokens,
      completionTokens: count,
      text,
      finish,
    } as const;
    if (stream) response.write(stream.last(index, turn));
    return turn;
  }
}

/** Aborts when the client is gone: by the socket's close, since a response that waits in a pipeline has none. */
function clientGone({ socket }: IncomingMessage, response: ServerResponse): AbortSignal {
  const controller = new AbortController();
  // A batch waits with one listener for each of its prompts.
  setMaxListeners(0, controller.signal);
  const gone = () => controller.abort();
  socket.setMaxListeners(0).once("close", gone);
  response.once("finish", () => socket.off("close", gone));
  return controller.signal;
}

function requireMethod(request: IncomingMessage, response: ServerResponse, method: "GET" | "POST"): void {
  if (request.method === method || (method === "GET" && request.method === "HEAD")) return;
  response.setHeader("allow", method);
  throw new ApiError(405, `This path takes ${method} only.`);
}

function requireFits(prompt: readonly number[]): void {
  if (prompt.length < MAX_MODEL_LEN) return;
  const message = `The prompt has ${prompt.length} tokens; at most ${MAX_MODEL_LEN - 1} are allowed.`;
  throw new ApiError(400, message, null, "context_length_exceeded");
}

/** Rejects with a 413 as soon as the body is known to be too large; the rest is read and dropped. */
function readBody(request: IncomingMessage): Promise<string> {
  const tooLarge = new ApiError(413, `The request body is larger than ${MAX_BODY_BYTES} bytes.`);
  return new Promise((resolve, reject) => {
    if (Number(request.headers["content-length"]) > MAX_BODY_BYTES) {
      request.resume();
      reject(tooLarge);
      return;
    }
    const chunks: Buffer[] = [];
    let size = 0;
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= MAX_BODY_BYTES) chunks.push(chunk);
      else {
        chunks.length = 0;
        reject(tooLarge);
      }
    });
    request.on("end", () => resolve(Buffer.concat(chunks).toString()));
    request.on("error", reject);
  });
}

function parseBody(text: string): Json {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new ApiError(400, "The request body is not valid JSON.");
  }
  if (!isJson(body)) throw new ApiError(400, "The request body must be a JSON object.");
  return body;
}

function startStream(response: ServerResponse, opening: string): void {
  response.writeHead(200, {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
  });
  // The head goes out before the first token: a client sees at once that it was accepted.
  if (opening === "") response.flushHeaders();
  else response.write(opening);
}

function send(response: ServerResponse, status: number, type: string, text: string): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
}

function sendError(response: ServerResponse, path: string, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const known =
    error instanceof ApiError ? error : new ApiError(500, "The worker failed to answer this request.");
  const shape = path.startsWith("/v1/messages") ? anthropicError(known) : openaiError(known);
  send(response, known.status, "application/json", JSON.stringify(shape));
}

function openaiError({ status, message, param, code }: ApiError): Json {
  const type = status >= 500 ? "server_error" : "invalid_request_error";
  return { error: { message, type, param, code } };
}

function anthropicError({ status, message }: ApiError): Json {
  const types: Record<number, string> = {
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
  };
  return { type: "error", error: { type: types[status] ?? "invalid_request_error", message } };
}
