import { describe, expect, it } from "vitest";
import { type RequestIdentity, RequestReader } from "../../host/session/request-reader.js";
import {
  DEFAULT_SOURCES,
  PER_REQUEST_HEADERS,
  SOURCE_NAMES,
  type SourceSpec,
  type TenantSpec,
} from "../../host/session/sources.js";
import type { Headers } from "../../host/session/values.js";

const DYNAMO = "x-dynamo-session-id";
const DYNAMO_PARENT = "x-dynamo-parent-session-id";
const CLAUDE = "x-claude-code-session-id";
const AGENT = "x-claude-code-agent-id";
const PARENT_AGENT = "x-claude-code-parent-agent-id";
const CODEX_PARENT = "x-codex-parent-thread-id";
const DEEPSEEK = "x-deepseek-harness-session-id";
const DEEPSEEK_PARENT = "x-deepseek-harness-parent-session-id";
const OPENCODE = "x-session-id";
const OPENCODE_PARENT = "x-parent-session-id";

interface Given {
  readonly headers?: Headers;
  readonly body?: unknown;
  readonly sources?: readonly SourceSpec[];
  readonly tenant?: TenantSpec;
}

/** Reads a request; `body` is an object or a JSON text. */
function read({ headers = {}, body = {}, sources = DEFAULT_SOURCES, tenant }: Given): RequestIdentity {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const identity = new RequestReader({ sources, tenant }).read(headers, Buffer.from(text));
  if (typeof identity === "string") throw new Error(`the body is ${identity}`);
  return identity;
}

/** A header's value as Node gives it: each byte as a character. */
function onWire(text: string): string {
  return Buffer.from(text).toString("latin1");
}

