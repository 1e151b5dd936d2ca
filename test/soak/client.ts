// A client of the soak: it sends one request and reads the answer; or it hangs up at some moment, or makes a pause.
import { type Agent, type ClientRequest, type IncomingMessage, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../fixtures/dice.js";
import type { Asked } from "./request.js";

/** How far a request has come. */
export type Phase = "upload" | "prefill" | "answer";

/** What a client does besides reading: in a phase, behind a share of the body's bytes, `ms` milliseconds later or long. */
export interface Manner {
  readonly does: "nothing" | "leaves" | "stalls";
  readonly phase: Phase;
  readonly share: number;
  readonly ms: number;
}

/** Bytes of an answer behind which some are left or some readers pause, at most. */
const BYTES = 12_000;
const LONGEST_WAIT_MS = 1_500;
/** Longer than the gateway waits for a body, and than it waits for a reader. */
const LONGEST_STALL_MS = 7_000;

/** Draws what a client does; most only read. */
export function drawManner(dice: Dice): Manner {
  const share = dice.upTo(1_000) / 1_000;
  switch (dice.upTo(9)) {
    case 0:
    case 1: {
      const phase = (["upload", "prefill", "answer"] as const)[dice.upTo(2)]!;
      return { does: "leaves", phase, share, ms: dice.upTo(LONGEST_WAIT_MS) };
    }
    case 2: {
      const phase = (["upload", "answer"] as const)[dice.upTo(1)]!;
      return { does: "stalls", phase, share, ms: dice.upTo(LONGEST_STALL_MS) };
    }
    default:
      return { does: "nothing", phase: "answer", share, ms: 0 };
  }
}

/** What a client got. */
export interface Got {
  /** 0 where there was no head. */
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
  /** Whether the answer came to its end, and not only to that of the connection. */
  readonly isWhole: boolean;
  /** The phase in which the client hung up, if it did. */
  readonly left: Phase | undefined;
  readonly hasStalled: boolean;
}

/** A request on its way. */
export class Client {
  /** What came of it, in whichever way it ended. */
  readonly got: Promise<Got>;
  readonly #asked: Asked;
  readonly #manner: Manner;
  readonly #request: ClientRequest;
  readonly #chunks: Buffer[] = [];
  #message: IncomingMessage | undefined;
  #size = 0;
  #isOver = false;
  #left: Phase | undefined;
  #hasStalled = false;

  /** Sends the request at once; without an agent over a connection of its own. */
  constructor(url: string, agent: Agent | false, asked: Asked, manner: Manner) {
    this.#asked = asked;
    this.#manner = manner;
    const { api, headers, body } = asked;
    this.#request = request(url + api.path, {
      ...{ method: "POST", agent },
      headers: { ...headers, "content-type": "application/json", "content-length": body.length },
    });
    this.got = this.#read();
    void this.#send();
  }

  /** Hangs up. */
  leave(): void {
    if (this.#isOver) return;
    this.#left ??= this.#phase;
    this.#message?.destroy();
    this.#request.destroy();
  }

  get #phase(): Phase {
    if (!this.#request.writableEnded) return "upload";
    return this.#size === 0 ? "prefill" : "answer";
  }

  async #send(): Promise<void> {
    const { body } = this.#asked;
    const { does, phase, share, ms } = this.#manner;
    if (phase === "upload") {
      this.#request.write(body.subarray(0, Math.floor(share * body.length)));
      this.#hasStalled = does === "stalls";
      await sleep(ms);
      if (does === "leaves") this.leave();
      else if (!this.#message && !this.#isOver)
        this.#request.end(body.subarray(Math.floor(share * body.length)));
      return;
    }
    this.#request.end(body);
    if (phase === "prefill") {
      await sleep(ms);
      this.leave();
    }
  }

  #read(): Promise<Got> {
    return new Promise((resolve) => {
      const over = () => {
        this.#isOver = true;
        resolve(this.#result());
        // Refused before all of it was sent.
        if (!this.#request.writableEnded) this.#request.destroy();
      };
      // What an error says shows in what is missing.
      this.#request.on("error", () => {});
      this.#request.on("close", () => {
        if (!this.#message) over();
      });
      this.#request.on("response", (message) => {
        this.#message = message;
        message
          .on("data", (chunk: Buffer) => this.#take(chunk, message))
          .on("error", () => {})
          .on("close", over);
      });
    });
  }

  #take(chunk: Buffer, message: IncomingMessage): void {
    const before = this.#size;
    this.#size += chunk.length;
    this.#chunks.push(chunk);
    const { does, phase, share, ms } = this.#manner;
    const at = share * BYTES;
    if (phase !== "answer" || before > at || this.#size <= at) return;
    if (does === "leaves") this.leave();
    else if (does === "stalls") {
      this.#hasStalled = true;
      message.pause();
      void sleep(ms).then(() => message.resume());
    }
  }

  #result(): Got {
    const message = this.#message;
    return {
      status: message?.statusCode ?? 0,
      headers: message?.headers ?? {},
      body: Buffer.concat(this.#chunks),
      isWhole: message?.complete ?? false,
      left: this.#left,
      hasStalled: this.#hasStalled,
    };
  }
}
