// What is replayed: which sessions, how many turns of each, scaled and sped up by how much, and on which workers.
import { PrefixCache } from "../../host/worker/prefix-cache.js";
import { promptWords } from "./prompt.js";
import { TraceError, type TraceSession } from "./trace-file.js";

/** How the trace is changed, and what serves it. Tokens and times are the trace's, before scale and speed. */
export interface PlanOptions {
  /** Tokens of the trace that one token of the replay stands for. */
  readonly scale: number;
  /** Seconds of the trace that one second of the replay stands for. */
  readonly speed: number;
  /** Seconds that a think time has at most. */
  readonly maxThink: number;
  readonly maxTurns: number;
  readonly workers: number;
  /** Sessions open at once. */
  readonly concurrency: number;
  /** Per worker: tokens in the KV pool, tokens in a block of it, requests that run at once. */
  readonly kvTokens: number;
  readonly blockSize: number;
  readonly maxNumSeqs: number;
  /** Uncached prompt tokens per second, and milliseconds per output token. */
  readonly prefillRate: number;
  readonly tpot: number;
}

export interface PlannedTurn {
  /** Milliseconds between the previous answer and this request. */
  readonly thinkMs: number;
  readonly maxTokens: number;
  /** Made anew at each call: all prompts together would be large. */
  words(): number[];
}

export interface PlannedSession {
  readonly id: string;
  readonly turns: readonly PlannedTurn[];
}

/** A simulated worker's settings, in tokens and times of the replay. */
export interface WorkerSettings {
  readonly kvBlocks: number;
  readonly blockSize: number;
  readonly maxNumSeqs: number;
  readonly prefillRate: number;
  readonly tpotMs: number;
}

export interface Plan {
  readonly options: PlanOptions;
  readonly sessions: readonly PlannedSession[];
  readonly worker: WorkerSettings;
  readonly turns: number;
  /** Turns of these sessions beyond `maxTurns`. */
  readonly turnsLeftOut: number;
  /** Turns that have a think time, and those whose is cut. */
  readonly thinks: number;
  readonly thinksCapped: number;
  /** Tokens of the replay. */
  readonly promptTokens: number;
  /** Prompt tokens that one worker with an endless cache would find in it, session after session. */
  readonly idealCachedTokens: number;
}

/** Plans a replay. Throws a TraceError where the scale divides not every block size, the sessions' and the workers'. */
export function makePlan(trace: readonly TraceSession[], options: PlanOptions): Plan {
  const worker = workerSettings(options);
  for (const { session_id, block } of trace) {
    if (block % options.scale === 0) continue;
    throw new TraceError(
      `The scale ${options.scale} does not divide the ${block} tokens of a block of session "${session_id}".`,
    );
  }
  const cut = trace.map((session) => ({ ...session, turns: session.turns.slice(0, options.maxTurns) }));
  const thinks = cut.flatMap(({ turns }) => turns.slice(1).map(({ think }) => think ?? 0));
  const sessions = cut.map((session) => planSession(session, options));
  const turns = sumOf(cut, (session) => session.turns.length);
  return {
    ...{ options, sessions, worker, turns },
    turnsLeftOut: sumOf(trace, (session) => session.turns.length) - turns,
    thinks: thinks.length,
    thinksCapped: thinks.filter((think) => think > options.maxThink).length,
    ...ideal(sessions, worker.blockSize),
  };
}

function workerSettings(options: PlanOptions): WorkerSettings {
  const { scale, speed, kvTokens, blockSize, maxNumSeqs, prefillRate, tpot } = options;
  if (blockSize % scale !== 0) {
    throw new TraceError(`The scale ${scale} does not divide the ${blockSize} tokens of a worker's block.`);
  }
  return {
    kvBlocks: Math.max(1, Math.floor(kvTokens / blockSize)),
    blockSize: blockSize / scale,
    maxNumSeqs,
    prefillRate: Math.max(1, Math.round((prefillRate / scale) * speed)),
    tpotMs: (tpot * scale) / speed,
  };
}

function planSession(session: TraceSession, { scale, speed, maxThink }: PlanOptions): PlannedSession {
  const turns = session.turns.map(({ out, think }, index) => ({
    thinkMs: index === 0 ? 0 : (Math.min(think ?? 0, maxThink) * 1000) / speed,
    maxTokens: Math.max(1, Math.round(out / scale)),
    words: () => promptWords(session, index, scale),
  }));
  return { id: session.session_id, turns };
}

function ideal(sessions: readonly PlannedSession[], blockSize: number) {
  const cache = endlessCache(blockSize);
  let [promptTokens, idealCachedTokens] = [0, 0];
  for (const turn of sessions.flatMap(({ turns }) => turns)) {
    const words = turn.words();
    const holding = cache.hold(words);
    promptTokens += words.length;
    idealCachedTokens += holding.cachedTokens;
    holding.prefilled();
    holding.release();
  }
  return { promptTokens, idealCachedTokens };
}

/** The worker's cache, if it never had to evict. */
export function endlessCache(blockSize: number): PrefixCache {
  return new PrefixCache(Number.POSITIVE_INFINITY, blockSize);
}

/** The sum of a figure over a list. */
export function sumOf<T>(list: readonly T[], figure: (item: T) => number): number {
  return list.reduce((sum, item) => sum + figure(item), 0);
}
