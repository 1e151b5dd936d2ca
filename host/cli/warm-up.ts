// Before the first client comes: made-up requests through a gateway of its own, to a worker of its own, so that V8 has
// compiled the way that requests take. Without it the first two hundred streams wait for their first byte half a second.

import { Agent, createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import type { Config } from "../config/config.js";
import { createGateway } from "../gateway/server.js";
import { Router } from "../routing/router.js";
import { RequestReader } from "../session/request-reader.js";

/** Milliseconds that the start takes longer. */
const DURATION_MS = 400;
const PARALLEL = 32;
const SESSIONS = 64;

const EVENT = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "token" } }] })}\n\n`;
const BODY = JSON.stringify({
  model: "warm-up",
  stream: true,
  messages: [{ role: "user", content: "The quick brown fox jumps over the lazy dog. ".repeat(40) }],
});

/** Runs requests through the policy and the settings of a config for a moment; resolves to how many were served. */
export async function warmUp({ policy, session, dataPlane, fleet, admission }: Config): Promise<number> {
  const worker = await listening();
  const url = `http://127.0.0.1:${portOf(worker)}`;
  const router = new Router({ instance: policy, session, clock: () => performance.now(), seed: 0 });
  const gateway = createGateway({
    ...{ router, log: pino({ level: "silent" }), dataPlane, fleet, admission },
    reader: new RequestReader(session),
    workers: ["a", "b"].map((id) => ({ id, url, models: ["warm-up"] })),
  });
  const agent = new Agent({ keepAlive: true, maxSockets: PARALLEL });
  try {
    const target = `${await gateway.listen("127.0.0.1", 0)}/v1/chat/completions`;
    const end = performance.now() + DURATION_MS;
    const lines = Array.from({ length: PARALLEL }, (_, line) => askUntil(end, target, agent, line));
    return (await Promise.all(lines)).reduce((sum, served) => sum + served, 0);
  } finally {
    agent.destroy();
    await gateway.close();
    worker.close();
    worker.closeAllConnections();
  }
}

async function listening(): Promise<Server> {
  const server = createServer((incoming, response) => {
    if (incoming.method === "GET") {
      response.end('{"data":[]}');
      return;
    }
    incoming.resume().on("end", () => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(EVENT);
      setImmediate(() => response.end(`${EVENT}data: [DONE]\n\n`));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

async function askUntil(end: number, url: string, agent: Agent, line: number): Promise<number> {
  let served = 0;
  for (let i = line; performance.now() < end; i += PARALLEL)
    if (await ask(url, agent, String(i % SESSIONS))) served++;
  return served;
}

/** Resolves when the answer is over, to whether it was one: to warm up is no test. */
function ask(url: string, agent: Agent, session: string): Promise<boolean> {
  return new Promise((resolve) => {
    const headers = { "content-type": "application/json", "x-session-id": session };
    const sent = request(url, { method: "POST", agent, headers }, (response) => {
      response.resume().on("close", () => resolve(response.complete && response.statusCode === 200));
    });
    sent.on("error", () => resolve(false));
    sent.end(BODY);
  });
}
