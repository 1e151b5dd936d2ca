// The memory of this process, as tests compare it.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Has the garbage collected. What another thread clears away may take a moment longer. */
export function collect(): void {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
}

/** Bytes in use on the heap and in buffers, garbage not counted. */
export function memory(): number {
  collect();
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return arrayBuffers + heapUsed;
}
