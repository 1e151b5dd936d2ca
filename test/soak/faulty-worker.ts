// A worker that answers every other request as it should, and goes wrong in some way with the rest.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { onTestFinished } from "vitest";
import { errorBody, errorEvent } from "../../host/gateway/errors.js";
import { ResponseStore } from "../../host/worker/response-store.js";
import { ApiError, type Call, type Turn } from "../../host/worker/wire.js";
import type { Dice } from "../fixtures/dice.js";
import { APIS, type Api } from "./apis.js";
import { MODEL, wordsOf } from "./request.js";

/** What it says where a stream begins with an error of its own. */
export const WORKERS_ERROR = "out of blocks";
/** Longest that a part of an answer takes: as long as answers of good workers, or all requests would come here. */
const LONGEST_STEP_MS = 4_000;
/** More than the gateway holds for a reader that makes a pause, the system's own buffers included. */
const FLOOD_BYTES = 8 * 2 ** 20;

/** A request that is to be answered. */
interface Wire {
  readonly api: Api;
  readonly response: ServerResponse;
  readonly isStream: boolean;
  /** The right answer. */
  readonly answer: Buffer;
  /** Lets some time pass. */
  readonly pause: () => Promise<void>;
}

type Deed = (wire: Wire) => Promise<void> | void;

const good: Deed = async (wire) => {
  await half(wire);
  wire.response.end(rest(wire));
};

const FAULTS: readonly Deed[] = [
  (wire) => void wire.response.socket?.resetAndDestroy(),
  (wire) => void wire.response.socket?.destroySoon(),
  (wire) => void wire.response.socket?.end("SSH-2.0-OpenSSH_9.6\r\n"),
  (wire) => refuse(wire, 503, { "retry-after": "1" }),
  (wire) => refuse(wire, 429, { "retry-after": "2" }),
  (wire) => refuse(wire, 500, {}),
  // Silent for ever.
  () => {},
  async (wire) => half(wire),
  async (wire) => {
    await half(wire);
    wire.response.socket?.resetAndDestroy();
  },
  async (wire) => {
    await half(wire);
    wire.response.socket?.end("no chunk\r\n\r\n");
  },
  async (wire) => {
    wire.response.setHeader("content-length", wire.answer.length);
    await half(wire);
    wire.response.socket?.end();
  },
  (wire) => {
    if (!wire.isStream) return good(wire);
    begin(wire);
    const error = { status: 503, code: "overloaded", message: WORKERS_ERROR };
    wire.response.end(errorEvent(wire.api.style, error, "resp_failed"));
  },
  (wire) => {
    begin(wire);
    if (wire.isStream) wire.response.write(`: ${"flood ".repeat(FLOOD_BYTES / 6)}\n\n`);
    wire.response.end(wire.answer);
  },
];

function begin({ response, isStream }: Wire): void {
  response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
}

async function half(wire: Wire): Promise<void> {
  begin(wire);
  wire.response.write(wire.answer.subarray(0, wire.answer.length / 2));
  await wire.pause();
}

function rest({ answer }: Wire): Buffer {
  return answer.subarray(answer.length / 2);
}

function refuse({ api, response }: Wire, status: number, headers: Record<string, string>): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(errorBody(api.style, { status, code: "faulty", message: "not now" }));
}

/** A running one. */
export class FaultyWorker {
  readonly #dice: Dice;
  readonly #server: Server;
  #open = 0;

  constructor(dice: Dice) {
    this.#dice = dice;
    this.#server = createServer((request, response) => {
      if (request.method === "GET") this.#listModels(response);
      else void this.#post(request, response);
    });
  }

  /** Starts it; it is stopped when the test ends. Resolves to its address. */
  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => {
      this.#server.close();
      this.#server.closeAllConnections();
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Requests under way. */
  get open(): number {
    return this.#open;
  }

  #listModels(response: ServerResponse): void {
    if (this.#dice.upTo(9) === 0) response.statusCode = 500;
    response.end(JSON.stringify({ object: "list", data: [{ id: MODEL, object: "model" }] }));
  }

  async #post(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#open++;
    response.on("close", () => this.#open--).on("error", () => {});
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    const deed = this.#dice.upTo(1) === 0 ? good : FAULTS[this.#dice.upTo(FAULTS.length - 1)]!;
    const pause = () => sleep(this.#dice.upTo(LONGEST_STEP_MS));
    await pause();
    await answer(request, response, Buffer.concat(chunks), deed, pause);
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  body: Buffer,
  deed: Deed,
  pause: () => Promise<void>,
): Promise<void> {
  const api = APIS.find(({ path }) => path === request.url)!;
  try {
    const identity = { id: "faulty", created: 0, model: MODEL };
    const call = api.call(JSON.parse(body.toString()), identity, new ResponseStore());
    await deed({ api, response, isStream: call.stream !== undefined, answer: render(call), pause });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    response.writeHead(error.status, { "content-type": "application/json" });
    response.end(errorBody(api.style, { status: error.status, code: "unknown", message: error.message }));
  }
}

/** All of an answer, as a simulated worker gives it bit by bit. */
function render(call: Call): Buffer {
  const words = wordsOf(call);
  const text = words.join("");
  const counts = { promptTokens: call.prompts[0]!.length, cachedTokens: 0, completionTokens: words.length };
  const turn: Turn = { ...counts, text, finish: "stop" };
  const { stream } = call;
  if (!stream) return Buffer.from(JSON.stringify(call.whole([turn])));
  const tokens = words.map((word) => stream.token(0, word));
  const opening = stream.opening() + stream.first(0, turn.promptTokens, 0);
  return Buffer.from([opening, ...tokens, stream.last(0, turn), stream.closing([turn])].join(""));
}
