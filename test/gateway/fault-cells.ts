// What the tests over a faulty upstream share: a client that keeps count, what it must get, and a cell of their tables.
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, beforeEach, expect } from "vitest";
import type { Limits } from "../../host/gateway/options.js";
import { APIS, type Api, goodAnswer, type Told } from "./apis.js";
import { open } from "./client.js";
import { type Fault, faultyUpstream, type Received, type Seen } from "./faulty-upstream.js";
import { gateway, inFlight, until } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

/** Between two polls: none comes within a test. */
export const AN_HOUR = 3_600_000;
/** What the gateway waits for the first byte of an answer, and between two; and some beats of its clock more. */
export const FIRST_BYTE = 30 * 60_000 + 5_000;
export const IDLE = 10 * 60_000 + 5_000;

/** An endpoint, and whether a stream is asked for. */
export interface Mode {
  readonly api: Api;
  readonly isStream: boolean;
}

/** Every endpoint in both modes. */
const MODES: readonly Mode[] = APIS.flatMap((api) => [true, false].map((isStream) => ({ api, isStream })));

/** A mode as the title of a test has it. */
function titleOf({ api, isStream }: Mode): string {
  return `${api.path}, ${isStream ? "a stream" : "no stream"}`;
}

/** What a client got. */
export interface Got {
  readonly status: number;
  readonly worker: string | undefined;
  readonly body: Buffer;
  /** Whether the answer came to its end, and not only to that of the connection. */
  readonly isWhole: boolean;
}

export interface AskOptions {
  readonly model?: string;
  readonly headers?: Record<string, string>;
  readonly members?: object | undefined;
  /** Where the client counts what it has. */
  readonly seen?: Seen;
  /** What the client waits for after the head, before it reads on. */
  readonly stall?: (() => Promise<void>) | undefined;
}

/** Asks and reads until the end, in whichever way that comes; rejects where no head comes. */
export async function ask(url: string, { api, isStream }: Mode, options: AskOptions = {}): Promise<Got> {
  const { model = "m", headers, members, seen = { head: false, bytes: 0 }, stall } = options;
  const message = await open(url + api.path, { model, stream: isStream, ...members }, headers);
  const chunks: Buffer[] = [];
  const ended = new Promise<void>((resolve) => message.on("error", () => {}).on("close", resolve));
  seen.head = true;
  await stall?.();
  message.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    seen.bytes += chunk.length;
  });
  await ended;
  return {
    status: message.statusCode!,
    worker: message.headers["x-hawser-worker"] as string | undefined,
    body: Buffer.concat(chunks),
    isWhole: message.complete,
  };
}

/** How the gateway itself says that a worker failed: behind a part of an answer, or in place of one. */
export interface Failure {
  readonly status: number;
  readonly code: string;
  readonly message: RegExp;
}

export const UNREACHABLE: Failure = {
  status: 502,
  code: "worker_unreachable",
  message: /could not be reached or broke off before it answered/,
};
export const BROKEN: Failure = {
  status: 200,
  code: "worker_failed",
  message: /broke off in the middle of its answer/,
};
const silence = { code: "worker_timeout", message: /sent nothing for longer than the gateway waits/ };
export const SILENT: Failure = { status: 504, ...silence };
export const FELL_SILENT: Failure = { status: 200, ...silence };
export const TOO_SLOW: Failure = { status: 200, code: "client_too_slow", message: /reads too slowly/ };

/** Expects an answer that is unaltered and whole. */
export function expectWhole(got: Got, sent: Buffer): void {
  expect([got.status, got.isWhole, got.body.length]).toEqual([200, true, sent.length]);
  expect(got.body.equals(sent)).toBe(true);
}

/** Expects an answer of the gateway's own, in the shape of the endpoint. */
export function expectRefusal(got: Got, { api }: Mode, failure: Failure): void {
  expect([got.status, got.isWhole]).toEqual([failure.status, true]);
  expectTold(api.refusal(got.body.toString()), failure);
}

/**
 * Expects a part of what was sent, then a broken connection; in a stream, an event between them that says why. Returns how
 * many bytes of what was sent have come.
 */