describe("session headers", () => {
  it.each<[string, Headers, string | undefined, string | undefined]>([
    ["1: Dynamo's before Claude Code's", { [DYNAMO]: "s1", [CLAUDE]: "c1" }, "s1", undefined],
    ["2: Dynamo's with itself as parent", { [DYNAMO]: "s1", [DYNAMO_PARENT]: "s1" }, "s1", undefined],
    ["3: a parent alone is no session", { [DYNAMO_PARENT]: "p" }, undefined, undefined],
    ["4: Claude Code's session", { [CLAUDE]: "c1" }, "c1", undefined],
    ["5: its sub-agent", { [CLAUDE]: "c1", [AGENT]: "a1" }, "a1", "c1"],
    ["6: its sub-agent's sub-agent", { [CLAUDE]: "c1", [AGENT]: "a2", [PARENT_AGENT]: "a1" }, "a2", "a1"],
    ["7: a parent agent on a root turn", { [CLAUDE]: "c1", [PARENT_AGENT]: "a1" }, "c1", undefined],
    ["8: an agent as its own parent", { [CLAUDE]: "c1", [AGENT]: "a1", [PARENT_AGENT]: "a1" }, "a1", "c1"],
    ["9: an agent without a session", { [AGENT]: "a1", "thread-id": "t" }, "t", undefined],
    ["10: Codex before OpenCode", { "thread-id": "t", [OPENCODE]: "o" }, "t", undefined],
    ["11: a blank value is missing", { [DYNAMO]: "  ", [OPENCODE]: "o" }, "o", undefined],
    ["12: Codex with itself as parent", { "thread-id": "t", [CODEX_PARENT]: "t" }, "t", undefined],
    ["Dynamo with its parent", { [DYNAMO]: "s", [DYNAMO_PARENT]: "p" }, "s", "p"],
    [
      "Dynamo without the parents of others",
      { [DYNAMO]: "s", [CLAUDE]: "c", [AGENT]: "a", [CODEX_PARENT]: "p", [OPENCODE_PARENT]: "q" },
      "s",
      undefined,
    ],
    ["an agent named as its session", { [CLAUDE]: "c", [AGENT]: "c", [PARENT_AGENT]: "p" }, "c", undefined],
    ["a blank agent", { [CLAUDE]: "c", [AGENT]: " ", [PARENT_AGENT]: "p" }, "c", undefined],
    ["a blank parent agent", { [CLAUDE]: "c", [AGENT]: "a", [PARENT_AGENT]: "\t" }, "a", "c"],
    ["Codex with its parent", { "thread-id": "t", [CODEX_PARENT]: "p" }, "t", "p"],
    ["DeepSeek with its parent", { [DEEPSEEK]: "d", [DEEPSEEK_PARENT]: "p" }, "d", "p"],
    [
      "DeepSeek before OpenCode",
      { [DEEPSEEK]: "d", [OPENCODE]: "o", [OPENCODE_PARENT]: "p" },
      "d",
      undefined,
    ],
    ["OpenCode with its parent", { [OPENCODE]: "o", [OPENCODE_PARENT]: " p " }, "o", "p"],
    ["the first of several values", { [OPENCODE]: ["o", "x"] }, "o", undefined],
    ["an empty list of values", { [OPENCODE]: [] }, undefined, undefined],
    ["none", {}, undefined, undefined],
  ])("%s", (_name, headers, key, parent) => {
    expect(read({ headers })).toMatchObject({ key, parent });
  });

  it("are named as the source", () => {
    const source = (headers: Headers): string | undefined => read({ headers }).source;
    expect(source({ [OPENCODE]: "o" })).toBe("header x-session-id");
    expect(source({ [CLAUDE]: "c" })).toBe(`header ${CLAUDE}`);
    expect(source({ [CLAUDE]: "c", [AGENT]: "a" })).toBe(`header ${AGENT}`);
    expect(source({})).toBeUndefined();
  });

  it("lose only what HTTP calls white space around a value", () => {
    const key = (text: string): string | undefined => read({ headers: { [OPENCODE]: text } }).key;
    expect(key(" \t o 1\t")).toBe("o 1");
    expect(key("\xa0o\v")).toBe("\xa0o\v");
    expect(key(" \t ")).toBeUndefined();
    expect(key("")).toBeUndefined();
  });

  it("in UTF-8 name the same session as the body does; other bytes stay as they are", () => {
    const key = (text: string): string | undefined => read({ headers: { [OPENCODE]: text } }).key;
    for (const text of ["模型-1", "é", "a\u00a0b", "\u{1f600}"]) {
      expect(key(onWire(text))).toBe(text);
      expect(read({ body: { user: text } }).key).toBe(text);
    }
    expect(key("\xe9")).toBe("\xe9");
    expect(key("a\xc3")).toBe("a\xc3");
    expect(key("\xed\xa0\x80")).toBe("\xed\xa0\x80");
    expect(key("模")).toBe("模");
  });

  it("are not cut, but a parent of more than 256 bytes is dropped", () => {
    const long = "k".repeat(10_000);
    expect(read({ headers: { [OPENCODE]: long } }).key).toBe(long);
    const parent = (text: string, headers: Headers): string | undefined =>
      read({ headers: { ...headers, [OPENCODE_PARENT]: text, [PARENT_AGENT]: text } }).parent;
    for (const headers of [{ [OPENCODE]: "o" }, { [CLAUDE]: "c", [AGENT]: "a" }]) {
      expect(parent("p".repeat(256), headers)).toBe("p".repeat(256));
      expect(parent("p".repeat(257), headers)).toBeUndefined();
      expect(parent(onWire("é".repeat(128)), headers)).toBe("é".repeat(128));
      expect(parent(onWire("é".repeat(129)), headers)).toBeUndefined();
    }
  });

  it("of one request are never a session (B27)", () => {
    const headers = Object.fromEntries([...PER_REQUEST_HEADERS].map((name) => [name, "r"]));
    const body = { id: "r", request_id: "r", rid: "r", metadata: { request_id: "r" } };
    expect(PER_REQUEST_HEADERS).toContain("x-request-id");
    expect(read({ headers, body })).toMatchObject({ key: undefined, source: undefined });
    expect(read({ headers, body, sources: SOURCE_NAMES }).key).toBeUndefined();
    for (const source of DEFAULT_SOURCES)
      if (typeof source !== "string" && "header" in source)
        expect(PER_REQUEST_HEADERS).not.toContain(source.header);
  });

  it.each([
    ["true", true],
    ["1", true],
    [" TRUE\t", true],
    ["false", false],
    ["0", false],
    ["true, true", false],
    ["", false],
    [undefined, false],
  ])("that end a session: %s", (text, isFinal) => {
    const headers = { [OPENCODE]: "o", "x-dynamo-session-final": text };
    expect(read({ headers })).toMatchObject({ key: "o", isFinal });
  });
});

