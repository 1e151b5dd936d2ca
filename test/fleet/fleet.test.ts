// Very many workers at once: requests get through while they are looked at.
import { setImmediate as turn } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { Fleet } from "../../host/fleet/fleet.js";
import type { Line } from "../../host/fleet/line.js";
import { fleet as options } from "../gateway/fixture.js";
import { VirtualClock } from "../gateway/virtual-clock.js";
import { fixture } from "../routing/fixture.js";

const MANY = 300;
/** Most workers that are asked in one turn of the loop. */
const AT_ONCE = 64;

/** A fleet, none of whose workers ever answers, and how many have been asked since that was last told. */
function silent() {
  const asked = new Set<string>();
  const lineTo = (url: string): Line => ({
    get: () => {
      asked.add(url);
      return new Promise(() => {});
    },
    show: () => {},
    close: async () => {},
    destroy: async () => {},
  });
  const clock = new VirtualClock();
  const ignore = () => {};
  const fleet = new Fleet({
    ...{ router: fixture({ workers: [] }).router, options: options().fleet, clock, reach: lineTo },
    listener: { onState: ignore, onRestart: ignore, onChange: ignore, onDeadline: ignore },
  });
  onTestFinished(() => fleet.stop());
  return {
    ...{ fleet, clock },
    /** How many of them were asked in this turn, and in each of those that follow. */
    async inTurns(): Promise<number[]> {
      const counts: number[] = [];
      for (let last = 0; asked.size > last; await turn()) {
        counts.push(asked.size - last);
        last = asked.size;
      }
      asked.clear();
      return counts;
    },
  };
}

const named = (i: number) => ({ id: `w${i}`, url: `http://10.0.0.${i}:8000`, models: ["m"] });
const TURNS = [64, 64, 64, 64, 44];

it("asks them some in each turn of the loop, at the start as well as where they are found", async () => {
  const atStart = silent();
  for (let i = 0; i < MANY; i++) atStart.fleet.add(named(i), "config");
  void atStart.fleet.start();
  expect(await atStart.inTurns()).toEqual(TURNS);

  const found = silent();
  void found.fleet.start();
  found.fleet.change(() => {
    for (let i = 0; i < MANY; i++) found.fleet.add(named(i), "file");
  });
  expect(await found.inTurns()).toEqual(TURNS);
});

it("asks one that comes alone at once, and none once it has stopped", async () => {
  const { fleet, inTurns } = silent();
  void fleet.start();
  fleet.add(named(0), "admin");
  expect(await inTurns()).toEqual([1]);
  fleet.change(() => {
    for (let i = 1; i < MANY; i++) fleet.add(named(i), "file");
  });
  await fleet.stop();
  expect(await inTurns()).toEqual([AT_ONCE]);
});
