// The HTTP server below the routes: how many requests of a connection are under way, and what is no request to any route.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Pipelines, readOn } from "./pipeline.js";
import { discardBody } from "./upload.js";

/** What the gateway does with its connections itself. */
export interface Door {
  readonly pipelines: Pipelines;
  /** What its own requests say of who sends them. */
  readonly via: string;
  /** Refuses a request that it has sent itself. */
  readonly onLoop: (request: IncomingMessage, response: ServerResponse) => void;
}

/** Node's server, every answer of which waits in its connection's pipeline as one of a limited number. */
export function createHttp(
  { pipelines, via, onLoop }: Door,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  const options = {
    ...{ keepAliveTimeout: 75_000, headersTimeout: 60_000, requestTimeout: 0 },
    // What Node itself refuses it does not count.
    requireHostHeader: false,
  };
  const server = createServer(options, (request, response) => {
    if (!pipelines.admits(request, response)) return;
    if (request.headers.host === undefined && request.httpVersionMinor === 1) sendBare(response, 400);
    else if (request.headers.via?.includes(via)) onLoop(request, response);
    else handle(request, response);
  });
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    if (pipelines.admits(request, response)) sendBare(response, 417);
  });
  return server.on("connection", readOn);
}

/** Answers as Node does what is no request to any route. */
function sendBare(response: ServerResponse, status: 400 | 417): void {
  discardBody(response);
  if (status === 400) response.shouldKeepAlive = false;
  response.writeHead(status).end();
}

const GARBAGE_STATUS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};

/** Answers what is no HTTP, and closes the connection; never into an answer under way, as Fastify's own handler does. */
export function answerGarbage(pipelines: Pipelines, error: Error & { code?: string }, socket: Socket): void {
  // The rest of what was read last may be the half of a head, which Node waits for in vain.
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT" && pipelines.isClosed(socket)) return;
  // As Node does where nobody handles it.
  const { _httpMessage: answer } = socket as Socket & { _httpMessage?: ServerResponse | null };
  if (socket.writable && !answer?.headersSent && error.code !== "ECONNRESET") {
    const status = GARBAGE_STATUS[error.code ?? ""] ?? "400 Bad Request";
    socket.write(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
  }
  socket.destroy();
}