describe("session members of the body", () => {
  it.each<[string, unknown, string | undefined, string | undefined]>([
    [
      "prompt_cache_key before the others",
      { user: "u", prompt_cache_key: "k" },
      "k",
      "body prompt_cache_key",
    ],
    ["a conversation's id as a string", { conversation: "c", user: "u" }, "c", "body conversation"],
    ["a conversation's id in an object", { conversation: { id: "c" } }, "c", "body conversation.id"],
    ["metadata.user_id before user", { metadata: { user_id: "m" }, user: "u" }, "m", "body metadata.user_id"],
    ["user", { user: "u" }, "u", "body user"],
    ["an integer", { user: 42 }, "42", "body user"],
    ["a negative integer", { user: -42 }, "-42", "body user"],
    ["white space around a value", { user: " \tu 1\t" }, "u 1", "body user"],
    ["line ends, which are no white space of HTTP", { user: "\nu" }, "\nu", "body user"],
    ["a blank value is missing", { prompt_cache_key: " ", user: "u" }, "u", "body user"],
    ["an empty value is missing", { prompt_cache_key: "", user: "u" }, "u", "body user"],
    ["null is missing", { prompt_cache_key: null, user: "u" }, "u", "body user"],
    ["a boolean is no key", { prompt_cache_key: true, user: "u" }, "u", "body user"],
    ["a fraction is no key", { prompt_cache_key: 1.5, user: "u" }, "u", "body user"],
    ["an object is no key", { prompt_cache_key: { id: "x" }, user: "u" }, "u", "body user"],
    ["an array is no key", { prompt_cache_key: ["x"], user: "u" }, "u", "body user"],
    ["a conversation of another shape", { conversation: ["c"] }, undefined, undefined],
    ["metadata that is a string", { metadata: "user_id" }, undefined, undefined],
    ["a lone surrogate is no key", { prompt_cache_key: "k\ud800", user: "u" }, "u", "body user"],
    ["a surrogate pair is one", { user: "\u{1f600}" }, "\u{1f600}", "body user"],
    ["the last of duplicates", '{"user":"a","user":"b"}', "b", "body user"],
    ["a last one that is no key", '{"user":"a","user":null}', undefined, undefined],
    ["a number in exponent form", '{"user":1e2}', undefined, undefined],
    ["escapes", '{"\\u0075ser":"\\u0061\\u00e9"}', "aé", "body user"],
    ["none", { model: "m" }, undefined, undefined],
  ])("%s", (_name, body, key, source) => {
    expect(read({ body })).toMatchObject({ key, source, parent: undefined });
  });

  it("of any length are not cut", () => {
    const long = "k".repeat(1_000_000);
    expect(read({ body: { user: long } }).key).toBe(long);
  });

  it("come after every session header", () => {
    const body = { prompt_cache_key: "k" };
    expect(read({ headers: { [OPENCODE]: "o" }, body }).key).toBe("o");
    // Claude Code and the others are their headers alone.
    expect(read({ body: { [CLAUDE]: "c", "thread-id": "t", ...body } }).key).toBe("k");
  });

  it("make prompt_cache_key a key without any header, and else the prefix (B11)", () => {
    const sources: readonly SourceSpec[] = [...DEFAULT_SOURCES, "prefix"];
    const messages = [{ role: "user", content: "hello" }];
    expect(read({ body: { messages, prompt_cache_key: "k" }, sources })).toMatchObject({
      key: "k",
      source: "body prompt_cache_key",
    });
    expect(read({ body: { messages }, sources })).toMatchObject({
      key: expect.stringMatching(/^prefix:[0-9a-f]{32}$/),
      source: "prefix",
    });
    expect(read({ body: { messages } }).key).toBeUndefined();
  });

  it("are members only, never text that looks like one (B28)", () => {
    const text = '"user": "alice", {"user":"alice"} \\"user\\":\\"alice\\"';
    const messages = [{ role: "user", content: text, user: "alice" }];
    for (const body of [
      { messages },
      { prompt: text },
      { input: [{ user: "alice" }] },
      { x: { user: "alice" } },
    ])
      expect(read({ body }).key).toBeUndefined();
  });

  it("may be nested, and a body without bytes is refused at once (B34)", () => {
    const sources = [{ body: "callOptions.stickySessionId" }];
    const body = { stickySessionId: "x", callOptions: { other: {}, stickySessionId: "k" } };
    expect(read({ body, sources })).toMatchObject({ key: "k", source: "body callOptions.stickySessionId" });
    expect(new RequestReader({ sources }).read({}, Buffer.alloc(0))).toBe("invalid");
  });

  it("may have names beyond ASCII", () => {
    const sources = [{ body: "会话.é" }];
    expect(read({ body: { 会话: { é: "k" } }, sources }).key).toBe("k");
    expect(read({ body: '{"\\u4f1a\\u8bdd":{"\\u00e9":"k"}}', sources }).key).toBe("k");
  });
});

