// What a policy imports.

export * from "./candidates";
export {
  blockTokens,
  columnRows,
  expectedOutputTokens,
  hasParam,
  idleMs,
  init,
  now,
  param,
  prefix,
  promptBlocks,
  promptTokens,
  seed,
  session,
  sessionRequests,
  trigger,
} from "./frame";
export * from "./placement";
export * from "./reasons";
export * from "./search";
