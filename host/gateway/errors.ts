// What a client is told when the gateway itself answers: in the error shape of the endpoint it called.

import { type ServerResponse, STATUS_CODES } from "node:http";

/** Whose error shapes an endpoint has; OpenAI's Responses API has one of its own in streams. */
export type ErrorStyle = "openai" | "responses" | "anthropic";

/** An answer of the gateway's own. */
export interface GatewayError {
  readonly status: number;
  /** Machine-readable, in OpenAI's shape. */
  readonly code: string;
  readonly message: string;
  /** Whole seconds after which it may be tried again; 1 for a 503 that does not say. */
  readonly retryAfter?: number | undefined;
}

/** In whose shape to tell an error of a request that may be to none of the endpoints, by its target. */
export function styleOf(url: string): ErrorStyle {
  return url.startsWith("/v1/messages") ? "anthropic" : "openai";
}

const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
};

/** Of the statuses from 500 on the one by which a server says that it does not know what the client asks of it. */
const CLIENTS_CODE = "transfer_coding_unknown";

/** Whether it is the client that has to change something. */
export function isClientsFault({ status, code }: GatewayError): boolean {
  return status < 500 || code === CLIENTS_CODE;
}

/** The JSON text of an error. */
export function errorBody(style: ErrorStyle, error: GatewayError): string {
  const { status, code, message } = error;
  if (style === "anthropic") {
    const otherwise = isClientsFault(error) ? "invalid_request_error" : "api_error";
    return JSON.stringify({
      type: "error",
      error: { type: ANTHROPIC_TYPES[status] ?? otherwise, message },
    });
  }
  const otherwise = isClientsFault(error) ? "invalid_request_error" : "server_error";
  const type = status === 429 ? "rate_limit_error" : otherwise;
  return JSON.stringify({ error: { message, type, param: null, code } });
}

/**
 * The event by which a stream that has begun ends in an error. `answerId` is the id of a Responses API's answer, where it is
 * known: its clients look for the end of that answer, and pass over events that they do not know.
 */
export function errorEvent(style: ErrorStyle, error: GatewayError, answerId: string | undefined): string {
  switch (style) {
    case "openai":
      return `data: ${errorBody(style, error)}\n\n`;
    case "anthropic":
      return `event: error\ndata: ${errorBody(style, error)}\n\n`;
    case "responses": {
      const failure = { code: "server_error", message: error.message };
      const response = {
        id: answerId ?? null,
        object: "response",
        status: "failed",
        error: failure,
        output: [],
      };
      return `event: response.failed\ndata: ${JSON.stringify({ type: "response.failed", response })}\n\n`;
    }
  }
}

/** The headers by which an error says what to do about it. */
export function errorHeaders({
  status,
  retryAfter = status === 503 ? 1 : undefined,
}: GatewayError): Record<string, string> {
  return {
    ...(status === 401 && { "www-authenticate": "Bearer" }),
    ...(retryAfter !== undefined && { "retry-after": String(retryAfter) }),
  };
}

/** Sends an error as the whole answer, unless an answer has begun or the client is gone. */
export function sendError(response: ServerResponse, style: ErrorStyle, error: GatewayError): void {
  if (response.headersSent || response.destroyed) return;
  const body = errorBody(style, error);
  response.writeHead(error.status, STATUS_CODES[error.status], {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    ...errorHeaders(error),
  });
  response.end(body);
}
