// A policy at work: one instance of its module, the frame in its memory, and the check of every answer.

import { Frame, WORD } from "../abi/frame.js";
import { FAILURES, type Failure, LAST_SHARED_REASON, REASON_NAMES, ROW_MASK } from "../abi/reasons.js";
import { type Admitted, budgetOf, FUEL_EXPORT, START_EXPORT, START_UNITS } from "../sandbox/admit.js";
import type { Candidates } from "./candidates.js";
import { type Decider, NO_ROW, type Rehearsal, type Turn } from "./decider.js";
import { PolicyHealth } from "./health.js";
import type { Manifest } from "./manifest.js";
import { isRestorable, untouched } from "./untouched.js";

/** What an instance is made from; a `PolicyFile` is one. */
export interface Program {
  readonly manifest: Pick<Manifest, "type" | "reads" | "reasons">;
  readonly admitted: Pick<Admitted, "module"> & {
    /** Of the module's file, in lower-case hex, where it came from one. */
    readonly sha256?: string;
  };
}

/** A module that cannot be started, as one sentence. */
export class PolicyStartError extends Error {
  override readonly name = "PolicyStartError";
}

type Init = (capacity: number) => number;
type Select = (n: number, bound: number) => number;
/** The global of a module in which the meter keeps what is left of a call's units. */
type Fuel = { readonly value: number };

/** Instances started in this process. */
let started = 0;

const NO_FUEL: Fuel = { value: 0 };
const NO_FAILURE = -1;
const TRAP = FAILURES.indexOf("trap");
const FUEL = FAILURES.indexOf("fuel");
const BAD_ROW = FAILURES.indexOf("bad_row");
const NOT_ELIGIBLE = FAILURES.indexOf("not_eligible");
const BAD_REASON = FAILURES.indexOf("bad_reason");
const NO_CHOICE = FAILURES.indexOf("no_choice");

/** One policy instance, deciding over one set of candidates. */
export class LivePolicy implements Decider {
  row = -1;
  /** Whether the last decision was the host's built-in rule, because the policy failed or no row was eligible. */
  fallback = false;
  answer: number | null = null;
  instance = 0;
  call = 0;
  readonly fuelBudget: number;
  readonly readsSeed: boolean;
  readonly readsSessionRequests: boolean;
  readonly #readsNow: boolean;
  readonly #readsSession: boolean;
  readonly #policy: Program;
  readonly #parameters: Float64Array;
  readonly #candidates: Candidates;
  /** The instance's record, over all pools in which it runs. */
  readonly health: PolicyHealth;
  readonly #ownReasons: ReadonlyMap<number, string>;
  #reason = 0;
  #failure = NO_FAILURE;
  #exports: WebAssembly.Exports = {};
  #select: Select = unavailable;
  #frame!: Frame;
  #fuel: Fuel = NO_FUEL;
  /** What the last call used, where it trapped: its instance is gone. */
  #fuelOfTrap = 0;
  /** The number of the present instance, and the decisions that it has made. */
  #number = 0;
  #calls = 0;

  /**
   * Starts an instance for `candidates` and shows it their rows. `parameters` are values in manifest order.
   * Throws a PolicyStartError where the module traps in its start or refuses the capacity.
   */
  constructor(
    policy: Program,
    parameters: Float64Array,
    candidates: Candidates,
    health = new PolicyHealth(),
  ) {
    const { reads, reasons } = policy.manifest;
    this.#policy = policy;
    this.#parameters = parameters;
    this.#candidates = candidates;
    this.health = health;
    this.fuelBudget = budgetOf(candidates.capacity);
    this.#ownReasons = reasons;
    this.#readsNow = reads.includes("now");
    this.readsSeed = reads.includes("seed");
    this.#readsSession = reads.includes("session");
    this.readsSessionRequests = reads.includes("session_requests");
    this.#start();
  }

  get reason(): string {
    if (this.row < 0) return "none";
    if (this.fallback) return "fallback";
    return this.#nameOf(this.#reason);
  }

