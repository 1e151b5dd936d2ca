// A policy's dry run: a few ordinary decisions before any request depends on it.

import type { Failure } from "../abi/reasons.js";
import { LAST_SHARED_REASON, ROW_MASK } from "../abi/reasons.js";
import { budgetOf } from "../sandbox/admit.js";
import { Candidates } from "./candidates.js";
import { Turn } from "./decider.js";
import { LivePolicy, PolicyStartError, type Program } from "./live.js";
import { SeedGenerator } from "./random.js";

/** What a dry run found, as a sentence's end: why the policy `cannot be started`, or how it `fails its dry run`. */
export type DryRunFault = { readonly start: string } | { readonly decision: string };

/** Workers by the requests on each, and the row that the request's session is bound to, -1 for none. */
interface Situation {
  readonly loads: readonly number[];
  readonly bound: number;
}

const FEW = [5, 0, 2];
/** Far above what an engine runs at once. */
const MANY = [900, 700, 800];

const SITUATIONS: readonly Situation[] = [
  { loads: [0], bound: -1 },
  ...[FEW, MANY].flatMap((loads) => [-1, 0, 1, 2].map((bound) => ({ loads, bound }))),
];

/** Engines of which nothing is known, and engines that tell all that is asked. */
const ENGINES = [
  { slots: 0, queueDepth: -1, kvUsed: -1, kvBlocks: 0, blockTokens: 0 },
  { slots: 256, queueDepth: 3, kvUsed: 500, kvBlocks: 10_000, blockTokens: 16 },
] as const;

const ROW_NAMES = ["first", "second", "third"];
const MS_BETWEEN = 1_000;

/**
 * Starts a policy for a pool of `capacity` rows, and has it decide over one idle worker, and over three of different and of
 * high loads, unbound and bound to each, twice. `parameters` are values in manifest order; where they are left out it is
 * started alone. Returns the first fault, undefined where there is none.
 */
export function dryRun(
  policy: Program,
  parameters: Float64Array | undefined,
  capacity: number,
): DryRunFault | undefined {
  const candidates = new Candidates(capacity);
  let live: LivePolicy;
  try {
    live = new LivePolicy(policy, parameters ?? new Float64Array(0), candidates);
  } catch (error) {
    if (error instanceof PolicyStartError) return { start: error.message };
    throw error;
  }
  return parameters && new Trial(live, candidates).run();
}

/** The decisions of one dry run. */
class Trial {
  readonly #live: LivePolicy;
  readonly #candidates: Candidates;
  readonly #turn = new Turn();
  readonly #random = new SeedGenerator(1);

  constructor(live: LivePolicy, candidates: Candidates) {
    this.#live = live;
    this.#candidates = candidates;
  }

  run(): DryRunFault | undefined {
    for (const engine of ENGINES) {
      for (const situation of SITUATIONS) {
        this.#show(situation, engine);
        this.#next(situation);
        this.#live.decide(this.#turn, situation.bound);
        const { failure } = this.#live;
        if (failure) return { decision: `${textOf(situation)}, it ${this.#outcome(failure)}` };
      }
    }
    return undefined;
  }

  /** Rows as a router shows them. */
  #show({ loads, bound }: Situation, engine: (typeof ENGINES)[number]): void {
    const candidates = this.#candidates;
    for (let row = loads.length; row < candidates.n; row++) candidates.setEligible(row, false);
    candidates.n = loads.length;
    for (const [row, load] of loads.entries()) {
      candidates.setEligible(row, true);
      candidates.setActiveRequests(row, load);
      candidates.set("bound_sessions", row, load + (row === bound ? 1 : 0));
      candidates.set("worker_hash", row, Math.imul(row + 1, 0x9e3779b1));
      candidates.set("weight", row, 100);
      candidates.set("slots", row, engine.slots);
      candidates.set("queue_depth", row, engine.queueDepth);
      candidates.set("kv_used", row, engine.kvUsed);
      candidates.set("kv_blocks", row, engine.kvBlocks);
    }
    candidates.setBlockTokens(engine.blockTokens);
  }

  /** Another request, each of a session of its own. */
  #next({ loads, bound }: Situation): void {
    const [turn, random] = [this.#turn, this.#random];
    turn.now += MS_BETWEEN;
    random.next();
    [turn.seedLow, turn.seedHigh] = [random.low, random.high];
    random.next();
    [turn.sessionLow, turn.sessionHigh] = [random.low, random.high];
    turn.sessionRequests = bound >= 0 ? Math.min(1, loads[bound]!) : 0;
  }

  #outcome(failure: Failure): string {
    const [answer, { n, capacity }] = [this.#live.answer ?? 0, this.#candidates];
    switch (failure) {
      case "trap":
        return "ends in a trap";
      case "fuel":
        return `uses more than the ${budgetOf(capacity)} units of fuel that it may`;
      case "no_choice":
        return `answers ${answer}, which chooses no worker`;
      case "bad_row":
        return `answers row ${answer & ROW_MASK}, but ${n === 1 ? "there is only row 0" : `rows are 0 to ${n - 1}`}`;
      case "not_eligible":
        return `answers row ${answer & ROW_MASK}, which is not eligible`;
      case "bad_reason":
        return `answers reason ${answer >> 16}, but reasons are 0 to ${LAST_SHARED_REASON} and those that its manifest names`;
    }
  }
}

/** `over 3 workers with 5, 0 and 2 requests, bound to the first`. */
function textOf({ loads, bound }: Situation): string {
  const counts = loads.length === 1 ? `${loads[0]}` : `${loads.slice(0, -1).join(", ")} and ${loads.at(-1)}`;
  const workers = loads.length === 1 ? "1 worker" : `${loads.length} workers`;
  return `over ${workers} with ${counts} requests, ${bound < 0 ? "not bound" : `bound to the ${ROW_NAMES[bound]}`}`;
}
