// The thread of `loadConfigAside`: reads and checks configs one by one, and posts what can be posted of each.
import { parentPort } from "node:worker_threads";
import type { PolicyFile } from "../policy/catalog.js";
import { parseConfig } from "./config.js";
import { type ConfigOrder, memoized, type PolicyParts, type PostedConfig } from "./config-aside.js";
import type { InstanceConfig } from "./rules.js";

function load({ text, file, environment }: ConfigOrder): PostedConfig {
  const { config, ...remarks } = parseConfig(text, file, environment);
  if (!config) return remarks;
  const parts = memoized(partsOf);
  const posted = memoized((instance: InstanceConfig) => ({ ...instance, policy: parts(instance.policy) }));
  const { policy, fallback, instances } = config;
  const chosen = { policy: posted(policy), fallback: fallback && posted(fallback) };
  return { ...remarks, config: { ...config, ...chosen, instances: instances.map(posted) } };
}

function partsOf({ manifest, file, modulePath, admitted }: PolicyFile): PolicyParts {
  return { manifest, file, modulePath, admitted };
}

parentPort!.on("message", (order: ConfigOrder) => parentPort!.postMessage(load(order)));
