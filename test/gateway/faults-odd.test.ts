// A worker whose answer is not as HTTP would have it, comes in an odd way, or comes faster than its client reads; on every
// endpoint, with and without a stream. No other worker can help.
import { it } from "vitest";
import {
  BROKEN,
  cellsOf,
  expectNothingUncaught,
  type Row,
  TOO_SLOW,
  tryCell,
  UNREACHABLE,
} from "./fault-cells.js";
import { CHUNKED, type Fault } from "./faulty-upstream.js";

const MIB = 1_048_576;
/** More than all buffers between the upstream and a client, the kernel's included. */
const FLOOD = 32 * MIB;
const WIDE = { streamBufferBytes: 2 * FLOOD, answerBufferBytes: 2 * FLOOD };
const NARROW = { streamBufferBytes: MIB, answerBufferBytes: MIB };
const SECOND_ANSWER = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";

expectNothingUncaught();

const LIES: readonly Row[] = [
  {
    name: "sends more than its length",
    fault: async (wire) => {
      await wire.head(`content-length: ${wire.half.length}`);
      await Promise.all([wire.body(wire.half), wire.raw("and more")]);
    },
    outcome: "whole",
    ends: "gateway",
  },
  {
    name: "sends a second answer with the first",
    fault: async (wire) => {
      await wire.head(wire.length);
      await Promise.all([wire.body(wire.answer.body), wire.raw(SECOND_ANSWER)]);
    },
    outcome: "whole",
    ends: "gateway",
  },
  {
    name: "sends a second answer on the idle connection",
    fault: async (wire) => {
      await wire.answerWell();
      await wire.arrived();
      await wire.raw(SECOND_ANSWER);
    },
    outcome: "whole",
    ends: "gateway",
  },
  {
    name: "speaks another protocol",
    fault: (wire) => wire.raw("SSH-2.0-x\r\n"),
    outcome: UNREACHABLE,
    ends: "gateway",
  },
  {
    name: "sends a head without end",
    fault: (wire) => wire.head(...Array.from({ length: 1_000 }, (_, i) => `x-${i}: ${"x".repeat(90)}`)),
    outcome: UNREACHABLE,
    ends: "gateway",
  },
  {
    name: "sends what is no chunk",
    fault: (wire) =>
      wire.begin(CHUNKED, async () => {
        await wire.chunk(wire.half);
        await wire.arrived();
        await wire.raw("no chunk\r\n");
      }),
    outcome: BROKEN,
    ends: "gateway",
  },
];

const ENDINGS: readonly Row[] = [
  { name: "drips a byte at a time", fault: (wire) => wire.drip(), outcome: "whole", ends: null },
  {
    name: "answers 200 with an error first",
    fault: (wire) => wire.answerError(),
    outcome: "whole",
    ends: null,
  },
  {
    name: "closes the idle connection",
    fault: async (wire) => {
      await wire.answerWell();
      await wire.arrived();
      wire.halfClose();
    },
    outcome: "whole",
    ends: "upstream",
  },
  {
    name: "answers in HTTP/1.0, to the end of the connection",
    fault: async (wire) => {
      await wire.oldHead();
      await wire.body(wire.answer.body);
      wire.halfClose();
    },
    outcome: "whole",
    ends: "upstream",
  },
  {
    name: "resets in the middle of an answer in HTTP/1.0",
    fault: async (wire) => {
      await wire.oldHead();
      await wire.body(wire.half);
      await wire.arrived();
      wire.reset();
    },
    outcome: BROKEN,
    ends: "upstream",
  },
];

const FLOODS: readonly Row[] = [
  {
    name: "floods a client that reads",
    fault: flood("x-a: b", FLOOD),
    outcome: "whole",
    ends: null,
    limits: WIDE,
  },
  {
    name: "floods a client that does not read",
    fault: flood("x-a: b", FLOOD),
    outcome: TOO_SLOW,
    ends: "gateway",
    limits: NARROW,
    stalls: true,
  },
  {
    name: "ends with `Connection: close` while its client does not read",
    fault: flood("connection: close", FLOOD, (wire) => wire.halfClose()),
    outcome: "whole",
    ends: "upstream",
    limits: WIDE,
    stalls: true,
  },
  {
    name: "resets while its client does not read",
    fault: flood("x-a: b", FLOOD + 1, (wire) => wire.reset()),
    outcome: BROKEN,
    ends: "upstream",
    limits: WIDE,
    stalls: true,
  },
];

/** Sends far more than any buffer holds, under a head with this line more; then does what is left to do. */
function flood(line: string, length: number, end: Fault = () => {}): Fault {
  return async (wire) => {
    await wire.head(`content-length: ${length}`, line);
    await wire.flood(FLOOD);
    await end(wire);
  };
}

it.each(cellsOf([...LIES, ...ENDINGS, ...FLOODS]))("a worker that %s", (_title, row, mode) =>
  tryCell(row, mode),
);