describe("sources", () => {
  const request = { headers: { "x-rid": "h", [OPENCODE]: "o" }, body: { rid: "b", user: "u" } };

  it("are obeyed in the order in which they stand (B2)", () => {
    const key = (...sources: SourceSpec[]): string | undefined => read({ ...request, sources }).key;
    expect(key({ header: "x-rid" }, { body: "rid" })).toBe("h");
    expect(key({ body: "rid" }, { header: "x-rid" })).toBe("b");
    expect(key({ body: "user" }, "opencode", { body: "rid" })).toBe("u");
    expect(key("codex", { body: "none" }, "opencode")).toBe("o");
    expect(key()).toBeUndefined();
  });

  it("may name a header in any case", () => {
    expect(read({ ...request, sources: [{ header: "X-RID" }] })).toMatchObject({
      key: "h",
      source: "header x-rid",
    });
  });

  it("may have a parent in the same medium", () => {
    const header = { header: "x-rid", parent: "X-Parent" };
    const body = { body: "s.id", parent: "s.parent" };
    const headers = { "x-rid": "h", "x-parent": "p" };
    expect(read({ headers, sources: [header] }).parent).toBe("p");
    expect(read({ headers: { ...headers, "x-parent": "h" }, sources: [header] }).parent).toBeUndefined();
    expect(read({ headers: { "x-parent": "p" }, sources: [header] })).toMatchObject({
      key: undefined,
      parent: undefined,
    });
    const parent = (value: unknown): string | undefined =>
      read({ body: { s: { id: "b", parent: value } }, headers, sources: [body] }).parent;
    expect(parent("q")).toBe("q");
    expect(parent(7)).toBe("7");
    expect(parent("b")).toBeUndefined();
    expect(parent("q".repeat(257))).toBeUndefined();
    expect(parent(undefined)).toBeUndefined();
  });

  it("by a name that is none are refused", () => {
    for (const name of ["cursor", "toString"] as unknown as SourceSpec[])
      expect(() => new RequestReader({ sources: [name] })).toThrow(/one of dynamo, .*found "/);
  });
});

describe("previous_response_id", () => {
  const body = { previous_response_id: " r1 ", user: "u" };

  it("is an alias: the sources after it still count", () => {
    expect(read({ body })).toMatchObject({ previousResponse: "r1", key: "u", source: "body user" });
    expect(read({ body: { previous_response_id: "r1" } })).toMatchObject({
      previousResponse: "r1",
      key: undefined,
    });
  });

  it("is not looked at where an earlier source has the key", () => {
    const identity = read({ body: { ...body, conversation: "c" } });
    expect(identity).toMatchObject({ key: "c", previousResponse: undefined });
    expect(read({ body, sources: [{ body: "user" }] }).previousResponse).toBeUndefined();
  });

  it.each<[unknown, string | undefined]>([
    ["r".repeat(256), "r".repeat(256)],
    ["r".repeat(257), undefined],
    ["é".repeat(129), undefined],
    [7, undefined],
    [null, undefined],
    ["", undefined],
    ["r\udc00", undefined],
    [{ id: "r" }, undefined],
  ])("%j", (previous_response_id, previousResponse) => {
    expect(read({ body: { previous_response_id, user: "u" } })).toMatchObject({ previousResponse, key: "u" });
  });
});

describe("tenant", () => {
  it("comes from a header or from the body", () => {
    const tenant = (spec: TenantSpec | undefined, given: Given): string =>
      read({ ...given, ...(spec && { tenant: spec }) }).tenant;
    const given = { headers: { "x-tenant": " t1 " }, body: { org: { id: 12 } } };
    expect(tenant({ header: "X-Tenant" }, given)).toBe("t1");
    expect(tenant({ body: "org.id" }, given)).toBe("12");
    expect(tenant({ body: "org" }, given)).toBe("");
    expect(tenant({ header: "x-none" }, given)).toBe("");
    expect(tenant(undefined, given)).toBe("");
  });

  it("does not take part in the key", () => {
    const headers = { "x-tenant": "t", [OPENCODE]: "o" };
    expect(read({ headers, tenant: { header: "x-tenant" } })).toMatchObject({ key: "o", tenant: "t" });
  });
});

describe("model", () => {
  it.each<[unknown, string | undefined]>([
    [{ model: "sim" }, "sim"],
    [{ model: " sim" }, " sim"],
    [{ model: "" }, undefined],
    [{ model: 1 }, undefined],
    [{ model: null }, undefined],
    [{}, undefined],
    [{ x: { model: "sim" } }, undefined],
    ['{"model":"a","model":"b"}', "b"],
  ])("of %j", (body, model) => {
    expect(read({ body }).model).toBe(model);
  });

  it("is not looked for in what is no JSON object", () => {
    const reader = new RequestReader();
    const verdict = (text: string) => reader.read({ [OPENCODE]: "o" }, Buffer.from(text));
    for (const text of ["", "{", '{"model":"m"}x', "{'model':1}"]) expect(verdict(text)).toBe("invalid");
    for (const text of ["[]", '"model"', "1", "null"]) expect(verdict(text)).toBe("not_object");
  });
});
