// A bare HTTP client for tests that look at bytes, order and broken connections.
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Posts and reads the whole answer; rejects where the connection breaks. */
export async function post(
  url: string,
  body: string | Buffer | object,
  headers: Record<string, string> = {},
): Promise<Reply> {
  const message = await open(url, body, headers);
  return { status: message.statusCode!, headers: message.headers, body: await text(message) };
}

/** Posts and resolves at the head of the answer. */
export function open(
  url: string,
  body: string | Buffer | object,
  headers: Record<string, string> = {},
): Promise<IncomingMessage> {
  const bytes = typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const sent = request(url, {
      method: "POST",
      headers: { "content-type": "application/json", "content-length": Buffer.byteLength(bytes), ...headers },
    });
    sent.on("response", resolve);
    sent.on("error", reject);
    sent.end(bytes);
  });
}

/** The rest of an answer; rejects where it breaks off. */
export async function text(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** Gets a JSON answer. */
export async function get(url: string): Promise<{ status: number; body: unknown }> {
  const response = await fetch(url);
  return { status: response.status, body: await response.json() };
}
