// A worker that a test tells how to answer what it is asked at intervals.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { stop } from "./fixture.js";

/** Answers a question: with a status and a text, or not at all. */
export type Page = readonly [status: number, text: string] | "silence";

export const MODELS: Page = [200, '{"object":"list","data":[{"id":"m"}]}'];
export const WELL: Page = [200, ""];
export const ILL: Page = [500, "out of memory"];
const UNKNOWN: Page = [404, ""];

/** What vLLM shows of its engine. */
export function metrics(values: Readonly<Record<string, number>>): Page {
  const lines = Object.entries(values).map(([name, value]) => `vllm:${name}{model_name="m"} ${value}\n`);
  return [200, lines.join("")];
}

/** A POST, its body read. */
export interface Posted {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

export class Probed {
  /** By path; anything else is a 404. */
  readonly pages: Record<string, Page> = { "/health": WELL, "/v1/models": MODELS };
  /** The paths that were asked for, in that order. */
  readonly asked: string[] = [];
  /** The POSTs that came, in that order. */
  readonly posted: Posted[] = [];
  /** Hears of each question before it is answered. */
  onAsked: (path: string) => void = () => {};
  /** What becomes of a POST. */
  onPost: (posted: Posted) => void = ({ response }) => void response.end("{}");
  readonly server: Server;
  url = "";

  constructor() {
    this.server = createServer((request, response) => {
      if (request.method === "GET") this.#answer(request.url!, response);
      else {
        const posted = { request, response };
        request.resume().on("end", () => {
          this.posted.push(posted);
          this.onPost(posted);
        });
      }
    });
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  #answer(path: string, response: ServerResponse): void {
    this.asked.push(path);
    this.onAsked(path);
    const page = this.pages[path] ?? UNKNOWN;
    if (page !== "silence") response.writeHead(page[0]).end(page[1]);
  }
}

/** Starts one, until the test ends. */
export async function probed(port = 0, host = "127.0.0.1"): Promise<Probed> {
  const self = new Probed();
  await new Promise<void>((resolve, reject) => {
    self.server.on("error", reject).listen(port, host, resolve);
  });
  self.url = `http://${host}:${(self.server.address() as AddressInfo).port}`;
  onTestFinished(() => stop(self.server));
  return self;
}
