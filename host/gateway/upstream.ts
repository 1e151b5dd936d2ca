// What is sent to one worker, and on whose behalf.

import type { Line, Page } from "../fleet/line.js";
import { Call, type CallListener } from "../transport/call.js";
import { ConnectionPool } from "../transport/pool.js";
import { requestHead } from "../transport/request.js";
import { PageReader } from "./page-reader.js";

/** One worker's connections. */
export class Upstream implements Line {
  readonly #pool: ConnectionPool;
  readonly #host: string;
  readonly #basePath: string;
  readonly #via: string;
  #authorization: string | undefined;

  /**
   * `url` may have a path, which is put before that of every request; a connection is open within `connectMs` or
   * fails; `via` says in every request who sends it; `apiKey` is shown to the worker, in place of whatever its client sends.
   */
  constructor(url: string, connectMs: number, via: string, apiKey: string | undefined) {
    const parsed = new URL(url);
    this.#host = parsed.host;
    this.#basePath = parsed.pathname.replace(/\/+$/, "");
    this.#via = via;
    this.show(apiKey);
    this.#pool = new ConnectionPool(parsed, connectMs);
  }

  show(apiKey: string | undefined): void {
    this.#authorization = apiKey === undefined ? undefined : `Bearer ${apiKey}`;
  }

  /** How long a connection may take to open, from now on. */
  set connectMs(ms: number) {
    this.#pool.connectMs = ms;
  }

  /** Sends a POST. `headers` are names and values in turn, and are the transport's from now on. */
  dispatch(path: string, headers: string[], body: Buffer, listener: CallListener): Call {
    if (this.#authorization !== undefined) setHeader(headers, "authorization", this.#authorization);
    return this.#send("POST", path, headers, body, listener);
  }

  get(path: string, timeoutMs: number, maxBytes: number): Promise<Page> {
    return new Promise((resolve, reject) => {
      const headers = this.#authorization === undefined ? [] : ["authorization", this.#authorization];
      const page = new PageReader(path, maxBytes, resolve, reject);
      page.waitFor(this.#send("GET", path, headers, null, page), timeoutMs);
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
    headers.push("via", this.#via);
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
