// Request -> session key: which header names the session.

/** Headers by lower-case name, as Node gives them. */
export type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

interface Source {
  /** The header that must be present for the source to apply. */
  readonly trigger: string;
  /** A header that, where present too, names the session more exactly. */
  readonly narrower?: string;
}

/** In order; the first whose trigger has a value wins. */
const SOURCES: readonly Source[] = [
  { trigger: "x-dynamo-session-id" },
  // Claude Code: a sub-agent is a session of its own.
  { trigger: "x-claude-code-session-id", narrower: "x-claude-code-agent-id" },
  // Codex
  { trigger: "thread-id" },
  { trigger: "x-deepseek-harness-session-id" },
  // OpenCode
  { trigger: "x-session-id" },
];

/** The session key of a request, undefined where it names none. White space around a value does not count. */
export function sessionKey(headers: Headers): string | undefined {
  for (const { trigger, narrower } of SOURCES) {
    const key = value(headers, trigger);
    if (key === undefined) continue;
    return (narrower && value(headers, narrower)) ?? key;
  }
  return undefined;
}

function value(headers: Headers, name: string): string | undefined {
  const given = headers[name];
  const text = typeof given === "string" ? given : given?.[0];
  // Only what HTTP calls white space: any other byte belongs to the key.
  return text?.replace(/^[ \t]+|[ \t]+$/g, "") || undefined;
}
