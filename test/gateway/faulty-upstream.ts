// An upstream that goes wrong in one way: raw sockets, so that it can do what no HTTP server would.
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { onTestFinished } from "vitest";
import { type Answer, APIS, goodAnswer } from "./apis.js";
import { until } from "./fixture.js";

/** Answers one request, or does not. What it has resolved after is all that will come. */
export type Fault = (wire: Wire) => Promise<void> | void;

/** How much of an answer has come to its client, who keeps count. */
export interface Seen {
  head: boolean;
  bytes: number;
}

/** A POST as it came, and what became of its connection. */
export interface Received {
  readonly path: string;
  readonly body: Buffer;
  /** Whether all has been said that will be. */
  isSaid: boolean;
  /** The bytes of the answer's body that were sent. */
  readonly sent: Buffer[];
  /** Who was the first to end the connection. */
  endedBy: "gateway" | "upstream" | null;
  /** Whether the connection is closed in both directions. */
  isClosed: boolean;
}

/** The upstream's end of a connection, while a request is answered there. */
export class Wire {
  readonly answer: Answer;
  readonly #received: Received;
  readonly #socket: Socket;
  readonly #seen: Seen;

  constructor(socket: Socket, received: Received, seen: Seen) {
    const api = APIS.find(({ path }) => path === received.path)!;
    this.answer = goodAnswer(api, JSON.parse(received.body.toString()).stream === true);
    this.#received = received;
    this.#socket = socket;
    this.#seen = seen;
  }

  /** The answer's first half; it ends in the middle of a character. */
  get half(): Buffer {
    const { body } = this.answer;
    return body.subarray(0, body.indexOf("€") + 1);
  }

  /** The line of a head that says how long the answer is. */
  get length(): string {
    return `content-length: ${this.answer.body.length}`;
  }

  /** Sends bytes that are no part of a body. Resolves when they have left, or when the connection is gone. */
  async raw(bytes: string | Buffer): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.write(bytes, () => resolve()));
    // Some turns of the loop, in which a gateway in this process reads them. For what has been read at the client see `arrived`.
    for (let i = 0; i < 3; i++) await turn();
  }

  /** Sends a head with these further lines. */
  head(...lines: string[]): Promise<void> {
    return this.raw(["HTTP/1.1 200 OK", `content-type: ${this.answer.type}`, ...lines, "", ""].join("\r\n"));
  }

  /** Sends bytes of a body. */
  body(bytes: Buffer): Promise<void> {
    this.#received.sent.push(bytes);
    return this.raw(bytes);
  }

  /** Sends bytes of a body as a chunk. */
  chunk(bytes: Buffer): Promise<void> {
    this.#received.sent.push(bytes);
    return this.raw(chunk(bytes));
  }

  /** Sends half of the answer as a part of a chunk that would be the whole of it. */
  async halfAChunk(): Promise<void> {
    await this.raw(`${this.answer.body.length.toString(16)}\r\n`);
    await this.body(this.half);
  }

  /** Sends a head, and waits until the client has it; then the same with a part of the body. */
  async begin(framing: string, sendPart: () => Promise<void> = async () => {}): Promise<void> {
    await this.head(framing);
    await this.arrived();
    await sendPart();
    await this.arrived();
  }

  /** Sends the whole answer as it should be. */
  async answerWell(): Promise<void> {
    await this.head(this.length);
    await this.body(this.answer.body);
  }

  /** Sends an error under a head that says 200, as engines do in streams. */
  async answerError(): Promise<void> {
    const error = '{"error":{"message":"out of blocks","type":"server_error","code":503}}';
    const isStream = this.answer.type.startsWith("text/event-stream");
    const body = Buffer.from(isStream ? `data: ${error}\n\n` : error);
    await this.head(`content-length: ${body.length}`);
    await this.body(body);
  }

  /** Sends the head of an answer that goes to the end of the connection, as servers of HTTP/1.0 do. */
  oldHead(): Promise<void> {
    return this.raw(`HTTP/1.0 200 OK\r\ncontent-type: ${this.answer.type}\r\n\r\n`);
  }

  /** Sends the whole answer in chunks, a byte at a time. */
  async drip(): Promise<void> {
    const { type, body } = this.answer;
    this.#received.sent.push(body);
    const head = Buffer.from(
      `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`,
    );
    for (const byte of Buffer.concat([head, chunk(body), Buffer.from("0\r\n\r\n")]))
      await this.raw(Buffer.of(byte));
  }

  /** Sends the answer over and over, `size` bytes in all, as fast as the socket takes them. */
  async flood(size: number): Promise<void> {
    const { body } = this.answer;
    const block = Buffer.concat(Array(Math.ceil(262_144 / body.length)).fill(body));
    for (let left = size; left > 0 && !this.#received.isClosed; left -= block.length) {
      const part = block.subarray(0, left);
      this.#received.sent.push(part);
      await new Promise<void>((resolve) => this.#socket.write(part, () => resolve()));
    }
  }

  /** Resolves when the client has the head and all of the body that was sent. */
  async arrived(): Promise<void> {
    const size = this.#received.sent.reduce((sum, { length }) => sum + length, 0);
    await until(() => this.#seen.head && this.#seen.bytes >= size);
  }

  /** Ends the connection with an RST. */
  reset(): void {
    this.#end();
    this.#socket.resetAndDestroy();
  }

  /** Ends the connection with a FIN, and listens no longer. */
  close(): void {
    this.#end();
    this.#socket.destroySoon();
  }

  /** Sends a FIN, and listens on until the gateway ends its half. */
  halfClose(): void {
    this.#end();
    this.#socket.end();
  }

  #end(): void {
    this.#received.endedBy ??= "upstream";
  }
}

