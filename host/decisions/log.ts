// The decision log: a line for every decision of the sessions that are sampled, and one for what became of it. A line stands
// for itself, so that one that is found, sampled or rotated away takes nothing from another. No key, no prompt, no tenant.

import { randomBytes } from "node:crypto";
import { COLUMNS, type ColumnName, type FieldName } from "../abi/frame.js";
import type { Decider, Turn } from "../policy/decider.js";
import { FILLED } from "../policy/filled.js";
import type { PolicyInstance } from "../routing/contenders.js";
import { sessionId } from "../routing/hash.js";
import type { Lease } from "../routing/lease.js";
import type { Pool } from "../routing/pool.js";
import type { Worker } from "../routing/worker.js";
import { LineFile, type Pace } from "./line-file.js";
import type { DecisionLogOptions } from "./options.js";

/** Tells this process's lines from those of others in the same files. */
const RUN = randomBytes(4).toString("hex");
/** Decisions that were logged in this process, by whichever log. */
let decisions = 0;

/** Shown to every policy. */
const ALWAYS: readonly string[] = ["eligible", "active_requests"];
/** Filled in for every request, whether the policy reads them or not. */
const KNOWN_FIELDS: readonly FieldName[] = ["now", "session", "block_tokens"];
/** Filled in where the policy reads them. */
const ASKED_FIELDS: readonly FieldName[] = ["seed", "session_requests"];

export interface DecisionLogHost {
  /** Hears of a file that cannot be written, once until it could be again. */
  onError(error: Error): void;
  /** Milliseconds since 1970; default `Date.now`. */
  readonly now?: () => number;
  /** When a file is tried again, looked for, given up; by default in seconds. */
  readonly pace?: Partial<Pace>;
}

/** How a request ended that a lease was taken for. What is not known is left out. */
export interface Outcome {
  /** `complete`, `client_gone`, or the code or the cause of a failure. */
  readonly outcome: string;
  /** Of the worker's answer. */
  readonly status?: number | undefined;
  /** Whether the worker accepted it: whether the lease was committed. */
  readonly accepted: boolean;
  /** Milliseconds from the decision to the first byte of the answer, and to its end. */
  readonly firstByteMs?: number | undefined;
  readonly totalMs?: number | undefined;
  /** What the engine said of its tokens. */
  readonly usage?:
    | {
        readonly promptTokens?: number | undefined;
        readonly completionTokens?: number | undefined;
        readonly cachedTokens?: number | undefined;
      }
    | undefined;
}

/** What all lines of an instance have in common. */
interface Subject {
  readonly text: string;
  readonly fields: readonly FieldName[];
  readonly columns: readonly ColumnName[];
}

/** Writes decisions to a file. Its options stay as they are: for others it is closed, and one made that follows it. */
export class DecisionLog {
  readonly options: DecisionLogOptions;
  readonly #file: LineFile;
  readonly #now: () => number;
  /** Hashes below it are sampled. */
  readonly #bound: number;
  readonly #subjects = new WeakMap<PolicyInstance, Subject>();
  /** The ids of a pool's workers as text: its list is another one when any changed. */
  readonly #ids = new WeakMap<readonly Worker[], string>();
  /** How much of a line is due for requests without a session. */
  #due = 0;

  /** Begins to write when every other log of the same file is closed. */
  constructor(options: DecisionLogOptions, host: DecisionLogHost) {
    this.options = options;
    this.#now = host.now ?? Date.now;
    this.#bound = options.sample * 2 ** 32;
    this.#file = new LineFile(options, host.onError, host.pace);
  }

  /** Lines that are in the file. */
  get written(): number {
    return this.#file.written;
  }

  /** Lines that were given up, because the file could not be written, or not as fast as they came. */
  get dropped(): number {
    return this.#file.dropped;
  }

