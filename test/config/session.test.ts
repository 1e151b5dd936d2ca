import { describe, expect, test } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { RequestReader } from "../../host/session/request-reader.js";
import {
  DEFAULT_SOURCES,
  PER_REQUEST_HEADERS,
  SESSION_HEADERS,
  SOURCE_NAMES,
  type SourceName,
} from "../../host/session/sources.js";
import { formatMistake } from "../../host/yaml/mistake.js";

const W = "workers: [{ id: a, url: http://127.0.0.1:9001 }]";

/** A config with this `session`, which begins at line 2, column 10; and what was found in it. */
function read(session: string) {
  const { config, mistakes, warnings } = parseConfig(`${W}\nsession: ${session}\n`, "hawser.yaml", {});
  return {
    session: config?.session,
    mistakes: mistakes.map((mistake) => formatMistake(mistake).replace("hawser.yaml:", "")),
    warnings: warnings.map((warning) => formatMistake(warning).replace("hawser.yaml:", "")),
  };
}

const names = (count: number, length = 1) =>
  Array.from({ length: count }, () => "n".repeat(length)).join(".");

describe("a session", () => {
  test("is read in full", () => {
    const { session, warnings } = read(`
  mode: hard
  when_full: refuse-new
  binding: parent-group
  first_placement: parent
  sources:
    - { header: X-Chat-Id, parent: X-Parent-Chat-Id }
    - { body: callOptions.stickySessionId }
    - default
    - prefix
  tenant: { header: X-Tenant }
  model_suffixes: ["-thinking", ":nitro"]
  allow_pin: true
  allow_affinity_header: true`);
    expect(warnings).toEqual([]);
    expect(session).toMatchObject({
      ...{ mode: "hard", whenFull: "refuse-new", binding: "parent-group", firstPlacement: "parent" },
      sources: [
        { header: "x-chat-id", parent: "x-parent-chat-id" },
        { body: "callOptions.stickySessionId" },
        ...DEFAULT_SOURCES,
        "prefix",
      ],
      tenant: { header: "x-tenant" },
      modelSuffixes: ["-thinking", ":nitro"],
      ...{ allowPin: true, allowAffinityHeader: true },
    });
  });

  test.each<[string, string, unknown]>([
    ["one source", "{ sources: [codex] }", { sources: ["codex"] }],
    ["every source by name", `{ sources: [${SOURCE_NAMES.join(", ")}] }`, { sources: SOURCE_NAMES }],
    [
      "parents in the body",
      "{ sources: [{ body: a, parent: b.c }] }",
      { sources: [{ body: "a", parent: "b.c" }] },
    ],
    ["the longest path", `{ sources: [{ body: ${names(8, 64)} }] }`, { sources: [{ body: names(8, 64) }] }],
    [
      "a path that only ends like one request's",
      "{ sources: [{ body: chat.id }] }",
      { sources: [{ body: "chat.id" }] },
    ],
    [
      "long paths that differ at their ends",
      `{ sources: [{ body: ${names(2, 64)}.a }, { body: ${names(2, 64)}.b }] }`,
      { sources: [{ body: `${names(2, 64)}.a` }, { body: `${names(2, 64)}.b` }] },
    ],
    [
      "a header and a body's key of one name",
      "{ sources: [{ header: chat }, { body: chat }] }",
      { sources: [{ header: "chat" }, { body: "chat" }] },
    ],
    [
      "a client's key as tenant",
      "{ tenant: { header: Authorization } }",
      { tenant: { header: "authorization" } },
    ],
    ["another one", "{ tenant: { header: x-api-key } }", { tenant: { header: "x-api-key" } }],
    ["a tenant in the body", "{ tenant: { body: metadata.team } }", { tenant: { body: "metadata.team" } }],
    [
      "what is to stand before the rest of default",
      "{ sources: [{ body: user, parent: team }, codex, default] }",
      {
        sources: [
          { body: "user", parent: "team" },
          "codex",
          ...DEFAULT_SOURCES.filter((spec) => spec !== "codex" && JSON.stringify(spec) !== '{"body":"user"}'),
        ],
      },
    ],
    [
      "a client's header with another parent before the rest of default",
      "{ sources: [{ header: X-Session-Id, parent: x-up }, default] }",
      {
        sources: [
          { header: "x-session-id", parent: "x-up" },
          ...DEFAULT_SOURCES.filter((spec) => spec !== "opencode"),
        ],
      },
    ],
    [
      "the header that claude-code reads only beside the session's",
      "{ sources: [default, { header: x-claude-code-agent-id }] }",
      { sources: [...DEFAULT_SOURCES, { header: "x-claude-code-agent-id" }] },
    ],
    [
      "names with a dollar sign or one bracket",
      "{ sources: [{ body: $a.b$ }, { body: 'a]' }, { body: 'a.b[' }] }",
      { sources: [{ body: "$a.b$" }, { body: "a]" }, { body: "a.b[" }] },
    ],
    ["no endings", "{ model_suffixes: [] }", { modelSuffixes: [] }],
  ])("takes %s", (_, text, expected) => {
    const { session, mistakes } = read(text);
    expect(mistakes).toEqual([]);
    expect(session).toMatchObject(expected as object);
  });

  const source = "session.sources[0]";
  const path = "must be 1 to 8 names joined by dots, each of 1 to 64 characters, found";
  const ending = "must be an ending of 1 to 64 characters without control characters, found";
  test.each<[string, string, string]>([
    [
      "when_full",
      "{ when_full: evict }",
      '2:23: session.when_full must be one of evict-idle, refuse-new, found "evict"',
    ],
    [
      "binding",
      "{ binding: parent }",
      '2:21: session.binding must be one of session, parent-group, found "parent"',
    ],
    [
      "first_placement",
      "{ first_placement: polcy }",
      '2:29: session.first_placement must be one of policy, parent, found "polcy", did you mean "policy"?',
    ],
    ["allow_pin", "{ allow_pin: 1 }", "2:23: session.allow_pin must be true or false, found 1"],
    [
      "allow_affinity_header",
      "{ allow_affinity_header: yes }",
      '2:35: session.allow_affinity_header must be true or false, found "yes", which is text in YAML 1.2',
    ],
    [
      "no source",
      "{ sources: [] }",
      "2:21: session.sources must be a list of 1 to 64 sources, found an empty list",
    ],
    [
      "sources that are no list",
      "{ sources: codex }",
      '2:21: session.sources must be a list of 1 to 64 sources, found "codex" (write [codex])',
    ],
    [
      "sources that only look like a list",
      "{ sources: my chats? }",
      '2:21: session.sources must be a list of 1 to 64 sources, found "my chats?"',
    ],
    [
      "a source outside of a list",
      "{ sources: { header: x-a } }",
      "2:21: session.sources must be a list of 1 to 64 sources, found a mapping (put it in [ ])",
    ],
    [
      "sources that are a number",
      "{ sources: 7 }",
      "2:21: session.sources must be a list of 1 to 64 sources, found 7",
    ],
    [
      "a bare name with a value",
      "{ sources: [default, { prefix: true }] }",
      '2:33: session.sources[1] must not have the key "prefix": this source is a bare name, without { }',
    ],
    [
      "a client with its header",
      "{ sources: [{ header: x-a, dynamo: {} }] }",
      `2:37: ${source} must not have the key "dynamo": this source is a bare name, without { }`,
    ],
    [
      "a source that is a number",
      "{ sources: [7] }",
      `2:22: ${source} must be the name of a source, { header: NAME } or { body: PATH }, found 7`,
    ],
    [
      "a source that nobody knows",
      "{ sources: [claude_cod] }",
      `2:22: ${source} is the unknown source "claude_cod", did you mean "claude-code"? (allowed: ${SOURCE_NAMES.join(", ")}, default, { header: NAME }, { body: PATH })`,
    ],
    ["a source that reads nothing", "{ sources: [{}] }", `2:22: ${source} needs the key "header" or "body"`],
    ["a parent alone", "{ sources: [{ parent: p }] }", `2:22: ${source} needs the key "header" or "body"`],
    [
      "a source that reads both",
      "{ sources: [{ header: a, body: b }] }",
      `2:22: ${source} must have exactly one of the keys "header" and "body", found both`,
    ],
    [
      "a source misspelt",
      "{ sources: [{ haeder: a }] }",
      `2:24: unknown key "haeder" in ${source}, did you mean "header"? (allowed: header, body, parent)`,
    ],
    [
      "a header that is a number",
      "{ sources: [{ header: 7 }] }",
      `2:32: ${source}.header must be text, found 7 (in quotes it is text: "7")`,
    ],
    [
      "a header with a space",
      "{ sources: [{ header: a b }] }",
      `2:32: ${source}.header must be the name of an HTTP header, found "a b"`,
    ],
    [
      "a header without a name",
      "{ sources: [{ header: '' }] }",
      `2:32: ${source}.header must be the name of an HTTP header, found ""`,
    ],
    [
      "a parent's header that is none",
      "{ sources: [{ header: a, parent: 'b:' }] }",
      `2:43: ${source}.parent must be the name of an HTTP header, found "b:"`,
    ],
    [
      "a parent that is the session",
      "{ sources: [{ header: a, parent: A }] }",
      `2:43: ${source}.parent must be another header than that of the session, found "A"`,
    ],
    [
      "a credential as session",
      "{ sources: [{ header: Authorization }] }",
      `2:32: ${source}.header must not be "Authorization": a secret is no session`,
    ],
    [
      "a credential as parent",
      "{ sources: [{ header: a, parent: x-api-key }] }",
      `2:43: ${source}.parent must not be "x-api-key": a secret is no session`,
    ],
    [
      "the gateway's own header",
      "{ sources: [{ header: X-Hawser-Pin }] }",
      `2:32: ${source}.header must not be "X-Hawser-Pin": x-hawser-* is the gateway's own`,
    ],
    [
      "a header that is the same for all sessions, as parent",
      "{ sources: [{ header: a, parent: Host }] }",
      `2:43: ${source}.parent must not be "Host", which describes the client or its message, not a session`,
    ],
    ...["$", "$.a", "$[0]", "a[0]", "a.b[*].c", "a['b']"].map((text): [string, string, string] => [
      `JSONPath's ${text}`,
      `{ sources: [{ body: "${text}" }] }`,
      `2:30: ${source}.body must be names joined by dots, through objects only, without the $ and [ ] of JSONPath, found "${text}"`,
    ]),
    ["an empty path", "{ sources: [{ body: '' }] }", `2:30: ${source}.body ${path} ""`],
    ["a path with a hole", "{ sources: [{ body: a..b }] }", `2:30: ${source}.body ${path} "a..b"`],
    ["a path that ends in a dot", "{ sources: [{ body: a. }] }", `2:30: ${source}.body ${path} "a."`],
    ["nine names", `{ sources: [{ body: ${names(9)} }] }`, `2:30: ${source}.body ${path} "${names(9)}"`],
    [
      "a long name",
      `{ sources: [{ body: ${names(1, 65)} }] }`,
      `2:30: ${source}.body ${path} "${names(1, 65)}"`,
    ],
    [
      "a body's id",
      "{ sources: [{ body: id }] }",
      `2:30: ${source}.body must not be "id", which names one request, not a session`,
    ],
    [
      "a body's previous_response_id, which is a source of its own",
      "{ sources: [{ body: previous_response_id }] }",
      `2:30: ${source}.body must not be "previous_response_id", which names one request, not a session`,
    ],
    [
      "a body's key that default reads",
      "{ sources: [default, { body: prompt_cache_key }] }",
      `2:31: session.sources[1] repeats the body's "prompt_cache_key", part of "default" at line 2`,
    ],
    [
      "a body's request_id as parent",
      "{ sources: [{ body: a, parent: request_id }] }",
      `2:41: ${source}.parent must not be "request_id", which names one request, not a session`,
    ],
    [
      "a name twice",
      "{ sources: [codex, dynamo, codex] }",
      '2:37: session.sources[2] repeats "codex", first at line 2',
    ],
    [
      "a header twice",
      "{ sources: [{ header: a, parent: b }, { header: A }] }",
      '2:48: session.sources[1] repeats the header "a", first at line 2',
    ],
    [
      "a path twice",
      "{ sources: [{ body: a.b }, { body: a.b }] }",
      `2:37: session.sources[1] repeats the body's "a.b", first at line 2`,
    ],
    [
      "default twice",
      "{ sources: [default, default] }",
      '2:31: session.sources[1] repeats "default", first at line 2',
    ],
    [
      "one of default after it",
      "{ sources: [default, codex] }",
      '2:31: session.sources[1] repeats "codex", part of "default" at line 2',
    ],
    ...[...SESSION_HEADERS].map(([client, header]): [string, string, string] => [
      `the header that ${client} reads, after default`,
      `{ sources: [default, { header: ${header.toUpperCase()}, parent: x-up }] }`,
      `2:31: session.sources[1] repeats the header "${header}" of "${client}", part of "default" at line 2`,
    ]),
    [
      "a client's header after the client",
      "{ sources: [opencode, { header: X-Session-Id }] }",
      '2:32: session.sources[1] repeats the header "x-session-id" of "opencode", first at line 2',
    ],
    [
      "a client after its header",
      "{ sources: [{ header: thread-id }, codex] }",
      '2:45: session.sources[1] repeats the header "thread-id" of "codex", first at line 2',
    ],
    [
      "a tenant that is a name",
      "{ tenant: x-tenant }",
      '2:20: session.tenant must be { header: NAME } or { body: PATH }, found "x-tenant"',
    ],
    ["an empty tenant", "{ tenant: {} }", '2:20: session.tenant needs the key "header" or "body"'],
    [
      "a tenant with a parent",
      "{ tenant: { header: a, parent: b } }",
      '2:33: unknown key "parent" in session.tenant (allowed: header, body)',
    ],
    [
      "a tenant that is both",
      "{ tenant: { header: a, body: b } }",
      '2:20: session.tenant must have exactly one of the keys "header" and "body", found both',
    ],
    [
      "a credential that is no tenant",
      "{ tenant: { header: cookie } }",
      '2:30: session.tenant.header must not be "cookie": a secret is no tenant',
    ],
    [
      "the gateway's own header as tenant",
      "{ tenant: { header: x-hawser-tenant } }",
      `2:30: session.tenant.header must not be "x-hawser-tenant": x-hawser-* is the gateway's own`,
    ],
    [
      "a body's id as tenant",
      "{ tenant: { body: id } }",
      '2:28: session.tenant.body must not be "id", which names one request, not a tenant',
    ],
    [
      "one ending",
      "{ model_suffixes: -thinking }",
      '2:28: session.model_suffixes must be a list of at most 16 endings of model names, found "-thinking"',
    ],
    [
      "seventeen endings",
      `{ model_suffixes: [${Array.from({ length: 17 }, (_, i) => `-${i}x`).join(", ")}] }`,
      "2:28: session.model_suffixes must be a list of at most 16 endings of model names, found a list",
    ],
    ["an empty ending", "{ model_suffixes: [''] }", `2:29: session.model_suffixes[0] ${ending} ""`],
    [
      "a long ending",
      `{ model_suffixes: [${"n".repeat(65)}] }`,
      `2:29: session.model_suffixes[0] ${ending} "${"n".repeat(65)}"`,
    ],
    [
      "an ending twice",
      "{ model_suffixes: [-a, -a] }",
      '2:33: session.model_suffixes[1] repeats "-a", first at line 2',
    ],
  ])("refuses %s", (_, text, expected) => {
    const { session, mistakes } = read(text);
    expect(mistakes).toEqual([expected]);
    expect(session).toBeUndefined();
  });

  test.each([...PER_REQUEST_HEADERS])("refuses %s, which names one request", (header) => {
    expect(read(`{ sources: [{ header: ${header} }], tenant: { header: ${header} } }`).mistakes).toEqual([
      `2:32: session.sources[0].header must not be "${header}", which names one request, not a session`,
      expect.stringMatching(
        /: session\.tenant\.header must not be .*, which names one request, not a tenant$/,
      ),
    ]);
    expect(read(`{ sources: [{ header: a, parent: ${header.toUpperCase()} }] }`).mistakes).toEqual([
      `2:43: session.sources[0].parent must not be "${header.toUpperCase()}", which names one request, not a session`,
    ]);
  });

  test.each([
    ...["accept", "accept-encoding", "connection", "content-length", "Content-Type", "host", "te"],
    ...[
      "transfer-encoding",
      "User-Agent",
      "x-stainless-lang",
      "X-Stainless-Retry-Count",
      "anthropic-version",
    ],
  ])("refuses %s, which is no session's", (header) => {
    const cause = `must not be "${header}", which describes the client or its message, not a`;
    expect(read(`{ sources: [{ header: ${header} }], tenant: { header: ${header} } }`).mistakes).toEqual([
      `2:32: session.sources[0].header ${cause} session`,
      expect.stringMatching(new RegExp(`^2:\\d+: session\\.tenant\\.header ${cause} tenant$`)),
    ]);
  });

  test.each([...SESSION_HEADERS])("of %s is read from %s", (client, header) => {
    const reader = new RequestReader({ sources: [client as SourceName] });
    expect(reader.read({ [header]: "mine" }, Buffer.from("{}"))).toMatchObject({ key: "mine" });
  });

  test.each(["authorization", "proxy-authorization", "x-api-key", "cookie"])(
    "is not told by %s",
    (header) => {
      expect(read(`{ sources: [{ header: ${header} }] }`).mistakes).toEqual([
        `2:32: session.sources[0].header must not be "${header}": a secret is no session`,
      ]);
    },
  );

  test.each<[string, string, string[]]>([
    [
      "prefix before others",
      "{ sources: [prefix, default] }",
      [
        '2:22: session.sources[0] is "prefix", which stands before other sources: they count only for requests without a prompt; put it last',
      ],
    ],
    ["prefix at the end", "{ sources: [default, prefix] }", []],
    [
      "hard that full_determinism overrules",
      "{ mode: hard, full_determinism: true }",
      ["2:12: session.mode hard has no effect: session.full_determinism is true, and nothing is bound"],
    ],
    ["hard without it", "{ mode: hard, full_determinism: false, binding: session }", []],
    [
      "keys of bindings while there are none",
      "{ mode: off, ttl: 1s, max_bindings: 1, when_full: refuse-new, binding: session, first_placement: parent }",
      ["ttl", "max_bindings", "when_full", "binding", "first_placement"].map((key) => {
        return expect.stringMatching(
          `^2:\\d+: session\\.${key} has no effect: session\\.mode is off, and nothing is bound$`,
        );
      }),
    ],
    [
      "keys of bindings under full_determinism",
      "{ full_determinism: true, ttl: 1s, max_bindings: 1, when_full: evict-idle, first_placement: parent }",
      ["ttl", "max_bindings", "when_full", "first_placement"].map((key) => {
        return expect.stringMatching(
          `^2:\\d+: session\\.${key} has no effect: session\\.full_determinism is true, and nothing is bound$`,
        );
      }),
    ],
    [
      "what counts under full_determinism, too",
      "{ full_determinism: true, binding: parent-group, allow_pin: true, allow_affinity_header: true }",
      [],
    ],
    [
      "a kind of binding that full_determinism would follow, but not with mode off",
      "{ full_determinism: true, mode: off, binding: parent-group }",
      ["2:47: session.binding has no effect: session.mode is off, and nothing is bound"],
    ],
    [
      "a kind of binding while only x-hawser-affinity binds",
      "{ mode: off, allow_affinity_header: true, ttl: 1s, max_bindings: 1, when_full: refuse-new, first_placement: parent, binding: session }",
      ["2:126: session.binding has no effect: session.mode is off, and x-hawser-affinity names its own"],
    ],
    ["no key of bindings while there are none", "{ mode: off, model_suffixes: [-a] }", []],
    [
      "what is for parents where no source names one",
      "{ sources: [{ body: user }, previous_response_id, prefix], binding: parent-group, first_placement: parent }",
      [
        "2:69: session.binding parent-group has no effect: none of session.sources names a parent",
        "2:92: session.first_placement parent has no effect: none of session.sources names a parent",
      ],
    ],
    [
      "what is for parents once",
      "{ mode: off, first_placement: parent, sources: [{ header: a }] }",
      ["2:23: session.first_placement has no effect: session.mode is off, and nothing is bound"],
    ],
    [
      "no parents where none are asked for",
      "{ sources: [prefix], binding: session, first_placement: policy }",
      [],
    ],
    ...["default", "opencode", "claude-code", "{ header: a, parent: b }"].map(
      (item): [string, string, string[]] => [
        `parents that ${item} names`,
        `{ sources: [${item}, prefix], binding: parent-group, first_placement: parent }`,
        [],
      ],
    ),
  ])("warns of %s", (_, text, expected) => {
    const { mistakes, warnings } = read(text);
    expect(mistakes).toEqual([]);
    expect(warnings).toEqual(expected);
  });

  test("does not doubt parents that a mistaken source may name", () => {
    for (const sources of ["[codx]", "codex", "[]", "[{ header: a, parent: b c }]"]) {
      const { mistakes, warnings } = read(`{ sources: ${sources}, first_placement: parent }`);
      expect(mistakes).toHaveLength(1);
      expect(warnings).toEqual([]);
    }
  });

  test("tells all its mistakes at once", () => {
    const { mistakes } = read(`
  mode: hrad
  sources: [codx, { header: cookie }, { body: id }, codex, codex]
  tenant: { header: x-request-id }
  model_suffixes: ['']`);
    expect(mistakes.map((line) => line.replace(/^(\d+):\d+: (\S+) .*/, "$1 $2"))).toEqual([
      "3 session.mode",
      "4 session.sources[0]",
      "4 session.sources[1].header",
      "4 session.sources[2].body",
      "4 session.sources[4]",
      "5 session.tenant.header",
      "6 session.model_suffixes[0]",
    ]);
  });
});
