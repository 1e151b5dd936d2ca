// What befalls the workers of the soak: they are killed and come back at the same address, are removed and added again.
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../fixtures/dice.js";
import { Blows } from "./blows.js";
import type { GatewayProcess } from "./gateway.js";
import type { SimulatedWorker } from "./simulated-worker.js";

/** Between two blows. */
const LONGEST_PEACE_MS = 2_500;
/** From a blow until it is mended. */
const LONGEST_ABSENCE_MS = 2_500;
const MOST_AT_ONCE = 2;

/** Makes it happen, to one or two workers at a time. */
export class Trouble {
  kills = 0;
  removals = 0;
  readonly #gateway: GatewayProcess;
  readonly #dice: Dice;
  readonly #blows: Blows;

  /** `workers` by their ids; what stands for none cannot be killed. */
  constructor(gateway: GatewayProcess, dice: Dice, workers: ReadonlyMap<string, SimulatedWorker | null>) {
    this.#gateway = gateway;
    this.#dice = dice;
    this.#blows = new Blows(dice, {
      ...{ ids: [...workers.keys()], longestPeaceMs: LONGEST_PEACE_MS, mostAtOnce: MOST_AT_ONCE },
      draw: (well) => {
        const id = well[dice.upTo(well.length - 1)]!;
        return { id, strike: () => this.#strike(id, workers.get(id)!) };
      },
    });
  }

  start(): void {
    this.#blows.start();
  }

  /** Resolves when all is mended; rejects where something could not be. */
  stop(): Promise<void> {
    return this.#blows.stop();
  }

  async #strike(id: string, worker: SimulatedWorker | null): Promise<void> {
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
