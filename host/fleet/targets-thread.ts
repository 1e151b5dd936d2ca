// The thread of `readTargetsAside`: reads one text and posts what it comes to.
import { parentPort, workerData } from "node:worker_threads";
import { readTargets } from "./targets.js";
import type { TargetsOrder } from "./targets-aside.js";

const { text, file } = workerData as TargetsOrder;
parentPort!.postMessage(readTargets(text, file));
