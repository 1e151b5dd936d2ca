// A server whose answers are bytes, and a listener that keeps what it hears.
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { onTestFinished } from "vitest";
import type { AnswerHead } from "../../host/transport/answer.js";
import { Call, type CallListener } from "../../host/transport/call.js";
import { ConnectionPool } from "../../host/transport/pool.js";
import { requestHead } from "../../host/transport/request.js";
import { CERTIFICATE, KEY } from "../fixtures/tls.js";

/** A request as it came, its body whole. */
export interface Received {
  readonly head: string;
  readonly body: string;
  readonly socket: Socket;
}

export interface RawServer {
  readonly url: URL;
  /** Its connections, in the order of their opening. */
  readonly sockets: readonly Socket[];
  readonly requests: readonly Received[];
}

/** Starts one that does with every request what it is told; over TLS where it `isSecure`. */
export async function rawServer(answer: (received: Received) => void, isSecure = false): Promise<RawServer> {
  const sockets: Socket[] = [];
  const requests: Received[] = [];
  const accept = (socket: Socket): void => {
    sockets.push(socket);
    let seen = "";
    socket.setEncoding("latin1").on("error", () => {});
    socket.on("data", (text) => {
      seen += text;
      const split = seen.indexOf("\r\n\r\n") + 4;
      const size = split + Number(/content-length: (\d+)/i.exec(seen)?.[1] ?? 0);
      if (split < 4 || seen.length < size) return;
      const received = { head: seen.slice(0, split), body: seen.slice(split, size), socket };
      seen = seen.slice(size);
      requests.push(received);
      answer(received);
    });
  };
  const server: Server = isSecure
    ? createTlsServer({ key: KEY, cert: CERTIFICATE }, accept)
    : createServer(accept);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  return { url: new URL(`http${isSecure ? "s" : ""}://127.0.0.1:${port}`), sockets, requests };
}

/** What a listener heard, and what it does at the moment. */
export class Ear implements CallListener {
  readonly heard: string[] = [];
  body = "";
  call: Call | null = null;
  readonly over: Promise<void>;
  #isOver!: () => void;
  readonly #react: (what: string, ear: Ear) => void;

  constructor(react: (what: string, ear: Ear) => void = () => {}) {
    this.#react = react;
    this.over = new Promise((resolve) => {
      this.#isOver = resolve;
    });
  }

  /** All that was heard, pieces of a body as one. */
  get story(): string {
    return this.heard.filter((what, i) => what !== "data" || this.heard[i - 1] !== "data").join(" ");
  }

  onHead({ status }: AnswerHead): void {
    this.#hear(String(status));
  }

  onData(chunk: Buffer): void {
    this.body += chunk.toString("latin1");
    this.#hear("data");
  }

  onEnd(): void {
    this.#hear("end");
    this.#isOver();
  }

  onFailure(error: Error): void {
    this.#hear(`failure: ${error.message}`);
    this.#isOver();
  }

  #hear(what: string): void {
    this.heard.push(what);
    this.#react(what, this);
  }
}

/** A pool that is closed with the test. */
export function poolTo(url: URL, connectMs = 10_000): ConnectionPool {
  const pool = new ConnectionPool(url, connectMs);
  onTestFinished(() => pool.destroy());
  return pool;
}

/** Sends a request; the listener knows its call. */
export function send(pool: ConnectionPool, ear: Ear, body = "{}"): Ear {
  const bytes = Buffer.from(body, "latin1");
  const call = new Call(bytes, ear);
  call.head = requestHead("POST", "/", "host", [], bytes.length);
  ear.call = call;
  pool.dispatch(call);
  return ear;
}

/** Sends one, and resolves when it is over. */
export async function ask(pool: ConnectionPool, body?: string): Promise<Ear> {
  const ear = send(pool, new Ear(), body);
  await ear.over;
  return ear;
}
