// What befalls the workers of the soak: they are killed and come back at the same address, are removed and added again.
import { once } from "node:events";
import { platform } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { type Running, start } from "../e2e/fleet.js";
import type { Dice } from "../fixtures/dice.js";
import type { GatewayProcess } from "./gateway.js";
import { MODEL } from "./request.js";

/** An address whose ports no outgoing connection takes: one of a killed worker is free when it comes back. */
const HOST = platform() === "linux" ? "127.0.0.2" : "127.0.0.1";
/** Slow enough that some hundred streams are open and the processors mostly idle. */
const PACE = ["--tpot", "100", "--prefill-rate", "10000", "--max-num-seqs", "128", "--model", MODEL];
/** Between two blows. */
const LONGEST_PEACE_MS = 2_500;
/** From a blow until it is mended. */
const LONGEST_ABSENCE_MS = 2_500;
const MOST_AT_ONCE = 2;

/** A simulated worker, whichever process is that now. */
export class SimulatedWorker {
  readonly url: string;
  #running: Running;

  private constructor(running: Running) {
    this.#running = running;
    this.url = running.url;
  }

  static async start(): Promise<SimulatedWorker> {
    return new SimulatedWorker(await startAt("0"));
  }

  async kill(): Promise<void> {
    const { child } = this.#running;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  async comeBack(): Promise<void> {
    this.#running = await startAt(new URL(this.url).port);
  }
}

function startAt(port: string): Promise<Running> {
  return start(["worker", "--host", HOST, "--port", port, ...PACE]);
}

/** Makes it happen, to one or two workers at a time. */
export class Trouble {
  kills = 0;
  removals = 0;
  readonly #gateway: GatewayProcess;
  readonly #dice: Dice;
  /** By their ids; what stands for none cannot be killed. */
  readonly #workers: ReadonlyMap<string, SimulatedWorker | null>;
  readonly #inTrouble = new Map<string, Promise<void>>();
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();

  constructor(gateway: GatewayProcess, dice: Dice, workers: ReadonlyMap<string, SimulatedWorker | null>) {
    this.#gateway = gateway;
    this.#dice = dice;
    this.#workers = workers;
  }

  start(): void {
    this.#isRunning = true;
    this.#running = this.#run();
  }

  /** Resolves when all is mended; rejects where something could not be. */
  async stop(): Promise<void> {
    this.#isRunning = false;
    await this.#running;
    await Promise.all(this.#inTrouble.values());
  }

  async #run(): Promise<void> {
    while (this.#isRunning) {
      await sleep(this.#dice.upTo(LONGEST_PEACE_MS));
      const well = [...this.#workers.keys()].filter((id) => !this.#inTrouble.has(id));
      const id = well[this.#dice.upTo(well.length - 1)]!;
      if (this.#inTrouble.size >= MOST_AT_ONCE) await Promise.race(this.#inTrouble.values());
      const blow = this.#strike(id).then(() => void this.#inTrouble.delete(id));
      this.#inTrouble.set(id, blow);
      // It is looked at in `stop`, or at the next blow.
      blow.catch(() => {});
    }
  }

  async #strike(id: string): Promise<void> {
    const worker = this.#workers.get(id);
    // At once now and then: what goes on at the old one and what begins at the new one meet.
    const absence = this.#dice.upTo(3) === 0 ? 0 : this.#dice.upTo(LONGEST_ABSENCE_MS);
    if (worker && this.#dice.upTo(1) === 0) {
      this.kills++;
      await worker.kill();
      await sleep(absence);
      await worker.comeBack();
    } else {
      this.removals++;
      await this.#gateway.remove(id);
      await sleep(absence);
      await this.#gateway.add(id);
    }
  }
}