  get failure(): Failure | undefined {
    // An index out of range would be looked up as a property of that name, which is slow.
    return this.#failure === NO_FAILURE ? undefined : FAILURES[this.#failure];
  }

  /**
   * Units of fuel that the policy's last call used, of `budgetOf(capacity)`; 0 where it was not called. More than the
   * budget where the call ended for want of fuel; where it trapped, those that had been written down by then.
   */
  get fuelUsed(): number {
    if (this.row < 0) return 0;
    if (this.#failure === TRAP || this.#failure === FUEL) return this.#fuelOfTrap;
    return this.#unitsGone();
  }

  /** Bytes of its module's memory. */
  get memoryBytes(): number {
    return (this.#exports.memory as WebAssembly.Memory | undefined)?.buffer.byteLength ?? 0;
  }

  /** Where the policy fails, the built-in least-loaded rule answers in the same decision. */
  decide(turn: Turn, bound: number): void {
    const candidates = this.#candidates;
    this.#failure = NO_FAILURE;
    this.answer = null;
    if (candidates.eligibleCount === 0) {
      this.row = -1;
      this.fallback = true;
      return;
    }
    this.instance = this.#number;
    this.call = this.#calls++;
    this.#writeHeader(turn);
    let answer: number;
    try {
      answer = this.#select(candidates.n, bound);
      this.answer = answer;
    } catch {
      this.#fail(this.#kindOfTrap());
      this.#restart();
      return;
    }
    const fault = this.#faultOf(answer);
    if (fault !== NO_FAILURE) {
      this.#mislead(fault);
      return;
    }
    this.row = answer & ROW_MASK;
    this.#reason = answer >> 16;
    this.fallback = false;
    this.health.succeed();
  }

  rehearse(turn: Turn, bound: number): Rehearsal {
    if (this.#candidates.eligibleCount === 0) return NO_ROW;
    if (this.#select === unavailable) return this.#rescued(TRAP);
    if (!isRestorable(this.#exports)) return this.#rehearseAfresh(turn, bound);
    return untouched(this.#exports, () => this.#try(turn, bound));
  }

  /** Asks the policy, and tells what is to be made of its answer. */
  #try(turn: Turn, bound: number): Rehearsal {
    this.#writeHeader(turn);
    let answer: number;
    try {
      answer = this.#select(this.#candidates.n, bound);
    } catch {
      return this.#rescued(this.#kindOfTrap());
    }
    const fault = this.#faultOf(answer);
    if (fault !== NO_FAILURE) return this.#rescued(fault);
    const [row, reason] = [answer & ROW_MASK, this.#nameOf(answer >> 16)];
    return { row, reason, failure: undefined, fuelUsed: this.#unitsGone(), fresh: false };
  }

  /** The built-in rule's answer after a failure. */
  #rescued(kind: number): Rehearsal {
    const row = this.#candidates.leastLoaded();
    return {
      ...{ row, reason: "fallback", failure: FAILURES[kind] },
      ...{ fuelUsed: this.#unitsGone(), fresh: false },
    };
  }

  /** Asks an instance made for the purpose, over rows of its own. */
  #rehearseAfresh(turn: Turn, bound: number): Rehearsal {
    const stand = new LivePolicy(this.#policy, this.#parameters, this.#candidates.copy());
    stand.#frame.words.set(this.#frame.words);
    return { ...stand.#try(turn, bound), fresh: true };
  }

  /** Shows it the rows: where another policy decided over them before. */
  takeOver(): void {
    this.#candidates.mirrorTo(this.#frame, this.#policy.manifest.reads);
  }

  /** Writes header words from `offset / 4` on: for fields that a router does not fill. */
  writeWords(index: number, values: readonly number[]): void {
    this.#frame.words.set(values, index);
  }

  /** Why an answer cannot be used: an index into `FAILURES`, `NO_FAILURE` where it can. */
  #faultOf(answer: number): number {
    const { n, truth } = this.#candidates;
    const row = answer & ROW_MASK;
    const reason = answer >> 16;
    if (answer < 0) return NO_CHOICE;
    if (row >= n) return BAD_ROW;
    if (truth.eligible[row] === 0) return NOT_ELIGIBLE;
    if (reason > LAST_SHARED_REASON && !this.#ownReasons.has(reason)) return BAD_REASON;
    return NO_FAILURE;
  }

  #kindOfTrap(): number {
    return this.#fuel.value < 0 ? FUEL : TRAP;
  }

  #nameOf(reason: number): string {
    return REASON_NAMES[reason] ?? this.#ownReasons.get(reason)!;
  }

  #writeHeader(turn: Turn): void {
    const { words, now } = this.#frame;
    if (this.#readsNow) now[0] = turn.now;
    if (this.readsSeed) {
      words[WORD.seed] = turn.seedLow;
      words[WORD.seed + 1] = turn.seedHigh;
    }
    if (this.#readsSession) {
      words[WORD.session] = turn.sessionLow;
      words[WORD.session + 1] = turn.sessionHigh;
    }
    if (this.readsSessionRequests) words[WORD.session_requests] = turn.sessionRequests;
  }

  #fail(kind: number): void {
    this.health.fail(kind);
    this.#failure = kind;
    this.row = this.#candidates.leastLoaded();
    this.fallback = true;
  }

  /** An answer that cannot be used: the policy may have spoilt its columns, and is shown the true ones again. */
  #mislead(kind: number): void {
    this.#fail(kind);
    this.takeOver();
  }

  #unitsGone(): number {
    return this.#fuel === NO_FUEL ? 0 : this.fuelBudget - this.#fuel.value;
  }

  /** A trapped instance is never called again: its shadow stack is displaced and its state half-written. */
  #restart(): void {
    this.#fuelOfTrap = this.#unitsGone();
    try {
      this.#start();
    } catch {
      this.#select = unavailable;
      this.#fuel = NO_FUEL;
    }
  }

  #start(): void {
    const { capacity } = this.#candidates;
    const exports = instantiate(this.#policy.admitted.module);
    const frame = openFrame(exports, capacity);
    frame.params.set(this.#parameters);
    this.#exports = exports;
    this.#frame = frame;
    this.takeOver();
    this.#select = exports.select as Select;
    this.#fuel = fuelOf(exports);
    this.#number = ++started;
    this.#calls = 0;
  }
}

function unavailable(): never {
  throw new PolicyStartError("the policy could not be started again");
}

/** A fresh instance whose start has run. */
function instantiate(module: WebAssembly.Module): WebAssembly.Exports {
  let exports: WebAssembly.Exports;
  try {
    ({ exports } = new WebAssembly.Instance(module));
  } catch (error) {
    const { message } = error as Error;
    // V8 guards every memory with some 10 GB of address space; they cost nothing but where `ulimit -v` counts them.
    const hint = message.includes("Out of memory")
      ? "; an instance reserves about 10 GB of address space, see ulimit -v"
      : "";
    throw new PolicyStartError(`the module cannot be instantiated: ${message}${hint}`);
  }
  const start = exports[START_EXPORT] as (() => void) | undefined;
  if (start) callMetered(exports, "the start function", START_UNITS, start);
  return exports;
}

function openFrame(exports: WebAssembly.Exports, capacity: number): Frame {
  const init = exports.init as Init;
  const address = callMetered(exports, "init", budgetOf(capacity), () => init(capacity));
  if (address < 0)
    throw new PolicyStartError(`init refuses a capacity of ${capacity}: it answers ${address}`);
  const { buffer } = exports.memory as WebAssembly.Memory;
  try {
    return new Frame(buffer, address, capacity);
  } catch (error) {
    throw new PolicyStartError(`init answers a bad address: ${(error as Error).message}`);
  }
}

function callMetered<T>(exports: WebAssembly.Exports, name: string, units: number, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw new PolicyStartError(
      fuelOf(exports).value < 0
        ? `${name} runs out of fuel: it may use ${units} units`
        : `${name} traps: ${(error as Error).message}`,
    );
  }
}

function fuelOf(exports: WebAssembly.Exports): Fuel {
  return exports[FUEL_EXPORT] as WebAssembly.Global<"i32">;
}
