// A connection to the gateway on which a test sees every byte.
import { connect, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { until } from "./fixture.js";

export const CHAT = "/v1/chat/completions";
/** The smallest body of a request that is proxied. */
export const BODY = '{"model":"m"}';

export interface Answer {
  readonly status: number;
  /** Lower case, as they came. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
}

/** A connection to the gateway. */
export class Wire {
  readonly socket: Socket;
  /** What came, one character a byte. */
  text = "";
  /** How the connection ended: by a FIN, or the code of an error. */
  end: string | undefined;

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    // A client that does not answer a FIN by its own: what comes behind it would be seen.
    this.socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    this.socket.setEncoding("latin1");
    this.socket.on("data", (chunk: string) => {
      this.text += chunk;
    });
    this.socket.on("end", () => {
      this.end ??= "FIN";
    });
    this.socket.on("error", (error: NodeJS.ErrnoException) => {
      this.end ??= error.code!;
    });
    onTestFinished(() => void this.socket.destroy());
  }

  send(text: string): void {
    this.socket.write(text, "latin1");
  }

  /** Resolves to the first `count` answers, interim ones not counted, when they are whole or the connection has ended. */
  async answers(count: number): Promise<readonly Answer[]> {
    await until(() => parse(this.text).answers.length >= count || this.end !== undefined);
    return parse(this.text).answers;
  }

  async statuses(count: number): Promise<number[]> {
    return (await this.answers(count)).map(({ status }) => status);
  }
}

/** Splits what came into answers, none of them to HEAD; `rest` is what is not whole. */
function parse(text: string): { answers: readonly Answer[]; rest: string } {
  const answers: Answer[] = [];
  let rest = text;
  for (;;) {
    const split = rest.indexOf("\r\n\r\n");
    if (split < 0) return { answers, rest };
    const [line, ...lines] = rest.slice(0, split).split("\r\n");
    const status = Number(/^HTTP\/1\.1 (\d{3})( |$)/.exec(line!)?.[1]);
    const headers = lines.map((each) => {
      const colon = each.indexOf(":");
      return [each.slice(0, colon).toLowerCase(), each.slice(colon + 1).trim()] as const;
    });
    const after = rest.slice(split + 4);
    const body = bodyOf(status, new Map(headers), after);
    if (!body) return { answers, rest };
    if (status >= 200) answers.push({ status, headers, body: body[0] });
    rest = after.slice(body[1]);
  }
}

/** A body and how many bytes it took; null where it is not whole. */
function bodyOf(status: number, headers: Map<string, string>, text: string): [string, number] | null {
  if (status < 200 || status === 204 || status === 304) return ["", 0];
  if (headers.get("transfer-encoding") !== "chunked") {
    const length = Number(headers.get("content-length"));
    return text.length < length ? null : [text.slice(0, length), length];
  }
  let body = "";
  for (let at = 0; ; ) {
    const line = /^([0-9a-f]+)\r\n/i.exec(text.slice(at, at + 12));
    if (!line) return null;
    const size = Number.parseInt(line[1]!, 16);
    at += line[0].length;
    if (text.length < at + size + 2) return null;
    body += text.slice(at, at + size);
    at += size + 2;
    if (size === 0) return [body, at];
  }
}

export function headersOf(answer: Answer | undefined, name: string): string[] {
  return answer!.headers.filter(([each]) => each === name).map(([, value]) => value);
}

/** A POST with a body. */
export function post(body: string, lines: readonly string[] = [], path = CHAT): string {
  return request(path, [...lines, `content-length: ${Buffer.byteLength(body)}`], body);
}

/** A POST with these lines in its head. */
export function request(path: string, lines: readonly string[], body = ""): string {
  return [`POST ${path} HTTP/1.1`, "host: x", ...lines, "", body].join("\r\n");
}
