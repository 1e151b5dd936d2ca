// The rules of `session.sources` and `session.tenant`: where a request's session and tenant are read from.
import {
  DEFAULT_SOURCES,
  PER_REQUEST_HEADERS,
  SESSION_HEADERS,
  SOURCE_NAMES,
  type SourceSpec,
  type TenantSpec,
} from "../session/sources.js";
import type { Path } from "../yaml/parse.js";
import { describe, pathText, quote, unknownWord } from "../yaml/words.js";
import { isMapping, list, type Raw, type Remarks } from "./remarks.js";
import { BARE_NAMES, DEFAULT, SOURCES_FORM } from "./schema.js";

const ALLOWED: readonly string[] = [...BARE_NAMES, "{ header: NAME }", "{ body: PATH }"];

const HEADER_FORM = /^[!#$%&'*+.^_`|~0-9a-z-]{1,256}$/;
/** The root and the brackets of JSONPath, which would be looked for as parts of names. */
const JSON_PATH = /^\$(?:$|[.[])|\[[^\]]*\]/;
const BODY_FORM = /^[^.]{1,64}(\.[^.]{1,64}){0,7}$/u;
const PER_REQUEST_PATHS: ReadonlySet<string> = new Set(["id", "request_id", "previous_response_id"]);
const CREDENTIALS: ReadonlySet<string> = new Set([
  ...["authorization", "proxy-authorization", "x-api-key", "cookie"],
]);
/** Credentials that tell clients apart, and so tenants. */
const TENANT_CREDENTIALS: ReadonlySet<string> = new Set(["authorization", "x-api-key"]);

/** Headers that are the same whichever session a request is of, and those of x-stainless-*. */
const DESCRIPTIVE_HEADERS: ReadonlySet<string> = new Set([
  ...["accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "pragma"],
  ...["content-encoding", "content-length", "content-type", "date", "expect", "host", "via"],
  ...["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"],
  ...["user-agent", "sec-fetch-mode", "anthropic-beta", "anthropic-version", "x-app"],
]);

type Kind = "header" | "body";
type Purpose = "session" | "tenant";
type Item = SourceSpec | typeof DEFAULT;

/** Applies the rules to one config. What it returns is to be used only where there are no mistakes. */
export class SourceRules {
  readonly #remarks: Remarks;
  /** What is read already, by which item, and where in the file that stands. */
  readonly #seen = new Map<string, { readonly item: Item; readonly place: string }>();

  constructor(remarks: Remarks) {
    this.#remarks = remarks;
  }

  /** `session.sources`, in its order, each once, with `default` spelled out and headers in lower case. */
  sources(value: unknown): readonly SourceSpec[] {
    if (value === undefined) return DEFAULT_SOURCES;
    this.#refuseSingle(value);
    const items = list(value);
    return items.flatMap((item, index) => {
      const path = ["session", "sources", index];
      if (item === "prefix" && index < items.length - 1) this.#warnOfPrefix(path);
      if (item === DEFAULT) return this.#default(path);
      const spec = typeof item === "string" ? this.#named(path, item) : this.#field(path, item);
      if (spec !== undefined) this.#refuseRepeat(path, spec, "first");
      return spec ?? [];
    });
  }

  /** `session.tenant`, undefined where there is none. */
  tenant(value: unknown): TenantSpec | undefined {
    if (!isMapping(value)) return undefined;
    const path = ["session", "tenant"];
    const kind = this.#kind(path, value);
    const name = kind && this.#name([...path, kind], value[kind], kind, "tenant");
    if (name === undefined) return undefined;
    return kind === "header" ? { header: name } : { body: name };
  }

  #mistake(path: Path, message: string): void {
    this.#remarks.mistake(path, "value", `${pathText(path)} ${message}`);
  }

  /** One source that is no list, which the shape lets through to be told here. */
  #refuseSingle(value: unknown): void {
    if (typeof value !== "string" && !isMapping(value)) return;
    const isWord = typeof value === "string" && /^[\w, -]{1,80}$/.test(value);
    const hint = isWord ? ` (write [${value}])` : isMapping(value) ? " (put it in [ ])" : "";
    this.#mistake(["session", "sources"], `must be ${SOURCES_FORM}, found ${describe(value)}${hint}`);
  }

  #warnOfPrefix(path: Path): void {
    const message = `${pathText(path)} is "prefix", which stands before other sources: they count only for requests without a prompt; put it last`;
    this.#remarks.warning(path, "value", message);
  }

  #named(path: Path, name: string): SourceSpec | undefined {
    const known = SOURCE_NAMES.find((candidate) => candidate === name);
    if (known !== undefined) return known;
    this.#mistake(path, unknownWord(`is the unknown source ${quote(name)}`, name, ALLOWED));
    return undefined;
  }

  #field(path: Path, item: unknown): SourceSpec | undefined {
    if (!isMapping(item)) return undefined;
    const bare = Object.keys(item).find((key) => BARE_NAMES.includes(key));
    if (bare !== undefined) {
      const message = `${pathText(path)} must not have the key ${quote(bare)}: this source is a bare name, without { }`;
      this.#remarks.mistake([...path, bare], "key", message);
      return undefined;
    }
    const kind = this.#kind(path, item);
    if (kind === undefined) return undefined;
    const name = this.#name([...path, kind], item[kind], kind, "session");
    const parent = this.#name([...path, "parent"], item.parent, kind, "session");
    if (name === undefined) return undefined;
    if (parent === name) {
      const found = quote(String(item.parent));
      this.#mistake([...path, "parent"], `must be another ${kind} than that of the session, found ${found}`);
    }
    return kind === "header" ? { header: name, parent } : { body: name, parent };
  }

  /** Which of its two forms a mapping has. */
  #kind(path: Path, { header, body, parent, ...unknown }: Raw): Kind | undefined {
    if (header !== undefined && body !== undefined) {
      this.#mistake(path, 'must have exactly one of the keys "header" and "body", found both');
      return undefined;
    }
    if (header !== undefined) return "header";
    if (body !== undefined) return "body";
    // A key that nobody knows is told as such, and may well be meant for one of these.
    if (Object.keys(unknown).length === 0) this.#mistake(path, 'needs the key "header" or "body"');
    return undefined;
  }

  /** A header in lower case, or a path into the body; undefined where it is none that may be used. */
  #name(path: Path, value: unknown, kind: Kind, purpose: Purpose): string | undefined {
    if (typeof value !== "string") return undefined;
    const breach = kind === "header" ? headerBreach(value, purpose) : bodyBreach(value, purpose);
    if (breach !== undefined) this.#mistake(path, breach);
    else return kind === "header" ? value.toLowerCase() : value;
    return undefined;
  }

  /** What of `default` stands before it, as an item of its own, keeps that place. */
  #default(path: Path): readonly SourceSpec[] {
    this.#refuseRepeat(path, DEFAULT, "first");
    const rest = DEFAULT_SOURCES.filter((spec) => !this.#seen.has(identityOf(spec)));
    for (const spec of rest) this.#refuseRepeat(path, spec, 'part of "default"');
    return rest;
  }

  /** The second of two same sources would never be asked. `how` says in which way this one stands here. */
  #refuseRepeat(path: Path, item: Item, how: string): void {
    const identity = identityOf(item);
    const earlier = this.#seen.get(identity);
    if (earlier !== undefined)
      this.#mistake(path, `repeats ${wordsFor(item, earlier.item)}, ${earlier.place}`);
    else this.#seen.set(identity, { item, place: `${how} at line ${this.#remarks.lineOf(path)}` });
  }
}

