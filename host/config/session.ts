// The rules of `session`: where a session is read from, and which keys have no effect because of others.
import { SESSION_HEADERS, SOURCE_NAMES, type SourceSpec, type TenantSpec } from "../session/sources.js";
import type { Path } from "../yaml/parse.js";
import { isMapping, list, type Raw, type Remarks } from "./remarks.js";
import { SourceRules } from "./sources.js";

/** Keys about the table of bindings, which is empty where nothing is bound. */
const TABLE_KEYS = ["ttl", "max_bindings", "when_full", "first_placement"] as const;
/** Values that mean something only to a session with a parent. */
const OF_PARENTS = [
  ["binding", "parent-group"],
  ["first_placement", "parent"],
] as const;

/** Sources with a name that know of no parents. */
const PARENTLESS: readonly unknown[] = SOURCE_NAMES.filter((name) => !SESSION_HEADERS.has(name));

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

/** Of the keys that the file states; each is told once. */
function warnOfNoEffect(session: Raw, remarks: Remarks): void {
  const told = new Set<string>();
  const warn = (key: string, cause: string, value = "") => {
    if (session[key] === undefined || told.has(key)) return;
    told.add(key);
    remarks.warning(["session", key], "key", `session.${key}${value} has no effect: ${cause}`);
  };
  const isDeterministic = session.full_determinism === true;
  const isOff = session.mode === "off";
  const mayAsk = session.allow_affinity_header === true;
  const off = "session.mode is off, and nothing is bound";
  const unbound = isDeterministic ? "session.full_determinism is true, and nothing is bound" : off;
  if (isDeterministic && session.mode === "hard") warn("mode", unbound, " hard");
  if (isDeterministic || (isOff && !mayAsk)) for (const key of TABLE_KEYS) warn(key, unbound);
  // Under full determinism alone it counts: the children of one parent go to one worker.
  if (isOff) warn("binding", mayAsk ? "session.mode is off, and x-hawser-affinity names its own" : off);
  const items = list(session.sources);
  if (items.length === 0 || items.some(mayNameParent)) return;
  for (const [key, value] of OF_PARENTS) {
    if (session[key] === value) warn(key, "none of session.sources names a parent", ` ${value}`);
  }
}

/** Whether a source as it is written names a session's parent; what is none may be meant for one that does. */
function mayNameParent(item: unknown): boolean {
  if (isMapping(item)) return item.parent !== undefined;
  return !PARENTLESS.includes(item);
}
