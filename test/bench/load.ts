// The load generator in Node, for want of native ones: carries out one order after another, as they come from its parent.

import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { type Dispatcher, Pool } from "undici";
import { quantile } from "./stats.js";
import {
  EVENTS_HEADER,
  PATH,
  type RequestOrder,
  type RequestOutcome,
  SESSIONS,
  type StreamOrder,
  type StreamOutcome,
} from "./wire.js";

const EVENT_END = Buffer.from("\n\n");

function countEvents(chunk: Buffer): number {
  let count = 0;
  for (let at = chunk.indexOf(EVENT_END); at >= 0; at = chunk.indexOf(EVENT_END, at + 2)) count++;
  return count;
}

/** What became of one request: milliseconds to the first byte of its body and to its end, and events that arrived. */
interface Answer {
  readonly firstMs: number;
  readonly allMs: number;
  readonly events: number;
}

/** Sends one request under a session. Rejects for another status than 200 and for a broken answer. */
function post(pool: Pool, body: Buffer, session: number, events: number): Promise<Answer> {
  const headers = { "content-type": "application/json", "x-session-id": String(session % SESSIONS) };
  const start = performance.now();
  let firstMs = 0;
  let seen = 0;
  return new Promise((resolve, reject) => {
    const handler: Dispatcher.DispatchHandler = {
      // Without it undici takes the handler for one of its older kind.
      onRequestStart() {},
      onResponseStart(_controller, status) {
        if (status !== 200) reject(new Error(`status ${status}`));
      },
      onResponseData(_controller, chunk) {
        firstMs ||= performance.now() - start;
        if (events > 0) seen += countEvents(chunk);
      },
      onResponseEnd: () => resolve({ firstMs, allMs: performance.now() - start, events: seen }),
      onResponseError: (_controller, error) => reject(error),
    };
    const asked = events > 0 ? { ...headers, [EVENTS_HEADER]: String(events) } : headers;
    pool.dispatch({ method: "POST", path: PATH, headers: asked, body }, handler);
  });
}

async function carryOut(order: RequestOrder | StreamOrder): Promise<RequestOutcome | StreamOutcome> {
  const { port, connections } = order;
  const pool = new Pool(`http://127.0.0.1:${port}`, {
    ...{ connections, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 },
  });
  const cpu = process.cpuUsage();
  const start = performance.now();
  const answers =
    order.kind === "requests" ? await postFor(pool, order, start) : await postStreams(pool, order);
  const seconds = (performance.now() - start) / 1000;
  const used = process.cpuUsage(cpu);
  await pool.close();
  const common = { seconds, cpu: used.user + used.system };
  if (order.kind === "streams") {
    const events = answers.reduce((sum, answer) => sum + answer.events, 0);
    return { ...common, events, latencies: answers.map(({ firstMs }) => firstMs) };
  }
  const times = answers.map(({ allMs }) => allMs);
  return { ...common, requests: times.length, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
}

async function postFor(
  pool: Pool,
  { connections, seconds, body: file }: RequestOrder,
  start: number,
): Promise<Answer[]> {
  const body = readFileSync(file);
  const answers: Answer[] = [];
  const line = async (): Promise<void> => {
    for (let sent = 0; sent === 0 || performance.now() < start + seconds * 1000; sent++)
      answers.push(await post(pool, body, answers.length, 0));
  };
  await Promise.all(Array.from({ length: connections }, line));
  return answers;
}

async function postStreams(pool: Pool, order: StreamOrder): Promise<Answer[]> {
  const body = readFileSync(order.body);
  const answers: Answer[] = [];
  const line = async (index: number): Promise<void> => {
    await setTimeout((order.spreadMs * index) / order.connections);
    for (let i = 0; i < order.each; i++) {
      if (i > 0) await setTimeout(order.pauseMs);
      answers.push(await post(pool, body, index, order.events));
    }
  };
  await Promise.all(Array.from({ length: order.connections }, (_, index) => line(index)));
  return answers;
}

process.on("message", (order: RequestOrder | StreamOrder) => {
  void carryOut(order).then((outcome) => process.send!(outcome));
});
