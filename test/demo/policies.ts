// The policies that are compared, with parameters that matter at the load of the replay.
import { Catalog } from "../../host/policy/catalog.js";

/** Types compared where no others are asked for. */
export const COMPARED = [
  "sticky",
  "soft-affinity-load-guard",
  "affinity-break-margin",
  "imbalance-gate",
  "least-loaded",
] as const;

const shipped = Catalog.open([]);

export interface PolicyChoice {
  readonly type: string;
  readonly parameters: Readonly<Record<string, string | number>>;
}

/**
 * A policy as the replay runs it; types not compared by default keep their own defaults. Ties are random: where most
 * workers are idle, "first" would send nearly everything to one. Throws a RangeError for a type that is not shipped.
 */
export function choosePolicy(name: string, concurrency: number, workers: number): PolicyChoice {
  const type = shipped.find(name)?.manifest.type;
  if (type === undefined) {
    const types = shipped.list().map(({ manifest }) => manifest.type);
    throw new RangeError(`There is no policy of the type "${name}"; there are ${types.join(", ")}.`);
  }
  const ties = "random";
  switch (type) {
    case "sticky":
    case "least-loaded":
      return { type, parameters: { ties } };
    case "soft-affinity-load-guard":
      // Half of what each worker would have if all open sessions had a request in flight.
      return {
        type,
        parameters: { max_active_requests: Math.ceil(concurrency / workers / 2), move_margin: 2, ties },
      };
    case "affinity-break-margin":
      return { type, parameters: { affinity_break_margin: 2, ties } };
    case "imbalance-gate":
      return { type, parameters: { balance_abs_threshold: 4, ties } };
    default:
      return { type, parameters: {} };
  }
}
