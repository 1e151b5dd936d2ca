// The thread of `loadPolicyAside`: loads one policy, decides once with it, and posts what it is made of.
import { parentPort, workerData } from "node:worker_threads";
import { Candidates } from "./candidates.js";
import { Turn } from "./decider.js";
import { LivePolicy, PolicyStartError } from "./live.js";
import { loadPolicy, PolicyError } from "./load.js";
import type { LoadOrder, LoadResult } from "./load-aside.js";

const CAPACITY = 64;

function load({ typeOrFile, path }: LoadOrder): LoadResult {
  try {
    const policy = loadPolicy(typeOrFile, path);
    const candidates = new Candidates(CAPACITY);
    const live = new LivePolicy(policy, new Float64Array(policy.manifest.parameters.length), candidates);
    candidates.n = 1;
    candidates.setEligible(0, true);
    live.decide(new Turn(), -1);
    const { manifest, file, modulePath, admitted } = policy;
    return { manifest, file, modulePath, admitted };
  } catch (error) {
    if (error instanceof PolicyError || error instanceof PolicyStartError) return { refusal: error.message };
    throw error;
  }
}

parentPort!.postMessage(load(workerData as LoadOrder));
