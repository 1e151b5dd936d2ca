// Decisions of a log, made anew by a policy: through the code that decides in the gateway, over the rows that are in the log.

import { COLUMNS, type ColumnName, FIELDS } from "../abi/frame.js";
import type { Failure } from "../abi/reasons.js";
import { CaseRunner } from "../policy/case.js";
import { LivePolicy } from "../policy/live.js";
import type { Manifest } from "../policy/manifest.js";
import type { PolicyInstance } from "../routing/contenders.js";
import { hashWorker } from "../routing/hash.js";
import type { AskedDecision } from "./entry.js";

/** What runs over a log. */
export interface ReplayInstance extends PolicyInstance {
  readonly policy: PolicyInstance["policy"] & { readonly manifest: Pick<Manifest, "stateful"> };
}

/** What a policy decides. */
export interface Decided {
  readonly answer: number | null;
  readonly row: number;
  readonly reason: string;
  readonly failure?: Failure;
}

export interface Verdict {
  readonly now: Decided;
  /** Whether that is what the log has: the answer as it was given, and what the host made of it. */
  readonly isSame: boolean;
  /** Whether the policy remembers what its instance in the log could: always where it remembers nothing. */
  readonly isWhole: boolean;
}

/** Instances at once: each reserves some 10 GB of address space. */
const MAX_SEATS = 128;
const FIELD_NAMES = new Set<string>(FIELDS.map(({ name }) => name));
const COLUMN_NAMES = new Set<string>(COLUMNS.map(({ name }) => name));

/** An instance at work in the place of one in the log. */
interface Seat {
  readonly runner: CaseRunner;
  readonly live: LivePolicy;
  /** The call that comes next, where none is missing. */
  next: number;
  isWhole: boolean;
}

/** One policy over one log, or several. */
export class Replay {
  /** What the policy reads and some decision in the log did not have. */
  readonly missing = new Set<string>();
  readonly isStateful: boolean;
  readonly #instance: ReplayInstance;
  readonly #reads: readonly string[];
  /** By what they stand in for, the latest used last. */
  readonly #seats = new Map<string, Seat>();

  constructor(instance: ReplayInstance) {
    const { stateful, reads } = instance.policy.manifest;
    this.#instance = instance;
    this.isStateful = stateful;
    this.#reads = reads;
  }

  /**
   * Decides anew. What the log does not hold is unknown to the policy, random bits are drawn. Throws a CaseError for a decision
   * that cannot have been made, and a PolicyStartError where the policy does not start.
   */
  decide(logged: AskedDecision): Verdict {
    const seat = this.#seatOf(logged);
    const { row, reason, failure } = seat.runner.run(this.#caseOf(logged));
    const isWhole = !this.isStateful || (seat.isWhole && logged.call === seat.next);
    seat.isWhole = isWhole;
    seat.next++;
    const now = { answer: seat.live.answer, row: row ?? -1, reason, ...(failure && { failure }) };
    return { now, isSame: isSame(now, logged), isWhole };
  }

  /** What a policy remembers is of its instance; of one that remembers nothing another will do, over as many rows. */
  #seatOf({ run, instance, capacity }: AskedDecision): Seat {
    const key = this.isStateful ? `${run} ${instance} ${capacity}` : `${capacity}`;
    const seat = this.#seats.get(key) ?? this.#start(capacity);
    this.#seats.delete(key);
    this.#seats.set(key, seat);
    if (this.#seats.size > MAX_SEATS) this.#seats.delete(this.#seats.keys().next().value!);
    return seat;
  }

  #start(capacity: number): Seat {
    const { policy, parameters } = this.#instance;
    let live!: LivePolicy;
    const runner = new CaseRunner(policy, parameters, capacity, 0, (candidates) => {
      live = new LivePolicy(policy, parameters, candidates);
      return live;
    });
    return { runner, live, next: 0, isWhole: true };
  }

  #caseOf({ workers, bound, fields, columns }: AskedDecision): object {
    const request: Record<string, unknown> = {};
    const shown: Record<string, unknown> = {};
    for (const name of this.#reads) {
      if (FIELD_NAMES.has(name)) request[name] = fields[name] ?? this.#miss(name);
      else if (isColumn(name)) shown[name] = columns[name] ?? this.#columnOf(name, workers);
    }
    const { active_requests: loads, eligible } = columns;
    const known = (values: Record<string, unknown>) =>
      Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
    return { loads, eligible: eligible ?? null, bound, request: known(request), columns: known(shown) };
  }

  /** The one column that follows from what every decision has. */
  #columnOf(name: ColumnName, workers: readonly string[]): number[] | undefined {
    if (name === "worker_hash") return workers.map((id) => hashWorker(id, () => false));
    return this.#miss(name);
  }

  #miss(name: string): undefined {
    this.missing.add(name);
  }
}

/** One that is handed over as a column: the other two are what every case has. */
function isColumn(name: string): name is ColumnName {
  return COLUMN_NAMES.has(name) && name !== "eligible" && name !== "active_requests";
}

function isSame(now: Decided, { answer, row, reason, failure }: AskedDecision): boolean {
  return now.answer === answer && now.row === row && now.reason === reason && now.failure === failure;
}

/** A reason, with why the policy's own was not used. */
export function reasonText({ reason, failure }: Pick<Decided, "reason" | "failure">): string {
  return failure ? `${reason} (${failure})` : reason;
}
