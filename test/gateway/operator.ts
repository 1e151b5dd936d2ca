// What an operator asks of a gateway in a test.
import { request } from "node:http";
import { text } from "./client.js";

/** An answer of the admin listener. */
export interface Answered {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON
  readonly body: any;
}

/** Calls the admin listener at `admin`; the path goes out as it is given, a body as JSON unless it is a text. */
export function call(
  admin: string,
  method: string,
  path: string,
  body?: string | object,
  headers: Record<string, string> = {},
): Promise<Answered> {
  const bytes = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const { hostname, port } = new URL(admin);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, method, path, headers: { connection: "close", ...headers } });
    sent.on("error", reject);
    sent.on("response", async (message) => {
      try {
        resolve({ status: message.statusCode!, body: JSON.parse(await text(message)) });
      } catch (error) {
        reject(error as Error);
      }
    });
    sent.end(bytes);
  });
}

/** What is shown of a worker. */
export async function shown(admin: string, id: string): Promise<Answered["body"]> {
  return (await call(admin, "GET", `/admin/workers/${encodeURIComponent(id)}`)).body;
}
