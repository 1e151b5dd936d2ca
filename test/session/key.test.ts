import { describe, expect, it } from "vitest";
import { sessionKey } from "../../host/session/key.js";

const DYNAMO = "x-dynamo-session-id";
const CLAUDE = "x-claude-code-session-id";
const AGENT = "x-claude-code-agent-id";
const PARENT_AGENT = "x-claude-code-parent-agent-id";

describe("session key", () => {
  it.each([
    ["Dynamo's before Claude Code's", { [DYNAMO]: "s1", [CLAUDE]: "c1" }, "s1"],
    ["Dynamo's with itself as parent", { [DYNAMO]: "s1", "x-dynamo-parent-session-id": "s1" }, "s1"],
    ["a parent alone is no session", { "x-dynamo-parent-session-id": "p" }, undefined],
    ["Claude Code's session", { [CLAUDE]: "c1" }, "c1"],
    ["Claude Code's sub-agent", { [CLAUDE]: "c1", [AGENT]: "a1" }, "a1"],
    ["its sub-agent's sub-agent", { [CLAUDE]: "c1", [AGENT]: "a2", [PARENT_AGENT]: "a1" }, "a2"],
    ["a parent agent on a root turn", { [CLAUDE]: "c1", [PARENT_AGENT]: "a1" }, "c1"],
    ["an agent that is its own parent", { [CLAUDE]: "c1", [AGENT]: "a1", [PARENT_AGENT]: "a1" }, "a1"],
    ["an agent without a session", { [AGENT]: "a1", "thread-id": "t" }, "t"],
    ["Codex before OpenCode", { "thread-id": "t", "x-session-id": "o" }, "t"],
    ["a blank value is missing", { [DYNAMO]: "  ", "x-session-id": "o" }, "o"],
    ["Codex with itself as parent", { "thread-id": "t", "x-codex-parent-thread-id": "t" }, "t"],
    ["DeepSeek before OpenCode", { "x-deepseek-harness-session-id": "d", "x-session-id": "o" }, "d"],
    ["white space around a value", { "x-session-id": " \t o 1\t" }, "o 1"],
    ["bytes beyond ASCII are a key", { "x-session-id": "\xa0\xe9" }, "\xa0\xe9"],
    ["a request's own id never (B27)", { "x-request-id": "r" }, undefined],
    ["none", {}, undefined],
  ])("%s", (_name, headers: Record<string, string>, expected) => {
    expect(sessionKey(headers)).toBe(expected);
  });
});