/** What a source reads, whatever its parent. */
function identityOf(item: Item): string {
  const header = headerOf(item);
  if (header !== undefined) return `header ${header}`;
  return typeof item === "object" && "body" in item ? `body ${item.body}` : String(item);
}

/** The header that an item reads; a client's others count only beside it. */
function headerOf(item: Item): string | undefined {
  if (typeof item === "string") return SESSION_HEADERS.get(item);
  return "header" in item ? item.header : undefined;
}

/** What an item reads, which an earlier one reads, too: one of them may be the client whose header the other is. */
function wordsFor(item: Item, earlier: Item): string {
  if (typeof item === "string" && typeof earlier === "string") return quote(item);
  if (typeof item === "object" && "body" in item) return `the body's ${quote(item.body)}`;
  const client = [item, earlier].find((one) => typeof one === "string");
  const header = `the header ${quote(String(headerOf(item)))}`;
  return client === undefined ? header : `${header} of ${quote(client)}`;
}

/** Why a header may not be used, to follow its place. */
function headerBreach(text: string, purpose: Purpose): string | undefined {
  const name = text.toLowerCase();
  if (!HEADER_FORM.test(name)) return `must be the name of an HTTP header, found ${quote(text)}`;
  if (name.startsWith("x-hawser-")) return `must not be ${quote(text)}: x-hawser-* is the gateway's own`;
  if (PER_REQUEST_HEADERS.has(name)) return perRequest(text, purpose);
  if (DESCRIPTIVE_HEADERS.has(name) || name.startsWith("x-stainless-"))
    return `must not be ${quote(text)}, which describes the client or its message, not a ${purpose}`;
  if (!CREDENTIALS.has(name) || (purpose === "tenant" && TENANT_CREDENTIALS.has(name))) return undefined;
  return `must not be ${quote(text)}: a secret is no ${purpose}`;
}

/** Why a path into the body may not be used, to follow its place. */
function bodyBreach(text: string, purpose: Purpose): string | undefined {
  if (PER_REQUEST_PATHS.has(text)) return perRequest(text, purpose);
  if (JSON_PATH.test(text))
    return `must be names joined by dots, through objects only, without the $ and [ ] of JSONPath, found ${quote(text)}`;
  if (BODY_FORM.test(text)) return undefined;
  return `must be 1 to 8 names joined by dots, each of 1 to 64 characters, found ${quote(text)}`;
}

function perRequest(text: string, purpose: Purpose): string {
  return `must not be ${quote(text)}, which names one request, not a ${purpose}`;
}
