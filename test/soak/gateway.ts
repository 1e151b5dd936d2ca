// The parent's side of the gateway's process.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { get } from "node:http";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import type { RouterStatus } from "../../host/index.js";
import { text } from "../gateway/client.js";
import { type Answered, call } from "../gateway/operator.js";
import type { Measure, Order } from "./gateway-child.js";

/** What `GET /health` says. */
export interface Health extends RouterStatus {
  readonly data_plane: {
    readonly requests_in_flight: number;
    readonly requests_waiting: number;
    readonly body_bytes: number;
    readonly buffered_bytes: number;
    readonly retries: number;
    readonly retries_refused: number;
    readonly outcomes: Readonly<Record<string, number>>;
  };
}

interface Pending {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A gateway that listens. */
export class GatewayProcess {
  url = "";
  #admin = "";
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  #orders = 0;
  #ended: Error | undefined;

  /** `config` is that of `hawser serve`; its workers are asked how they are every `pollMs` milliseconds. */
  constructor(config: object, pollMs = 500) {
    const script = fileURLToPath(new URL("./gateway-child.ts", import.meta.url));
    const args = [JSON.stringify(config), String(pollMs)];
    this.#child = fork(script, args, { execArgv: ["--import", "tsx", "--expose-gc"] });
    onTestFinished(() => void this.#child.kill("SIGKILL"));
    this.#child.on("message", ({ id, result, error }: { id: number; result: unknown; error?: string }) => {
      const pending = this.#pending.get(id)!;
      this.#pending.delete(id);
      if (error === undefined) pending.resolve(result);
      else pending.reject(new Error(error));
    });
    this.#child.on("exit", (code, signal) => {
      this.#ended = new Error(`the gateway ended: ${signal ?? `exit code ${code}`}`);
      for (const { reject } of this.#pending.values()) reject(this.#ended);
    });
  }

  async listen(): Promise<void> {
    const { url, admin } = (await this.#ask({ does: "listen" })) as { url: string; admin: string };
    this.url = url;
    this.#admin = admin;
  }

  /** Calls the admin listener, over a connection of its own. */
  call(method: string, path: string, body?: object): Promise<Answered> {
    return call(this.#admin, method, path, body);
  }

  /** Garbage is collected before. */
  measure(): Promise<Measure> {
    return this.#ask({ does: "measure" }) as Promise<Measure>;
  }

  /** Rejects where a lease was leaked or released twice. Resolves to what was left to the process: errors, rejections, warnings. */
  check(): Promise<string[]> {
    return this.#ask({ does: "check" }) as Promise<string[]>;
  }

  async add(worker: string): Promise<void> {
    await this.#ask({ does: "add", worker });
  }

  async remove(worker: string): Promise<void> {
    await this.#ask({ does: "remove", worker });
  }

  async health(): Promise<Health> {
    // Over a connection of its own, which is gone when it is looked for.
    const [message] = await once(get(`${this.url}/health`, { agent: false }), "response");
    return JSON.parse(await text(message)) as Health;
  }

  /** Stops it and resolves to the exit code of its process, which must find its end itself: nothing holds it any more. */
  async close(): Promise<number | null> {
    await this.#ask({ does: "close" });
    const exit = once(this.#child, "exit");
    this.#child.disconnect();
    return (await exit)[0];
  }

  #ask(order: Order): Promise<unknown> {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = this.#orders++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      // Where it has just ended, `exit` says so.
      this.#child.send({ id, order }, () => {});
    });
  }
}
