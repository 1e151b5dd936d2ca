// The clients of the soak: as many requests under way as there are lanes, each followed by the next.
import { Agent } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Dice } from "../fixtures/dice.js";
import { Client, drawManner, type Got, type Manner } from "./client.js";
import { type Asked, drawRequest } from "./request.js";
import { verdictOf } from "./verdict.js";

/** Longest pause of a client that was not served. */
const LONGEST_PAUSE_MS = 1_000;
/** Dishonest ends that are kept to be shown. */
const MOST_SHOWN = 20;

/** What the clients of one soak do otherwise than those of another. */
export interface Habits {
  /** Draws a request, as `drawRequest`. */
  readonly draw: (dice: Dice, previous: string | undefined) => Asked;
  readonly manner: (dice: Dice) => Manner;
  /** How a request that was sent at `begunAt`, in monotonic milliseconds, ended; throws as `verdictOf`. */
  readonly judge: (asked: Asked, got: Got, begunAt: number) => string;
}

const USUAL: Habits = { draw: drawRequest, manner: drawManner, judge: verdictOf };

/** One client after another. */
interface Lane {
  readonly dice: Dice;
  /** The latest answer of the Responses API. */
  answerId: string | undefined;
}

/** All clients. */
export class Load {
  /** How often requests ended in which way. */
  readonly ends = new Map<string, number>();
  /** Ends that were not honest, and why. */
  readonly dishonest: string[] = [];
  requests = 0;
  readonly #url: string;
  readonly #lanes: readonly Lane[];
  readonly #habits: Habits;
  readonly #open = new Set<Client>();
  #agent = new Agent({ keepAlive: true });
  #isRunning = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(url: string, lanes: number, seed: number, habits: Habits = USUAL) {
    this.#url = url;
    this.#habits = habits;
    this.#lanes = Array.from({ length: lanes }, (_, lane) => ({
      dice: new Dice(seed * 1_000 + lane),
      answerId: undefined,
    }));
  }

  start(): void {
    this.#isRunning = true;
    this.#agent = new Agent({ keepAlive: true });
    this.#running = Promise.all(this.#lanes.map((lane) => this.#run(lane)));
  }

  /** Begins nothing new. Resolves when all requests have ended as they do. */
  async finish(): Promise<void> {
    this.#isRunning = false;
    await this.#running;
    this.#agent.destroy();
  }

  /** All clients hang up at once. Resolves when they have. */
  async leave(): Promise<void> {
    this.#isRunning = false;
    for (const client of this.#open) client.leave();
    await this.finish();
  }

  async #run(lane: Lane): Promise<void> {
    const { dice } = lane;
    const { draw, manner } = this.#habits;
    while (this.#isRunning) {
      const asked = draw(dice, lane.answerId);
      const agent = dice.upTo(3) > 0 && this.#agent;
      const begunAt = performance.now();
      const client = new Client(this.#url, agent, asked, manner(dice));
      this.requests++;
      this.#open.add(client);
      const got = await client.got;
      this.#open.delete(client);
      const end = this.#judge(asked, got, begunAt);
      this.ends.set(end, (this.ends.get(end) ?? 0) + 1);
      if (end === "complete" && asked.api.style === "responses")
        lane.answerId = /"id":"(resp_\w+)"/.exec(got.body.toString())?.[1];
      if (end !== "complete" && got.left === undefined) await sleep(dice.upTo(LONGEST_PAUSE_MS));
    }
  }

  #judge(asked: Asked, got: Got, begunAt: number): string {
    try {
      return this.#habits.judge(asked, got, begunAt);
    } catch (error) {
      const { api, isStream } = asked;
      const what = `${api.path}${isStream ? ", a stream" : ""}, of ${got.headers["x-hawser-worker"]}`;
      const tail = got.body.subarray(-300).toString();
      if (this.dishonest.length < MOST_SHOWN)
        this.dishonest.push(`${what}: ${(error as Error).message}; it ended in ${JSON.stringify(tail)}`);
      return "dishonest";
    }
  }
}
