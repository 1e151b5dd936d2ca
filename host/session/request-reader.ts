// Request -> model, session key, parent, tenant: what its headers and its body say of who sends it.

import { JsonPaths, type JsonScan } from "./json-scan.js";
import { PrefixReader } from "./prefix.js";
import {
  CLAUDE_SESSION,
  compileSource,
  compileTenant,
  DEFAULT_SOURCES,
  type Source,
  type SourceSpec,
  type TenantSpec,
} from "./sources.js";
import { bodyValue, type Headers, headerValue, shortId, trimmedJson } from "./values.js";

const CLAUDE_AGENT = "x-claude-code-agent-id";
const CLAUDE_PARENT_AGENT = "x-claude-code-parent-agent-id";
const FINAL = "x-dynamo-session-final";

/** What a request says of itself. */
export interface RequestIdentity {
  /** The top-level `model`, undefined where it is absent, empty or no string. */
  readonly model: string | undefined;
  /** The session's key, of any length, undefined where no source yields one. */
  readonly key: string | undefined;
  /** What yielded the key, for messages: `header x-session-id`, `body prompt_cache_key`, `prefix`. */
  readonly source: string | undefined;
  /** The id of the session that this one was started from, at most 256 bytes. */
  readonly parent: string | undefined;
  /** The answer that this request goes on from, at most 256 bytes; only where its source stands before the key's. */
  readonly previousResponse: string | undefined;
  /** Empty where there is none. */
  readonly tenant: string;
  /** Whether the client says that the session ends with this request. */
  readonly isFinal: boolean;
  /** Whether it asks for a stream of events. */
  readonly isStream: boolean;
  /** Whether a worker that ran it has kept something of it: to run it again would keep that twice. */
  readonly isStateful: boolean;
}

/** A session's name and its parent's, as one source gives them. */
interface Name {
  readonly key: string;
  readonly parent: string | undefined;
  readonly label: string;
}

/** Reads requests by one list of sources. */
export class RequestReader {
  readonly #paths = new JsonPaths();
  readonly #model = this.#paths.slot(["model"]);
  readonly #stream = this.#paths.slot(["stream"]);
  readonly #store = this.#paths.slot(["store"]);
  readonly #conversation = this.#paths.slot(["conversation"]);
  readonly #sources: readonly Source[];
  readonly #tenant: Source | undefined;
  readonly #prefix: PrefixReader | undefined;

  /** Throws a RangeError for the name of a source that is none. */
  constructor({
    sources = DEFAULT_SOURCES,
    tenant,
  }: { sources?: readonly SourceSpec[]; tenant?: TenantSpec | undefined } = {}) {
    this.#sources = sources.map((spec) => compileSource(spec, this.#paths));
    this.#tenant = tenant && compileTenant(tenant, this.#paths);
    if (sources.includes("prefix")) this.#prefix = new PrefixReader(this.#paths);
  }

  /** `invalid` where the body is not JSON, `not_object` where it is no JSON object. */
  read(headers: Headers, body: Buffer): RequestIdentity | "invalid" | "not_object" {
    const scan = this.#paths.scan(body);
    if (typeof scan === "string") return scan;
    let name: Name | undefined;
    let previousResponse: string | undefined;
    for (const source of this.#sources) {
      // An alias: it may be unknown, and then the sources after it count.
      if (source.kind === "previous_response_id")
        previousResponse = shortId(trimmedJson(scan.string(source.slot)));
      else name = this.#name(source, headers, scan);
      if (name) break;
    }
    return {
      model: scan.string(this.#model) || undefined,
      key: name?.key,
      source: name?.label,
      parent: name?.parent,
      previousResponse,
      tenant: (this.#tenant && value(this.#tenant, headers, scan)) ?? "",
      isFinal: /^(?:true|1)$/i.test(headerValue(headers, FINAL) ?? ""),
      isStream: scan.isTrue(this.#stream),
      isStateful: scan.isTrue(this.#store) || scan.has(this.#conversation),
    };
  }

  #name(source: Source, headers: Headers, scan: JsonScan): Name | undefined {
    if (source.kind === "claude-code") return claudeCodeName(headers);
    const key = source.kind === "prefix" ? this.#prefix?.key(scan) : value(source, headers, scan);
    if (key === undefined) return undefined;
    return { key, parent: parentOf(key, parentValue(source, headers, scan)), label: source.label };
  }
}

/** A sub-agent is a session of its own; its parent is the agent that started it, or else the session. */
function claudeCodeName(headers: Headers): Name | undefined {
  const session = headerValue(headers, CLAUDE_SESSION);
  if (session === undefined) return undefined;
  const agent = headerValue(headers, CLAUDE_AGENT);
  const label = `header ${agent === undefined ? CLAUDE_SESSION : CLAUDE_AGENT}`;
  const key = agent ?? session;
  if (key === session) return { key, parent: undefined, label };
  const parentAgent = headerValue(headers, CLAUDE_PARENT_AGENT);
  const parent = parentAgent === undefined || parentAgent === key ? session : parentAgent;
  return { key, parent: shortId(parent), label };
}

function value({ kind, header, slot }: Source, headers: Headers, scan: JsonScan): string | undefined {
  return kind === "header" ? headerValue(headers, header) : bodyValue(scan, slot);
}

function parentValue(source: Source, headers: Headers, scan: JsonScan): string | undefined {
  const { parentHeader, parentSlot } = source;
  if (parentHeader !== undefined) return headerValue(headers, parentHeader);
  return parentSlot === undefined ? undefined : bodyValue(scan, parentSlot);
}

/** `parent`, unless it is the session itself or too long to be one. */
function parentOf(key: string, parent: string | undefined): string | undefined {
  return parent === key ? undefined : shortId(parent);
}