function chunk(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

/** The line of a head that says that the body comes in chunks. */
export const CHUNKED = "transfer-encoding: chunked";

/** A running upstream. */
export class FaultyUpstream {
  readonly requests: Received[] = [];
  /** For the client of the latest request to fill in. */
  seen: Seen = { head: false, bytes: 0 };
  readonly #fault: Fault;
  readonly #model: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(fault: Fault, model: string) {
    this.#fault = fault;
    this.#model = model;
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Connections that are open. */
  get open(): number {
    return this.#sockets.size;
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
  }

  /** Stops listening and ends its connections; resolves when the gateway has noticed. */
  async leave(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.end();
    await until(() => this.open === 0);
  }

  /** Stops at once, whatever is under way. */
  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    const own: Received[] = [];
    const ended = (): void => {
      for (const received of own) received.endedBy ??= "gateway";
      socket.end();
    };
    socket.on("error", ended);
    socket.on("end", ended);
    socket.on("close", () => {
      this.#sockets.delete(socket);
      for (const received of own) received.isClosed = true;
    });
    let input: Buffer = Buffer.alloc(0);
    socket.on("data", (bytes: Buffer) => {
      input = Buffer.concat([input, bytes]);
      for (let request = readRequest(input); request; request = readRequest(input)) {
        input = input.subarray(request.size);
        if (request.method === "GET") this.#listModels(socket);
        else this.#answer(socket, own, request);
      }
    });
  }

  #listModels(socket: Socket): void {
    const list = JSON.stringify({ object: "list", data: [{ id: this.#model, object: "model" }] });
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${list.length}\r\n\r\n${list}`);
  }

  #answer(socket: Socket, own: Received[], { path, body }: Request): void {
    const received: Received = { path, body, isSaid: false, sent: [], endedBy: null, isClosed: false };
    own.push(received);
    this.requests.push(received);
    const wire = new Wire(socket, received, this.seen);
    const say = this.requests.length === 1 ? this.#fault : () => wire.answerWell();
    void Promise.resolve(say(wire)).then(() => {
      received.isSaid = true;
    });
  }
}

interface Request {
  readonly method: string;
  readonly path: string;
  readonly body: Buffer;
  /** Bytes of all of it. */
  readonly size: number;
}

/** The request that the bytes begin with, null where it is not whole yet. */
function readRequest(input: Buffer): Request | null {
  const end = input.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const head = input.toString("latin1", 0, end);
  const [method = "", path = ""] = head.split(" ");
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
  const size = end + 4 + length;
  return input.length < size ? null : { method, path, body: input.subarray(end + 4, size), size };
}

/** Starts an upstream that lists `model`, answers its first POST by `fault`, and all later ones well. */
export async function faultyUpstream(fault: Fault, model = "m"): Promise<FaultyUpstream> {
  const upstream = new FaultyUpstream(fault, model);
  await upstream.listen();
  onTestFinished(() => upstream.stop());
  return upstream;
}
