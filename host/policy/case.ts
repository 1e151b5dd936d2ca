// Cases: single decisions written as JSON, for `policy run`, `policy test` and the decision tables of manifests.

import { COLUMNS, type ColumnName, FIELDS, type FieldName } from "../abi/frame.js";
import type { Failure } from "../abi/reasons.js";
import { describe, quote } from "../yaml/words.js";
import { Candidates } from "./candidates.js";
import { type Decider, Turn } from "./decider.js";
import { LivePolicy, type Program } from "./live.js";
import { SeedGenerator } from "./random.js";

/** What the host made of one case. */
export interface Decision {
  /** The chosen row; null where none is eligible. */
  row: number | null;
  reason: string;
  /** Why the policy's own answer was not used. */
  failure?: Failure;
}

/** A case that cannot be read, as one sentence. */
export class CaseError extends Error {
  override readonly name = "CaseError";
}

/** Most rows a case may have unless told otherwise. */
export const DEFAULT_CAPACITY = 4_096;

/** A policy at work that can be given cases. */
export interface CaseDecider
  extends Omit<Decider, "rehearse" | "fuelBudget" | "answer" | "instance" | "call"> {
  /** Units of fuel that the last call used, of `budgetOf(capacity)`. */
  readonly fuelUsed: number;
  /** Writes header words from `offset / 4` on. */
  writeWords(index: number, values: readonly number[]): void;
}

/** Starts a policy over rows; throws a PolicyStartError where it cannot. */
export type Starter = (candidates: Candidates) => CaseDecider;

type Row = Record<string, unknown>;
type Column = Exclude<ColumnName, "eligible">;

const KEYS = ["loads", "eligible", "bound", "request", "columns"];
const FIELD_BY_NAME = new Map<string, (typeof FIELDS)[number]>(FIELDS.map((field) => [field.name, field]));
const COLUMN_NAMES = COLUMNS.map(({ name }) => name);
const I32 = { least: -(2 ** 31), most: 2 ** 31 - 1 };
const U32 = { least: 0, most: 2 ** 32 - 1 };
const NO_WORDS: readonly number[] = new Array(32).fill(0);

/** Runs cases one after the other on one instance, through the code that decides in the gateway. */
export class CaseRunner {
  readonly #candidates: Candidates;
  readonly #live: CaseDecider;
  readonly #reads: readonly (FieldName | ColumnName)[];
  readonly #turn = new Turn();
  readonly #random: SeedGenerator;

  /**
   * `parameters` are values in manifest order; `seed` starts the generator of the cases that name no `seed`; `start`
   * is how the policy is started, unless as in the gateway. Throws a PolicyStartError where the module does not start
   * with this capacity.
   */
  constructor(
    policy: Program,
    parameters: Float64Array,
    capacity = DEFAULT_CAPACITY,
    seed = 0,
    start: Starter = (candidates) => new LivePolicy(policy, parameters, candidates),
  ) {
    this.#candidates = new Candidates(capacity);
    this.#reads = policy.manifest.reads;
    this.#random = new SeedGenerator(seed);
    this.#live = start(this.#candidates);
  }

  /** Units of fuel that the policy's last call used, of `budgetOf(capacity)`; 0 where it was not called. */
  get fuelUsed(): number {
    return this.#live.fuelUsed;
  }

  /** Decides one case. Throws a CaseError where it is malformed; the instance is then as it was before. */
  run(input: unknown): Decision {
    const given = readCase(input, this.#candidates.capacity);
    this.#fillRows(given);
    this.#fillRequest(given.request);
    this.#live.decide(this.#turn, given.bound);
    const { row, reason, failure } = this.#live;
    return { row: row < 0 ? null : row, reason, ...(failure && { failure }) };
  }

  #fillRows({ rows, eligible, columns }: ReadCase): void {
    const candidates = this.#candidates;
    for (let row = rows; row < candidates.n; row++) candidates.setEligible(row, false);
    candidates.n = rows;
    for (let row = 0; row < rows; row++)
      candidates.setEligible(row, eligible === null || Boolean(eligible[row]));
    for (const { name, unknown } of COLUMNS) {
      if (name === "eligible") continue;
      const values = columns.get(name);
      const written = name === "active_requests" || this.#reads.includes(name);
      if (!written) continue;
      for (let row = 0; row < rows; row++) {
        candidates.set(name, row, values ? values[row]! : name === "worker_hash" ? row : unknown);
      }
    }
  }

