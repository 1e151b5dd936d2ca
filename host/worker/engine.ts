// The engine's time: wait for a seat, prefill what is not cached, then one token per step.
import type { Clock } from "./clock.js";
import type { Holding, PrefixCache } from "./prefix-cache.js";

/** Why a finished answer ended. */
export type Finish = "stop" | "length";

/** One request to the engine. The output is known beforehand; the engine decides when it exists. */
export interface Job {
  readonly prompt: readonly number[];
  /** Token ids to generate; empty for a prefill-only request. */
  readonly output: readonly number[];
  readonly finish: Finish;
  /** Aborting it frees the seat and the blocks at once, at whatever stage the request is. */
  readonly signal: AbortSignal;
  /** Called when output token `index` exists. */
  onToken?(index: number, cachedTokens: number): void;
}

export interface EngineOptions {
  /** Requests that run at once; the others wait, first come first served. */
  readonly maxNumSeqs: number;
  /** Uncached prompt tokens per second, for each request. */
  readonly prefillRate: number;
  /** Milliseconds per output token after the first. */
  readonly tpotMs: number;
  readonly cache: PrefixCache;
  readonly clock: Clock;
}

/** What the engine counts, for `/metrics`. */
export interface EngineStats {
  running: number;
  waiting: number;
  /** Prompt tokens whose prefill is done, cached ones included. */
  promptTokens: number;
  generationTokens: number;
  /** Prompt tokens looked up in the prefix cache, and those found. */
  cacheQueries: number;
  cacheHits: number;
  readonly finished: Record<Finish | "abort", number>;
}

/** A replica that runs `maxNumSeqs` requests at once. */
export class Engine {
  readonly #options: EngineOptions;
  readonly #queue: Array<() => void> = [];
  readonly #counts = {
    running: 0,
    promptTokens: 0,
    generationTokens: 0,
    cacheQueries: 0,
    cacheHits: 0,
    finished: { stop: 0, length: 0, abort: 0 },
  };

  constructor(options: EngineOptions) {
    this.#options = options;
  }

  get stats(): EngineStats {
    return { ...this.#counts, waiting: this.#queue.length, finished: { ...this.#counts.finished } };
  }

  /**
   * Runs a job to its last token and returns how many of its prompt tokens were cached.
   * Rejects as soon as the job's signal aborts; by then the job holds nothing.
   */
  async run(job: Job): Promise<number> {
    try {
      const cachedTokens = await this.#runSeated(job);
      this.#counts.finished[job.finish]++;
      return cachedTokens;
    } catch (error) {
      if (job.signal.aborted) this.#counts.finished.abort++;
      throw error;
    }
  }

  async #runSeated(job: Job): Promise<number> {
    await this.#takeSeat(job.signal);
    const holding = this.#options.cache.hold(job.prompt);
    try {
      await this.#prefillAndDecode(job, holding);
      return holding.cachedTokens;
    } finally {
      // Blocks before the seat: whoever gets the seat must find the room.
      holding.release();
      this.#leaveSeat();
    }
  }

  #takeSeat(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      if (this.#counts.running < this.#options.maxNumSeqs) {
        this.#counts.running++;
        resolve();
        return;
      }
      const seated = () => {
        signal.removeEventListener("abort", aborted);
        resolve();
      };
      const aborted = () => {
        this.#queue.splice(this.#queue.indexOf(seated), 1);
        reject(signal.reason);
      };
      this.#queue.push(seated);
      signal.addEventListener("abort", aborted, { once: true });
    });
  }

  /** Hands the seat straight to the first in the queue, so that no newcomer slips in between. */
  #leaveSeat(): void {
    const next = this.#queue.shift();
    if (next) next();
    else this.#counts.running--;
  }

  async #prefillAndDecode(job: Job, holding: Holding): Promise<void> {
    const { clock, prefillRate, tpotMs } = this.#options;
    const counts = this.#counts;
    counts.cacheQueries += job.prompt.length;
    counts.cacheHits += holding.cachedTokens;
    const uncached = job.prompt.length - holding.cachedTokens;
    const first = clock.now() + (uncached / prefillRate) * 1000;
    await this.#sleepUntil(first, job.signal);
    holding.prefilled();
    counts.promptTokens += job.prompt.length;
    for (let index = 0; index < job.output.length; index++) {
      // Due times are counted from the first token, so that late timers do not add up.
      if (index > 0) await this.#sleepUntil(first + index * tpotMs, job.signal);
      holding.append(job.output[index]);
      counts.generationTokens++;
      job.onToken?.(index, holding.cachedTokens);
    }
  }

  async #sleepUntil(due: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    await clock.sleep(due - clock.now(), signal);
    signal.throwIfAborted();
  }
}
