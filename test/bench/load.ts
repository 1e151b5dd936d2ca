// The load generator: carries out one order after another, as they come from its parent process.

import { setTimeout } from "node:timers/promises";
import { Pool } from "undici";
import { EVENTS_HEADER, type Order, type Outcome } from "./wire.js";

const SESSIONS = 64;
const EVENT_END = Buffer.from("\n\n");

/** A chat request of about `bytes` bytes, in messages of a kilobyte. */
function chatBody(bytes: number, stream: boolean): Buffer {
  const messages: { role: string; content: string }[] = [];
  const text = 'The quick brown fox jumps over the lazy dog, said "Hawser".\n'.repeat(16);
  for (let left = bytes - 40; left > 0; left -= 1_060) {
    messages.push({
      role: messages.length % 2 ? "assistant" : "user",
      content: text.slice(0, Math.max(8, left - 60)),
    });
  }
  return Buffer.from(JSON.stringify({ model: "m", stream, messages }));
}

function countEvents(chunk: Buffer): number {
  let count = 0;
  for (let at = chunk.indexOf(EVENT_END); at >= 0; at = chunk.indexOf(EVENT_END, at + 2)) count++;
  return count;
}

async function carryOut({ origin, requests, connections, bytes, events, spreadMs }: Order): Promise<Outcome> {
  const pool = new Pool(origin, { connections, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
  const body = chatBody(bytes, events > 0);
  const latencies: number[] = [];
  let [sent, seen] = [0, 0];
  const post = (): Promise<void> => {
    const session = String(sent++ % SESSIONS);
    const headers = {
      "content-type": "application/json",
      "x-session-id": session,
      [EVENTS_HEADER]: String(events),
    };
    const start = performance.now();
    return new Promise((resolve, reject) => {
      pool.dispatch(
        { method: "POST", path: "/v1/chat/completions", headers, body },
        {
          // Without it undici takes the handler for one of its older kind.
          onRequestStart() {},
          onResponseStart(_controller, status) {
            if (status !== 200) reject(new Error(`status ${status}`));
            if (events > 0) latencies.push(performance.now() - start);
          },
          onResponseData(_controller, chunk) {
            if (events > 0) seen += countEvents(chunk);
          },
          onResponseEnd() {
            if (events === 0) latencies.push(performance.now() - start);
            resolve();
          },
          onResponseError(_controller, error) {
            reject(error);
          },
        },
      );
    });
  };
  const line = async (index: number): Promise<void> => {
    await setTimeout((spreadMs * index) / connections);
    while (sent < requests) await post();
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: connections }, (_, index) => line(index)));
  const seconds = (performance.now() - start) / 1000;
  await pool.close();
  return { seconds, latencies, events: seen };
}

process.on("message", (order: Order) => void carryOut(order).then((outcome) => process.send!(outcome)));