  #fillRequest(request: Map<FieldName, number | readonly number[]>): void {
    const turn = this.#turn;
    this.#random.next();
    turn.now = (request.get("now") as number | undefined) ?? 0;
    const [seedLow, seedHigh] = words(request.get("seed"), [this.#random.low, this.#random.high]);
    const [sessionLow, sessionHigh] = words(request.get("session"), NO_WORDS);
    turn.seedLow = seedLow!;
    turn.seedHigh = seedHigh!;
    turn.sessionLow = sessionLow!;
    turn.sessionHigh = sessionHigh!;
    turn.sessionRequests = words(request.get("session_requests"), NO_WORDS)[0]!;
    for (const { name, type, offset } of FIELDS) {
      if (!this.#reads.includes(name) || name === "now" || name === "seed" || name === "session") continue;
      const left = type === "u64[16]" ? NO_WORDS : [0];
      this.#live.writeWords(offset / 4, words(request.get(name), left));
    }
  }
}

interface ReadCase {
  rows: number;
  eligible: readonly unknown[] | null;
  bound: number;
  columns: Map<Column, readonly number[]>;
  request: Map<FieldName, number | readonly number[]>;
}

function words(value: number | readonly number[] | undefined, left: readonly number[]): readonly number[] {
  if (value === undefined) return left;
  return typeof value === "number" ? [value] : value;
}

function readCase(input: unknown, capacity: number): ReadCase {
  const given = readObject(input, "a case", KEYS);
  const loads = readRows(given.loads, '"loads"', null, { least: 0, most: I32.most });
  const rows = loads.length;
  if (rows > capacity) throw new CaseError(`"loads" has ${rows} rows, the capacity is ${capacity}`);
  const eligible = given.eligible === undefined ? null : readEligible(given.eligible, rows);
  const bound =
    given.bound === undefined ? -1 : readInteger(given.bound, '"bound"', { least: -1, most: rows - 1 });
  const columns = new Map<Column, readonly number[]>([["active_requests", loads]]);
  const named = given.columns === undefined ? {} : readObject(given.columns, '"columns"', COLUMN_NAMES);
  for (const [name, values] of Object.entries(named)) {
    if (name === "eligible" || name === "active_requests") {
      throw new CaseError(`"columns.${name}" is written as "${name === "eligible" ? name : "loads"}"`);
    }
    const most = name === "worker_hash" ? U32.most : I32.most;
    columns.set(name as Column, readRows(values, `"columns.${name}"`, rows, { least: I32.least, most }));
  }
  return { rows, eligible, bound, columns, request: readRequest(given.request) };
}

function readRequest(input: unknown): Map<FieldName, number | readonly number[]> {
  const request = new Map<FieldName, number | readonly number[]>();
  if (input === undefined) return request;
  for (const [name, value] of Object.entries(readObject(input, '"request"', [...FIELD_BY_NAME.keys()]))) {
    const { type } = FIELD_BY_NAME.get(name)!;
    request.set(name as FieldName, readField(type, value, `"request.${name}"`));
  }
  return request;
}

function readField(
  type: (typeof FIELDS)[number]["type"],
  value: unknown,
  place: string,
): number | readonly number[] {
  switch (type) {
    case "f64":
      if (typeof value !== "number") throw new CaseError(`${place} must be a number, found ${shown(value)}`);
      return value;
    case "u32":
      return readInteger(value, place, U32);
    case "u64":
      return readHex(value, place);
    case "u64[16]": {
      if (!Array.isArray(value) || value.length > 16) {
        throw new CaseError(`${place} must be a list of at most 16 hex strings, found ${shown(value)}`);
      }
      const hashes = value.flatMap((hash, index) => readHex(hash, `${place}[${index}]`));
      return [...hashes, ...NO_WORDS.slice(hashes.length)];
    }
  }
}

function readHex(value: unknown, place: string): readonly number[] {
  if (typeof value !== "string" || !/^0x[0-9a-fA-F]{1,16}$/.test(value)) {
    throw new CaseError(
      `${place} must be a hex string of at most 64 bits such as "0x5", found ${shown(value)}`,
    );
  }
  const bits = BigInt(value);
  return [Number(BigInt.asIntN(32, bits)), Number(BigInt.asIntN(32, bits >> 32n))];
}

function readObject(value: unknown, place: string, allowed: readonly string[]): Row {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new CaseError(`${place} must be an object, found ${shown(value)}`);
  }
  const unknown = Object.keys(value).find((key) => !allowed.includes(key));
  if (unknown !== undefined) {
    throw new CaseError(`${place} has an unknown key ${quote(unknown)}, allowed are ${allowed.join(", ")}`);
  }
  return value as Row;
}

type Range = { least: number; most: number };

function readRows(value: unknown, place: string, rows: number | null, range: Range): readonly number[] {
  if (!Array.isArray(value))
    throw new CaseError(`${place} must be a list of integers, found ${shown(value)}`);
  if (rows !== null) checkLength(value, place, rows);
  for (let row = 0; row < value.length; row++) {
    if (!isIntegerIn(value[row], range)) readInteger(value[row], `${place}[${row}]`, range);
  }
  return value;
}

function readEligible(value: unknown, rows: number): readonly unknown[] {
  if (!Array.isArray(value))
    throw new CaseError(`"eligible" must be a list of 0 and 1, found ${shown(value)}`);
  checkLength(value, '"eligible"', rows);
  const wrong = value.findIndex((flag) => flag !== 0 && flag !== 1 && typeof flag !== "boolean");
  if (wrong >= 0) throw new CaseError(`"eligible"[${wrong}] must be 0 or 1, found ${shown(value[wrong])}`);
  return value;
}

function checkLength(value: readonly unknown[], place: string, rows: number): void {
  if (value.length !== rows) throw new CaseError(`${place} has ${value.length} rows, "loads" has ${rows}`);
}

function isIntegerIn(value: unknown, { least, most }: Range): value is number {
  return Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
}

function readInteger(value: unknown, place: string, range: Range): number {
  if (isIntegerIn(value, range)) return value;
  throw new CaseError(
    `${place} must be an integer from ${range.least} to ${range.most}, found ${shown(value)}`,
  );
}

/** As a JSON text has it, but for lists and mappings, which may be of any size and depth. */
function shown(value: unknown): string {
  return value === null ? "null" : describe(value);
}
