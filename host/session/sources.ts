// Where a session's key may come from, as it is configured and as it is read.

import type { JsonPaths } from "./json-scan.js";

/** A source that has rules of its own. */
export type SourceName =
  | "dynamo"
  | "claude-code"
  | "codex"
  | "deepseek"
  | "opencode"
  | "previous_response_id"
  | "prefix";

/** A source: one with a name, a header, or a member of the body by its dotted path; a parent is of the same medium. */
export type SourceSpec =
  | SourceName
  | { readonly header: string; readonly parent?: string | undefined }
  | { readonly body: string; readonly parent?: string | undefined };

/** Where the tenant's name is: a header, or a member of the body by its dotted path. */
export type TenantSpec = { readonly header: string } | { readonly body: string };

/** Claude Code's sessions; of what else it sends the reader knows the rules. */
export const CLAUDE_SESSION = "x-claude-code-session-id";

/** The clients that name the session in one header and its parent in another. */
const CLIENTS = {
  dynamo: { header: "x-dynamo-session-id", parent: "x-dynamo-parent-session-id" },
  codex: { header: "thread-id", parent: "x-codex-parent-thread-id" },
  deepseek: { header: "x-deepseek-harness-session-id", parent: "x-deepseek-harness-parent-session-id" },
  opencode: { header: "x-session-id", parent: "x-parent-session-id" },
} as const;

/** The header in which each client that has a name here names its session; each names a parent, too. */
export const SESSION_HEADERS: ReadonlyMap<string, string> = new Map([
  ...Object.entries(CLIENTS).map(([client, { header }]) => [client, header] as const),
  ["claude-code", CLAUDE_SESSION],
]);

export const SOURCE_NAMES: readonly SourceName[] = [
  "dynamo",
  "claude-code",
  "codex",
  "deepseek",
  "opencode",
  "previous_response_id",
  "prefix",
];

/** In order; the first that yields a key wins. A key from the prefix is opt-in: it joins unrelated sessions that begin alike. */
export const DEFAULT_SOURCES: readonly SourceSpec[] = [
  "dynamo",
  "claude-code",
  "codex",
  "deepseek",
  "opencode",
  { body: "prompt_cache_key" },
  { body: "conversation" },
  { body: "conversation.id" },
  "previous_response_id",
  { body: "metadata.user_id" },
  { body: "user" },
];

/** Headers that name one request: as a source, they would make a session of every request. */
export const PER_REQUEST_HEADERS: ReadonlySet<string> = new Set([
  "x-request-id",
  "request-id",
  "x-client-request-id",
  "traceparent",
  "x-trace-id",
  "x-b3-traceid",
  "x-b3-spanid",
  "b3",
  "x-amzn-trace-id",
  "x-amzn-requestid",
  "x-cloud-trace-context",
  "x-datadog-trace-id",
  "uber-trace-id",
  "idempotency-key",
  "x-idempotency-key",
]);

/** A source as it is read. All have this one shape. */
export interface Source {
  readonly kind: "header" | "body" | "claude-code" | "previous_response_id" | "prefix";
  /** Of a header source. */
  readonly header: string;
  readonly parentHeader: string | undefined;
  /** Of a source in the body: under which number a scan has the value. */
  readonly slot: number;
  readonly parentSlot: number | undefined;
  /** For messages. */
  readonly label: string;
}

/** Compiles a source; adds to `paths` what it reads of a body. Throws a RangeError for a name that is none. */
export function compileSource(spec: SourceSpec, paths: JsonPaths): Source {
  if (typeof spec !== "string")
    return "header" in spec ? headerSource(spec) : bodySource(spec.body, spec.parent, paths);
  switch (spec) {
    case "claude-code":
    case "prefix":
      return { ...NOTHING, kind: spec, label: spec };
    case "previous_response_id":
      return { ...bodySource(spec, undefined, paths), kind: spec };
    default:
      if (!Object.hasOwn(CLIENTS, spec))
        throw new RangeError(
          `a session source is one of ${SOURCE_NAMES.join(", ")}, found ${JSON.stringify(spec)}`,
        );
      return headerSource(CLIENTS[spec]);
  }
}

/** Compiles where the tenant is. */
export function compileTenant(spec: TenantSpec, paths: JsonPaths): Source {
  return "header" in spec ? headerSource(spec) : bodySource(spec.body, undefined, paths);
}

const NOTHING = { header: "", parentHeader: undefined, slot: 0, parentSlot: undefined };

function headerSource({ header, parent }: { header: string; parent?: string | undefined }): Source {
  const name = header.toLowerCase();
  return {
    ...NOTHING,
    kind: "header",
    header: name,
    parentHeader: parent?.toLowerCase(),
    label: `header ${name}`,
  };
}

function bodySource(path: string, parent: string | undefined, paths: JsonPaths): Source {
  const slot = paths.slot(path.split("."));
  const parentSlot = parent === undefined ? undefined : paths.slot(parent.split("."));
  return { ...NOTHING, kind: "body", slot, parentSlot, label: `body ${path}` };
}
