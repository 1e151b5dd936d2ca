// A policy's debug build, on its author's machine: `assert`, `abort` and `trace` say file, line and message. Such a
// module imports what no gateway admits, and it is not metered.
import { instantiateSync } from "@assemblyscript/loader";
import { Frame, WORD } from "../abi/frame.js";
import { type Failure, LAST_SHARED_REASON, REASON_NAMES, ROW_MASK } from "../abi/reasons.js";
import type { Candidates } from "../policy/candidates.js";
import type { CaseDecider } from "../policy/case.js";
import type { Turn } from "../policy/decider.js";
import { PolicyStartError } from "../policy/live.js";
import type { Manifest } from "../policy/manifest.js";

type DebugExports = Record<string, unknown> & {
  readonly memory: WebAssembly.Memory;
  init(capacity: number): number;
  select(n: number, bound: number): number;
};

export interface DebugProgram {
  readonly manifest: Pick<Manifest, "reads" | "reasons">;
  readonly module: WebAssembly.Module;
  /** In manifest order. */
  readonly parameters: Float64Array;
  /** Takes what the policy says, a line at a time. */
  readonly print: (line: string) => void;
}

/** One instance of a debug build, deciding over one set of candidates. */
export class DebugPolicy implements CaseDecider {
  row = -1;
  failure: Failure | undefined;
  readonly readsSeed = true;
  readonly readsSessionRequests = true;
  readonly fuelUsed = 0;
  readonly #program: DebugProgram;
  readonly #candidates: Candidates;
  #reason = "none";
  #exports!: DebugExports;
  #frame!: Frame;

  /** Throws a PolicyStartError where the module traps in its start or refuses the capacity. */
  constructor(program: DebugProgram, candidates: Candidates) {
    this.#program = program;
    this.#candidates = candidates;
    this.#start();
  }

  get reason(): string {
    return this.#reason;
  }

  decide(turn: Turn, bound: number): void {
    this.failure = undefined;
    this.row = -1;
    this.#reason = "none";
    if (this.#candidates.eligibleCount === 0) return;
    this.#writeHeader(turn);
    let answer: number;
    try {
      answer = this.#exports.select(this.#candidates.n, bound);
    } catch (error) {
      this.#program.print(messageOf(error));
      this.#fail("trap");
      this.#start();
      return;
    }
    this.#use(answer);
  }

  writeWords(index: number, values: readonly number[]): void {
    this.#frame.words.set(values, index);
  }

  #use(answer: number): void {
    const [row, reason] = [answer & ROW_MASK, answer >> 16];
    const own = this.#program.manifest.reasons.get(reason);
    if (answer < 0) this.#fail("no_choice");
    else if (row >= this.#candidates.n) this.#fail("bad_row");
    else if (this.#candidates.truth.eligible[row] === 0) this.#fail("not_eligible");
    else if (reason > LAST_SHARED_REASON && own === undefined) this.#fail("bad_reason");
    else {
      this.row = row;
      this.#reason = own ?? REASON_NAMES[reason]!;
    }
  }

  #fail(failure: Failure): void {
    this.failure = failure;
    this.row = this.#candidates.leastLoaded();
    this.#reason = "fallback";
  }

  #writeHeader(turn: Turn): void {
    const { words, now } = this.#frame;
    const { reads } = this.#program.manifest;
    if (reads.includes("now")) now[0] = turn.now;
    if (reads.includes("seed")) words.set([turn.seedLow, turn.seedHigh], WORD.seed);
    if (reads.includes("session")) words.set([turn.sessionLow, turn.sessionHigh], WORD.session);
    if (reads.includes("session_requests")) words[WORD.session_requests] = turn.sessionRequests;
  }

  #start(): void {
    const { capacity } = this.#candidates;
    const { module, parameters, print, manifest } = this.#program;
    try {
      this.#exports = instantiate(module, print);
      const address = this.#exports.init(capacity);
      if (address < 0) throw new Error(`init refuses a capacity of ${capacity}: it answers ${address}`);
      this.#frame = new Frame(this.#exports.memory.buffer, address, capacity);
    } catch (error) {
      throw new PolicyStartError(messageOf(error));
    }
    this.#frame.params.set(parameters);
    this.#candidates.mirrorTo(this.#frame, manifest.reads);
  }
}

function messageOf(error: unknown): string {
  const { message, stack = "" } = error as Error;
  if (!(error instanceof WebAssembly.RuntimeError)) return message;
  const [, place] = /at (\S+) \(wasm:/.exec(stack) ?? [];
  return place === undefined ? `trap: ${message}` : `trap: ${message} in ${place}`;
}

function instantiate(module: WebAssembly.Module, print: (line: string) => void): DebugExports {
  let text = (_: number): string => "";
  const { exports } = instantiateSync<DebugExports>(module, {
    env: {
      abort(message: number, file: number, line: number, column: number): never {
        throw new Error(
          `abort: ${message ? text(message) : "no message"} in ${text(file)}:${line}:${column}`,
        );
      },
      trace(message: number, count: number, ...values: number[]): void {
        print(`trace: ${[text(message), ...values.slice(0, count)].join(" ")}`);
      },
    },
  });
  text = (exports as unknown as { __getString(pointer: number): string }).__getString;
  return exports;
}
