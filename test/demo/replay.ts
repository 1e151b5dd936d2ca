// Replays a plan under one policy: fresh workers, a gateway before them, sessions that ask, wait and ask again.
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import type { Holding, PrefixCache } from "../../host/worker/prefix-cache.js";
import { ask } from "./client.js";
import { endlessCache, type Plan, type PlannedSession, type PlannedTurn } from "./plan.js";
import type { PolicyChoice } from "./policies.js";
import { Processes } from "./processes.js";
import { promptText } from "./prompt.js";

export interface WorkerShare {
  requests: number;
  promptTokens: number;
}

export interface Outcome {
  readonly policy: PolicyChoice;
  /** Turns answered. */
  turns: number;
  /** One message per turn that failed. */
  readonly failures: string[];
  promptTokens: number;
  cachedTokens: number;
  /** Prompt tokens that their worker had computed before, but no longer had. */
  evictedTokens: number;
  /** Turns served by another worker than the session's turn before. */
  moved: number;
  /** What the gateway counted. */
  kept: number;
  broken: number;
  readonly ttftsMs: number[];
  wallMs: number;
  /** By id, in the config's order. */
  readonly workers: ReadonlyMap<string, WorkerShare>;
}

/**
 * Replays a plan; `onTurn` hears after every turn how many are over; `decisionLog` is a file that the gateway's decisions are logged
 * to. Failed turns are counted. Throws an Error where a process does not start.
 */
export async function replay(
  plan: Plan,
  policy: PolicyChoice,
  onTurn: (done: number) => void = () => {},
  decisionLog?: string,
): Promise<Outcome> {
  const processes = new Processes();
  try {
    const ids = Array.from({ length: plan.options.workers }, (_, index) => `w${index + 1}`);
    const urls = await Promise.all(ids.map(() => processes.worker(plan.worker)));
    const workers = new Map(ids.map((id, index) => [id, urls[index]]));
    const gateway = new Pool(await processes.gateway(workers, policy, decisionLog));
    const run = new Run(plan, policy, gateway, ids, onTurn);
    return await run.start().finally(() => gateway.destroy());
  } finally {
    await processes.stop();
  }
}

class Run {
  readonly #plan: Plan;
  readonly #gateway: Pool;
  readonly #onTurn: (done: number) => void;
  readonly #outcome: Outcome;
  /** What each worker ever computed. */
  readonly #computed: ReadonlyMap<string, PrefixCache>;

  constructor(
    plan: Plan,
    policy: PolicyChoice,
    gateway: Pool,
    ids: readonly string[],
    onTurn: (done: number) => void,
  ) {
    this.#plan = plan;
    this.#gateway = gateway;
    this.#onTurn = onTurn;
    this.#computed = new Map(ids.map((id) => [id, endlessCache(plan.worker.blockSize)]));
    this.#outcome = {
      ...{ policy, turns: 0, failures: [], promptTokens: 0, cachedTokens: 0, evictedTokens: 0 },
      ...{ moved: 0, kept: 0, broken: 0, ttftsMs: [], wallMs: 0 },
      workers: new Map(ids.map((id) => [id, { requests: 0, promptTokens: 0 }])),
    };
  }

  async start(): Promise<Outcome> {
    const outcome = this.#outcome;
    const begin = performance.now();
    const waiting = this.#plan.sessions.values();
    // Every place takes the next session of the trace when its last is over.
    const place = async () => {
      for (const session of waiting) await this.#session(session);
    };
    await Promise.all(Array.from({ length: this.#plan.options.concurrency }, place));
    outcome.wallMs = performance.now() - begin;
    const { body } = await this.#gateway.request({ method: "GET", path: "/health" });
    const health = (await body.json()) as { affinity_kept: number; affinity_broken: number };
    outcome.kept = health.affinity_kept;
    outcome.broken = health.affinity_broken;
    return outcome;
  }

  async #session({ id, turns }: PlannedSession): Promise<void> {
    const outcome = this.#outcome;
    let last: string | undefined;
    for (const [index, turn] of turns.entries()) {
      if (turn.thinkMs > 0) await sleep(turn.thinkMs);
      try {
        const worker = await this.#turn(id, turn);
        if (last !== undefined && worker !== last) outcome.moved++;
        last = worker;
      } catch (error) {
        outcome.failures.push(`${id}, turn ${index + 1}: ${(error as Error).message}`);
      }
      this.#onTurn(outcome.turns + outcome.failures.length);
    }
  }

  /** The worker that answered. */
  async #turn(session: string, turn: PlannedTurn): Promise<string> {
    const outcome = this.#outcome;
    const words = turn.words();
    let holding: Holding | undefined;
    const listener = {
      onHead: (worker: string) => {
        holding = this.#computed.get(worker)?.hold(words);
      },
      onFirstToken: () => holding?.prefilled(),
    };
    const request = { session, prompt: promptText(words), maxTokens: turn.maxTokens };
    try {
      const { worker, ttftMs, promptTokens, cachedTokens } = await ask(this.#gateway, request, listener);
      const share = outcome.workers.get(worker);
      if (!share || !holding) throw new Error(`the gateway named a worker "${worker}" that it does not have`);
      if (promptTokens !== words.length)
        throw new Error(`the worker counted ${promptTokens} prompt tokens, not ${words.length}`);
      outcome.turns++;
      outcome.promptTokens += promptTokens;
      outcome.cachedTokens += cachedTokens;
      outcome.evictedTokens += Math.max(0, holding.cachedTokens - cachedTokens);
      outcome.ttftsMs.push(ttftMs);
      share.requests++;
      share.promptTokens += promptTokens;
      return worker;
    } finally {
      holding?.release();
    }
  }
}
