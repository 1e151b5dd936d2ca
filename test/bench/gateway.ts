// What a request and a stream cost the gateway, beside the proxies in C that do the same work on the same machine in the
// same minutes. Processor time per request is the figure to trust on a shared machine, and its ratio more than itself.

import { printRequests } from "./gateway-requests.js";
import { printSingleStreams, printStreams } from "./gateway-streams.js";
import { Stand } from "./stand.js";

/** How much is measured. */
const FULL = {
  requests: { seconds: 1, rounds: 6 },
  single: { streams: 150, rounds: 5 },
  streams: { concurrent: [200, 500], each: 3, events: 25, spreadMs: 1_000, rounds: 3 },
};
const QUICK: typeof FULL = {
  requests: { seconds: 0.2, rounds: 1 },
  single: { streams: 10, rounds: 1 },
  streams: { concurrent: [8], each: 1, events: 3, spreadMs: 0, rounds: 1 },
};

/** Measures and prints; a quick run shows only that everything runs. Needs Linux: it reads /proc. */
export async function benchGateway(quick: boolean): Promise<void> {
  const { requests, single, streams } = quick ? QUICK : FULL;
  const stand = await Stand.open();
  try {
    process.stdout.write(`${stand.lines.join("\n")}\n\n`);
    await printRequests(stand, requests);
    await printSingleStreams(stand, single);
    await printStreams(stand, streams);
  } finally {
    await stand.close();
  }
}
