// A small trace made from a seed: sessions as coding agents have them, growing turn by turn.
import type { BlockRun, TraceSession, TraceTurn } from "./trace-file.js";

export interface GeneratorOptions {
  readonly seed: number;
  /** Sessions, sub-agents included. */
  readonly sessions: number;
}

const BLOCK = 64;
const SESSIONS_PER_GROUP = 6;
const SUBAGENT_SHARE = 0.15;
const COMPACTION_SHARE = 0.04;
/** Median and sigma of the logarithm; the think time's give a p90 of 163 s. */
const THINK_S = [10, 2.18] as const;
const OUT_TOKENS = [218, 0.9] as const;
const FIRST_BLOCKS = [60, 0.6] as const;
const GROWTH_BLOCKS = [14, 1] as const;
const MORE_TURNS = [3, 0.5] as const;
const ARRIVAL_S = [20, 1] as const;

/** A trace that depends on its options alone. Sessions of one group start with the same system prompt. */
export function generateTrace({ seed, sessions }: GeneratorOptions): TraceSession[] {
  const random = new Random(seed);
  const trace: TraceSession[] = [];
  for (let number = 0; trace.length < sessions; number++) {
    const most = Math.min(SESSIONS_PER_GROUP, sessions - trace.length);
    trace.push(...new Group(`group-${number}`, random).sessions(most));
  }
  return trace;
}

/** The sessions that share a namespace of blocks. */
class Group {
  readonly #name: string;
  readonly #random: Random;
  readonly #system: BlockRun;
  readonly #agentSystem: BlockRun;
  #nextBlock = 1;
  #clock = 0;

  constructor(name: string, random: Random) {
    this.#name = name;
    this.#random = random;
    this.#system = this.#fresh(random.integer(60, 140));
    this.#agentSystem = this.#fresh(random.integer(40, 80));
  }

  sessions(count: number): TraceSession[] {
    const sessions: TraceSession[] = [];
    let parent: string | null = null;
    for (let number = 0; number < count; number++) {
      const started: boolean = parent !== null && this.#random.next() < SUBAGENT_SHARE;
      const id: string = started ? `${parent}/agent-${number}` : `${this.#name}/session-${number}`;
      sessions.push(this.#session(id, started ? parent : null));
      if (!started) parent = id;
    }
    return sessions;
  }

  #session(id: string, parent: string | null): TraceSession {
    const start_s = this.#clock;
    this.#clock = round(start_s + this.#random.lognormal(ARRIVAL_S));
    return {
      ...{ session_id: id, group: this.#name, parent },
      ...{ kind: parent === null ? "main" : "subagent:Explore", start_s, block: BLOCK },
      turns: this.#turns(parent === null ? this.#system : this.#agentSystem),
    };
  }

  #turns(system: BlockRun): TraceTurn[] {
    const random = this.#random;
    const turns: TraceTurn[] = [];
    const count = 2 + Math.min(10, Math.round(random.lognormal(MORE_TURNS)));
    let h: BlockRun[] = [system, this.#fresh(random.blocks(FIRST_BLOCKS))];
    let t = 0;
    for (let index = 0; index < count; index++) {
      if (index > 0) h = this.#grown(h, system);
      const think = index === 0 ? 0 : round(random.lognormal(THINK_S));
      const out = Math.min(4096, Math.ceil(random.lognormal(OUT_TOKENS)));
      t = round(t + think);
      turns.push({ t, in: blocksOf(h) * BLOCK + random.integer(0, BLOCK - 1), out, think, h });
      t = round(t + out / 50);
    }
    return turns;
  }

  /** The next turn's blocks: more behind the old ones, or after a compaction a summary in their place. */
  #grown(h: BlockRun[], system: BlockRun): BlockRun[] {
    if (this.#random.next() >= COMPACTION_SHARE)
      return [...h, this.#fresh(this.#random.blocks(GROWTH_BLOCKS))];
    return [system, this.#fresh(Math.ceil(blocksOf(h) / 5))];
  }

  #fresh(count: number): BlockRun {
    const start = this.#nextBlock;
    this.#nextBlock += count;
    return [start, count];
  }
}

/** Mulberry32: good enough for made-up sessions, and the same on every machine. */
class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** From 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let bits = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Both ends included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  lognormal([median, sigma]: readonly [number, number]): number {
    const normal = Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next());
    return median * Math.exp(sigma * normal);
  }

  blocks(distribution: readonly [number, number]): number {
    return Math.min(400, Math.ceil(this.lognormal(distribution)));
  }
}

function blocksOf(h: readonly BlockRun[]): number {
  return h.reduce((sum, [, count]) => sum + count, 0);
}

function round(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}
