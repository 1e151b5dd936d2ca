// What is sent to one worker, and on whose behalf.

import { Call, type CallListener } from "../transport/call.js";
import { ConnectionPool } from "../transport/pool.js";
import { requestHead } from "../transport/request.js";
import { ModelList } from "./model-list.js";

/** One worker's connections. */
export class Upstream {
  readonly #pool: ConnectionPool;
  readonly #host: string;
  readonly #basePath: string;
  readonly #authorization: string | undefined;

  /**
   * `url` may have a path, which is put before that of every request; a connection is open within `connectMs` or
   * fails; `apiKey` is shown to the worker, in place of whatever its client sends.
   */
  constructor(url: string, connectMs: number, apiKey: string | undefined) {
    const parsed = new URL(url);
    this.#host = parsed.host;
    this.#basePath = parsed.pathname.replace(/\/+$/, "");
    this.#authorization = apiKey === undefined ? undefined : `Bearer ${apiKey}`;
    this.#pool = new ConnectionPool(parsed, connectMs);
  }

  /** Sends a POST. `headers` are names and values in turn, and are the transport's from now on. */
  dispatch(path: string, headers: string[], body: Buffer, listener: CallListener): Call {
    if (this.#authorization !== undefined) setHeader(headers, "authorization", this.#authorization);
    return this.#send("POST", path, headers, body, listener);
  }

  /**
   * The worker's answer to `GET /v1/models`: the entries of its list. Rejects where it does not answer within `timeoutMs`
   * milliseconds, or not with such a list.
   */
  listModels(timeoutMs: number): Promise<readonly unknown[]> {
    return new Promise((resolve, reject) => {
      const headers = this.#authorization === undefined ? [] : ["authorization", this.#authorization];
      const list = new ModelList(resolve, reject);
      list.waitFor(this.#send("GET", "/v1/models", headers, null, list), timeoutMs);
    });
  }

  /** Lets what is under way finish, then closes its connections. */
  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** Cuts all connections. */
  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }

  #send(method: string, path: string, headers: string[], body: Buffer | null, listener: CallListener): Call {
    const call = new Call(body, listener);
    try {
      call.head = requestHead(method, this.#basePath + path, this.#host, headers, body?.length);
      this.#pool.dispatch(call);
    } catch (error) {
      process.nextTick(() => call.fail(error as Error));
    }
    return call;
  }
}

/** Sets a header in a flat list, in place of any that is there. */
function setHeader(headers: string[], name: string, value: string): void {
  for (let i = headers.length - 2; i >= 0; i -= 2)
    if (headers[i]!.toLowerCase() === name) headers.splice(i, 2);
  headers.push(name, value);
}
