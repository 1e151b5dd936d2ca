// A simulated worker of a soak, a process of its own, that can be killed and come back where it was.
import { once } from "node:events";
import { platform } from "node:os";
import { type Running, start } from "../e2e/fleet.js";
import { MODEL } from "./request.js";

/** Whether all of 127.0.0.0/8 are this machine's addresses. */
export const HAS_MANY_ADDRESSES = platform() === "linux";
/** An address whose ports no outgoing connection takes: one of a killed worker is free when it comes back. */
const HOST = HAS_MANY_ADDRESSES ? "127.0.0.2" : "127.0.0.1";
/** Slow enough that some hundred streams are open and the processors mostly idle. */
const PACE = ["--tpot", "100", "--prefill-rate", "10000", "--max-num-seqs", "128", "--model", MODEL];

/** A simulated worker, whichever process is that now. */
export class SimulatedWorker {
  readonly url: string;
  #running: Running;

  private constructor(running: Running) {
    this.#running = running;
    this.url = running.url;
  }

  /** Starts one at an address; port 0 is a free one. Rejects where the port is taken. */
  static async start(host = HOST, port = "0"): Promise<SimulatedWorker> {
    return new SimulatedWorker(await startAt(host, port));
  }

  async kill(): Promise<void> {
    const { child } = this.#running;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  async comeBack(): Promise<void> {
    const { hostname, port } = new URL(this.url);
    this.#running = await startAt(hostname, port);
  }
}

function startAt(host: string, port: string): Promise<Running> {
  return start(["worker", "--host", host, "--port", port, ...PACE]);
}
