// What makes the load of the gateway's bench: native programs where they are to be had, else Node.

import { Process } from "./process.js";
import { commandOf, compile, fileBeside, nodeArguments } from "./tools.js";
import {
  PATH,
  type RequestOrder,
  type RequestOutcome,
  SESSIONS,
  type StreamOrder,
  type StreamOutcome,
} from "./wire.js";

export class Generators {
  readonly #wrk = commandOf("wrk");
  readonly #streams: string | undefined;
  #node: Process | undefined;

  /** Compiles into `directory`. */
  constructor(directory: string) {
    this.#streams = compile("streams", directory);
  }

  /** What is used, in a few words. */
  get names(): string {
    const requests = this.#wrk ? "wrk" : "Node, for want of wrk (its own cost limits requests/s)";
    return `requests by ${requests}; streams by ${this.#streams ? "a native program" : "Node, for want of a C compiler"}`;
  }

  /** Throws an Error for any answer but a good one. */
  async requests(order: RequestOrder): Promise<RequestOutcome> {
    if (!this.#wrk) return (await this.#askNode(order)) as RequestOutcome;
    const url = `http://127.0.0.1:${order.port}${PATH}`;
    const { connections, seconds, body } = order;
    const amount = ["-t", "1", "-c", String(connections), "-d", `${Math.ceil(seconds)}s`];
    const short = seconds < 1 ? [String(seconds)] : [];
    const outcome = await run("wrk", this.#wrk, [
      ...[...amount, "-s", fileBeside("wrk.lua"), url, "--", body, String(SESSIONS), ...short],
    ]);
    const { errors } = outcome as { errors: number };
    if (errors > 0) throw new Error(`${errors} requests failed`);
    return outcome as RequestOutcome;
  }

  /** Throws an Error for any answer but a good one, and where events are missing. */
  async streams(order: StreamOrder): Promise<StreamOutcome> {
    const { port, connections, each, spreadMs, pauseMs, events, body } = order;
    const numbers = [port, connections, each, spreadMs, pauseMs, events, SESSIONS].map(String);
    const outcome = (
      this.#streams ? await run("streams", this.#streams, [...numbers, body]) : await this.#askNode(order)
    ) as StreamOutcome;
    const wanted = connections * each * events;
    if (outcome.events !== wanted) throw new Error(`${outcome.events} events arrived, ${wanted} were sent`);
    return outcome;
  }

  async stop(): Promise<void> {
    await this.#node?.stop();
  }

  #askNode(order: RequestOrder | StreamOrder): Promise<unknown> {
    this.#node ??= new Process("the load generator", process.execPath, nodeArguments("load.ts"), true);
    return this.#node.ask(order);
  }
}

async function run(name: string, command: string, args: readonly string[]): Promise<unknown> {
  return JSON.parse(await new Process(name, command, args).lastLine());
}
