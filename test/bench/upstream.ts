// The bench's upstream in Node, for want of a C compiler for stub.c: on every port it answers each POST, once its whole body
// is there, with the same 500 bytes, or with a stream of events at a steady pace where a header asks for one, and each GET
// with a list of models. Takes how many ports, and prints them, a line each.

import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { EVENT_MS, EVENTS_HEADER } from "./wire.js";

const ANSWER = Buffer.from(JSON.stringify({ id: "x", object: "chat.completion", filler: "y".repeat(450) }));
const MODELS = Buffer.from(JSON.stringify({ object: "list", data: [{ id: "m", object: "model" }] }));
const EVENT = `data: ${JSON.stringify({ id: "x", choices: [{ index: 0, delta: { content: "token" } }] })}\n\n`;

function answer(response: ServerResponse, body: Buffer): void {
  response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}

function stream(response: ServerResponse, events: number): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(EVENT);
  let left = events - 1;
  if (left === 0) {
    response.end();
    return;
  }
  const timer = setInterval(() => {
    response.write(EVENT);
    if (--left > 0) return;
    clearInterval(timer);
    response.end();
  }, EVENT_MS);
  response.on("close", () => clearInterval(timer));
}

function listen(): void {
  const server = createServer((request, response) => {
    if (request.method === "GET") {
      answer(response, MODELS);
      return;
    }
    const events = Number(request.headers[EVENTS_HEADER] ?? 0);
    request.resume().on("end", () => (events > 0 ? stream(response, events) : answer(response, ANSWER)));
  });
  server.keepAliveTimeout = 75_000;
  server.listen(0, "127.0.0.1", 4_096, () =>
    process.stdout.write(`${(server.address() as AddressInfo).port}\n`),
  );
}

for (let ports = Number(process.argv[2]); ports > 0; ports--) listen();
