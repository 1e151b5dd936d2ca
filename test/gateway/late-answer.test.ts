// An answer that comes behind the gateway's own head: what its client is told.
import { describe, expect, it } from "vitest";
import { errorBody } from "../../host/gateway/errors.js";
import { LateAnswer } from "../../host/gateway/late-answer.js";

function told(status: number, body: string) {
  const answer = new LateAnswer("w", status);
  const bytes = Buffer.from(body);
  for (let at = 0; at < bytes.length; at += 7) answer.push(bytes.subarray(at, at + 7));
  return answer.error();
}

describe("an error behind a keep-alive", () => {
  it.each([
    ["in OpenAI's shape", 400, '{"error":{"message":"too long, ü"}}', 400, "too long, ü"],
    ["without the level of `error`", 422, '{"object":"error","message":"no such tool"}', 422, "no such tool"],
    ["that is no JSON", 503, "<html>", 503, 'worker "w" answered with status 503'],
    ["that tells nothing", 500, "null", 500, 'worker "w" answered with status 500'],
    ["whose message is no text", 500, '{"error":{"message":1}}', 500, 'worker "w" answered with status 500'],
    ["without end", 500, `{"message":"${"x".repeat(70_000)}"}`, 500, 'worker "w" answered with status 500'],
    [
      "that is an answer, but no stream",
      200,
      '{"id":"x"}',
      502,
      'worker "w" answered with no stream of events',
    ],
  ])("%s", (_name, status, body, sent, message) => {
    expect(told(status, body)).toEqual({ status: sent, code: "worker_error", message });
  });

  it.each([1, 1_000])(
    "holds no more than is looked at, in pieces of %i bytes, and wants no more of it",
    (size) => {
      const answer = new LateAnswer("w", 500);
      const read = Buffer.alloc(131_072, "x");
      let taken = 0;
      while (answer.push(read.subarray(5, 5 + size))) {
        taken += size;
        expect(answer.size).toBe(taken);
      }
      expect(taken).toBe(Math.floor(65_536 / size) * size);
      expect([answer.push(Buffer.from("y")), answer.size]).toEqual([false, 0]);
      expect(answer.error().message).toBe('worker "w" answered with status 500');
    },
  );

  it("has a message of at most a thousand characters", () => {
    expect(told(500, `{"message":"${"x".repeat(5_000)}"}`).message).toBe("x".repeat(1_000));
  });

  it.each([
    [400, "invalid_request_error"],
    [401, "authentication_error"],
    [403, "permission_error"],
    [404, "not_found_error"],
    [413, "request_too_large"],
    [429, "rate_limit_error"],
    [502, "api_error"],
  ])("with status %i has Anthropic's type %s", (status, type) => {
    expect(JSON.parse(errorBody("anthropic", told(status, "{}"))).error.type).toBe(type);
  });
});
