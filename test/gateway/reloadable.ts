// A gateway in this process that goes by the text of a config, and later by another one, as `hawser serve` does.
import { pino } from "pino";
import { expect, onTestFinished } from "vitest";
import { stringify } from "yaml";
import { readWorker, settingsOf } from "../../host/cli/serve.js";
import { type Config, parseConfig } from "../../host/config/config.js";
import type { RawConfig } from "../../host/config/schema.js";
import { createGateway } from "../../host/gateway/server.js";
import { LeaseAudit } from "../../host/index.js";
import { Router } from "../../host/routing/router.js";
import { type Crew, type Deed, workersOf } from "./crew.js";
import type { RunningGateway } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

/** Keys of a config; undefined for one that is to be left out. */
export type Keys = {
  readonly [K in keyof RawConfig]?:
    | (RawConfig[K] extends infer V
        ? V extends readonly unknown[] | string
          ? V
          : { readonly [M in keyof V]?: V[M] | undefined }
        : never)
    | undefined;
};

/** The secrets that configs of tests may name. */
const ENVIRONMENT = {
  FIRST_KEY: "first-secret",
  SECOND_KEY: "second-secret",
  ADMIN: "the-token-of-the-admin",
};

/** No worker is asked but at the start, and none begins slowly; each session stays where it is. */
const QUIET: Keys = {
  health: { path: "off", interval: "100h", timeout: "30s", slow_start: "off" },
  signals: { path: "off" },
  retries: { attempts: 1 },
  worker_selection: { aggregated: "chosen", instances: [{ name: "chosen", type: "sticky" }] },
};

export interface Reloadable extends RunningGateway {
  /** Time as the router, the fleet and the deadlines see it. */
  readonly clock: VirtualClock;
  /** Has these keys be others, mappings member by member. Resolves to what of the workers could not be had. */
  reconfigure(keys?: Keys): Promise<string[]>;
}

/** Starts one. A lease that is leaked, or released twice, fails the test. */
export async function reloadable(keys: Keys): Promise<Reloadable> {
  let raw: Keys = merged(QUIET, keys);
  const config = configOf(raw);
  const clock = new VirtualClock();
  const audit = new LeaseAudit();
  const { policy: instance, fallback, session } = config;
  const router = new Router({ instance, fallback, session, clock: () => clock.now(), seed: 1, audit });
  const lines: string[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const gateway = createGateway({ ...settingsOf(config), router, log, readWorker, clock });
  const url = await gateway.listen("127.0.0.1", 0);
  onTestFinished(async () => {
    await gateway.close();
    audit.check();
  });
  const admin = await gateway.listenAdmin("127.0.0.1", 0);
  return {
    ...{ url, admin, router, gateway, log: lines, audit, clock },
    reconfigure(changes = {}) {
      raw = merged(raw, changes);
      const next = configOf(raw);
      const { policy: instance, fallback, session } = next;
      return gateway.reconfigure(settingsOf(next), { instance, fallback, session });
    },
  };
}

/** A gateway over workers w0, w1 ..., each of which does its deed. */
export async function reloadableCrew(
  deeds: readonly Deed[],
  keys: Keys = {},
): Promise<{ crew: Crew; running: Reloadable; workers: NonNullable<RawConfig["workers"]> }> {
  const crew = await workersOf(deeds);
  const workers = crew.upstreams.map(({ url }, i) => ({ id: `w${i}`, url }));
  const running = await reloadable({ workers, ...keys });
  crew.running = running;
  return { crew, running, workers };
}

/** The config that a file of these keys comes to; every mistake in it fails the test. */
export function configOf(keys: Keys): Config {
  const { config, mistakes } = parseConfig(stringify(keys), "/nowhere/hawser.yaml", ENVIRONMENT);
  expect(mistakes).toEqual([]);
  return config!;
}

function merged(before: Keys, changes: Keys): Keys {
  const all = Object.entries(changes).map(([key, value]) => {
    const old = before[key as keyof Keys];
    return [key, isMapping(old) && isMapping(value) ? { ...old, ...value } : value] as const;
  });
  return { ...before, ...Object.fromEntries(all) };
}

function isMapping(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
