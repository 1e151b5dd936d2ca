// What a gateway is made of, and what of that can change while it serves.

import type { Logger } from "pino";
import type { DecisionLogOptions } from "../decisions/options.js";
import type { Clock } from "../fleet/clock.js";
import type { NamedWorker } from "../fleet/fleet.js";
import type { DiscoveryOptions, FleetOptions } from "../fleet/options.js";
import type { Router } from "../routing/router.js";
import type { RequestReader } from "../session/request-reader.js";
import type { ReadWorker } from "./admin-workers.js";
import type { ConfigControl } from "./config-control.js";
import type { AccessOptions, AdmissionOptions, DataPlaneOptions } from "./options.js";

/** What can change, see `Gateway.reconfigure`. */
export interface GatewaySettings {
  readonly dataPlane: DataPlaneOptions;
  /** Reads the session of a request; default one with the default sources. */
  readonly reader?: RequestReader;
  /** Whether a client may choose the worker by `x-hawser-pin`; default false. */
  readonly allowPin?: boolean;
  /** Whether a client may choose how it is bound by `x-hawser-affinity`; default false. */
  readonly allowAffinityHeader?: boolean;
  /** The keys that clients must show; default none, and anybody may use the gateway. */
  readonly access?: AccessOptions | undefined;
  /** What callers of the admin listener must show; default nothing, and then they must be on this machine. */
  readonly adminToken?: string | undefined;
  /** The workers that are named. */
  readonly workers: readonly NamedWorker[];
  /** Where more workers are found; default nowhere. */
  readonly discovery?: readonly DiscoveryOptions[];
  readonly fleet: FleetOptions;
  readonly admission: AdmissionOptions;
  /** Where decisions are logged; default nowhere. */
  readonly decisionLog?: DecisionLogOptions | undefined;
}

export interface GatewayOptions extends GatewaySettings {
  readonly router: Router;
  readonly log: Logger;
  /** Reads what an operator sends to add a worker; default nobody can. */
  readonly readWorker?: ReadWorker | undefined;
  /** Tells of the config, and reads it again; default nobody does. */
  readonly config?: ConfigControl | undefined;
  /** That of Hawser, for the metrics; default none. */
  readonly version?: string;
  /** Whether the metrics tell of the process as well, as one gateway of a process may; default false. */
  readonly withProcess?: boolean;
  /** By which deadlines are kept; default the process's. */
  readonly clock?: Clock;
}