  /**
   * Logs a decision, where it is sampled; sets the lease's `trace`, 0 where it is not logged. To be called in the turn of the
   * decision, while the pool's rows are as they were shown. `turn`, `bound` and `decider` are those of a `DecisionObserver`;
   * `microseconds` is what deciding took.
   */
  decided(
    lease: Lease,
    pool: Pool,
    turn: Turn,
    bound: number,
    decider: Decider | null,
    microseconds: number,
  ): void {
    const { sessionLow: idLow, sessionHigh: idHigh } = turn;
    lease.trace = 0;
    const hasSession = idLow !== 0 || idHigh !== 0;
    if (hasSession ? idLow >>> 0 >= this.#bound : !this.#isNextDue()) return;
    const n = ++decisions;
    // None decides where every policy is quarantined.
    const { instance } = pool;
    const session = hasSession ? `"${sessionId(idLow, idHigh)}"` : "null";
    const described =
      decider && instance ? this.#described(instance, pool, turn, bound, decider) : '"asked":false';
    const line =
      `${this.#head("decision", n)},"model":${JSON.stringify(pool.model)},"session":${session},${described}` +
      `,"row":${decider ? decider.row : lease.worker.rowIn(pool)},"worker":${JSON.stringify(lease.worker.id)}` +
      `,"reason":${JSON.stringify(lease.reason)}` +
      (lease.failure ? `,"failure":"${lease.failure}"` : "") +
      (decider && instance ? `,"fuel":${decider.fuelUsed},"us":${Math.round(microseconds * 10) / 10}` : "");
    if (this.#file.add(`${line}}\n`)) lease.trace = n;
  }

  /** Logs what became of a decision, where that was logged: `trace` is its lease's. To be called once. */
  ended(trace: number, { outcome, status, accepted, firstByteMs, totalMs, usage }: Outcome): void {
    if (trace === 0) return;
    const { promptTokens: prompt, completionTokens: completion, cachedTokens: cached } = usage ?? {};
    const rest = {
      ...{ outcome, status, accepted },
      ms: known({ first_byte: tenths(firstByteMs), total: tenths(totalMs) }),
      tokens: known({ prompt, completion, cached }),
    };
    this.#file.add(`${this.#head("outcome", trace)},${JSON.stringify(rest).slice(1)}\n`);
  }

  /**
   * Writes what waits and closes the file; what the disk has not taken after some seconds is given up. Never rejects. Then every
   * line until now is counted, as written or as dropped; what comes later is dropped.
   */
  close(): Promise<void> {
    return this.#file.close();
  }

  #head(kind: string, n: number): string {
    return `{"kind":"${kind}","run":"${RUN}","n":${n},"time":${this.#now()}`;
  }

  #isNextDue(): boolean {
    this.#due += this.options.sample;
    // Ten tenths add up to a bit less than 1.
    if (this.#due < 1 - 1e-9) return false;
    this.#due--;
    return true;
  }

  /** What a policy was shown, and what it answered. */
  #described(instance: PolicyInstance, pool: Pool, turn: Turn, bound: number, decider: Decider): string {
    const { candidates, workers } = pool;
    const { n, capacity, truth, blockTokens } = candidates;
    const { text, fields, columns } = this.#subjectOf(instance);
    const shownFields = fields.map((name) => `"${name}":${fieldText(name, turn, blockTokens)}`);
    const shownColumns = columns.map((name) => `"${name}":[${truth[name].subarray(0, n).join()}]`);
    return (
      `"asked":true,${text},"instance":${decider.instance},"call":${decider.call},"capacity":${capacity}` +
      `,"workers":${this.#idsOf(workers)},"bound":${bound},"fields":{${shownFields.join()}}` +
      `,"columns":{${shownColumns.join()}},"answer":${decider.answer}`
    );
  }

  #subjectOf(instance: PolicyInstance): Subject {
    let subject = this.#subjects.get(instance);
    if (!subject) {
      const { name, policy, parameters } = instance;
      const { type, reads } = policy.manifest;
      const { sha256 } = policy.admitted;
      const text = JSON.stringify({ policy: name, type, sha256, parameters: [...parameters] }).slice(1, -1);
      subject = { text, ...this.#shownOf(reads) };
      this.#subjects.set(instance, subject);
    }
    return subject;
  }

  #shownOf(reads: readonly string[]): Pick<Subject, "fields" | "columns"> {
    const isAll = this.options.columns === "all";
    const isRead = (name: string) => reads.includes(name);
    const isShown = (name: ColumnName) =>
      isRead(name) || ALWAYS.includes(name) || (isAll && FILLED.has(name));
    return {
      fields: [...(isAll ? KNOWN_FIELDS : KNOWN_FIELDS.filter(isRead)), ...ASKED_FIELDS.filter(isRead)],
      columns: COLUMNS.map(({ name }) => name).filter(isShown),
    };
  }

  #idsOf(workers: readonly Worker[]): string {
    let text = this.#ids.get(workers);
    if (text === undefined) {
      text = JSON.stringify(workers.map(({ id }) => id));
      this.#ids.set(workers, text);
    }
    return text;
  }
}

/** A field's value as cases are written. */
function fieldText(name: FieldName, turn: Turn, blockTokens: number): string {
  switch (name) {
    case "now":
      return JSON.stringify(turn.now);
    case "seed":
      return hexOf(turn.seedLow, turn.seedHigh);
    case "session":
      return hexOf(turn.sessionLow, turn.sessionHigh);
    case "session_requests":
      return String(turn.sessionRequests);
    default:
      return String(blockTokens);
  }
}

function hexOf(low: number, high: number): string {
  const digits = (word: number) => (word >>> 0).toString(16).padStart(8, "0");
  return `"0x${digits(high)}${digits(low)}"`;
}

function tenths(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.round(milliseconds * 10) / 10;
}

/** Undefined where nothing of it is known. */
function known<T extends object>(values: T): T | undefined {
  return Object.values(values).some((value) => value !== undefined) ? values : undefined;
}
