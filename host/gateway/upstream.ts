// The transport to one worker: a connection pool with the settings that a streaming proxy needs.

import { buildConnector, type Dispatcher, Pool } from "undici";
import { watch } from "./connection.js";

/** Starts a POST to the worker; `handler` hears what becomes of it. */
export type Dispatch = (
  path: string,
  headers: string[],
  body: Buffer,
  handler: Dispatcher.DispatchHandler,
) => void;

/** Below the 5 s after which engines close an idle connection. */
const KEEP_ALIVE_MS = 4_000;
/** Largest answer to `GET /v1/models` that is read, in bytes. */
const MAX_MODELS_BYTES = 1_048_576;

/** One worker's connections. */
export class Upstream {
  readonly #pool: Pool;
  readonly #basePath: string;
  readonly #authorization: string | undefined;

  /**
   * `url` may have a path, which is put before that of every request; a connection is open within `connectMs` or
   * fails; `apiKey` is shown to the worker, in place of whatever its client sends.
   */
  constructor(url: string, connectMs: number, apiKey: string | undefined) {
    const { origin, pathname } = new URL(url);
    this.#basePath = pathname.replace(/\/+$/, "");
    this.#authorization = apiKey === undefined ? undefined : `Bearer ${apiKey}`;
    // No limit on connections: it would have to be above the number of streams. No timeouts but for connecting: the
    // deadlines are the gateway's own.
    this.#pool = new Pool(origin, {
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      connect: watched(buildConnector({ timeout: connectMs })),
    });
  }

  /** Sends a request. `headers` are names and values in turn, and are the transport's from now on. */
  dispatch(path: string, headers: string[], body: Buffer, handler: Dispatcher.DispatchHandler): void {
    if (this.#authorization !== undefined) setHeader(headers, "authorization", this.#authorization);
    this.#pool.dispatch({ method: "POST", path: this.#basePath + path, headers, body }, handler);
  }

  /**
   * The worker's answer to `GET /v1/models`: the entries of its list. Rejects where it does not answer within `timeoutMs`
   * milliseconds, or not with such a list.
   */
  async listModels(timeoutMs: number): Promise<readonly unknown[]> {
    const { statusCode, body } = await this.#pool.request({
      method: "GET",
      path: `${this.#basePath}/v1/models`,
      ...(this.#authorization !== undefined && { headers: { authorization: this.#authorization } }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body) {
      size += chunk.length;
      if (size > MAX_MODELS_BYTES)
        throw new Error(`its list of models has more than ${MAX_MODELS_BYTES} bytes`);
      chunks.push(chunk);
    }
    if (statusCode !== 200) throw new Error(`it answered GET /v1/models with status ${statusCode}`);
    const data = (parsed(Buffer.concat(chunks)) as { data?: unknown } | null)?.data;
    if (!Array.isArray(data)) throw new Error("its answer to GET /v1/models has no list `data`");
    return data;
  }

  /** Lets what is under way finish, then closes its connections. */
  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** Cuts all connections. */
  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }
}

/** The value of a JSON text, null for anything else: the parser's own message would quote the text. */
function parsed(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString());
  } catch {
    return null;
  }
}

function watched(connect: buildConnector.connector): buildConnector.connector {
  return (options, callback) =>
    connect(options, (...result) => {
      if (result[1]) watch(result[1]);
      callback(...result);
    });
}

/** Sets a header in a flat list, in place of any that is there. */
function setHeader(headers: string[], name: string, value: string): void {
  for (let i = headers.length - 2; i >= 0; i -= 2)
    if (headers[i]!.toLowerCase() === name) headers.splice(i, 2);
  headers.push(name, value);
}
