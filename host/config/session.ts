// The rules of `session`: where a session is read from, and which keys have no effect because of others.
import type { SourceSpec, TenantSpec } from "../session/sources.js";
import type { Path } from "../yaml/parse.js";
import { list, type Raw, type Remarks } from "./remarks.js";
import { SourceRules } from "./sources.js";

/** Keys about bindings, of which there are none in some modes. */
const BINDING_KEYS = ["when_full", "binding", "first_placement"] as const;

/** Applies the rules of `session`; returns where a request's session and tenant are read from. */
export function checkSession(
  session: Raw,
  remarks: Remarks,
): { readonly sources: readonly SourceSpec[]; readonly tenant: TenantSpec | undefined } {
  const suffixes = new Map<string, Path>();
  for (const [index, suffix] of list(session.model_suffixes).entries()) {
    remarks.unique(["session", "model_suffixes", index], suffix, suffixes);
  }
  warnOfNoEffect(session, remarks);
  const rules = new SourceRules(remarks);
  return { sources: rules.sources(session.sources), tenant: rules.tenant(session.tenant) };
}

function warnOfNoEffect(session: Raw, remarks: Remarks): void {
  const isDeterministic = session.full_determinism === true;
  if (!isDeterministic && session.mode !== "off") return;
  const cause = isDeterministic ? "session.full_determinism is true" : "session.mode is off";
  const warn = (key: string, what: string) => {
    remarks.warning(["session", key], "key", `session.${what} has no effect: ${cause}, and nothing is bound`);
  };
  if (isDeterministic && session.mode === "hard") warn("mode", "mode hard");
  for (const key of BINDING_KEYS) if (session[key] !== undefined) warn(key, key);
}
