// What came of a request to a fleet in which others were well all the time: complete, or lost for a cause that no retry mends.
import type { Got } from "./client.js";
import type { History } from "./history.js";
import type { Asked } from "./request.js";
import { errorTold, verdictOf } from "./verdict.js";

/**
 * How a request that began at `begunAt` ended: `complete`, `left in ...`, `lost by a death`, `lost by a drain`. Throws what
 * `verdictOf` throws, and an Error for an end that another worker could have saved it from, or that nothing explains.
 */
export function fleetVerdictOf(asked: Asked, got: Got, begunAt: number, history: History): string {
  const end = verdictOf(asked, got);
  if (end === "complete" || got.left !== undefined) return end;
  const { "x-hawser-worker": worker } = got.headers;
  // A head is a part of the answer: it says which worker's.
  if (got.status !== 200 || typeof worker !== "string") throw new Error(`another worker was there: ${end}`);
  const told = asked.isStream ? errorTold(asked, got) : undefined;
  if (asked.isStream && told === undefined) throw new Error(`nobody told why: ${end}`);
  if (told?.includes("in the middle of its answer") !== false && history.hasDied(worker, begunAt))
    return "lost by a death";
  if (told?.includes("taken out of service") !== false && history.wasCut(worker, begunAt))
    return "lost by a drain";
  throw new Error(`nothing befell its worker: ${end}, ${told}`);
}