export function expectCut(got: Got, { api, isStream }: Mode, sent: Buffer, failure: Failure): number {
  expect([got.status, got.isWhole]).toEqual([200, false]);
  const body = got.body.toString("latin1");
  const event = isStream ? lastEvent(api, got.body) : undefined;
  const part = event ? body.slice(0, event.at) : body;
  const { length } = commonPrefix(part, sent.toString("latin1"));
  // Between the part and the event there is nothing but what ends the event that may have begun.
  expect(part.slice(length)).toMatch(/^\n*$/);
  if (event) {
    expect(part).toMatch(/(^|\n\n)$/);
    expectTold(api.eventData(event.data), failure);
  }
  return length;
}

/** The event that must stand at the end of a broken stream, and where it begins. */
function lastEvent({ errorEvent }: Api, body: Buffer): { at: number; data: string } {
  const begin = errorEvent ? `event: ${errorEvent}\ndata: ` : "data: ";
  const at = body.lastIndexOf(begin);
  expect(at).toBeGreaterThanOrEqual(0);
  const [data, ...rest] = body.toString("utf8", at + begin.length).split("\n");
  expect(rest).toEqual(["", ""]);
  return { at, data: data! };
}

function expectTold({ code, message }: Told, failure: Failure): void {
  expect(message).toMatch(failure.message);
  if (code !== undefined) expect(code).toBe(failure.code);
}

function commonPrefix(a: string, b: string): string {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return a.slice(0, length);
}

/** One way to go wrong, and what comes of it. */
export interface Row {
  readonly name: string;
  readonly fault: Fault;
  /** What the client gets: all that was sent, or a part of it and the gateway's word. */
  readonly outcome: "whole" | Failure;
  /** Who ends the connection between gateway and upstream; null where it goes on. */
  readonly ends: Received["endedBy"];
  readonly limits?: Partial<Limits>;
  /** Whether the client reads nothing until that connection is closed. */
  readonly stalls?: boolean;
  /** Milliseconds that pass once the upstream has said all it will. */
  readonly waitMs?: number;
}

/** Every row on every endpoint in both modes. */
export function cellsOf<R extends { readonly name: string }>(rows: readonly R[]): [string, R, Mode][] {
  return rows.flatMap((row) =>
    MODES.map((mode): [string, R, Mode] => [`${row.name}: ${titleOf(mode)}`, row, mode]),
  );
}

/** Has the only worker of its model go wrong; then all is to be as before, on that worker and on others. */
export async function tryCell(
  { fault, outcome, ends, limits = {}, stalls, waitMs }: Row,
  mode: Mode,
): Promise<void> {
  const worker = await faultyUpstream(fault);
  const other = await faultyUpstream((wire) => wire.answerWell(), "other");
  const clock = new VirtualClock();
  const { url, router } = await gateway({
    ...{ urls: [worker.url, other.url], clock, limits, health: { intervalMs: AN_HOUR } },
  });
  const isClosed = () => worker.requests[0]?.isClosed === true;
  const asked = ask(url, mode, { seen: worker.seen, ...(stalls && { stall: () => until(isClosed) }) });
  if (waitMs) {
    await until(() => worker.requests[0]?.isSaid === true);
    clock.advance(waitMs);
  }
  const got = await asked;
  const sent = Buffer.concat(worker.requests[0]!.sent);
  if (outcome === "whole") expectWhole(got, sent);
  else if (outcome.status !== 200) expectRefusal(got, mode, outcome);
  // A client that reads has got all of it before the worker goes wrong.
  else expect(expectCut(got, mode, sent, outcome)).toBeGreaterThanOrEqual(stalls ? 0 : sent.length);

  await until(() => inFlight(router) === 0);
  if (ends) await until(isClosed);
  expect([worker.requests.length, worker.requests[0]!.endedBy]).toEqual([1, ends]);

  const good = goodAnswer(mode.api, mode.isStream).body;
  for (const model of ["m", "other"]) expectWhole(await ask(url, mode, { model }), good);
  expect([worker.requests.length, other.requests.length]).toEqual([2, 1]);
  await until(() => inFlight(router) === 0);
}

/** Fails each test of a file in which an error or a rejection was left to the process. */
export function expectNothingUncaught(): void {
  const caught: unknown[] = [];
  const listener = (error: unknown): void => void caught.push(error);
  beforeEach(() => {
    process.on("uncaughtException", listener).on("unhandledRejection", listener);
  });
  afterEach(async () => {
    await turn();
    process.off("uncaughtException", listener).off("unhandledRejection", listener);
    expect(caught.splice(0)).toEqual([]);
  });
}
