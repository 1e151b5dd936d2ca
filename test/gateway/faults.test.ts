// A worker that breaks off at every place of its answer, in every way, on every endpoint, with and without a stream. No other
// worker can help.
import { it } from "vitest";
import {
  BROKEN,
  cellsOf,
  expectNothingUncaught,
  type Failure,
  FELL_SILENT,
  FIRST_BYTE,
  IDLE,
  type Row,
  SILENT,
  tryCell,
  UNREACHABLE,
} from "./fault-cells.js";
import { CHUNKED, type Fault, type Wire } from "./faulty-upstream.js";

expectNothingUncaught();

/** Where an answer can break off: what is sent until then, whether the client has a head by then, and how long it waits. */
const PLACES: readonly (readonly [string, Fault, hasHead: boolean, waitMs: number])[] = [
  ["before the head", () => {}, false, FIRST_BYTE],
  ["in the middle of the head", (wire) => wire.raw("HTTP/1.1 200 OK\r\ncontent-ty"), false, FIRST_BYTE],
  ["after the head of a body in chunks", (wire) => wire.begin(CHUNKED), true, FIRST_BYTE],
  ["after the head of a body with a length", (wire) => wire.begin(wire.length), true, FIRST_BYTE],
  ["between two chunks", (wire) => wire.begin(CHUNKED, () => wire.chunk(wire.half)), true, IDLE],
  ["in the middle of a chunk", (wire) => wire.begin(CHUNKED, () => wire.halfAChunk()), true, IDLE],
  [
    "in the middle of a chunk, having said `connection: close`",
    (wire) => wire.begin(`${CHUNKED}\r\nconnection: close`, () => wire.halfAChunk()),
    true,
    IDLE,
  ],
  ["before the last chunk", (wire) => wire.begin(CHUNKED, () => wire.chunk(wire.answer.body)), true, IDLE],
  [
    "in the middle of a body with a length, having said `connection: close`",
    (wire) => wire.begin(`${wire.length}\r\nconnection: close`, () => wire.body(wire.half)),
    true,
    IDLE,
  ],
  [
    "in the middle of a body with a length",
    (wire) => wire.begin(wire.length, () => wire.body(wire.half)),
    true,
    IDLE,
  ],
];

/** How it can break off there, and what the client is told if it has no head yet, or has one. */
const WAYS: readonly (readonly [string, Fault, Row["ends"], Failure, Failure])[] = [
  ["resets", (wire) => wire.reset(), "upstream", UNREACHABLE, BROKEN],
  ["closes", (wire) => wire.close(), "upstream", UNREACHABLE, BROKEN],
  ["half-closes", (wire) => wire.halfClose(), "upstream", UNREACHABLE, BROKEN],
  ["goes silent", () => {}, "gateway", SILENT, FELL_SILENT],
];

const BREAKS: readonly Row[] = WAYS.flatMap(([way, act, ends, before, within]) =>
  PLACES.map(([place, reach, hasHead, waitMs]) => ({
    name: `${way} ${place}`,
    fault: async (wire: Wire) => {
      await reach(wire);
      await act(wire);
    },
    outcome: hasHead ? within : before,
    ends,
    ...(ends === "gateway" && { waitMs }),
  })),
);

it.each(cellsOf(BREAKS))("a worker that %s", (_title, row, mode) => tryCell(row, mode));
