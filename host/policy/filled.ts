// What this host keeps up to date in a policy's frame.
import type { ColumnName, FieldName } from "../abi/frame.js";

/**
 * The fields and columns that are filled with data. A policy that reads any other is refused by name, in
 * place of being fed zeros.
 */
export const FILLED: ReadonlySet<FieldName | ColumnName> = new Set<FieldName | ColumnName>([
  ...(["eligible", "active_requests", "bound_sessions", "worker_hash", "weight", "slots"] as const),
  ...(["kv_used", "queue_depth", "kv_blocks"] as const),
  ...(["now", "seed", "session", "session_requests", "block_tokens"] as const),
]);
